//! The `actor` program: the self-play process.

fn main() -> std::process::ExitCode {
    let about = "Play games with the latest weights and send trajectories to replay";
    service::run("actor", about, games::preset, actor::run)
}
