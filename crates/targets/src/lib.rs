//! Builds training batches from samples. Each position is replayed by the game rules, or its stored observation is
//! read. A random symmetry transforms the sample, and observations and targets are written to the batch.
//!
//! [`Targets`] depend on the model of the run: `positions` for AlphaZero; `unrolled`, with the settings [`Unroll`], for
//! MuZero and for AlphaZero in games scored by rewards. A [`PolicyTemperature`] makes policies softer, and
//! [`importance()`] corrects for sampling by priority. [`Built`] contains the batch of all valid samples; invalid
//! samples are [`Rejected`]. The crate has no configuration, process or clock. Start with [`Targets::examples`].

mod importance;
mod policy_temperature;
mod positions;
mod returns;
mod unrolled;

use experience::{ActionProbability, Episode, Sample, Segment, TrajectoryId};
use game::{Action, Game, Outcome, Recording, Scoring, Spec};
use rand::Rng;
use training::Examples;

pub use importance::importance;
pub use policy_temperature::PolicyTemperature;
pub use unrolled::Unroll;

/// A trajectory that violates the game rules, to be reported to the replay server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Id of the invalid trajectory.
    pub trajectory: TrajectoryId,
    /// Ply of the sample in which the violation was found.
    pub ply: usize,
    /// Description of the violation, for logs and messages.
    pub reason: String,
}

/// A batch built from samples, and the rejected samples.
#[derive(Debug)]
pub struct Built {
    /// The batch of all valid samples, in the order of the samples.
    pub examples: Examples,
    /// Sample index for each row of the batch.
    pub rows: Vec<usize>,
    /// Trajectories of the invalid samples, with the violations.
    pub rejected: Vec<Rejected>,
}

/// The settings of training targets for a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Targets {
    /// Targets for AlphaZero in games scored by outcome.
    Positions {
        /// Share of the search's root value in the value target; the episode outcome has the remaining share.
        search_value_share: f32,
    },
    /// Targets for MuZero; with K = 0 unrolled steps, for AlphaZero in games scored by rewards.
    Unrolled(Unroll),
}

impl Targets {
    /// Returns K, the number of unrolled steps from each position; 0 for AlphaZero.
    #[must_use]
    pub fn unroll_steps(&self) -> usize {
        match self {
            Self::Positions { .. } => 0,
            Self::Unrolled(unroll) => unroll.unroll_steps,
        }
    }

    /// Returns the number of steps after the first in a sampled segment.
    #[must_use]
    pub fn segment_steps(&self, spec: &Spec) -> usize {
        match self {
            Self::Positions { .. } => 0,
            Self::Unrolled(unroll) => unroll.segment_steps(spec),
        }
    }

    /// Builds a batch from `samples`, each under a random symmetry. `importance` has one weight per sample, or is
    /// empty.
    pub fn examples<G: Game>(&self, game: &G, samples: &[Sample], importance: &[f32], rng: &mut impl Rng) -> Built {
        match *self {
            Self::Positions { search_value_share } => {
                let mut batch = positions::Rows::new(game, search_value_share, samples.len());
                let pushed = Pushed::of(samples, |segment| batch.push(game, segment, rng));
                pushed.built(importance, |importance| Examples::Positions(batch.batch(importance)))
            }
            Self::Unrolled(unroll) => {
                let mut batch = unrolled::Rows::new(game, unroll, samples.len());
                let pushed = Pushed::of(samples, |segment| batch.push(game, segment, rng));
                pushed.built(importance, |importance| Examples::Unrolled(batch.batch(importance)))
            }
        }
    }
}

/// Sample indices of the rows in a batch, and the rejected samples.
struct Pushed {
    rows: Vec<usize>,
    rejected: Vec<Rejected>,
}

impl Pushed {
    fn of(samples: &[Sample], mut push: impl FnMut(&Segment) -> Result<(), String>) -> Self {
        let (mut rows, mut rejected) = (Vec::with_capacity(samples.len()), Vec::new());
        for (index, Sample { segment, .. }) in samples.iter().enumerate() {
            match push(segment) {
                Ok(()) => rows.push(index),
                Err(reason) => rejected.push(Rejected { trajectory: segment.trajectory(), ply: segment.ply(), reason }),
            }
        }
        Self { rows, rejected }
    }

    fn built(self, importance: &[f32], examples: impl FnOnce(Vec<f32>) -> Examples) -> Built {
        let Self { rows, rejected } = self;
        let importance = rows.iter().filter_map(|&row| importance.get(row).copied()).collect();
        Built { examples: examples(importance), rows, rejected }
    }
}

/// Writes the observation `[C, H, W]` of the position after `step` steps of a segment to `planes`. The game rules
/// compute the observation, or it is read from the segment if the program does not contain the rules.
fn observe<G: Game>(
    game: &G,
    position: &G::Position,
    segment: &Segment,
    step: usize,
    planes: &mut [f32],
) -> Result<(), String> {
    let Spec { name, observation, recording, .. } = game.spec();
    let Some(Recording { stack }) = *recording else {
        game.observe(position, planes);
        return Ok(());
    };
    let Some(layout) = segment.observation_layout() else {
        return Err(format!("no observations are stored, and there are no rules of {name} to recompute them"));
    };
    if layout.stack != stack || layout.observation_values() != observation.len() {
        return Err(format!(
            "stored observations have {} frames of {} values, {name} has {stack} of {}",
            layout.stack,
            layout.frame_values,
            observation.len() / stack
        ));
    }
    segment.observation(step, planes).ok_or_else(|| "the observation of the position is not stored".to_owned())
}

