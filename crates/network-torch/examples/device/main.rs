//! Checks the results and the speed of a device: `cargo run --release -p network-torch --example device -- STEP`.
//!
//! `cargo xtask device-check` packs this program and runs the steps on a machine with a GPU; docs/device-check.md
//! describes them. Each step prints one JSON object per line: the step, the name of a quantity, the value with unit,
//! the bar to meet, and whether it is met. A step exits with a failure only if it could not measure. Start with
//! [`Step`].
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that measures reads the clock and the arguments, and prints"
)]

mod abi;
mod graphs;
mod layers;
mod load;
mod memory;
mod nccl;
mod numbers;
mod output;
mod speed;
mod threads;
mod towers;
mod train;

use std::process::ExitCode;

use network_torch::{Chosen, Device, DevicePreference, Purpose, choose_device};

/// Errors of libtorch, evaluators and arguments, all of which end the step.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A step with the function that runs it.
type Step = (&'static str, fn(&Settings) -> Result<()>);

const STEPS: [Step; 11] = [
    ("load", load::load),
    ("precision", load::precision),
    ("abi", abi::run),
    ("numbers", numbers::run),
    ("train", train::run),
    ("layers", layers::run),
    ("graphs", graphs::run),
    ("threads", threads::run),
    ("nccl", nccl::run),
    ("sweep", speed::sweep),
    ("learner", speed::learner),
];

/// Sizes of the networks and batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Networks and batches for a GPU.
    Full,
    /// A few seconds on two cores of a CPU.
    Small,
}

/// Options of a step.
#[derive(Debug, Clone)]
struct Settings {
    /// Name of the step, printed in every line of output.
    step: &'static str,
    preference: DevicePreference,
    size: Size,
    /// Arithmetic of the step `numbers`: `f32`, `tf32` or `bf16`.
    arithmetic: String,
}

impl Settings {
    /// Parses `STEP [--device NAME] [--small] [--arithmetic NAME]`.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(Self, Step)> {
        let names = STEPS.map(|(name, _)| name).join(", ");
        let name = arguments.next().ok_or_else(|| format!("expected a step: {names}"))?;
        let step = STEPS.into_iter().find(|(step, _)| *step == name);
        let step = step.ok_or_else(|| format!("there is no step `{name}`: expected {names}"))?;
        let mut settings =
            Self { step: step.0, preference: DevicePreference::Auto, size: Size::Full, arithmetic: "bf16".to_owned() };
        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--device" => settings.preference = value()?.parse()?,
                "--arithmetic" => settings.arithmetic = value()?,
                "--small" => settings.size = Size::Small,
                _ => return Err(format!("there is no option `{option}`").into()),
            }
        }
        Ok((settings, step))
    }

    /// Returns the device for evaluation; the first call of libtorch.
    fn device(&self) -> Result<Chosen> {
        self.device_for(Purpose::Inference)
    }

    /// Returns the device for training, as learners choose it: without cuDNN's search for kernels, so that the check
    /// trains with the same kernels.
    fn training_device(&self) -> Result<Chosen> {
        self.device_for(Purpose::Training)
    }

    fn device_for(&self, purpose: Purpose) -> Result<Chosen> {
        let chosen = choose_device(self.preference, purpose)?;
        eprintln!("device: {chosen}");
        Ok(chosen)
    }

    /// Prints the memory in use at the end. libtorch keeps freed device memory, so that this is about the most of the
    /// step.
    fn memory(&self) {
        let device = if self.preference == DevicePreference::Cpu { Device::Cpu } else { Device::Cuda(0) };
        if let Some(bytes) = memory::held_bytes(device) {
            self.value("memory held at the end", bytes as f64 / f64::from(1 << 20), "MiB");
        }
    }

    /// Returns the first of two values on a GPU, the second for a trial on a CPU.
    fn sized<T>(&self, full: T, small: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Small => small,
        }
    }
}

fn main() -> ExitCode {
    let outcome = Settings::parse(std::env::args().skip(1)).and_then(|(settings, (_, step))| {
        step(&settings)?;
        settings.memory();
        Ok(())
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
