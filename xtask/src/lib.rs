//! Every chore of the repository; `cargo xtask --help` lists them.
//!
//! It must compile in seconds on a bare machine, so it knows none of our crates and nothing of libtorch but where its
//! files go. Checks that read the tree ([`layers`], [`tidy`]) are tests of this crate as well. Start with [`ci`], which
//! names every check.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "xtask talks to the person who called it")]

pub mod certs;
pub mod chaos;
pub mod ci;
pub mod deny;
pub mod image;
pub mod kubernetes;
pub mod layers;
pub mod libtorch;
pub mod python;
pub mod sanitise;
pub mod suite;
pub mod tidy;
pub mod train;
pub mod workspace;
