//! `zerofleet`: train, play, eval, bench.
