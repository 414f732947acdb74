//! Stores the weights versions and checkpoints of a run on disk.
//!
//! A [`VersionStore`] is a directory of weights versions: the learner's `weights/` and the arena's `arena/`. A
//! [`Retention`] decides which versions stay. [`accepted`] names the version that the arena's gate accepted last.
//! [`checkpoint::Checkpoints`] writes and finds each [`checkpoint::Checkpoint`] with the [`checkpoint::Progress`]. A
//! crash at any moment leaves whole files, and reading checks every digest. Start with [`VersionStore`].

pub mod accepted;
pub mod checkpoint;
mod spread;
mod store;

pub use store::{Retention, VersionStore, read_file};
