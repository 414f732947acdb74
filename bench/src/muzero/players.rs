//! Environments that advance together in one thread, with the model of their searches.

use game::Game;
use inference::LatentModel;
use proto::weights::Published;
use selfplay::{LatentEpisodes, Round};

use super::engine::Engine;
use super::workload::{DISCOUNT, Workload};
use crate::machine;

/// The environments of one thread.
pub(super) struct Player {
    pub(super) episodes: LatentEpisodes,
    pub(super) model: Box<dyn LatentModel>,
    /// The counts of all rounds.
    pub(super) round: Round,
}

/// Distributes environments over the threads of the options.
///
/// # Errors
/// A network that the engine does not compute; a device that fails.
pub(super) fn players<G: Game>(
    game: &G,
    workload: &Workload,
    environments: usize,
    (engine, weights): (&Engine, &Published),
    seed: u64,
) -> anyhow::Result<Vec<Player>> {
    let threads = machine::threads(workload.threads).min(environments);
    let player = |thread| {
        let settings = workload.settings((environments + thread) / threads);
        let seed = seed.wrapping_add(thread as u64);
        let episodes = LatentEpisodes::new(game.clone(), settings, DISCOUNT, seed);
        Ok(Player { episodes, model: engine.build(weights)?, round: Round::default() })
    };
    (0..threads).map(player).collect()
}
