//! Stores all rated games of a run, and computes their ratings, in `ratings.json`. Start with [`Ledger`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use service::directory::{WriteError, replace};

use crate::player::Player;
use crate::rating::{Pairing, Prior, Rating, rate};
use crate::tally::Tally;

/// Version of the file format; other versions are rejected.
const FORMAT: u32 = 2;

/// The results of all games of a run, by pair of players: the lesser player, the greater player, and the tally of the
/// lesser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    game: String,
    results: BTreeMap<(Player, Player), Tally>,
}

/// A player with its rating.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rated {
    /// The player.
    pub player: Player,
    /// The rating; random play is at 0.
    pub rating: Rating,
    /// The number of its games.
    pub games: u64,
}

/// The reason for rejecting a file, or for a failed write.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file exists but cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is damaged or of another format.
    #[error("{} is not a file of ratings; move it away to start again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The file belongs to another run, or to another release.
    #[error("{} holds {got}, this run needs {expected}; move it away to start again", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// The value in the file.
        got: String,
        /// The value of this run.
        expected: String,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    game: String,
    /// The ratings, for readers of the file; they are computed again from the results.
    ratings: Vec<RatingLine>,
    results: Vec<ResultLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatingLine {
    player: Player,
    elo: f64,
    low: f64,
    high: f64,
    games: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultLine {
    a: Player,
    b: Player,
    /// Numbers of openings in whose two games `a` scored 0 to 4 half points.
    pairs: Tally,
}

impl Ledger {
    /// Returns a ledger without games.
    #[must_use]
    pub fn new(game: &str) -> Self {
        Self { game: game.to_owned(), results: BTreeMap::new() }
    }

    /// Reads the file that [`save`](Self::save) wrote; without a file, the ledger is empty.
    ///
    /// # Errors
    /// [`Error`]; an unreadable file is never overwritten.
    pub fn load(path: &Path, game: &str) -> Result<Self, Error> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::new(game)),
            Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
        };
        let document: Document =
            serde_json::from_slice(&text).map_err(|source| Error::Damaged { path: path.to_owned(), source })?;
        let Document { format, game: found, ratings: _, results } = document;
        let other = |got, expected| Error::Other { path: path.to_owned(), got, expected };
        if format != FORMAT {
            return Err(other(format!("form {format}"), format!("form {FORMAT}")));
        }
        if found != game {
            return Err(other(format!("games of {found}"), format!("games of {game}")));
        }
        let mut ledger = Self::new(game);
        for ResultLine { a, b, pairs } in results {
            if a == b {
                return Err(other(format!("games of {a} against itself"), "games between two".to_owned()));
            }
            // A duplicate line, which only an edit can produce, counts twice.
            ledger.add(a, b, pairs);
        }
        Ok(ledger)
    }

    /// Writes all games and ratings, atomically.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let results = self.results.iter().map(|(&(a, b), &pairs)| ResultLine { a, b, pairs });
        let ratings = self.ratings().into_iter().map(|Rated { player, rating, games }| RatingLine {
            player,
            elo: rating.elo,
            low: rating.low,
            high: rating.high,
            games,
        });
        let (game, ratings, results) = (self.game.clone(), ratings.collect(), results.collect());
        let document = Document { format: FORMAT, game, ratings, results };
        let mut text = serde_json::to_vec_pretty(&document).expect("numbers and names have a form in JSON");
        text.push(b'\n');
        Ok(replace(path, &text)?)
    }

    /// Adds the results of `a` in a match against `b`.
    ///
    /// # Panics
    /// If both are the same player, whose games would be no evidence.
    pub fn add(&mut self, a: Player, b: Player, tally: Tally) {
        assert_ne!(a, b, "a match is between two");
        let (players, tally) = if a < b { ((a, b), tally) } else { ((b, a), tally.reversed()) };
        *self.results.entry(players).or_default() += tally;
    }

    /// Returns the number of games.
    #[must_use]
    pub fn games(&self) -> u64 {
        self.results.values().map(Tally::games).fold(0, u64::saturating_add)
    }

    /// Returns the number of games of `player`.
    #[must_use]
    pub fn games_of(&self, player: Player) -> u64 {
        let took_part =
            |(&(a, b), tally): (&(Player, Player), &Tally)| (a == player || b == player).then(|| tally.games());
        self.results.iter().filter_map(took_part).fold(0, u64::saturating_add)
    }

    /// Returns the number of games between two players.
    #[must_use]
    pub fn games_between(&self, a: Player, b: Player) -> u64 {
        self.results.get(&(a.min(b), a.max(b))).map_or(0, Tally::games)
    }

    /// Returns the players with games, and random play, with their ratings from all games.
    #[must_use]
    pub fn ratings(&self) -> Vec<Rated> {
        let took_part = self.results.keys().flat_map(|&(a, b)| [a, b]);
        let players: BTreeSet<Player> = took_part.chain([Player::Random]).collect();
        let players: Vec<Player> = players.into_iter().collect();
        let index = |player: Player| players.binary_search(&player).expect("every player that took part is listed");
        let pairing = |(&(a, b), &tally): (&(Player, Player), &Tally)| Pairing { a: index(a), b: index(b), tally };
        let pairings: Vec<Pairing> = self.results.iter().map(pairing).collect();
        let ratings = rate(players.len(), index(Player::Random), &pairings, Prior::WEAK);
        let rated = |(&player, rating)| Rated { player, rating, games: self.games_of(player) };
        players.iter().zip(ratings).map(rated).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Tests the ledger and its file.

    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;
    use weights::WeightsVersion;

    use super::Ledger;
    use crate::player::Player;
    use crate::tally::Tally;

    const V1: Player = Player::Version(WeightsVersion(1));
    const WEAK: Player = Player::Playouts { simulations: 50 };

    fn sample() -> Ledger {
        let mut ledger = Ledger::new("connect_four");
        ledger.add(V1, Player::Random, Tally { pairs: [0, 0, 2, 1, 3] });
        ledger.add(V1, WEAK, Tally { pairs: [1, 1, 2, 2, 0] });
        ledger
    }

    fn refusal(path: &Path, text: &str) -> String {
        fs::write(path, text).unwrap();
        Ledger::load(path, "connect_four").unwrap_err().to_string()
    }

    #[test]
    fn games_are_counted_by_player_and_pair() {
        let ledger = sample();
        assert_eq!(ledger.games(), 24);
        assert_eq!((ledger.games_of(V1), ledger.games_of(WEAK), ledger.games_of(Player::Random)), (24, 12, 12));
        assert_eq!((ledger.games_between(V1, WEAK), ledger.games_between(Player::Random, WEAK)), (12, 0));
    }

    #[test]
    fn a_player_that_scores_more_is_rated_higher_and_random_is_at_zero() {
        let ratings = sample().ratings();
        let elo = |player| ratings.iter().find(|rated| rated.player == player).unwrap().rating.elo;
        assert!(elo(V1) > 150.0 && elo(WEAK) > 150.0, "{ratings:?}");
        assert_eq!(elo(Player::Random), 0.0);
        assert_eq!(ratings.len(), 3);
    }

    #[test]
    fn all_games_and_ratings_survive_a_restart() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ratings.json");
        let ledger = sample();
        ledger.save(&path).unwrap();
        let again = Ledger::load(&path, "connect_four").unwrap();
        assert_eq!(again, ledger);
        assert_eq!(again.ratings(), ledger.ratings());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn without_a_file_there_are_no_games() {
        let folder = TempDir::new().unwrap();
        let ledger = Ledger::load(&folder.path().join("ratings.json"), "hex-5").unwrap();
        assert_eq!((ledger.games(), ledger.ratings().len()), (0, 1));
    }

    #[test]
    fn a_damaged_file_or_one_of_another_run_is_rejected_and_left_unchanged() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ratings.json");
        for (text, reason) in [
            ("{", "is not a file of ratings; move it away"),
            (r#"{"format":1,"game":"connect_four","ratings":[],"results":[]}"#, "holds form 1, this run needs form 2"),
            (r#"{"format":2,"game":"hex-5","ratings":[],"results":[]}"#, "holds games of hex-5"),
            (
                r#"{"format":2,"game":"connect_four","ratings":[],"results":[{"a":"v1","b":"v1","pairs":[1,0,0,0,0]}]}"#,
                "games of v1 against itself",
            ),
            (
                r#"{"format":2,"game":"connect_four","ratings":[],"results":[{"a":"you","b":"v1","pairs":[1,0,0,0,0]}]}"#,
                "is not a file of ratings",
            ),
        ] {
            let error = refusal(&path, text);
            assert!(error.contains("ratings.json") && error.contains(reason), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
