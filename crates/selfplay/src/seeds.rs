//! Seeds of episodes, disjoint between self-play and evaluation.

use game::mix;

/// The bit set in the seeds of evaluation episodes and cleared in the seeds of self-play episodes.
const EVALUATION: u64 = 1 << 63;

/// Returns the seed of the evaluation episode `index`. No self-play episode has this seed, so an evaluation never uses
/// an episode from the training data.
#[must_use]
pub fn evaluation_seed(seed: u64, index: u64) -> u64 {
    mix(mix(seed) ^ index) | EVALUATION
}

/// Converts a random number to the seed of a self-play episode, which no evaluation uses.
pub(crate) fn training_seed(drawn: u64) -> u64 {
    drawn & !EVALUATION
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_seed_is_used_in_self_play_and_in_evaluation() {
        for drawn in [0, 1, u64::MAX, evaluation_seed(7, 7)] {
            assert_eq!(training_seed(drawn) >> 63, 0);
            assert_eq!(evaluation_seed(drawn, 0) >> 63, 1);
        }
    }

    #[test]
    fn the_episodes_of_an_evaluation_have_different_seeds() {
        let seeds: BTreeSet<u64> = (0..4).flat_map(|seed| (0..1000).map(move |i| evaluation_seed(seed, i))).collect();
        assert_eq!(seeds.len(), 4000);
    }
}
