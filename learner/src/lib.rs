//! Configuration and files of the training process, without libtorch.
//!
//! [`config::Config`] is checked and converted into [`config::Settings`]: the [`config::NetworkSection`] and the
//! [`config::LearnerSection`] with a [`config::OptimiserKind`], which determine the [`trainer_settings()`] and the
//! training targets. [`libtorch::why`] decides whether a run needs libtorch. [`NetworkSize`] is printed before a run. [`device_trial::DeviceTrial`] is the output of
//! `learner --devices`. The program `learner` draws samples, trains and publishes. Libtorch, used with the feature
//! `torch` (on by default), belongs to the program, so that this library does not link it into the command line. The
//! program communicates with the replay server over the network only and does not use the search.

mod batch_targets;
pub mod config;
pub mod device_trial;
pub mod libtorch;
mod network_size;
mod trainer_settings;

pub use network_size::NetworkSize;
pub use trainer_settings::trainer_settings;
