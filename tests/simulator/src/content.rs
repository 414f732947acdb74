//! Trajectories with different content for each serial number.

use experience::{ActionProbability, Limits, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use rand::{Rng, RngExt};
use weights::WeightsVersion;

/// Game of all trajectories.
pub(crate) const GAME: &str = "connect_four";

/// Limits of the simulated server.
pub(crate) const LIMITS: Limits = Limits { steps_max: 64, actions: 7 };

/// Maximum steps in a game of an honest actor.
const STEPS_MAX: usize = 5;

/// Presence of items in a game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Items {
    /// At least one.
    Some,
    /// None: no step has a search policy.
    None,
    /// Some or none.
    Any,
}

/// Builds a trajectory with content that encodes `serial`.
pub(crate) fn game(
    id: TrajectoryId,
    serial: u32,
    version: WeightsVersion,
    items: Items,
    rng: &mut impl Rng,
) -> Trajectory {
    let length = rng.random_range(1..=STEPS_MAX);
    let mut steps: Vec<Step> = (0..length).map(|_| step(kind(rng, items), 0.0, version)).collect();
    let policy = || vec![ActionProbability { action: Action(0), probability: 1.0 }];
    if items == Items::Some {
        steps[0].kind = StepKind::Full { policy: policy(), value: 0.0 };
    }
    // The server does not interpret rewards: they hold the serial number.
    steps[0].reward = f32::from((serial & 0xffff) as u16);
    steps[length - 1].reward += f32::from((serial >> 16) as u16) * 65_536.0;
    Trajectory::of(id, GAME, &steps, Outcome::Draw).expect("the steps are valid")
}

fn kind(rng: &mut impl Rng, items: Items) -> StepKind {
    let policy = vec![ActionProbability { action: Action(0), probability: 1.0 }];
    match rng.random_range(0..4) {
        0 => StepKind::Opening,
        1 => StepKind::Fast { value: 0.25 },
        _ if items == Items::None => StepKind::Fast { value: -0.5 },
        _ => StepKind::Full { policy, value: 0.0 },
    }
}

fn step(kind: StepKind, reward: f32, weights_version: WeightsVersion) -> Step {
    Step { action: Action(0), reward, kind, weights_version }
}

/// Returns the trajectory with the searches of a later version.
pub(crate) fn searched_again(trajectory: &Trajectory, version: WeightsVersion) -> Trajectory {
    let mut steps: Vec<Step> = trajectory.steps().collect();
    for step in &mut steps {
        step.weights_version = step.weights_version.max(version);
        if let StepKind::Full { value, .. } | StepKind::Fast { value } = &mut step.kind {
            *value = f32::from((version.0 % 100) as u8) / 100.0;
        }
    }
    Trajectory::of_episode(trajectory.id(), GAME, &steps, trajectory.episode()).expect("the steps are valid")
}

/// Builds the longest trajectory that the server accepts, with these bytes as rewards.
pub(crate) fn with_rewards(id: TrajectoryId, bytes: &[u8]) -> Trajectory {
    let policy = || vec![ActionProbability { action: Action(0), probability: 1.0 }];
    let mut rewards = bytes.as_chunks::<4>().0.iter().map(|word| {
        let reward = f32::from_le_bytes(*word);
        if reward.is_finite() { reward } else { 0.0 }
    });
    let full = || StepKind::Full { policy: policy(), value: 0.0 };
    let steps: Vec<Step> =
        (0..LIMITS.steps_max).map(|_| step(full(), rewards.next().unwrap_or(0.0), WeightsVersion(1))).collect();
    Trajectory::of(id, GAME, &steps, Outcome::Draw).expect("the steps are valid")
}

/// Returns the distinguishing content of an honest actor's game: the bits of the first reward.
pub(crate) fn serial(trajectory: &Trajectory) -> u32 {
    trajectory.steps().next().map_or(0, |step| step.reward.to_bits())
}

/// Returns the number of items, as counted by the log.
pub(crate) fn items(trajectory: &Trajectory) -> u64 {
    trajectory.full_steps() as u64
}