/// Returns the position at the start of a segment.
fn position_of<G: Game>(game: &G, segment: &Segment) -> Result<G::Position, String> {
    let Episode { seed, outcome, .. } = segment.episode();
    let is_scored_by_rewards = matches!(outcome, Outcome::Finished | Outcome::Truncated);
    if is_scored_by_rewards != (game.spec().scoring == Scoring::Rewards) {
        return Err(format!("{} has no episode with the outcome {outcome:?}", game.spec().name));
    }
    let actions: Vec<Action> = segment.actions().take(segment.ply()).collect();
    let position = game.replay_from(seed, &actions).map_err(|error| error.to_string())?;
    if game.outcome(&position).is_some() {
        return Err(format!("the game is over at ply {}", segment.ply()));
    }
    Ok(position)
}

/// Checks that all actions of a search policy are legal in the position at `ply`.
fn check_policy<G: Game>(
    game: &G,
    position: &G::Position,
    policy: &[ActionProbability],
    ply: usize,
) -> Result<(), String> {
    match policy.iter().find(|entry| !game.is_legal(position, entry.action)) {
        Some(entry) => Err(format!("the search policy holds {}, which is not legal at ply {ply}", entry.action)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use experience::{Element, ObservationLayout, Observations, Step, StepKind, Trajectory, WeightsVersion};
    use game::{ObservationRange, ObservationShape};
    use games::Recorded;
    use games::recorded::Described;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Returns an environment without rules, with two frames of two values each.
    fn outside() -> Recorded {
        let frame = ObservationShape { planes: 2, height: 1, width: 1 };
        let (name, range) = ("gym:Outside".to_owned(), ObservationRange::Unit);
        Described { name, actions: 3, frame, stack: 2, range, steps_max: 9 }.environment().unwrap()
    }

    /// Returns the sample at `ply` of a four-step episode. Frame k contains the values k / 10 and 1 − k / 10.
    fn recorded(layout: ObservationLayout, ply: usize, action: u16) -> Sample {
        let policy = vec![ActionProbability { action: Action(action), probability: 1.0 }];
        let kind = StepKind::Full { policy, value: 1.0 };
        let step = Step { action: Action(1), reward: 2.0, kind, weights_version: WeightsVersion(1) };
        let mut observations = Observations::new(layout).unwrap();
        let frames: Vec<f32> = (0..5 + layout.stack)
            .flat_map(|k| [k as f32 / 10.0, 1.0 - k as f32 / 10.0])
            .flat_map(|value| vec![value; layout.frame_values / 2])
            .collect();
        for first in 0..5 {
            observations.push(&frames[first * layout.frame_values..][..layout.observation_values()]).unwrap();
        }
        let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
        let steps = vec![step; 4];
        let episode = Episode::of(Outcome::Finished);
        let trajectory = Trajectory::of_recorded(id, "gym:Outside", &steps, episode, observations).unwrap();
        Sample { segment: trajectory.segment(ply, 3).unwrap(), probability: 1.0, table_items: 4 }
    }

    fn built(samples: &[Sample]) -> (Vec<f32>, Built) {
        let unroll = Unroll { unroll_steps: 2, td_steps: 2, discount: 1.0, ..Unroll::default() };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let built = Targets::Unrolled(unroll).examples(&outside(), samples, &[], &mut rng);
        let Examples::Unrolled(batch) = &built.examples else { panic!("{built:?}") };
        (batch.observations.to_floats(), built)
    }

    const LAYOUT: ObservationLayout = ObservationLayout { element: Element::F32, frame_values: 2, stack: 2 };

    #[test]
    fn stored_observations_of_every_type_are_those_of_the_position() {
        for (element, tolerance) in [(Element::F32, 0.0), (Element::Bf16, 0.002), (Element::U8, 0.002)] {
            let (observations, built) = built(&[recorded(ObservationLayout { element, ..LAYOUT }, 1, 0)]);
            assert_eq!((built.rows, built.rejected), (vec![0], vec![]));
            let expected = [0.1, 0.9, 0.2, 0.8];
            let is_near =
                observations.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= tolerance);
            assert!(observations.len() == 4 && is_near, "{element:?}: {observations:?}");
        }
    }

    #[test]
    fn a_trajectory_whose_observations_or_actions_are_not_those_of_the_environment_is_rejected() {
        let mut unrecorded = recorded(LAYOUT, 0, 0);
        let step = unrecorded.segment.steps().next().unwrap();
        let id = TrajectoryId { actor: 1, epoch: 1, sequence: 7 };
        let trajectory = Trajectory::of(id, "gym:Outside", &[step], Outcome::Finished).unwrap();
        unrecorded.segment = trajectory.segment(0, 3).unwrap();
        for (sample, expected) in [
            (recorded(ObservationLayout { stack: 3, ..LAYOUT }, 0, 0), "observations have 3 frames of 2 values"),
            (recorded(ObservationLayout { frame_values: 4, ..LAYOUT }, 0, 0), "observations have 2 frames of 4 values"),
            (unrecorded, "no observations are stored"),
            (recorded(LAYOUT, 0, 3), "not legal at ply 0"),
        ] {
            let (observations, built) = built(&[recorded(LAYOUT, 2, 1), sample]);
            assert_eq!((built.rows, observations.len()), (vec![0], 4));
            assert_eq!(built.rejected.len(), 1);
            assert!(built.rejected[0].reason.contains(expected), "{}", built.rejected[0].reason);
        }
    }
}
