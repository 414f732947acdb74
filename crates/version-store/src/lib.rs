//! Stores the weights versions and checkpoints of a run on disk.
//!
//! A [`VersionStore`] is a directory of weights versions: the learner's `weights/` or the arena's `arena/`. A
//! [`Retention`] rule decides which versions to keep. [`accepted`] stores the version that the arena's gate accepted
//! last. [`checkpoint::Checkpoints`] writes and finds each [`checkpoint::Checkpoint`] with the
//! [`checkpoint::Progress`]. A [`ModelFolder`] holds a version outside a run, in the layout of model hubs. A crash at
//! any time leaves only complete files, and reading verifies all digests. Start with [`VersionStore`].

pub mod accepted;
pub mod checkpoint;
mod model_folder;
mod spread;
mod store;

pub use model_folder::{Model, ModelFolder};
pub use store::{Retention, VersionStore};

/// Returns the architecture of the networks in tests.
#[cfg(test)]
fn architecture() -> weights::Architecture {
    weights::Architecture::plain("any", [2, 3, 3], 9, [8, 1])
}
