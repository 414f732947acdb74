//! The configuration and the files of the training process, without libtorch.
//!
//! [`config::Config`] is checked and converted into [`config::Settings`]: the [`config::NetworkSection`], the
//! [`config::LearnerSection`] with its [`config::OptimiserKind`], which gives the [`trainer_settings()`]
//! and the training targets.
//! [`libtorch::why`] decides whether a run needs libtorch. [`checkpoint::Checkpoints`] writes and finds each
//! [`checkpoint::Checkpoint`] with its [`checkpoint::Progress`], and [`published::Published`] the versions of weights.
//! [`NetworkSize`] is printed before a run. [`device_trial::DeviceTrial`] is what `learner --devices` prints.
//! The program `learner` draws samples, trains and publishes; libtorch, which it uses with the feature `torch`, on by
//! default, belongs to the program, so that this library links none into the command line. The program communicates
//! with the replay server over the network only and does not use the search.

mod batch_targets;
pub mod checkpoint;
pub mod config;
pub mod device_trial;
pub mod libtorch;
mod network_size;
pub mod published;
mod trainer_settings;

pub use network_size::NetworkSize;
pub use trainer_settings::trainer_settings;
