//! `zerofleet`: train, play, eval, bench.
fn main() {}
