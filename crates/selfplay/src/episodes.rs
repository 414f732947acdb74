use std::time::{Duration, Instant};

use game::{Game, Outcome};
use inference::{Cache, Error, Evaluator};
use search::Tree;

use crate::episode::{Episode, FinishedEpisode, Pace, Standing, Workspace, was_wrong};
use crate::frontier::{Forest, Frontier, Scene};
use crate::leaves::{Buffers, NetworkLeaves};
use crate::resignation::Watch;
use crate::settings::Settings;

/// Many episodes of self-play that advance together, for ever, on one thread.
///
/// What each of them plays depends on the seed, its slot and the evaluator's answers, not on the others.
pub struct Episodes<G: Game> {
    game: G,
    settings: Settings,
    episodes: Vec<Episode<G>>,
    /// Who gathers first: whoever found no room in the last batch.
    first: usize,
    frontier: Frontier<G>,
    buffers: Buffers,
    workspace: Workspace,
    finished: Vec<FinishedEpisode>,
    /// What rounds did that an evaluator's error cut short; the next round's report holds it.
    unreported: Round,
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Positions in the batch; 0 if none was needed.
    pub batch: usize,
    /// Positions the evaluator answered: those of the batch, or of all batches where rounds are summed.
    pub evaluated: usize,
    /// Batches: 1 or 0, or how many where rounds are summed.
    pub batches: usize,
    /// Positions that were looked up in the cache.
    pub cache_lookups: usize,
    /// Positions that were there.
    pub cache_hits: usize,
    /// Simulations completed.
    pub simulations: usize,
    /// Moves played after a search.
    pub moves: usize,
    /// Episodes that came to their result.
    pub episodes_finished: usize,
    /// Time spent on observing the positions of the batch; zero unless [timed](Episodes::timed).
    pub observing: Duration,
    /// What the finished episodes say about resignation.
    pub calibration: Calibration,
}

/// How right resignations were, counted over finished episodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Episodes cut short (or played out with fast searches) by a resignation.
    pub resigned: usize,
    /// Episodes that are played out with unchanged searches whatever happens.
    pub episodes: usize,
    /// Calibration episodes in which somebody would have resigned.
    pub would_resign: usize,
    /// Of those, the ones that the resigner did not lose.
    pub wrong: usize,
}

impl Calibration {
    pub(crate) fn count(&mut self, watch: &Watch, outcome: Outcome) {
        self.resigned += usize::from(watch.is_resigned());
        if !watch.is_calibration() {
            return;
        }
        self.episodes += 1;
        if let Some(resigner) = watch.resigner() {
            self.would_resign += 1;
            self.wrong += usize::from(was_wrong(resigner, outcome));
        }
    }
}

impl std::ops::AddAssign for Round {
    fn add_assign(&mut self, other: Self) {
        self.batch = other.batch;
        self.evaluated += other.evaluated;
        self.batches += other.batches;
        self.cache_lookups += other.cache_lookups;
        self.cache_hits += other.cache_hits;
        self.simulations += other.simulations;
        self.moves += other.moves;
        self.episodes_finished += other.episodes_finished;
        self.observing += other.observing;
        self.calibration.resigned += other.calibration.resigned;
        self.calibration.episodes += other.calibration.episodes;
        self.calibration.would_resign += other.calibration.would_resign;
        self.calibration.wrong += other.calibration.wrong;
    }
}

impl<G: Game> std::fmt::Debug for Episodes<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Episodes").field("game", &self.game).field("settings", &self.settings).finish_non_exhaustive()
    }
}

struct Games<'a, G: Game>(&'a mut [Episode<G>]);

impl<G: Game> Forest<G> for Games<'_, G> {
    fn tree(&mut self, owner: usize) -> &mut Tree<G::Position> {
        self.0[owner].tree()
    }

    fn rooted(&mut self, owner: usize) {
        self.0[owner].rooted();
    }
}

impl<G: Game> Episodes<G> {
    /// `settings.games` games, none of which has begun.
    #[must_use]
    pub fn new(game: G, settings: Settings, seed: u64) -> Self {
        let episodes = (0..settings.games).map(|slot| Episode::new(&game, &settings, seed, slot)).collect();
        Self {
            episodes,
            first: 0,
            frontier: Frontier::new(&game),
            buffers: Buffers::new(&game),
            workspace: Workspace::default(),
            finished: Vec::new(),
            unreported: Round::default(),
            game,
            settings,
        }
    }

