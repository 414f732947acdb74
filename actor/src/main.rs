//! The self-play process.
fn main() {}
