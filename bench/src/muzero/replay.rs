//! The two replays of the training loop: that of the replay server, and float32 rows that need no rules.

use std::collections::VecDeque;
use std::time::Instant;

use ::replay::{Retention, Selector, Table, TableSettings, Window};
use ::targets::{Targets, Unroll};
use anyhow::{bail, ensure};
use experience::{Sample, Trajectory, TrajectoryId};
use game::{Game, Outcome, Spec};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use selfplay::FinishedEpisode;
use training::{Examples, Observations, UnrolledBatch};

/// The form in which the replay of the loop holds episodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// The columns of the replay server: seed, actions and results of the searches. The rules recompute observations.
    #[default]
    Compact,
    /// Observation, policy over all actions, value, reward and action of each step as float32, ready to be trained on.
    Dense,
}

/// The newest episodes of the loop.
#[derive(Debug)]
pub(super) enum Replay {
    Compact { table: Box<Table>, begun: Instant },
    Dense(Dense),
}

/// What an update is made of.
#[derive(Debug)]
pub(super) enum Drawn {
    Samples(Vec<Sample>),
    Examples(Box<Examples>),
}

impl Replay {
    /// Creates an empty replay of at most `positions_max` positions.
    ///
    /// # Errors
    /// No positions.
    pub(super) fn new(form: Form, positions_max: usize) -> anyhow::Result<Self> {
        let items = positions_max as u64;
        let window = Window { items_min: items, exponent: 1.0, slope: 1.0, capacity_items: items };
        let (selector, retention) = (Selector::Uniform, Retention::default());
        let (max_times_sampled, merge_positions, surprise_share) = (None, false, 0.0);
        let settings =
            TableSettings { selector, window, retention, max_times_sampled, merge_positions, surprise_share }
                .check()?;
        Ok(match form {
            Form::Compact => Self::Compact { table: Box::new(Table::new(settings)), begun: Instant::now() },
            Form::Dense => Self::Dense(Dense { positions_max, ..Dense::default() }),
        })
    }

    /// Adds an episode and removes the oldest ones beyond the limit.
    ///
    /// # Errors
    /// An episode that breaks the rules.
    pub(super) fn insert<G: Game>(
        &mut self,
        game: &G,
        unroll: Unroll,
        id: TrajectoryId,
        episode: &FinishedEpisode,
    ) -> anyhow::Result<()> {
        let trajectory = Trajectory::of_episode(id, &game.spec().name, &episode.steps, episode.facts)?;
        match self {
            Self::Compact { table, begun } => drop(table.insert(trajectory, begun.elapsed())),
            Self::Dense(dense) => dense.push(DenseEpisode::new(game, unroll, &trajectory)?),
        }
        Ok(())
    }

    /// Draws positions uniformly, with all that is needed to train on them.
    ///
    /// # Errors
    /// An empty replay.
    pub(super) fn draw(
        &mut self,
        spec: &Spec,
        unroll: Unroll,
        positions: usize,
        rng: &mut ChaCha8Rng,
    ) -> anyhow::Result<Drawn> {
        ensure!(self.size().positions > 0, "the replay holds no position");
        match self {
            Self::Compact { table, .. } => {
                let (steps, mut drawn) = (Targets::Unrolled(unroll).segment_steps(spec), Vec::new());
                table.draw(positions, rng, &mut drawn);
                let sample = |drawn: &::replay::Drawn| {
                    let segment = drawn.trajectory.segment(drawn.ply(), steps)?;
                    Some(Sample { segment, probability: drawn.probability, table_items: drawn.table_items })
                };
                Ok(Drawn::Samples(drawn.iter().filter_map(sample).collect()))
            }
            Self::Dense(dense) => {
                let mut batch = DenseBatch::new(spec, unroll, positions);
                for _ in 0..positions {
                    let (episode, ply) = dense.position(rng.random_range(0..dense.size.positions));
                    batch.push(episode, ply, rng);
                }
                Ok(Drawn::Examples(Box::new(Examples::Unrolled(batch.0))))
            }
        }
    }

