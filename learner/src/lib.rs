//! The training process.
