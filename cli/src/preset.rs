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
mod tests;
