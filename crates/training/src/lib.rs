//! What every backend of training takes, returns and stores. It computes no tensors.
//!
//! [`TrainerSettings`] name an [`Optimiser`], a [`Decay`] and a [`Precision`]. A step takes [`Examples`]
//! ([`TrainingBatch`], [`UnrolledBatch`], each with [`Observations`]) and returns [`Trained`] with its [`Losses`] and
//! [`StepTimes`]. A [`Layout`] places the tensors of [`ModelLayers`] in flat buffers of [`Numbers`], and [`checkpoint`]
//! writes these as files, so that each backend resumes what another one trained. [`growth`] continues
//! it in a larger network. Start with [`TrainerSettings`].

pub mod checkpoint;
mod decay;
mod error;
mod examples;
pub mod growth;
mod laps;
pub mod layout;
mod losses;
mod model_layers;
mod numbers;
mod observations;
mod optimiser;
mod positions;
mod settings;
mod trained;
mod unrolled;

pub use decay::Decay;
pub use error::Error;
pub use examples::Examples;
pub use inference::{Precision, TrainingKernel};
pub use laps::Laps;
pub use layout::{Entry, Layout};
pub use losses::Losses;
pub use model_layers::ModelLayers;
pub use numbers::Numbers;
pub use observations::Observations;
pub use optimiser::Optimiser;
pub use positions::TrainingBatch;
pub use settings::TrainerSettings;
pub use trained::{Contents, StepTimes, Trained};
pub use unrolled::UnrolledBatch;
