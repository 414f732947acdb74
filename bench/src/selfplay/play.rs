use std::time::{Duration, Instant};

use ::selfplay::{Episodes, Round, Settings, SubtreeReuse, SymmetryReuse};
use game::Game;
use inference::{Cache, Evaluator};

use super::experience::{Experience, Kept};

/// The settings of the games.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Play {
    pub(super) threads: usize,
    pub(super) games: usize,
    pub(super) leaves: usize,
    pub(super) simulations: u32,
    pub(super) cache_positions: usize,
    pub(super) subtree_reuse: bool,
    pub(super) symmetry_reuse: bool,
    pub(super) experience: Experience,
}

impl Play {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            games: self.games,
            leaves_per_tree: self.leaves,
            full_simulations: self.simulations,
            full_search_probability: 1.0,
            subtree_reuse: if self.subtree_reuse { SubtreeReuse::Keep } else { SubtreeReuse::Discard },
            symmetry_reuse: if self.symmetry_reuse { SymmetryReuse::Share } else { SymmetryReuse::Apart },
            ..Settings::default()
        }
    }

    pub(super) fn cache(&self) -> Option<Cache> {
        (self.cache_positions > 0).then(|| Cache::new(self.cache_positions))
    }

    /// The speed of all threads together.
    pub(super) fn speed(&self, played: &[Played]) -> SelfplaySpeed {
        let mut speed = SelfplaySpeed::default();
        let mut sum = Round::default();
        let (mut bytes, mut positions) = (0, 0);
        for Played { round, seconds, kept } in played {
            speed.evaluations_per_second += round.evaluated as f64 / seconds;
            speed.simulations_per_second += round.simulations as f64 / seconds;
            speed.positions_per_second += round.moves as f64 / seconds;
            speed.games_per_second += round.episodes_finished as f64 / seconds;
            sum += *round;
            bytes += kept.0;
            positions += kept.1;
        }
        let ratio = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        speed.mean_batch = ratio(sum.evaluated, sum.batches);
        speed.batch_fill = speed.mean_batch / (self.games * self.leaves) as f64;
        speed.cache_hit_share = ratio(sum.cache_hits, sum.cache_lookups);
        speed.experience_bytes_per_position = ratio(bytes, positions);
        speed
    }
}

/// The speed of self-play, over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SelfplaySpeed {
    /// Positions that the evaluator answered.
    pub(super) evaluations_per_second: f64,
    /// Simulations completed, with those that needed no evaluation.
    pub(super) simulations_per_second: f64,
    /// Positions searched and played on from: moves.
    pub(super) positions_per_second: f64,
    /// Episodes finished.
    pub(super) games_per_second: f64,
    /// Positions in a batch, on average.
    pub(super) mean_batch: f64,
    /// The same over the positions that a batch could have had: leaves of all games of a thread.
    pub(super) batch_fill: f64,
    /// Hits over lookups; 0 without a cache.
    pub(super) cache_hit_share: f64,
    /// Memory of the experience of a position, as it was kept; 0 if no episode was finished.
    pub(super) experience_bytes_per_position: f64,
}

/// The games of one thread.
pub(super) struct Played {
    round: Round,
    seconds: f64,
    /// Bytes and positions of the experience it kept.
    kept: (usize, usize),
}

/// Games of one thread.
pub(super) struct Player<'a, G: Game> {
    game: &'a G,
    episodes: Episodes<G>,
    kept: Kept,
}

impl<'a, G: Game> Player<'a, G> {
    pub(super) fn new(game: &'a G, play: &Play, seed: u64) -> Self {
        let episodes = Episodes::new(game.clone(), play.settings(), seed);
        Self { game, episodes, kept: Kept::new(play.experience) }
    }

    /// Plays for a time; returns what was played.
    pub(super) fn play(
        &mut self,
        evaluator: &mut dyn Evaluator,
        cache: Option<&Cache>,
        time: Duration,
    ) -> anyhow::Result<Played> {
        let (start, mut round) = (Instant::now(), Round::default());
        while start.elapsed() < time {
            round += self.episodes.advance(evaluator, cache)?;
            for episode in self.episodes.drain_finished() {
                self.kept.keep(self.game, episode)?;
            }
        }
        Ok(Played { round, seconds: start.elapsed().as_secs_f64(), kept: self.kept.size() })
    }
}
