//! Sums and copies of numbers over the ranks of a group of processes.
//!
//! [`Collective`] is one process's place in a group: with the feature `gloo` in one of Gloo, which libtorch contains,
//! or, for tests, in one of threads ([`in_process`]). A group never changes: after an error its members form another one.
//! The crate decides neither who is in a group nor what is summed, and depends on no tensors, no training and no clock.

#[cfg(feature = "gloo")]
pub mod gloo;
mod in_process;

use std::time::Duration;

pub use in_process::{InProcess, in_process};

/// One process's place in a group of `size` processes, each with a rank. Every member calls the same methods in the
/// same order, with arguments of the same lengths.
pub trait Collective: Send {
    /// The number of this process in the group, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Replaces each number by its sum over the ranks, the same bits on every rank.
    ///
    /// # Errors
    /// [`Error`]: a member ended, or some have not called it in time. The numbers are then undefined and the group is
    /// of no further use; other members may have succeeded.
    fn all_reduce(&mut self, numbers: &mut [f32], timeout: Duration) -> Result<(), Error>;

    /// Replaces the bytes by those of the rank `root`.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    fn broadcast(&mut self, root: usize, bytes: &mut [u8], timeout: Duration) -> Result<(), Error>;
}

/// The reason why an operation of a group failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: {reason}")]
pub struct Error {
    /// What failed: `all-reduce`, `broadcast`, `join`.
    pub operation: &'static str,
    /// What the library says.
    pub reason: String,
}

#[cfg(test)]
mod tests;
