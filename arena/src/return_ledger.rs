//! Stores the mean returns of a run's versions in `returns.json`. Start with [`ReturnLedger`].

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use service::directory::{if_exists, replace};
use strength::ledger::Player;
use strength::returns::Returns;

/// Version of the file format; other versions are rejected.
const FORMAT: u32 = 1;

/// Mean returns of random play and of each measured version in a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReturnLedger {
    game: String,
    returns: BTreeMap<Player, Returns>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    game: String,
    returns: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    player: Player,
    #[serde(flatten)]
    returns: Returns,
}

impl ReturnLedger {
    /// Reads the file written by [`save`](Self::save); without a file, the ledger is empty.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or belongs to another game or release; such a file is never overwritten.
    pub(crate) fn load(path: &Path, game: &str) -> anyhow::Result<Self> {
        let file = path.display();
        let text = if_exists(std::fs::read(path)).with_context(|| format!("read {file}"))?;
        let Some(text) = text else { return Ok(Self { game: game.to_owned(), returns: BTreeMap::new() }) };
        let Document { format, game: found, returns } = serde_json::from_slice(&text)
            .with_context(|| format!("{file} is not a returns file; move it away to start over"))?;
        anyhow::ensure!(
            format == FORMAT && found == game,
            "{file} has format {format} for {found}, this run needs {FORMAT} for {game}; move it away to start over"
        );
        let returns = returns.into_iter().map(|line| (line.player, line.returns)).collect();
        Ok(Self { game: found, returns })
    }

    /// Writes the file, atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let returns = self.returns.iter().map(|(&player, &returns)| Line { player, returns });
        let document = Document { format: FORMAT, game: self.game.clone(), returns: returns.collect() };
        let mut text = serde_json::to_vec_pretty(&document).context("write the returns as JSON")?;
        text.push(b'\n');
        Ok(replace(path, &text)?)
    }

    /// Stores the returns of a player, in place of earlier returns.
    pub(crate) fn enter(&mut self, player: Player, returns: Returns) {
        self.returns.insert(player, returns);
    }

    /// Returns the measured returns of a player; `None` if the player was not measured.
    pub(crate) fn of(&self, player: Player) -> Option<Returns> {
        self.returns.get(&player).copied()
    }

    /// Returns the number of episodes of all players.
    pub(crate) fn episodes(&self) -> u64 {
        self.returns.values().map(|returns| returns.episodes as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use weights::WeightsVersion;

    use super::*;

    fn returns(mean: f64) -> Returns {
        Returns { episodes: 32, mean, low: mean - 0.1, high: mean + 0.1, length: 9.0 }
    }

    #[test]
    fn returns_are_read_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("returns.json");
        let mut ledger = ReturnLedger::load(&path, "catch").unwrap();
        assert_eq!((ledger.of(Player::Random), ledger.episodes()), (None, 0));
        ledger.enter(Player::Random, returns(-0.6));
        ledger.enter(Player::Version(WeightsVersion(7)), returns(1.0 / 3.0));
        ledger.save(&path).unwrap();
        let read = ReturnLedger::load(&path, "catch").unwrap();
        assert_eq!(read, ledger);
        assert_eq!(read.of(Player::Version(WeightsVersion(7))), Some(returns(1.0 / 3.0)));
        assert_eq!(read.episodes(), 64);
    }

    #[test]
    fn a_damaged_file_or_one_of_another_game_is_rejected_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("returns.json");
        ReturnLedger::load(&path, "catch").unwrap().save(&path).unwrap();
        let error = ReturnLedger::load(&path, "cartpole-v1").unwrap_err().to_string();
        assert!(error.contains("format 1 for catch, this run needs 1 for cartpole-v1; move it away"), "{error}");
        std::fs::write(&path, "{\"format\":").unwrap();
        let error = ReturnLedger::load(&path, "catch").unwrap_err().to_string();
        assert!(error.contains("is not a returns file; move it away to start over"), "{error}");
    }
}
