//! The program `arena`: `arena --config runs/NAME/config.toml`.

fn main() -> std::process::ExitCode {
    let about = "Measure the strength of weights: solved positions, rated games, Elo";
    service::run("arena", about, games::preset, arena::run)
}
