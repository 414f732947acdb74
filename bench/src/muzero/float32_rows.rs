//! The replay of naive loops: the newest steps as rows of float32, as implementations hold them that keep the whole
//! observation of each step.

use std::collections::VecDeque;

use anyhow::ensure;
use experience::{Sample, Trajectory};
use game::{Game, Outcome, Spec};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use targets::{Targets, Unroll};
use training::{Observations, UnrolledBatch};

use super::replay::unrolled;
use super::workload::{UNROLL_STEPS, unroll};

/// Numbers of a row beside observation and policy.
const SCALARS: usize = 4;

/// The newest steps, the oldest first.
#[derive(Debug)]
pub(super) struct Rows {
    rows: VecDeque<Row>,
    rows_max: usize,
}

#[derive(Debug)]
struct Row {
    /// Observation `[C, H, W]`, policy `[A]`, value and its weight, reward, action.
    numbers: Vec<f32>,
    /// The steps to the end of the episode, with this one.
    left: usize,
    is_truncated: bool,
}

impl Rows {
    pub(super) fn new(rows_max: usize) -> Self {
        Self { rows: VecDeque::new(), rows_max }
    }

    /// Adds the steps of an episode with the targets of the learner, and removes the oldest ones beyond the limit.
    ///
    /// # Errors
    /// An episode that breaks the rules.
    pub(super) fn push<G: Game>(&mut self, game: &G, trajectory: &Trajectory) -> anyhow::Result<()> {
        let (spec, unroll, plies) = (game.spec(), Unroll { unroll_steps: 1, ..unroll() }, trajectory.plies());
        let steps = Targets::Unrolled(unroll).segment_steps(spec);
        let segments = (0..plies).filter_map(|ply| trajectory.segment(ply, steps));
        let samples = segments.map(|segment| Sample { segment, probability: 1.0, table_items: 1 });
        // Numbers that are drawn at random lie behind the end of the episode, and are not kept.
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let batch = unrolled(game, unroll, &samples.collect::<Vec<_>>(), rng)?;
        let (observations, is_truncated) = (batch.observations.to_floats(), trajectory.outcome() == Outcome::Truncated);
        for (ply, observation) in observations.chunks_exact(spec.observation.len()).enumerate() {
            let state = 2 * ply;
            let policy = &batch.policies[state * spec.actions..][..spec.actions];
            let (value, weight) = (batch.values[state], batch.value_weights[state]);
            let scalars: [f32; SCALARS] = [value, weight, batch.rewards[ply], f32::from(batch.actions[ply])];
            let numbers = [observation, policy, &scalars].concat();
            self.rows.push_back(Row { numbers, left: plies - ply, is_truncated });
        }
        self.rows.drain(..self.rows.len().saturating_sub(self.rows_max));
        Ok(())
    }

    /// Draws positions uniformly.
    ///
    /// # Errors
    /// No row.
    pub(super) fn draw(&self, spec: &Spec, positions: usize, rng: &mut impl Rng) -> anyhow::Result<UnrolledBatch> {
        ensure!(!self.rows.is_empty(), "the replay holds no position");
        let observations = Observations::Floats(Vec::with_capacity(positions * spec.observation.len()));
        let mut batch = UnrolledBatch { unroll_steps: UNROLL_STEPS, observations, ..UnrolledBatch::default() };
        for _ in 0..positions {
            self.copy(rng.random_range(0..self.rows.len()), spec, &mut batch, rng);
        }
        Ok(batch)
    }

    /// Copies a position and the steps that follow it; states behind the end of the episode are absorbing.
    fn copy(&self, index: usize, spec: &Spec, batch: &mut UnrolledBatch, rng: &mut impl Rng) {
        let (observation, actions) = (spec.observation.len(), spec.actions);
        let &Row { ref numbers, left, is_truncated } = &self.rows[index];
        batch.observations.push(&numbers[..observation]);
        let mut behind = vec![0.0; actions + SCALARS];
        behind[actions + 1] = f32::from(u8::from(!is_truncated));
        for step in 0..=UNROLL_STEPS {
            behind[actions + 3] = rng.random_range(0..actions) as f32;
            let state = if step < left { &self.rows[index + step].numbers[observation..] } else { &behind };
            let (policy, scalars) = state.split_at(actions);
            batch.policies.extend_from_slice(policy);
            // A step without a search has no policy, and neither has a state behind the end.
            batch.policy_weights.push(f32::from(u8::from(policy.iter().any(|share| *share > 0.0))));
            batch.values.push(scalars[0]);
            batch.value_weights.push(scalars[1]);
            if step < UNROLL_STEPS {
                batch.rewards.push(scalars[2]);
                batch.actions.push(scalars[3] as u16);
            }
        }
    }

    /// Returns the bytes and the number of all rows.
    pub(super) fn size(&self) -> (u64, u64) {
        let bytes: usize = self.rows.iter().map(|row| size_of_val(row.numbers.as_slice())).sum();
        (bytes as u64, self.rows.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use experience::TrajectoryId;
    use games::{CartPole, Pendulum};

    use super::*;
    use crate::muzero::replay::tests::episodes;

    /// Every row of float32 is trained on as the learner trains on the same position of the columns.
    fn rows_are_those_of_the_learner<G: Game>(game: &G, outcome: Outcome) {
        for episode in episodes(game, 2) {
            assert_eq!(episode.facts.outcome, outcome);
            let id = TrajectoryId { actor: 0, epoch: 0, sequence: 0 };
            let trajectory = episode.trajectory(id, &game.spec().name).unwrap();
            let mut rows = Rows::new(usize::MAX);
            rows.push(game, &trajectory).unwrap();
            let steps = Targets::Unrolled(unroll()).segment_steps(game.spec());
            let mut rng = ChaCha8Rng::seed_from_u64(2);
            for ply in 0..trajectory.plies() {
                let segment = trajectory.segment(ply, steps).unwrap();
                let samples = [Sample { segment, probability: 1.0, table_items: 1 }];
                let expected = unrolled(game, unroll(), &samples, &mut rng).unwrap();
                let mut batch = UnrolledBatch { unroll_steps: UNROLL_STEPS, ..UnrolledBatch::default() };
                rows.copy(ply, game.spec(), &mut batch, &mut rng);
                // Actions behind the end are drawn at random.
                let known = (trajectory.plies() - ply).min(UNROLL_STEPS);
                assert_eq!(batch.actions[..known], expected.actions[..known]);
                assert_eq!(batch.observations.to_floats(), expected.observations.to_floats());
                batch.actions.clone_from(&expected.actions);
                batch.observations = expected.observations.clone();
                assert_eq!(batch, expected, "ply {ply} of {}", trajectory.plies());
            }
        }
    }

    #[test]
    fn rows_of_terminated_episodes_are_those_of_the_learner() {
        rows_are_those_of_the_learner(&CartPole::new(games::cartpole::Version::new(0).unwrap()), Outcome::Finished);
    }

    #[test]
    fn rows_of_truncated_episodes_are_those_of_the_learner() {
        rows_are_those_of_the_learner(&Pendulum::new(games::pendulum::Torques::new(5).unwrap()), Outcome::Truncated);
    }
}
