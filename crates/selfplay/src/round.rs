//! Counts of the work of self-play.

use std::time::Duration;

use game::Outcome;

use crate::resignation::Watch;

/// Counts of one round, or summed over several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Positions in the batch; 0 if none was needed. With a learned model, the total of observations, recurrent steps
    /// and actions to afterstates.
    pub batch: usize,
    /// Positions answered by the evaluator, from the batch, or from all batches where rounds are summed.
    pub evaluated: usize,
    /// Batches: 1 or 0 in a single round, with a learned model up to 3; more where rounds are summed.
    pub batches: usize,
    /// Positions that were looked up in the cache.
    pub cache_lookups: usize,
    /// Positions found in the cache.
    pub cache_hits: usize,
    /// Completed simulations.
    pub simulations: usize,
    /// Moves played after a search.
    pub moves: usize,
    /// Finished episodes.
    pub episodes_finished: usize,
    /// Episodes that the environments lost.
    pub episodes_lost: usize,
    /// Time spent on observing the positions of the batch; zero unless [timed](crate::Episodes::timed).
    pub observing: Duration,
    /// Calibration of resignation over the finished episodes.
    pub calibration: Calibration,
}

impl Round {
    /// Adds the answers of a batch by the rules, where `resolved` is the number of completed simulations. After an
    /// error the counts move to `unreported`.
    pub(crate) fn answered<E>(mut self, resolved: Result<usize, E>, unreported: &mut Self) -> Result<Self, E> {
        match resolved {
            Ok(simulations) => {
                self.simulations += simulations;
                self.evaluated += self.batch;
                self.batches += usize::from(self.batch > 0);
                Ok(self)
            }
            Err(error) => {
                *unreported = self;
                Err(error)
            }
        }
    }
}

/// Accuracy of resignations, counted over finished episodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Episodes cut short (or played out with fast searches) by a resignation.
    pub resigned: usize,
    /// Calibration episodes, which are played out with unchanged searches despite a resignation.
    pub episodes: usize,
    /// Calibration episodes in which a player would have resigned.
    pub would_resign: usize,
    /// Calibration episodes in which the resigner did not lose.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_evaluates_nothing_has_no_batch() {
        let batches = |batch| {
            let round = Round { batch, ..Round::default() };
            round.answered(Ok::<_, ()>(3), &mut Round::default()).map(|round| round.batches)
        };
        assert_eq!([0, 5].map(batches), [Ok(0), Ok(1)]);
    }
}
