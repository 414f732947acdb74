//! The `learner` program: trains the network of a run and publishes the weights.

mod backend;
#[cfg(feature = "torch")]
mod device;
mod group;
mod held_out;
mod memory;
mod metrics;
#[cfg(not(feature = "torch"))]
mod only_cpu;
mod pipeline;
mod priorities;
mod process;
mod records;
mod seed;
mod target_range;
mod trainer;
mod training;
#[cfg(feature = "torch")]
mod trial;
mod turns;
mod validation;
mod writer;

#[cfg(not(feature = "torch"))]
use only_cpu as device;

fn main() -> std::process::ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == service::device_trial::OPTION) {
        return device::trial().print();
    }
    #[cfg(feature = "torch")]
    network_torch::keep_memory();
    let about = "Train a network and publish weights; --devices lists devices";
    service::run("learner", about, games::preset, process::run)
}
