//! The replay process: parse, load, run, drain.

/// A trajectory or sample is dozens of small allocations, which one thread makes and another gives back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let about = "Stores trajectories and serves samples of them";
    service::run("replay-server", about, games::preset, replay_server::run)
}
