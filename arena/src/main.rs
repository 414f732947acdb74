//! The rating process: matches, solved positions, Elo with error bars.
fn main() {}
