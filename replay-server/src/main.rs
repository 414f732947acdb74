//! The replay process: parses arguments, loads the configuration, serves until stopped, and drains.

/// A trajectory or sample consists of dozens of small allocations, made by one thread and freed by another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let about = "Store trajectories and serve samples";
    service::run("replay-server", about, games::preset, replay_server::run)
}
