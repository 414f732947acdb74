//! A chain of states: a small environment with a known optimal policy.

use game::{Action, Error, Game, ObservationShape, Outcome, Player, Players, Scoring, Spec, Symmetry, mix};

pub(crate) const STAY: Action = Action(0);
pub(crate) const GO: Action = Action(1);

/// An environment with states 0 to `length − 1`. `STAY` keeps the state and pays `stay`. `GO` moves to the next state
/// and pays 0; in the last state it pays 1 and ends the episode. The seed selects the start state among the first
/// three.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) length: u16,
    pub(crate) stay: f32,
    spec: Spec,
    symmetries: [Symmetry; 1],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Position {
    pub(crate) state: u16,
    pub(crate) ply: u16,
}

impl Chain {
    /// Creates a chain with episodes truncated after `limit` steps.
    pub(crate) fn new(length: u16, stay: f32, limit: usize) -> Self {
        let observation = ObservationShape { planes: 2, height: 1, width: 1 };
        let board = Spec::board("chain".to_owned(), 2, observation, limit);
        let spec = Spec { players: Players::One, scoring: Scoring::Rewards, ..board };
        Self { length, stay, spec, symmetries: [Symmetry::identity(observation, 2)] }
    }

    fn limit(&self) -> u16 {
        u16::try_from(self.spec.max_plies).unwrap()
    }
}

impl Game for Chain {
    type Position = Position;

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn start(&self) -> Position {
        self.start_from(0)
    }

    fn start_from(&self, seed: u64) -> Position {
        Position { state: (mix(seed) % 3) as u16, ply: 0 }
    }

    fn to_move(&self, _: &Position) -> Player {
        Player::First
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        actions.clear();
        if self.outcome(position).is_none() {
            actions.extend([STAY, GO]);
        }
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        self.outcome(position).is_none() && action.index() < 2
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        position.ply += 1;
        if action == STAY {
            return self.stay;
        }
        position.state += 1;
        if position.state == self.length { 1.0 } else { 0.0 }
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        match position {
            Position { state, .. } if *state == self.length => Some(Outcome::Finished),
            Position { ply, .. } if *ply == self.limit() => Some(Outcome::Truncated),
            _ => None,
        }
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        planes[0] = f32::from(position.state) / f32::from(self.length);
        planes[1] = f32::from(position.ply) / f32::from(self.limit());
    }

    fn hash(&self, position: &Position) -> u64 {
        mix(u64::from(position.state) << 16 | u64::from(position.ply))
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Position, _: usize) -> Position {
        *position
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        if action == STAY { "stay".to_owned() } else { "go".to_owned() }
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        match text {
            "stay" => Ok(STAY),
            "go" => Ok(GO),
            _ => Err(Error::Notation { text: text.to_owned(), expected: "stay or go".to_owned() }),
        }
    }

    fn render(&self, position: &Position) -> String {
        format!("{position:?}")
    }
}
