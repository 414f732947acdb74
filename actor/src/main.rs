//! The `actor` program: the self-play process.

fn main() -> std::process::ExitCode {
    let about = "Plays games against itself with the newest weights and sends the trajectories to the replay server";
    service::run("actor", about, games::preset, actor::run)
}
