//! What a run of each game begins with: the run file that nobody had to write.

use anyhow::Context as _;
use games::GameKind;

use crate::config::Fleet;

/// The configuration a run of `game` begins with, before file, environment and command line.
pub fn preset(game: &str) -> anyhow::Result<Fleet> {
    let kind: GameKind = game.parse().context("run.game")?;
    let text = match kind {
        GameKind::TicTacToe => include_str!("../presets/tic_tac_toe.toml"),
        GameKind::ConnectFour => include_str!("../presets/connect_four.toml"),
        GameKind::Hex { .. } => include_str!("../presets/hex.toml"),
    };
    toml::from_str(text).with_context(|| format!("read the preset of {game}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_run_file_whose_values_all_processes_accept() {
        for game in ["tic_tac_toe", "connect_four", "hex-3", "hex-11"] {
            let mut fleet = preset(game).unwrap();
            fleet.run.game = game.to_owned();
            fleet.actor.threads = 1;
            fleet.check().unwrap();
        }
    }
}
