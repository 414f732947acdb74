//! Trains and evaluates networks with libtorch.
//!
//! It is the only crate that uses tch. It depends on no game, search or process: observations, targets and weights
//! are passed in and out as plain numbers and bytes. [`choose_device`] finds a device and compares it with the CPU,
//! and [`DeviceRules`] state its limits. A [`Network`] holds parameters on a [`Device`]. A [`Trainer`] trains a
//! network on batches of [`Examples`](training::Examples) with [`TrainerSettings`](training::TrainerSettings). A
//! [`LibtorchEvaluator`] evaluates with a network in a [`Precision`], [`Libtorch`] shares it between threads, and a
//! [`LibtorchLatent`] searches with a MuZero network. [`Operands`] are workloads for benchmarks that do their
//! own timing.

mod attention;
mod batch_sizes;
mod benchmark;
mod categorical;
mod consistency;
mod convolution;
mod device;
mod dispatcher;
mod error;
mod evaluator;
mod folded;
mod fusing;
pub mod gpu;
mod graph;
mod latent_model;
mod layers;
mod layout;
mod loaded;
mod loss_scale;
mod losses;
mod memory;
mod moments;
mod muzero;
mod network;
mod optimiser;
mod pooled;
mod process;
mod recompute;
mod rules;
#[cfg(any(test, feature = "doubles"))]
#[path = "tests/stand_in.rs"]
mod stand_in;
mod tower;
mod trainer;
mod unrolled;

pub use self::network::Network;
pub use benchmark::{Operands, Operation};
pub use device::{
    Chosen, ChosenPrecision, Devices, choose_device, choose_precision, choose_training_precision, devices,
};
pub use error::Error;
pub use evaluator::{Libtorch, LibtorchEvaluator};
pub use inference::{DevicePreference, Precision, PrecisionPreference, TrainingPrecision};
pub use latent_model::LibtorchLatent;
pub use loaded::{cpu_half, cuda_half};
pub use process::{keep_memory, set_threads, share_device};
pub use rules::{DeviceRules, MemoryFormat, Purpose, SubmittingThreads, device_name};
pub use tch::Device;
pub use trainer::{DeviceContribution, Trainer};

#[cfg(test)]
mod tests {
    mod formats;
    pub(crate) mod networks;
    pub(crate) mod recorder;
}
