//! The self-play process.
