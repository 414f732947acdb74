//! Environments that advance together in one thread, with the model for the searches.

use game::Game;
use inference::LatentModel;
use proto::weights::Published;
use selfplay::{LatentEpisodes, Round};

use super::engine::Engine;
use super::workload::{DISCOUNT, Workload};
use crate::machine;

/// Environments of one thread.
pub(super) struct Player {
    pub(super) episodes: LatentEpisodes,
    pub(super) model: Box<dyn LatentModel>,
    /// Counts summed over all rounds.
    pub(super) round: Round,
}

/// Distributes environments over the threads of the options.
///
/// # Errors
/// The engine does not support the network, or a device fails.
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
