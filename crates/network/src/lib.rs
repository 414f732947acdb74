//! The network: towers, heads, losses, optimisers, devices, the libtorch evaluator.
//!
//! The only crate that names tch. It knows no game, no search and no process: observations, targets and weights come
//! in as plain numbers and bytes and leave as such. Start with [`Network`]; [`Trainer`] improves one,
//! [`LibtorchEvaluator`] asks one.

mod affine;
mod device;
mod error;
mod evaluator;
mod folded;
mod global;
mod layout;
mod libtorch;
mod losses;
mod memory;
mod network;
mod optimiser;
mod precision;
mod schedule;
mod tensors;
mod threads;
mod tower;
mod trainer;

pub use device::{Chosen, DevicePreference, choose_device};
pub use error::Error;
pub use evaluator::LibtorchEvaluator;
pub use layout::{BLOCKS_MAX, CHANNELS_MAX, SQUEEZE_EXCITATION_MAX};
pub use libtorch::Libtorch;
pub use losses::{Losses, TrainingBatch};
pub use memory::keep_memory;
pub use network::Network;
pub use optimiser::Optimiser;
pub use precision::{ChosenPrecision, Precision, PrecisionPreference, choose_precision};
pub use schedule::Decay;
pub use tch::Device;
pub use threads::set_threads;
pub use trainer::{Trainer, TrainerSettings};

#[cfg(test)]
mod testing;
