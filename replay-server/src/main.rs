//! The replay process: parses its arguments, loads the configuration, serves until it is stopped, and drains.

/// A trajectory or sample is dozens of small allocations, which one thread makes and another frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let about = "Stores trajectories and serves samples of them";
    service::run("replay-server", about, games::preset, replay_server::run)
}
