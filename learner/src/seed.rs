//! The seed for a learner's random streams, which differs between the start of a run and each resume.

use game::mix;

/// Returns the seed of a learner that starts with the checkpoint of `step`, or at step 0 without a checkpoint.
///
/// At step 0 it is the seed of the run, so that equal runs start with equal draws. At every other step the seed
/// differs: with the same seed, each interruption would choose the same servers and symmetries again. A learner that
/// stops before the next checkpoint restarts at the same step with the same seed, and none of the lost steps remains.
pub(crate) fn at_step(seed: u64, step: u64) -> u64 {
    if step == 0 { seed } else { mix(seed ^ mix(step)) }
}
