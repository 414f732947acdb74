//! Plays the episodes of one weights version. All moves depend only on the weights, the settings and the seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, anyhow};
use evaluators::{Backend, Network};
use game::mix;
use games::AnyGame;
use proto::weights::Published;
use selfplay::{Episodes, FinishedEpisode, LatentEpisodes, Settings};

/// Number of groups of games. Each group has a separate evaluator and runs on one thread, so that batches do not depend
/// on the number of threads.
const GROUPS: usize = 4;
/// Number of concurrent games per group, which share the batches of an evaluator.
pub(super) const GAMES: usize = 16;

/// Number of concurrent games in all groups. Episodes per weights version are a multiple of this number.
pub(super) const SLOTS: u64 = (GROUPS * GAMES) as u64;

/// Deterministic self-play with one weights version at a time.
pub(super) struct SelfPlay {
    pub(super) game: AnyGame,
    pub(super) settings: Settings,
    pub(super) discount: f32,
    pub(super) seed: u64,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) threads: usize,
}

impl SelfPlay {
    /// Plays `episodes_per_slot` complete episodes in every game slot, and returns the episodes ordered by group, slot
    /// and number. Returns `None` if `stop` returns true first.
    ///
    /// The equal number of episodes per slot avoids a bias towards short episodes.
    ///
    /// # Errors
    /// The evaluator fails or does not support the network.
    pub(super) fn play(
        &self,
        published: &Published,
        episodes_per_slot: u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> anyhow::Result<Option<Vec<FinishedEpisode>>> {
        let next = AtomicUsize::new(0);
        let work = || -> anyhow::Result<Vec<(usize, Option<Vec<FinishedEpisode>>)>> {
            let mut played = Vec::new();
            loop {
                let group = next.fetch_add(1, Ordering::Relaxed);
                if group >= GROUPS {
                    return Ok(played);
                }
                played.push((group, self.group(published, group, episodes_per_slot, stop)?));
            }
        };
        let mut groups = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads.clamp(1, GROUPS)).map(|_| scope.spawn(work)).collect();
            let mut groups = Vec::new();
            for thread in threads {
                groups.extend(thread.join().map_err(|_| anyhow!("a self-play thread panicked"))??);
            }
            anyhow::Ok(groups)
        })?;
        groups.sort_by_key(|(group, _)| *group);
        let episodes: Option<Vec<_>> = groups.into_iter().map(|(_, episodes)| episodes).collect();
        Ok(episodes.map(|groups| groups.into_iter().flatten().collect()))
    }

    fn group(
        &self,
        published: &Published,
        group: usize,
        episodes_per_slot: u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> anyhow::Result<Option<Vec<FinishedEpisode>>> {
        let settings = Settings { games: GAMES, ..self.settings.clone() };
        let seed = [published.manifest.version.0, group as u64].iter().fold(self.seed, |seed, part| mix(seed ^ part));
        let network = self.backend.build_network(&published.manifest, &published.bytes).context("load the weights")?;
        let mut advance: Box<dyn FnMut() -> anyhow::Result<Vec<FinishedEpisode>>> = match network {
            Network::Evaluator(mut evaluator) => {
                let mut episodes = Episodes::new(self.game.clone(), settings, self.discount, seed);
                Box::new(move || {
                    episodes.advance(&mut *evaluator, None)?;
                    Ok(episodes.drain_finished().collect())
                })
            }
            Network::Latent(mut model) => {
                let mut episodes = LatentEpisodes::new(self.game.clone(), settings, self.discount, seed);
                Box::new(move || {
                    episodes.advance(&mut *model)?;
                    Ok(episodes.drain_finished().collect())
                })
            }
        };
        let (wanted, mut finished) = (GAMES as u64 * episodes_per_slot, Vec::new());
        while (finished.len() as u64) < wanted {
            if stop() {
                return Ok(None);
            }
            finished.extend(advance()?.into_iter().filter(|episode| episode.number < episodes_per_slot));
        }
        finished.sort_by_key(|episode| (episode.slot, episode.number));
        Ok(Some(finished))
    }
}
