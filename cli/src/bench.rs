//! `zerofleet bench`: how fast the parts are, measured against what bounds them in the same run.

pub mod kernel;
pub mod selfplay;
