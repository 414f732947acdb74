use std::sync::Arc;

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId, WeightsVersion};
use game::{Action, Game, Outcome};
use games::ConnectFour;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Number of different games, which are inserted repeatedly with new ids; large enough that a compressor cannot exploit
/// the repetition.
const COUNT: usize = 256;
/// Steps of each game.
pub(crate) const STEPS: usize = 30;

/// Trajectories of Connect Four as self-play makes them, every step a full search.
#[derive(Debug, Clone)]
pub(crate) struct Games(Arc<[Trajectory]>);

impl Games {
    /// Generates games of [`STEPS`] steps, which depend on the seed alone.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        Self((0..COUNT).map(|_| trajectory(&mut rng)).collect())
    }

    /// Returns the mean size of a game on the wire, in bytes.
    pub(crate) fn mean_wire_bytes(&self) -> f64 {
        let message = |game: &Trajectory| proto::replay::v1::Trajectory::from(game.clone());
        let bytes: usize = self.0.iter().map(|game| prost::Message::encoded_len(&message(game))).sum();
        bytes as f64 / self.0.len() as f64
    }

    /// Returns one of the games, as the trajectory with this actor, epoch and sequence number.
    pub(crate) fn trajectory(&self, actor: u64, epoch: u64, sequence: u64) -> Trajectory {
        // The cast is exact: the remainder is below `COUNT`.
        let trajectory = &self.0[(sequence.wrapping_add(actor.wrapping_mul(37)) % COUNT as u64) as usize];
        trajectory.with_id(TrajectoryId { actor, epoch, sequence })
    }
}

fn trajectory(rng: &mut ChaCha8Rng) -> Trajectory {
    let game = ConnectFour::new();
    let actions = actions(&game, rng).into_iter();
    let steps: Vec<Step> = actions.map(|(action, legal)| step(action, &legal, rng)).collect();
    let id = TrajectoryId { actor: 0, epoch: 0, sequence: 0 };
    Trajectory::of(id, &game.spec().name, &steps, Outcome::Draw).expect("policies of visits are valid")
}

/// Returns the first [`STEPS`] actions of a random game that is long enough, each with the legal actions in that
/// position.
fn actions(game: &ConnectFour, rng: &mut ChaCha8Rng) -> Vec<(Action, Vec<Action>)> {
    loop {
        let (mut position, mut actions, mut legal) = (game.start(), Vec::new(), Vec::new());
        while actions.len() < STEPS && game.outcome(&position).is_none() {
            game.legal_actions(&position, &mut legal);
            let action = legal[rng.random_range(0..legal.len())];
            actions.push((action, legal.clone()));
            game.play(&mut position, action);
        }
        if actions.len() == STEPS {
            return actions;
        }
    }
}

/// Creates a step with a search policy from random visits, and a random value.
fn step(action: Action, legal: &[Action], rng: &mut ChaCha8Rng) -> Step {
    let visits: Vec<u16> = legal.iter().map(|_| rng.random_range(1..60)).collect();
    let sum: f32 = visits.iter().map(|&visits| f32::from(visits)).sum();
    let policy = legal.iter().zip(&visits);
    let policy = policy.map(|(&action, &visits)| ActionProbability { action, probability: f32::from(visits) / sum });
    let value = rng.random_range(-1.0..1.0);
    let kind = StepKind::Full { policy: policy.collect(), value };
    Step { action, reward: 0.0, kind, weights_version: WeightsVersion(1 + rng.random_range(0..2)) }
}

#[cfg(test)]
mod tests {
    use experience::Limits;

    use super::*;

    #[test]
    fn generated_games_are_valid_trajectories_of_full_search_steps() {
        let games = Games::new(1);
        for sequence in 0..COUNT as u64 + 3 {
            let trajectory = games.trajectory(5, 2, sequence);
            let limits = Limits { steps_max: 42, actions: 7 };
            Trajectory::parse(trajectory.id(), trajectory.columns(), limits).unwrap();
            assert_eq!(trajectory.id(), TrajectoryId { actor: 5, epoch: 2, sequence });
            assert_eq!(trajectory.full_plies().count(), STEPS);
            ConnectFour::new().replay(&trajectory.actions().collect::<Vec<_>>()).unwrap();
        }
    }
}
