//! A game for tests with arbitrary episodes: players, rewards, search values and the end are given.

use experience::{ActionProbability, Episode, Segment, Step, StepKind, Trajectory, TrajectoryId};
use game::{
    Action, Dynamics, Error, Game, ObservationRange, ObservationShape, Outcome, Player, Players, Scoring, Spec,
    Symmetry,
};
use rand::{Rng, RngExt};
use weights::WeightsVersion;

/// Number of actions. The last action is never legal.
pub(super) const ACTIONS: usize = 4;

/// A game that consists of a single episode.
#[derive(Debug, Clone)]
pub(super) struct Course {
    spec: Spec,
    symmetries: Vec<Symmetry>,
    /// The player to move at each step and in the last position.
    pub(super) players: Vec<Player>,
    pub(super) steps: Vec<Step>,
    pub(super) episode: Episode,
}

/// The seed of an episode, and the number of actions so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Position {
    seed: u64,
    plies: usize,
}

/// Returns a step with this reward, chosen by a full search with this value.
pub(super) fn searched(reward: f32, value: f32) -> Step {
    let policy = [0, 2].map(|action| ActionProbability { action: Action(action), probability: 0.5 });
    step(0, reward, StepKind::Full { policy: policy.to_vec(), value })
}

/// Returns a step with this reward, chosen at random without a search.
pub(super) fn opening(reward: f32) -> Step {
    step(1, reward, StepKind::Opening)
}

fn step(action: u16, reward: f32, kind: StepKind) -> Step {
    Step { action: Action(action), reward, kind, weights_version: WeightsVersion(1) }
}

impl Course {
    /// Creates a course with these steps by one player.
    pub(super) fn of_one_player(steps: Vec<Step>, episode: Episode) -> Self {
        let players = vec![Player::First; steps.len() + 1];
        Self::new(players, steps, episode)
    }

    /// Creates a course with these steps by two alternating players.
    pub(super) fn of_two_players(steps: Vec<Step>, episode: Episode) -> Self {
        let players = [Player::First, Player::Second].into_iter().cycle().take(steps.len() + 1).collect();
        Self::new(players, steps, episode)
    }

    /// Creates a random course with 1 to 12 steps.
    pub(super) fn random(rng: &mut impl Rng) -> Self {
        let length = rng.random_range(1..=12);
        let two = rng.random_bool(0.5);
        // Two players need not alternate.
        let mut player = || if two && rng.random_bool(0.5) { Player::Second } else { Player::First };
        let players = (0..=length).map(|_| player()).collect();
        let steps = (0..length).map(|_| random_step(rng)).collect();
        let episode = match rng.random_bool(0.5) {
            true => Episode { seed: rng.random(), outcome: Outcome::Finished, truncation_value: 0.0 },
            false => {
                let truncation_value = rng.random_range(-5.0..5.0);
                Episode { seed: rng.random(), outcome: Outcome::Truncated, truncation_value }
            }
        };
        Self::new(players, steps, episode)
    }

    fn new(players: Vec<Player>, steps: Vec<Step>, episode: Episode) -> Self {
        let shape = ObservationShape { planes: 2, height: 1, width: 1 };
        let is_one = players.iter().all(|&player| player == Player::First);
        let spec = Spec {
            name: "course".to_owned(),
            players: if is_one { Players::One } else { Players::Two },
            actions: ACTIONS,
            observation: shape,
            observation_range: ObservationRange::Finite,
            scoring: Scoring::Rewards,
            dynamics: Dynamics::Stochastic,
            recording: None,
            max_plies: steps.len(),
        };
        let exchange = Symmetry { planes: vec![1, 0], cells: vec![0], actions: vec![2, 1, 0, 3] };
        let symmetries = vec![Symmetry::identity(shape, ACTIONS), exchange];
        Self { spec, symmetries, players, steps, episode }
    }

    /// Returns the segment of `1 + steps` steps that starts at `ply`.
    pub(super) fn segment(&self, ply: usize, steps: usize) -> Segment {
        let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
        let trajectory = Trajectory::of_episode(id, "course", &self.steps, self.episode).unwrap();
        trajectory.segment(ply, steps).unwrap()
    }
}

fn random_step(rng: &mut impl Rng) -> Step {
    let value = rng.random_range(-5.0..5.0);
    let probability = rng.random_range(0.1..0.9);
    let entries = [(0, probability), (2, 1.0 - probability)];
    let policy = entries.map(|(action, probability)| ActionProbability { action: Action(action), probability });
    let kind = match rng.random_range(0..4) {
        0 => StepKind::Opening,
        1 => StepKind::Fast { value },
        _ => StepKind::Full { policy: policy.to_vec(), value },
    };
    step(rng.random_range(0..3), rng.random_range(-3.0..3.0), kind)
}

impl Game for Course {
    type Position = Position;

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn start(&self) -> Position {
        self.start_from(0)
    }

    fn start_from(&self, seed: u64) -> Position {
        Position { seed, plies: 0 }
    }

    fn to_move(&self, position: &Position) -> Player {
        self.players[position.plies]
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        actions.clear();
        actions.extend((0..3).map(Action).filter(|&action| self.is_legal(position, action)));
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        self.outcome(position).is_none() && action.index() + 1 < ACTIONS
    }

    fn play(&self, position: &mut Position, _: Action) -> f32 {
        position.plies += 1;
        self.steps[position.plies - 1].reward
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        (position.plies == self.steps.len()).then_some(self.episode.outcome)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        // The observation contains 16 bits of the seed, which are exact in float32.
        planes.copy_from_slice(&[(position.seed % 65_536) as f32 + 1000.0, position.plies as f32]);
    }

    fn hash(&self, position: &Position) -> u64 {
        game::mix(position.seed ^ position.plies as u64)
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Position, _: usize) -> Position {
        position.clone()
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        action.0.to_string()
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        text.parse().map(Action).map_err(|_| Error::Notation { text: text.to_owned(), expected: "a number".to_owned() })
    }

    fn render(&self, position: &Position) -> String {
        format!("{position:?}")
    }
}
