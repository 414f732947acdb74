//! The seed for the random streams of a learner. The seed differs between the start of a run and each resume.

use game::mix;

/// Returns the seed for a learner that resumes at the checkpoint of `step`, or starts at step 0 without a checkpoint.
///
/// At step 0, this is the seed of the run, so that equal runs start with equal samples. At any other step, the seed
/// differs: otherwise, each interruption would repeat the choices of servers and symmetries. If a learner stops before
/// the next checkpoint, it restarts at the same step with the same seed; this is harmless, because the steps in between
/// are lost.
pub(crate) fn at_step(seed: u64, step: u64) -> u64 {
    if step == 0 { seed } else { mix(seed ^ mix(step)) }
}
