//! The rated players, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weights::WeightsVersion;

/// A participant of rated games; its name identifies it in files and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Player {
    /// Plays uniformly random legal actions; the anchor of the scale, at 0.
    Random,
    /// Searches by pUCT with random playouts instead of a network.
    Playouts {
        /// Simulations per move.
        simulations: u32,
    },
    /// A weights version of this run, with the arena's search.
    Version(WeightsVersion),
}

/// An invalid name of a player.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a player: expected `random`, `playouts-200` or a weights version such as `v12`")]
pub struct UnknownPlayer {
    /// The invalid name.
    pub name: String,
}

impl fmt::Display for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Playouts { simulations } => write!(f, "playouts-{simulations}"),
            Self::Version(version) => version.fmt(f),
        }
    }
}

impl FromStr for Player {
    type Err = UnknownPlayer;

    fn from_str(name: &str) -> Result<Self, UnknownPlayer> {
        let unknown = || UnknownPlayer { name: name.to_owned() };
        if name == "random" {
            return Ok(Self::Random);
        }
        if let Some(simulations) = name.strip_prefix("playouts-") {
            let simulations = simulations.parse().ok().filter(|&simulations: &u32| simulations > 0);
            return simulations.map(|simulations| Self::Playouts { simulations }).ok_or_else(unknown);
        }
        let version = name.strip_prefix('v').and_then(|version| version.parse().ok());
        version.map(|version| Self::Version(WeightsVersion(version))).ok_or_else(unknown)
    }
}

impl TryFrom<String> for Player {
    type Error = UnknownPlayer;

    fn try_from(name: String) -> Result<Self, UnknownPlayer> {
        name.parse()
    }
}

impl From<Player> for String {
    fn from(player: Player) -> Self {
        player.to_string()
    }
}

#[cfg(test)]
mod tests {
    //! Tests names of players.

    use weights::WeightsVersion;

    use super::Player;

    #[test]
    fn every_player_is_read_back_from_its_name() {
        for player in [Player::Random, Player::Playouts { simulations: 200 }, Player::Version(WeightsVersion(12))] {
            assert_eq!(player.to_string().parse(), Ok(player));
        }
    }

    #[test]
    fn other_names_are_rejected_and_named() {
        for name in ["", "Random", "playouts-", "playouts-0", "playouts--1", "v", "vx", "12"] {
            let error = name.parse::<Player>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}` is not a player")), "{error}");
        }
    }
}