    pub(super) fn size(&self) -> Size {
        match self {
            Self::Compact { table, .. } => {
                Size { bytes: table.trajectory_bytes() as usize, positions: table.held_items() as usize }
            }
            Self::Dense(dense) => dense.size,
        }
    }
}

/// The memory of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of all episodes.
    pub(super) bytes: usize,
    /// Steps of all episodes.
    pub(super) positions: usize,
}

impl Drawn {
    /// Returns the batch of an update.
    ///
    /// # Errors
    /// A sample that breaks the rules.
    pub(super) fn examples<G: Game>(self, game: &G, unroll: Unroll, rng: &mut impl Rng) -> anyhow::Result<Examples> {
        let samples = match self {
            Self::Samples(samples) => samples,
            Self::Examples(examples) => return Ok(*examples),
        };
        let built = Targets::Unrolled(unroll).examples(game, &samples, &[], rng);
        match built.rejected.first() {
            Some(rejected) => bail!("a trajectory breaks the rules: {}", rejected.reason),
            None => Ok(built.examples),
        }
    }
}

/// Episodes as rows of float32, as implementations hold them that keep each step's whole observation.
#[derive(Debug, Default)]
pub(super) struct Dense {
    episodes: VecDeque<DenseEpisode>,
    positions_max: usize,
    size: Size,
}

/// Numbers of a row beside observation and policy: value, weight of the value, reward, action.
const SCALARS: usize = 4;

#[derive(Debug)]
struct DenseEpisode {
    /// For each step: observation `[C, H, W]`, policy `[A]`, value and its weight, reward, action.
    rows: Vec<f32>,
    row_len: usize,
    /// A: the number of actions.
    actions: usize,
    is_truncated: bool,
}

impl DenseEpisode {
    /// Makes the rows by the targets of the learner.
    fn new<G: Game>(game: &G, unroll: Unroll, trajectory: &Trajectory) -> anyhow::Result<Self> {
        let (spec, unroll) = (game.spec(), Unroll { unroll_steps: 1, ..unroll });
        let steps = Targets::Unrolled(unroll).segment_steps(spec);
        let segments = (0..trajectory.plies()).filter_map(|ply| trajectory.segment(ply, steps));
        let samples = segments.map(|segment| Sample { segment, probability: 1.0, table_items: 1 }).collect();
        // Numbers that are drawn at random lie behind the end of the episode, and are not kept.
        let examples = Drawn::Samples(samples).examples(game, unroll, &mut ChaCha8Rng::seed_from_u64(0))?;
        let Examples::Unrolled(batch) = examples else { bail!("the targets of a MuZero network are unrolled") };
        let (observation, actions) = (spec.observation.len(), spec.actions);
        let row_len = observation + actions + SCALARS;
        let mut rows = Vec::with_capacity(trajectory.plies() * row_len);
        for (ply, values) in batch.observations.to_floats().chunks_exact(observation).enumerate() {
            let state = 2 * ply;
            rows.extend_from_slice(values);
            rows.extend_from_slice(&batch.policies[state * actions..][..actions]);
            let action = f32::from(batch.actions[ply]);
            rows.extend([batch.values[state], batch.value_weights[state], batch.rewards[ply], action]);
        }
        Ok(Self { rows, row_len, actions, is_truncated: trajectory.outcome() == Outcome::Truncated })
    }

    fn size(&self) -> Size {
        Size { bytes: size_of_val(self.rows.as_slice()), positions: self.rows.len() / self.row_len }
    }

    fn row(&self, ply: usize) -> Option<&[f32]> {
        self.rows.get(ply * self.row_len..)?.get(..self.row_len)
    }
}

