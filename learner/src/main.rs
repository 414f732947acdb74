//! The `learner` program, which trains the network of a run and publishes its weights.

mod device;
mod metrics;
mod pipeline;
mod priorities;
mod process;
mod targets;
mod training;
mod writer;

fn main() -> std::process::ExitCode {
    network_torch::keep_memory();
    service::run("learner", "Trains the network of a run and publishes its weights", games::preset, process::run)
}
