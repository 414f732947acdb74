//! The system tests: one module for each subject, in one program, since each program links the whole workspace.
//! `cargo xtask test` runs each module as a separate process.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bad_input;
mod bench_servers;
mod boards;
mod certificates;
mod chaos;
mod commands;
mod compose;
mod crashes;
mod device_loss;
mod drain;
mod drill;
mod environments;
mod event_files;
mod faulty_device;
mod first_step;
mod fleet;
mod full_disk;
mod gymnasium;
mod health;
mod inference;
mod kubernetes;
mod learners;
mod learning;
mod learning_catch;
mod leases;
mod log_lines;
mod missing_libtorch;
mod open_inference;
mod phases;
mod priorities;
mod prometheus;
mod random_weights;
mod reanalysis;
mod records;
mod resume;
mod revocation;
mod same_seed_same_games;
mod scale_out;
mod soak;
mod stall;
mod starts;
mod traces;
mod train;
mod tune;