impl Dense {
    fn push(&mut self, episode: DenseEpisode) {
        let Size { bytes, positions } = episode.size();
        (self.size.bytes, self.size.positions) = (self.size.bytes + bytes, self.size.positions + positions);
        self.episodes.push_back(episode);
        while self.size.positions > self.positions_max && self.episodes.len() > 1 {
            let Some(Size { bytes, positions }) = self.episodes.pop_front().map(|oldest| oldest.size()) else { return };
            (self.size.bytes, self.size.positions) = (self.size.bytes - bytes, self.size.positions - positions);
        }
    }

    /// The episode and the ply of the position with this index.
    fn position(&self, mut index: usize) -> (&DenseEpisode, usize) {
        for episode in &self.episodes {
            let positions = episode.size().positions;
            if index < positions {
                return (episode, index);
            }
            index -= positions;
        }
        unreachable!("indices are below the number of positions")
    }
}

/// A batch under construction.
struct DenseBatch(UnrolledBatch);

impl DenseBatch {
    fn new(spec: &Spec, unroll: Unroll, positions: usize) -> Self {
        let observations = Observations::Floats(Vec::with_capacity(positions * spec.observation.len()));
        Self(UnrolledBatch { unroll_steps: unroll.unroll_steps, observations, ..UnrolledBatch::default() })
    }

