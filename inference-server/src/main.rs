//! The inference server: parse, load, build, run, drain.

fn main() -> std::process::ExitCode {
    #[cfg(feature = "torch")]
    network_torch::keep_memory();
    let about = "Evaluates positions with the newest weights for its clients";
    service::run("inference-server", about, games::preset, inference_server::run)
}
