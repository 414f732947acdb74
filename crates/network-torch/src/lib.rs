//! Trains and evaluates networks with libtorch.
//!
//! The only crate that names tch. It knows no game, no search and no process: observations, targets and weights come
//! in as plain numbers and bytes and leave as such. A [`Network`] holds parameters on a [`Device`]; a [`Trainer`]
//! improves one by batches ([`TrainingBatch`]) with an [`Optimiser`]; a [`LibtorchEvaluator`] evaluates with one, in a
//! [`Precision`], and [`Libtorch`] shares it between threads. [`MatrixProduct`], [`Vectors`] and [`DenseNetwork`] are
//! work for benchmarks, which time it themselves.

mod affine;
mod cells;
mod custom_backward;
mod dense;
mod device;
mod error;
mod evaluator;
mod folded;
mod global;
mod laps;
mod layout;
mod libtorch;
mod losses;
mod memory;
mod network;
mod optimiser;
mod precision;
mod product;
mod random;
mod schedule;
mod staging;
mod tensors;
mod threads;
mod tower;
mod trainer;
mod vector;

pub use self::network::Network;
pub use custom_backward::TowerPreference;
pub use dense::{DenseNetwork, DenseShape};
pub use device::{Chosen, Devices, choose_device, device_name, devices};
pub use error::Error;
pub use evaluator::LibtorchEvaluator;
pub use inference::{DevicePreference, PrecisionPreference};
pub use libtorch::Libtorch;
pub use losses::{Losses, TrainingBatch};
pub use memory::keep_memory;
pub use optimiser::Optimiser;
pub use precision::{ChosenPrecision, Precision, choose_precision};
pub use product::MatrixProduct;
pub use schedule::Decay;
pub use tch::Device;
pub use threads::set_threads;
pub use trainer::{StepTimes, Trainer, TrainerSettings};
pub use vector::{VectorOperation, Vectors};

#[cfg(test)]
mod testing;
