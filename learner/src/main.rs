//! The training process.
fn main() {}
