//! The `learner` program, which trains the network of a run and publishes its weights.

mod backend;
mod device;
mod metrics;
mod pipeline;
mod priorities;
mod process;
mod trainer;
mod training;
mod trial;
mod writer;

fn main() -> std::process::ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == learner::device_trial::OPTION) {
        return trial::print();
    }
    network_torch::keep_memory();
    let about = "Trains the network of a run and publishes its weights; with --devices alone it prints the devices of this \
                 machine";
    service::run("learner", about, games::preset, process::run)
}
