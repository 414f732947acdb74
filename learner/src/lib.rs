//! The training process's configuration and files, without libtorch.
//!
//! The program `learner` draws samples, trains, publishes weights and writes checkpoints; its modules need the feature
//! `torch`, which is on by default, and belong to the program, so that this library links no libtorch into the command
//! line. It meets the replay server over the wire only and never reaches the search. Start with [`config::Config`],
//! which gives [`config::Settings`], and [`checkpoint::Checkpoints`].

pub mod checkpoint;
pub mod config;
pub mod published;
