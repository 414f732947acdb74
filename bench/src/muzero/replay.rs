//! The replay of the training loop: the table of the replay server.

use std::sync::Mutex;
use std::time::Duration;

use ::replay::{Retention, Selector, Table, TableSettings, Window};
use anyhow::{bail, ensure};
use experience::TrajectoryId;
use game::Game;
use rand::Rng;
use selfplay::FinishedEpisode;
use targets::Targets;
use training::Examples;

use super::workload::unroll;
use crate::threads::lock;

/// The latest episodes of the loop, stored as in the replay server.
#[derive(Debug)]
pub(super) struct Replay(Mutex<Table>);

impl Replay {
    /// Creates an empty replay of at most `positions_max` positions.
    ///
    /// # Errors
    /// `positions_max` is 0.
    pub(super) fn new(positions_max: usize) -> anyhow::Result<Self> {
        anyhow::ensure!(positions_max > 0, "the replay capacity must be at least 1 position");
        let items = positions_max as u64;
        let window = Window { items_min: items, exponent: 1.0, slope: 1.0, capacity_items: items };
        let (selector, retention) = (Selector::Uniform, Retention::default());
        let (max_times_sampled, merge_positions, surprise_share) = (None, false, 0.0);
        let settings =
            TableSettings { selector, window, retention, max_times_sampled, merge_positions, surprise_share };
        Ok(Self(Mutex::new(Table::new(settings))))
    }

    /// Adds an episode, and removes the oldest episodes beyond the limit.
    ///
    /// # Errors
    /// The episode breaks the rules.
    pub(super) fn insert<G: Game>(&self, game: &G, episode: &FinishedEpisode) -> anyhow::Result<()> {
        // Ids are not unique: a table that draws uniformly looks none up.
        let id = TrajectoryId { actor: 0, epoch: episode.slot as u64, sequence: episode.number };
        let trajectory = episode.trajectory(id, &game.spec().name)?;
        // Nothing is removed by age.
        drop(lock(&self.0).insert(trajectory, Duration::ZERO));
        Ok(())
    }

    /// Draws the positions of an update uniformly, and makes a batch from them.
    ///
    /// # Errors
    /// The replay is empty, or a trajectory breaks the rules.
    pub(super) fn examples<G: Game>(&self, game: &G, positions: usize, rng: &mut impl Rng) -> anyhow::Result<Examples> {
        let mut drawn = Vec::with_capacity(positions);
        lock(&self.0).draw(positions, rng, &mut drawn);
        ensure!(!drawn.is_empty(), "the replay is empty");
        let targets = Targets::Unrolled(unroll());
        let steps = targets.segment_steps(game.spec());
        let samples: Vec<_> = drawn.iter().map(|drawn| drawn.sample(steps)).collect();
        let built = targets.examples(game, &samples, &[], rng);
        match built.rejected.first() {
            Some(rejected) => bail!("a trajectory breaks the rules: {}", rejected.reason),
            None => Ok(built.examples),
        }
    }

    /// Returns the bytes of all episodes, and the number of steps.
    pub(super) fn size(&self) -> (u64, u64) {
        let table = lock(&self.0);
        (table.trajectory_bytes(), table.held_items())
    }
}

#[cfg(test)]
mod tests {
    use games::CartPole;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::muzero::engine::Engine;
    use crate::muzero::players::players;
    use crate::network::published;
    use crate::tests::args;

    /// Plays episodes with shallow searches.
    fn episodes<G: Game>(game: &G, wanted: usize) -> Vec<FinishedEpisode> {
        let crate::muzero::Args { workload, .. } =
            args("--simulations 2 --blocks 1 --channels 32 --threads 1 --precision f32");
        let weights = published(workload.architecture(game.spec()), 1).unwrap();
        let engine = Engine::new(&workload).unwrap();
        let player = &mut players(game, &workload, wanted, (&engine, &weights), 1).unwrap()[0];
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
    fn bytes_are_exact_and_the_oldest_episodes_are_removed() {
        let episodes = episodes(&cartpole(), 6);
        let positions: u64 = episodes[3..].iter().map(|episode| episode.steps.len() as u64).sum();
        let id = TrajectoryId { actor: 0, epoch: 0, sequence: 0 };
        let replay = Replay::new(positions as usize).unwrap();
        episodes.iter().for_each(|episode| replay.insert(&cartpole(), episode).unwrap());
        let bytes = |episode: &FinishedEpisode| episode.trajectory(id, "cartpole-v0").unwrap().bytes() as u64;
        assert_eq!(replay.size(), (episodes[3..].iter().map(bytes).sum(), positions));
    }

    #[test]
    fn every_position_is_drawn() {
        let episodes = episodes(&cartpole(), 2);
        let replay = Replay::new(1000).unwrap();
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
        assert_eq!(seen.len() as u64, replay.size().1);
    }
}
