//! The configuration and the files of the training process, without libtorch.
//!
//! [`config::Config`] is checked and converted into [`config::Settings`]: the [`config::NetworkSection`], the
//! [`config::LearnerSection`] with its [`config::OptimiserKind`]. [`checkpoint::Checkpoints`] writes and finds each
//! [`checkpoint::Checkpoint`] with its [`checkpoint::Progress`], and [`published::Published`] the versions of weights.
//! [`device_trial::DeviceTrial`] is what `learner --devices` prints.
//! The program `learner` draws samples, trains and publishes; its modules need the feature `torch`, which is on by
//! default, and belong to the program, so that this library links no libtorch into the command line. The program
//! communicates with the replay server over the network only and does not use the search.

pub mod checkpoint;
pub mod config;
pub mod device_trial;
pub mod published;
