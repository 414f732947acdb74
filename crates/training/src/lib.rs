//! The [`Trainer`] trait for training backends, with inputs, outputs and stored state. The crate computes no tensors.
//!
//! [`TrainerSettings`] contain an [`Optimiser`], a [`Decay`] and a [`Precision`]. A training step takes [`Examples`]
//! ([`TrainingBatch`] or [`UnrolledBatch`], both with [`Observations`]) and returns [`Trained`], with [`Losses`] and
//! [`StepTimes`]. In a group of learners, each learner adds a [`Contribution`]. Each batch is on one of the network's
//! [`Boards`].
//!
//! A [`Layout`] assigns the tensors of [`ModelLayers`] to flat buffers of [`Numbers`], and [`checkpoint`] writes the
//! buffers to files, so that any backend can resume training from any other backend. [`moments`] are stored in float32
//! or fewer bits, and [`Memory`] lists the memory of training by part. [`mixed_precision`] contains the decisions of a
//! trainer in low precision. [`growth`] continues training in a larger network, [`initial_weights`] begins with other
//! weights. Start with [`TrainerSettings`].

mod boards;
pub mod checkpoint;
mod contribution;
mod decay;
mod error;
mod examples;
pub mod growth;
pub mod initial_weights;
mod laps;
pub mod layout;
mod losses;
mod memory;
pub mod mixed_precision;
mod model_layers;
pub mod moments;
pub mod muon;
mod network_size;
mod numbers;
mod observations;
mod optimiser;
mod positions;
mod recompute;
mod settings;
mod trained;
mod trainer;
mod unrolled;

pub use boards::Boards;
pub use contribution::{Contributed, Contribution};
pub use decay::Decay;
pub use error::Error;
pub use examples::Examples;
pub use inference::{Precision, TrainingKernel};
pub use laps::Laps;
pub use layout::{Entry, Group, Layout};
pub use losses::{LOSSES, Losses, PARTS};
pub use memory::Memory;
pub use mixed_precision::{LossScale, MixedPrecision};
pub use model_layers::ModelLayers;
pub use moments::{Moment, MomentFormat, MomentKind};
pub use network_size::NetworkSize;
pub use numbers::Numbers;
pub use observations::Observations;
pub use optimiser::Optimiser;
pub use positions::TrainingBatch;
pub use recompute::Recompute;
pub use settings::TrainerSettings;
pub use trained::{Contents, StepTimes, Trained};
pub use trainer::{Placed, Snapshot, Trainer};
pub use unrolled::UnrolledBatch;
