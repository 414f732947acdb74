//! Implements every development task of the repository; `cargo xtask --help` lists them.
//!
//! [`train`] and [`suite`] are the two commands of the README. [`ci`] lists every check: [`layers`], [`tidy`], [`deny`]
//! and [`kubernetes`] read the tree and are also tests of this crate. [`libtorch`], [`python`], [`browser`] and
//! [`certs`] set up files and programs for other tasks, [`image`] packs containers, [`wheel`] the Python package,
//! [`device_check`] a GPU check, and [`stress`] and [`fuzz`] run tests that take long. The crate compiles in seconds on
//! a bare machine, so it depends on no other crate of the workspace and on no tensor library. Start with [`ci`].

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "xtask talks to the person who called it")]

pub mod browser;
pub mod certs;
pub mod ci;
pub mod deny;
pub mod device_check;
mod files;
pub mod fuzz;
mod gpu;
pub mod image;
pub mod kubernetes;
pub mod layers;
pub mod libtorch;
pub mod python;
#[allow(dead_code, unreachable_pub, reason = "tests of other crates use the rest")]
#[path = "../../tests/src/skip.rs"]
mod skip;
pub mod stress;
pub mod suite;
pub mod tidy;
pub mod train;
pub mod wheel;
pub mod workspace;
