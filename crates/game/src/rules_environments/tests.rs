//! Compares batches of episodes with single episodes played by the rules.

use super::*;
use crate::{Dynamics, Error, ObservationRange, ObservationShape, Outcome, Players, Scoring, Symmetry, mix};

/// An environment with rewards that depend on the seed and the actions. It ends at a draw divisible by 16, and is
/// truncated after 20 actions.
#[derive(Debug, Clone)]
struct Lottery {
    spec: Spec,
    symmetries: Vec<Symmetry>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticket {
    state: u64,
    plies: usize,
}

const PLIES_MAX: usize = 20;
const ACTIONS: u16 = 3;

impl Lottery {
    fn new() -> Self {
        let observation = ObservationShape { planes: 2, height: 1, width: 1 };
        let spec = Spec {
            name: "lottery".into(),
            players: Players::One,
            actions: usize::from(ACTIONS),
            observation,
            observation_range: ObservationRange::Finite,
            scoring: Scoring::Rewards,
            dynamics: Dynamics::Stochastic,
            recording: None,
            max_plies: PLIES_MAX,
        };
        let symmetries = vec![Symmetry::identity(observation, usize::from(ACTIONS))];
        Self { spec, symmetries }
    }
}

impl Game for Lottery {
    type Position = Ticket;

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn start(&self) -> Ticket {
        self.start_from(0)
    }

    fn start_from(&self, seed: u64) -> Ticket {
        Ticket { state: mix(seed) | 1, plies: 0 }
    }

    fn to_move(&self, _: &Ticket) -> Player {
        Player::First
    }

    fn legal_actions(&self, position: &Ticket, actions: &mut Vec<Action>) {
        actions.clear();
        if self.outcome(position).is_none() {
            actions.extend((0..ACTIONS).map(Action));
        }
    }

    fn is_legal(&self, position: &Ticket, action: Action) -> bool {
        action.0 < ACTIONS && self.outcome(position).is_none()
    }

    fn play(&self, position: &mut Ticket, action: Action) -> f32 {
        position.state = mix(position.state ^ u64::from(action.0));
        position.plies += 1;
        f32::from(u8::try_from(position.state >> 56).unwrap())
    }

    fn outcome(&self, position: &Ticket) -> Option<Outcome> {
        match position {
            Ticket { state, .. } if state.is_multiple_of(16) => Some(Outcome::Finished),
            Ticket { plies: PLIES_MAX, .. } => Some(Outcome::Truncated),
            _ => None,
        }
    }

    fn observe(&self, position: &Ticket, planes: &mut [f32]) {
        let [low, high] = [position.state as u16, (position.state >> 16) as u16];
        planes.copy_from_slice(&[f32::from(low), f32::from(high)]);
    }

    fn hash(&self, position: &Ticket) -> u64 {
        mix(position.state ^ position.plies as u64)
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Ticket, _: usize) -> Ticket {
        *position
    }

    fn action_name(&self, _: &Ticket, action: Action) -> String {
        action.0.to_string()
    }

    fn parse_action(&self, _: &Ticket, text: &str) -> Result<Action, Error> {
        text.parse().map(Action).map_err(|_| Error::Notation { text: text.into(), expected: "a number".into() })
    }

    fn render(&self, position: &Ticket) -> String {
        position.state.to_string()
    }
}

fn observed(environments: &dyn Environments, environment: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; environments.spec().observation.len()];
    environments.observe(environment, &mut values);
    values
}

fn starts(environments: impl IntoIterator<Item = usize>) -> Vec<Start> {
    environments.into_iter().map(|environment| Start { environment, seed: 100 + environment as u64 }).collect()
}

/// Plays `len` episodes together, in batches of changing size and order, and in parallel by the rules; returns the
/// outcomes.
fn play_beside_the_rules(environments: &mut dyn Environments) -> Vec<Outcome> {
    let game = Lottery::new();
    let len = environments.len();
    let mut positions: Vec<Ticket> = (0..len).map(|environment| game.start_from(100 + environment as u64)).collect();
    let (mut started, mut taken, mut legal) = (Vec::new(), Vec::new(), Vec::new());
    environments.begin(&starts(0..len), &mut started).unwrap();
    assert_eq!(started, vec![Started::Now; len]);
    let mut outcomes = vec![None; len];
    let mut draws = 7;
    while outcomes.contains(&None) {
        draws = mix(draws);
        let mut plays: Vec<Play> = (0..len)
            .filter(|environment| outcomes[*environment].is_none() && draws >> environment & 3 != 0)
            .map(|environment| Play { environment, action: Action((draws >> (20 + environment)) as u16 % ACTIONS) })
            .collect();
        if draws.is_multiple_of(2) {
            plays.reverse();
        }
        environments.step(&plays, &mut taken).unwrap();
        assert_eq!(taken.len(), plays.len());
        for (play, result) in plays.iter().zip(&taken) {
            let position = &mut positions[play.environment];
            let reward = game.play(position, play.action);
            let outcome = game.outcome(position);
            assert_eq!(*result, Taken::Step { reward, outcome }, "environment {}", play.environment);
            outcomes[play.environment] = outcome;
            let mut expected = vec![0.0; 2];
            game.observe(position, &mut expected);
            assert_eq!(observed(environments, play.environment), expected, "also after the last action");
            environments.legal_actions(play.environment, &mut legal);
            assert_eq!(legal.is_empty(), outcome.is_some());
        }
    }
    outcomes.into_iter().flatten().collect()
}

#[test]
fn episodes_together_are_those_of_the_rules() {
    let outcomes = play_beside_the_rules(&mut RulesEnvironments::new(Lottery::new(), 13));
    assert!(outcomes.contains(&Outcome::Finished) && outcomes.contains(&Outcome::Truncated), "{outcomes:?}");
}

#[test]
fn an_environment_begins_again_after_its_end() {
    let mut environments = RulesEnvironments::new(Lottery::new(), 2);
    let first = play_beside_the_rules(&mut environments);
    assert_eq!(play_beside_the_rules(&mut environments), first, "the same seeds are the same episodes");
}

#[test]
#[should_panic(expected = "an action needs an episode under way")]
fn an_idle_environment_takes_no_action() {
    let mut environments = RulesEnvironments::new(Lottery::new(), 1);
    let _ = environments.step(&[Play { environment: 0, action: Action(0) }], &mut Vec::new());
}

#[test]
#[should_panic(expected = "environment 1 has an episode under way")]
fn an_episode_under_way_is_not_begun_again() {
    let mut environments = RulesEnvironments::new(Lottery::new(), 2);
    let _ = environments.begin(&starts([1, 1]), &mut Vec::new());
}
