//! The two replays of the training loop: the table of the replay server, and rows of float32 that need no rules.

use std::sync::Mutex;
use std::time::Duration;

use ::replay::{Retention, Selector, Table, TableSettings, Window};
use anyhow::{bail, ensure};
use experience::{Sample, TrajectoryId};
use game::Game;
use rand::Rng;
use selfplay::FinishedEpisode;
use targets::{Targets, Unroll};
use training::{Examples, UnrolledBatch};

use super::float32_rows::Rows;
use super::workload::unroll;
use crate::threads::lock;

/// The form in which the replay of the loop holds episodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
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
    Compact(Box<Mutex<Table>>),
    Dense(Mutex<Rows>),
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
            Form::Compact => Self::Compact(Box::new(Mutex::new(Table::new(settings)))),
            Form::Dense => Self::Dense(Mutex::new(Rows::new(positions_max))),
        })
    }

    /// Adds an episode and removes the oldest ones beyond the limit.
    ///
    /// # Errors
    /// An episode that breaks the rules.
    pub(super) fn insert<G: Game>(&self, game: &G, episode: &FinishedEpisode) -> anyhow::Result<()> {
        // Ids are not unique: a table that draws uniformly looks none up.
        let id = TrajectoryId { actor: 0, epoch: episode.slot as u64, sequence: episode.number };
        let trajectory = episode.trajectory(id, &game.spec().name)?;
        match self {
            // Nothing is removed by its age.
            Self::Compact(table) => drop(lock(table).insert(trajectory, Duration::ZERO)),
            Self::Dense(rows) => lock(rows).push(game, &trajectory)?,
        }
        Ok(())
    }

    /// Draws the positions of an update uniformly, and makes its batch.
    ///
    /// # Errors
    /// An empty replay, a trajectory that breaks the rules.
    pub(super) fn examples<G: Game>(&self, game: &G, positions: usize, rng: &mut impl Rng) -> anyhow::Result<Examples> {
        let batch = match self {
            Self::Compact(table) => {
                let mut drawn = Vec::with_capacity(positions);
                lock(table).draw(positions, rng, &mut drawn);
                ensure!(!drawn.is_empty(), "the replay holds no position");
                let steps = Targets::Unrolled(unroll()).segment_steps(game.spec());
                let samples: Vec<_> = drawn.iter().map(|drawn| drawn.sample(steps)).collect();
                unrolled(game, unroll(), &samples, rng)?
            }
            Self::Dense(rows) => lock(rows).draw(game.spec(), positions, rng)?,
        };
        Ok(Examples::Unrolled(batch))
    }

    /// Returns the bytes of all episodes, and the number of their steps.
    pub(super) fn size(&self) -> (u64, u64) {
        match self {
            Self::Compact(table) => {
                let table = lock(table);
                (table.trajectory_bytes(), table.held_items())
            }
            Self::Dense(rows) => lock(rows).size(),
        }
    }
}

/// Returns the batch of samples, as the learner makes it.
///
/// # Errors
/// A sample that breaks the rules.
pub(super) fn unrolled<G: Game>(
    game: &G,
    unroll: Unroll,
    samples: &[Sample],
    rng: &mut impl Rng,
) -> anyhow::Result<UnrolledBatch> {
    let built = Targets::Unrolled(unroll).examples(game, samples, &[], rng);
    match (built.examples, built.rejected.first()) {
        (Examples::Unrolled(batch), None) => Ok(batch),
        (_, Some(rejected)) => bail!("a trajectory breaks the rules: {}", rejected.reason),
        (Examples::Positions(_), None) => bail!("the targets of a MuZero network are unrolled"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use games::CartPole;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::muzero::engine::{Engine, Traffic};
    use crate::muzero::players::players;
    use crate::network::published;
    use crate::tests::args;

    /// Episodes of shallow searches.
    pub(in crate::muzero) fn episodes<G: Game>(game: &G, wanted: usize) -> Vec<FinishedEpisode> {
        let crate::muzero::Args { workload, full, .. } =
            args("--simulations 2 --blocks 1 --channels 32 --threads 1 --precision f32");
        let weights = published(workload.architecture(game.spec()), 1).unwrap();
        let engine = Engine::new(full.engine).unwrap();
        let player = &mut players(game, &workload, wanted, (&engine, &weights), &Traffic::default(), 1).unwrap()[0];
        let mut finished = Vec::new();
        while finished.len() < wanted {
            player.episodes.advance(player.model.as_mut()).unwrap();
            finished.extend(player.episodes.drain_finished());
        }
        finished
    }

    fn cartpole() -> CartPole {
        CartPole::new(games::cartpole::Version::new(0).unwrap())
    }

    #[test]
    fn the_bytes_of_both_forms_are_exact_and_the_oldest_episodes_are_removed() {
        let episodes = episodes(&cartpole(), 6);
        let steps = |episode: &FinishedEpisode| episode.steps.len() as u64;
        let positions: u64 = episodes[3..].iter().map(steps).sum();
        let id = TrajectoryId { actor: 0, epoch: 0, sequence: 0 };
        for form in [Form::Compact, Form::Dense] {
            let replay = Replay::new(form, positions as usize).unwrap();
            episodes.iter().for_each(|episode| replay.insert(&cartpole(), episode).unwrap());
            let bytes = |episode: &FinishedEpisode| match form {
                Form::Compact => episode.trajectory(id, "cartpole-v0").unwrap().bytes() as u64,
                // Four numbers of the observation, two of the policy, four more.
                Form::Dense => steps(episode) * 40,
            };
            assert_eq!(replay.size(), (episodes[3..].iter().map(bytes).sum(), positions), "{form:?}");
        }
    }

    #[test]
    fn both_forms_draw_every_position() {
        let episodes = episodes(&cartpole(), 2);
        for form in [Form::Compact, Form::Dense] {
            let replay = Replay::new(form, 1000).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            assert!(replay.examples(&cartpole(), 1, &mut rng).is_err(), "an empty replay has nothing to draw");
            episodes.iter().for_each(|episode| replay.insert(&cartpole(), episode).unwrap());
            let Examples::Unrolled(batch) = replay.examples(&cartpole(), 2000, &mut rng).unwrap() else {
                panic!("unrolled")
            };
            let observations = batch.observations.to_floats();
            let mut seen: Vec<Vec<u32>> =
                observations.chunks_exact(4).map(|row| row.iter().map(|number| number.to_bits()).collect()).collect();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len() as u64, replay.size().1, "{form:?}");
        }
    }
}
