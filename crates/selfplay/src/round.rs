//! Counters of self-play rounds.

use std::time::Duration;

use game::Outcome;

use crate::resignation::Watch;

/// Counters of one round, or sums over several rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Positions in the batch of the round; 0 if no batch was needed. With a learned model, this counts observations,
    /// recurrent steps and actions to afterstates together. Adding rounds does not add this field: it keeps the value
    /// of the last round.
    pub batch: usize,
    /// Positions evaluated in this round, or in all rounds of a sum.
    pub evaluated: usize,
    /// Evaluated batches: at most 1 in a round, or 3 with a learned model; a sum over rounds may have more.
    pub batches: usize,
    /// Lookups of positions in the evaluation cache.
    pub cache_lookups: usize,
    /// Lookups that found the position in the evaluation cache.
    pub cache_hits: usize,
    /// Completed simulations.
    pub simulations: usize,
    /// Moves played after a search.
    pub moves: usize,
    /// Finished episodes.
    pub episodes_finished: usize,
    /// Episodes lost by the environments and dropped.
    pub episodes_lost: usize,
    /// Time spent writing the observations of the batch; zero unless [timed](crate::Episodes::timed).
    pub observing: Duration,
    /// Counts of correct and wrong resignations in the finished episodes.
    pub calibration: Calibration,
}

/// Counts of finished episodes from which the rate of wrong resignations follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Episodes in which a resignation took effect: ended early or played out with fast searches.
    pub resigned: usize,
    /// Calibration episodes, in which resignations are ignored.
    pub episodes: usize,
    /// Calibration episodes in which a player would have resigned.
    pub would_resign: usize,
    /// Calibration episodes in which the player who would have resigned did not lose.
    pub wrong: usize,
}

impl Calibration {
    pub(crate) fn count(&mut self, watch: &Watch, outcome: Outcome) {
        self.resigned += usize::from(watch.is_resigned());
        if !watch.is_calibration {
            return;
        }
        self.episodes += 1;
        if let Some(resigner) = watch.resigner {
            self.would_resign += 1;
            self.wrong += usize::from(outcome.value_for(resigner) > -1.0);
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
        self.episodes_lost += other.episodes_lost;
        self.observing += other.observing;
        self.calibration.resigned += other.calibration.resigned;
        self.calibration.episodes += other.calibration.episodes;
        self.calibration.would_resign += other.calibration.would_resign;
        self.calibration.wrong += other.calibration.wrong;
    }
}