    /// Adds the position at `ply` and the steps that follow it; states behind the end of the episode are absorbing.
    fn push(&mut self, episode: &DenseEpisode, ply: usize, rng: &mut impl Rng) {
        let Self(batch) = self;
        let Some(first) = episode.row(ply) else { return };
        let (actions, observation) = (episode.actions, episode.row_len - SCALARS - episode.actions);
        batch.observations.push(&first[..observation]);
        for step in 0..=batch.unroll_steps {
            let (policy, scalars) = match episode.row(ply + step) {
                Some(row) => (&row[observation..][..actions], &row[observation + actions..]),
                None => (&[][..], &[][..]),
            };
            batch.policies.extend_from_slice(policy);
            batch.policies.extend(std::iter::repeat_n(0.0, actions - policy.len()));
            // A step without a search has no policy, and neither has a state behind the end.
            batch.policy_weights.push(f32::from(u8::from(policy.iter().any(|share| *share > 0.0))));
            let behind = [0.0, if episode.is_truncated { 0.0 } else { 1.0 }, 0.0];
            let [value, weight, reward] = scalars.first_chunk().copied().unwrap_or(behind);
            batch.values.push(value);
            batch.value_weights.push(weight);
            if step < batch.unroll_steps {
                let action =
                    scalars.get(3).map_or_else(|| rng.random_range(0..actions) as u16, |action| *action as u16);
                batch.actions.push(action);
                batch.rewards.push(reward);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use games::{CartPole, Pendulum};
    use inference::LatentModel;
    use selfplay::LatentEpisodes;

    use super::*;
    use crate::muzero::engine::{Calls, Engine, Latents, first_weights};
    use crate::muzero::workload::DISCOUNT;
    use crate::tests::args;

    /// Episodes of shallow searches.
    fn episodes<G: Game>(game: &G, wanted: usize) -> Vec<FinishedEpisode> {
        let crate::muzero::Args { mut workload, full, .. } = args("--simulations 2 --blocks 1");
        workload.channels = Some(32);
        let weights = first_weights(workload.architecture(game.spec()), 1).unwrap();
        let engine = Engine::new(full.engine).unwrap();
        let mut model: Box<dyn LatentModel> =
            engine.build(&weights, Latents::Pool, Calls::Batched, &Default::default()).unwrap();
        let mut all = LatentEpisodes::new(game.clone(), workload.settings(wanted), DISCOUNT, 1);
        let mut finished = Vec::new();
        while finished.len() < wanted {
            all.advance(model.as_mut()).unwrap();
            finished.extend(all.drain_finished());
        }
        finished
    }

    fn id(sequence: u64) -> TrajectoryId {
        TrajectoryId { actor: 0, epoch: 0, sequence }
    }

    const UNROLL: Unroll =
        Unroll { unroll_steps: 5, td_steps: 4, discount: 0.9, search_value_share: 0.0, next_observations: false };

    /// Every row of float32 is trained on as the learner trains on the same position of the columns.
    fn rows_are_those_of_the_learner<G: Game>(game: &G) {
        for episode in episodes(game, 2) {
            let trajectory = Trajectory::of_episode(id(0), &game.spec().name, &episode.steps, episode.facts).unwrap();
            let dense = DenseEpisode::new(game, UNROLL, &trajectory).unwrap();
            let steps = Targets::Unrolled(UNROLL).segment_steps(game.spec());
            let mut rng = ChaCha8Rng::seed_from_u64(2);
            for ply in 0..trajectory.plies() {
                let segment = trajectory.segment(ply, steps).unwrap();
                let samples = vec![Sample { segment, probability: 1.0, table_items: 1 }];
                let Examples::Unrolled(expected) = Drawn::Samples(samples).examples(game, UNROLL, &mut rng).unwrap()
                else {
                    panic!("unrolled")
                };
                let mut batch = DenseBatch::new(game.spec(), UNROLL, 1);
                batch.push(&dense, ply, &mut rng);
                let DenseBatch(mut batch) = batch;
                // Actions behind the end are drawn at random.
                let known = (trajectory.plies() - ply).min(UNROLL.unroll_steps);
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
        rows_are_those_of_the_learner(&CartPole::new(games::cartpole::Version::new(0).unwrap()));
    }

    #[test]
    fn rows_of_truncated_episodes_are_those_of_the_learner() {
        let game = Pendulum::new(games::pendulum::Torques::new(5).unwrap());
        assert_eq!(episodes(&game, 1)[0].facts.outcome, Outcome::Truncated);
        rows_are_those_of_the_learner(&game);
    }

    #[test]
    fn the_bytes_of_both_forms_are_exact_and_the_oldest_episodes_are_removed() {
        let game = CartPole::new(games::cartpole::Version::new(0).unwrap());
        let episodes = episodes(&game, 6);
        let positions: usize = episodes.iter().skip(3).map(|episode| episode.steps.len()).sum();
        for form in [Form::Compact, Form::Dense] {
            let mut replay = Replay::new(form, positions).unwrap();
            let mut bytes = 0;
            for (sequence, episode) in (0..).zip(&episodes) {
                replay.insert(&game, UNROLL, id(sequence), episode).unwrap();
                if sequence < 3 {
                    continue;
                }
                let trajectory = Trajectory::of_episode(id(sequence), "cartpole-v0", &episode.steps, episode.facts);
                bytes += match form {
                    Form::Compact => trajectory.unwrap().bytes(),
                    // Four numbers of the observation, two of the policy, four more.
                    Form::Dense => episode.steps.len() * 40,
                };
            }
            assert_eq!(replay.size(), Size { bytes, positions }, "{form:?}");
        }
    }

    #[test]
    fn both_forms_draw_every_position() {
        let game = CartPole::new(games::cartpole::Version::new(0).unwrap());
        let episodes = episodes(&game, 2);
        for form in [Form::Compact, Form::Dense] {
            let mut replay = Replay::new(form, 1000).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            assert!(replay.draw(game.spec(), UNROLL, 1, &mut rng).is_err(), "an empty replay has nothing to draw");
            for (sequence, episode) in (0..).zip(&episodes) {
                replay.insert(&game, UNROLL, id(sequence), episode).unwrap();
            }
            let drawn = replay.draw(game.spec(), UNROLL, 2000, &mut rng).unwrap();
            let Examples::Unrolled(batch) = drawn.examples(&game, UNROLL, &mut rng).unwrap() else {
                panic!("unrolled")
            };
            let observations = batch.observations.to_floats();
            let mut seen: Vec<Vec<u32>> =
                observations.chunks_exact(4).map(|row| row.iter().map(|number| number.to_bits()).collect()).collect();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), replay.size().positions, "{form:?}");
        }
    }
}
