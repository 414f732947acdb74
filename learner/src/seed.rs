//! The seed of the random streams of a learner, which differs between the start of a run and each resume.

use game::mix;

/// Returns the seed of a learner that starts with the checkpoint of `step`, or without one at step 0.
///
/// At step 0 it is the seed of the run, so that equal runs begin with equal draws. At every other step it is another
/// one: with the same seed each interruption would choose the same servers and symmetries again. A learner that ends
/// before its next checkpoint starts at the same step with the same seed, and none of the steps that it took is left.
pub(crate) fn at_step(seed: u64, step: u64) -> u64 {
    if step == 0 { seed } else { mix(seed ^ mix(step)) }
}
