//! The replay process.
fn main() {}