    /// Has every round tell how long it observed, by this clock.
    #[must_use]
    pub fn timed(mut self, clock: fn() -> Instant) -> Self {
        self.frontier.clock = Some(clock);
        self
    }

    /// One round: gathers leaves from all games, evaluates one batch (the cache is asked first) and applies the answers.
    ///
    /// An evaluator of another weights version than the last one's begins every search under way anew;
    /// [`settle`](Self::settle) ends them first.
    ///
    /// # Errors
    /// Those of the evaluator. The round's leaves are then given up and the episodes can go on, with this evaluator or
    /// another; what the round did without the batch is counted with the next.
    pub fn advance(&mut self, evaluator: &mut dyn Evaluator, cache: Option<&Cache>) -> Result<Round, Error> {
        self.round(evaluator, cache, Pace::PlayOn)
    }

    /// Finishes every search under way and begins none, so that new weights fall between moves.
    ///
    /// # Errors
    /// Those of the evaluator, as in [`advance`](Self::advance).
    pub fn settle(&mut self, evaluator: &mut dyn Evaluator, cache: Option<&Cache>) -> Result<Round, Error> {
        let mut sum = Round::default();
        while !self.episodes.iter().all(Episode::is_at_move) {
            match self.round(evaluator, cache, Pace::Settle) {
                Ok(round) => sum += round,
                Err(error) => {
                    self.unreported += sum;
                    return Err(error);
                }
            }
        }
        Ok(sum)
    }

    /// Gives up every search under way: its move is searched again, from a fresh root. For whoever has to replace an
    /// evaluator that cannot [`settle`](Self::settle), so that no search knows two of them.
    pub fn abandon(&mut self) {
        for episode in &mut self.episodes {
            episode.abandon(&self.settings);
        }
    }

    fn round(&mut self, evaluator: &mut dyn Evaluator, cache: Option<&Cache>, pace: Pace) -> Result<Round, Error> {
        let mut round = std::mem::take(&mut self.unreported);
        let mut leaves = NetworkLeaves::new(evaluator, &mut self.buffers);
        let symmetry_reuse = self.settings.symmetry_reuse;
        let mut scene = Scene { game: &self.game, cache, symmetry_reuse, leaves: &mut leaves };
        (self.frontier.cache_lookups, self.frontier.cache_hits) = (0, 0);

        let games = self.episodes.len();
        let batch_max = scene.leaves.batch_max();
        let first = self.first;
        for i in 0..games {
            let slot = (first + i) % games;
            if self.frontier.batch() >= batch_max {
                self.first = slot;
                break;
            }
            self.episodes[slot].gather(
                &mut scene,
                &mut self.frontier,
                &self.settings,
                pace,
                &mut self.workspace,
                &mut self.finished,
                &mut round,
            );
        }

        round.batch = self.frontier.batch();
        round.cache_lookups += self.frontier.cache_lookups;
        round.cache_hits += self.frontier.cache_hits;
        let resolved = self.frontier.resolve(&mut scene, &mut Games(&mut self.episodes));
        round.observing += std::mem::take(&mut self.frontier.observing);
        match resolved {
            Ok(simulations) => {
                round.simulations += simulations;
                round.evaluated += round.batch;
                round.batches += usize::from(round.batch > 0);
                Ok(round)
            }
            Err(error) => {
                self.unreported = round;
                Err(error)
            }
        }
    }

    /// Full searches that begin from now on take so many simulations; `settings.full_simulations` until then.
    pub fn search_fully_with(&mut self, simulations: u32) {
        self.settings.full_simulations = simulations;
    }

    /// Hands out the episodes that finished since the last call.
    pub fn drain_finished(&mut self) -> impl Iterator<Item = FinishedEpisode> + '_ {
        self.finished.drain(..)
    }

    /// How many games advance together.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.episodes.len()
    }

    /// How far the episode is that a slot is at.
    ///
    /// # Panics
    /// There is no such slot.
    #[must_use]
    pub fn standing(&self, slot: usize) -> Standing {
        self.episodes[slot].standing()
    }

    /// How many episodes have begun and have no result yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.episodes.iter().filter(|episode| episode.is_under_way()).count()
    }
}

#[cfg(test)]
mod tests;
