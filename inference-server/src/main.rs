//! The inference server: parse, load, build, run, drain.

fn main() -> std::process::ExitCode {
    #[cfg(feature = "torch")]
    network_torch::keep_memory();
    let about = "Evaluate positions for clients with the latest weights";
    service::run("inference-server", about, games::preset, inference_server::run)
}
