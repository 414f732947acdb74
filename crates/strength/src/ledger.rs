//! Stores all rated games of a run in `ratings.json`, and computes ratings from them. Start with [`Ledger`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use service::directory::{if_exists, replace};
use weights::WeightsVersion;

use crate::rating::{Pairing, Prior, Rating, difference, rate};
use crate::scale;

/// Maximum depth of an alpha-beta opponent. A deeper search could take minutes per action, during which a drain would
/// have to wait.
pub const ALPHABETA_DEPTH_MAX: u8 = 14;

/// Version of the file format; other versions are rejected.
const FORMAT: u32 = 2;

/// All results of a run, sorted by the two players, from the first player's point of view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    game: String,
    results: BTreeMap<(Player, Player), Results>,
}

/// A player with a rating.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rated {
    /// The rated player.
    pub player: Player,
    /// Elo rating; random play is at 0.
    pub elo: f64,
    /// Lower bound of the 95 % confidence interval.
    pub low: f64,
    /// Upper bound of the 95 % confidence interval.
    pub high: f64,
    /// Number of games of the player.
    pub games: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    game: String,
    /// Ratings for people who read the file. Loading ignores these and recomputes the ratings from the results.
    ratings: Vec<Rated>,
    results: Vec<ResultLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultLine {
    a: Player,
    b: Player,
    /// Number of openings for each total of half points, from 0 to 4, that `a` scored over both games.
    pairs: Tally,
    /// Number of further openings that do not count. Files from earlier releases lack this field.
    #[serde(default)]
    repeated: u64,
}

/// Returns the `count` best versions. Versions are compared by the lower bound of the rating interval, because few
/// games prove little.
#[must_use]
pub fn best(ratings: &[Rated], versions: &[WeightsVersion], count: usize) -> Vec<WeightsVersion> {
    let rated = |&version: &WeightsVersion| {
        let rated = ratings.iter().find(|rated| rated.player == Player::Version(version))?;
        Some((rated.low, version))
    };
    let mut rated: Vec<(f64, WeightsVersion)> = versions.iter().filter_map(rated).collect();
    rated.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    rated.into_iter().take(count).map(|(_, version)| version).collect()
}

impl Ledger {
    /// Returns a ledger without games.
    pub fn new(game: &str) -> Self {
        Self { game: game.to_owned(), results: BTreeMap::new() }
    }

    /// Reads the file written by `save`; without a file, the ledger is empty.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or belongs to another run or release; such a file is never overwritten.
    pub fn load(path: &Path, game: &str) -> anyhow::Result<Self> {
        let file = path.display();
        let text = if_exists(std::fs::read(path)).with_context(|| format!("read {file}"))?;
        let Some(text) = text else { return Ok(Self::new(game)) };
        let Document { format, game: found, ratings: _, results } = serde_json::from_slice(&text)
            .with_context(|| format!("{file} is not a ratings file; move it away to start over"))?;
        let check = |holds: bool, got: String, expected: String| {
            anyhow::ensure!(holds, "{file} holds {got}, this run needs {expected}; move it away to start over");
            Ok(())
        };
        check(format == FORMAT, format!("format {format}"), format!("format {FORMAT}"))?;
        check(found == game, format!("games of {found}"), format!("games of {game}"))?;
        let mut ledger = Self::new(game);
        for ResultLine { a, b, pairs, repeated } in results {
            check(a != b, format!("games of {a} against itself"), "games between two players".to_owned())?;
            // A duplicate line, which only an edit can produce, counts twice.
            ledger.add(a, b, Results { tally: pairs, repeated });
        }
        Ok(ledger)
    }

    /// Writes all games and the resulting ratings, atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path, ratings: &[Rated]) -> anyhow::Result<()> {
        let line = |(&(a, b), results): (&(Player, Player), &Results)| {
            let &Results { tally: pairs, repeated } = results;
            ResultLine { a, b, pairs, repeated }
        };
        let results = self.results.iter().map(line).collect();
        let document = Document { format: FORMAT, game: self.game.clone(), ratings: ratings.to_vec(), results };
        let mut text = serde_json::to_vec_pretty(&document).expect("numbers and names have a form in JSON");
        text.push(b'\n');
        Ok(replace(path, &text)?)
    }

    /// Adds the results of a match between `a` and `b`, as seen by `a`.
    ///
    /// # Panics
    /// `a` and `b` are the same player, whose games prove nothing.
    pub fn add(&mut self, a: Player, b: Player, results: impl Into<Results>) {
        assert_ne!(a, b, "a match is between two");
        let results = results.into();
        let (players, results) = if a < b { ((a, b), results) } else { ((b, a), results.reversed()) };
        *self.results.entry(players).or_default() += results;
    }

    /// Returns the number of games, including games that do not count.
    pub fn games(&self) -> u64 {
        self.results.values().map(Results::games).fold(0, u64::saturating_add)
    }

    /// Returns the number of games of `player`, including games that do not count.
    pub fn games_of(&self, player: Player) -> u64 {
        let took_part =
            |(&(a, b), results): (&(Player, Player), &Results)| (a == player || b == player).then(|| results.games());
        self.results.iter().filter_map(took_part).fold(0, u64::saturating_add)
    }

    /// Returns the number of games between two players, including games that do not count.
    pub fn games_between(&self, a: Player, b: Player) -> u64 {
        self.results.get(&(a.min(b), a.max(b))).map_or(0, Results::games)
    }

    /// Returns all results of `a` against `b`.
    pub fn results(&self, a: Player, b: Player) -> Results {
        let results = self.results.get(&(a.min(b), a.max(b))).copied().unwrap_or_default();
        if a < b { results } else { results.reversed() }
    }

    /// Returns ratings for random play and for all players with games, from all games that count. An opponent of
    /// known strength keeps that strength.
    pub fn ratings(&self) -> Vec<Rated> {
        let Indexed { players, fixed, pairings } = self.indexed();
        let ratings = rate(players.len(), &fixed, &pairings, Prior::WEAK);
        players.iter().zip(ratings).rev().map(|(&player, rating)| self.rated(player, rating)).collect()
    }

    /// Returns the strength of `player` relative to `other` from all games that count; `None` if either has no games.
    pub fn difference(&self, player: Player, other: Player) -> Option<Rated> {
        if self.games_of(player) == 0 || self.games_of(other) == 0 {
            return None;
        }
        let Indexed { players, fixed, pairings } = self.indexed();
        let pair = [player, other].map(|player| index(&players, player));
        Some(self.rated(player, difference(pair, players.len(), &fixed, &pairings, Prior::WEAK)))
    }

    fn rated(&self, player: Player, Rating { elo, low, high }: Rating) -> Rated {
        Rated { player, elo, low, high, games: self.games_of(player) }
    }

    fn indexed(&self) -> Indexed {
        let took_part = self.results.keys().flat_map(|&(a, b)| [a, b]);
        let players: BTreeSet<Player> = took_part.chain([Player::Random]).collect();
        // The latest version first. It has met earlier versions and the fixed opponents, so that most rows are short.
        let players: Vec<Player> = players.into_iter().rev().collect();
        let known = players.iter().enumerate();
        let fixed =
            known.filter_map(|(index, &player)| Some((index, scale::elo(&self.game, &player.to_string())?))).collect();
        let pairing = |(&(a, b), &Results { tally, .. }): (&(Player, Player), &Results)| Pairing {
            a: index(&players, a),
            b: index(&players, b),
            tally,
        };
        let pairings = self.results.iter().map(pairing).collect();
        Indexed { players, fixed, pairings }
    }
}

/// The games of a ledger, with players replaced by indices.
struct Indexed {
    /// Players in descending order.
    players: Vec<Player>,
    /// Players of known strength, in Elo, including random play.
    fixed: Vec<(usize, f64)>,
    pairings: Vec<Pairing>,
}

fn index(players: &[Player], player: Player) -> usize {
    players.binary_search_by(|other| player.cmp(other)).expect("every player that took part is listed")
}

/// A participant of rated games, identified by a name in files and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Player {
    /// A player that chooses legal actions uniformly at random. It anchors the scale at 0.
    Random,
    /// A pUCT search with random playouts instead of a network.
    Playouts {
        /// Simulations per move.
        simulations: u32,
    },
    /// An alpha-beta search with the heuristic value of the game.
    AlphaBeta {
        /// Depth of the search in plies.
        depth: u8,
    },
    /// A weights version of this run, with the arena's search.
    Version(WeightsVersion),
}

inference::configured_as_text!(Player);

impl fmt::Display for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Playouts { simulations } => write!(f, "playouts-{simulations}"),
            Self::AlphaBeta { depth } => write!(f, "alphabeta-{depth}"),
            Self::Version(version) => version.fmt(f),
        }
    }
}

impl FromStr for Player {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "`{name}` is not a player: expected `random`, `playouts-200`, `alphabeta-3` (a depth from 1 to {ALPHABETA_DEPTH_MAX}) \
                 or a weights version such as `v12`"
            )
        };
        if name == "random" {
            return Ok(Self::Random);
        }
        if let Some(simulations) = name.strip_prefix("playouts-") {
            let simulations = simulations.parse().ok().filter(|&simulations: &u32| simulations > 0);
            return simulations.map(|simulations| Self::Playouts { simulations }).ok_or_else(unknown);
        }
        if let Some(depth) = name.strip_prefix("alphabeta-") {
            let depth = depth.parse().ok().filter(|depth: &u8| (1..=ALPHABETA_DEPTH_MAX).contains(depth));
            return depth.map(|depth| Self::AlphaBeta { depth }).ok_or_else(unknown);
        }
        let version = name.strip_prefix('v').and_then(|version| version.parse().ok());
        version.map(|version| Self::Version(WeightsVersion(version))).ok_or_else(unknown)
    }
}

/// All games between two players, from one player's point of view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Results {
    /// Results of the openings that count.
    pub tally: Tally,
    /// Number of further openings that do not count, because a game repeats an earlier game. They still count as games
    /// played, so that a match between players that repeat themselves ends.
    pub repeated: u64,
}

impl Results {
    /// Returns the number of games played, including games that do not count.
    pub fn games(&self) -> u64 {
        self.tally.games().saturating_add(self.repeated.saturating_mul(2))
    }

    /// Returns the same results from the point of view of the other player.
    fn reversed(self) -> Self {
        Self { tally: self.tally.reversed(), ..self }
    }
}

impl From<Tally> for Results {
    fn from(tally: Tally) -> Self {
        Self { tally, repeated: 0 }
    }
}

impl AddAssign for Results {
    fn add_assign(&mut self, Self { tally, repeated }: Self) {
        self.tally += tally;
        self.repeated = self.repeated.saturating_add(repeated);
    }
}

/// The results of openings between two players, from one player's point of view.
///
/// `pairs[k]` counts the openings in which the player scored `k` half points over both games: 0 for two losses, 4 for
/// two wins. The two games of an opening are not independent (an opening that favours a side gives each player a win),
/// so that variances are taken over pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tally {
    /// Number of openings for each total of half points, from 0 to 4.
    pub pairs: [u64; 5],
}

impl Tally {
    /// Counts one opening.
    ///
    /// # Panics
    /// `half_points` is above four.
    pub fn count(&mut self, half_points: usize) {
        self.pairs[half_points] += 1;
    }

    /// Returns the number of openings played.
    pub fn openings(&self) -> u64 {
        self.pairs.iter().fold(0, |sum, &pairs| sum.saturating_add(pairs))
    }

    /// Returns the number of games played.
    pub fn games(&self) -> u64 {
        self.openings().saturating_mul(2)
    }

    /// Returns the points of the player: one for a win, half for a draw.
    pub fn points(&self) -> f64 {
        (0_u32..).zip(self.pairs).map(|(half_points, pairs)| 0.5 * f64::from(half_points) * pairs as f64).sum()
    }

    /// Returns the same results from the point of view of the other player.
    pub fn reversed(mut self) -> Self {
        self.pairs.reverse();
        self
    }

    /// Returns the sum over pairs of the squared deviation of points from the expected 2 · `score`; `score` is from 0
    /// to 1.
    pub fn squared_error(&self, score: f64) -> f64 {
        let error = |half_points: u32| 0.5 * f64::from(half_points) - 2.0 * score;
        (0..).zip(self.pairs).map(|(half_points, pairs)| pairs as f64 * error(half_points).powi(2)).sum()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for (pairs, more) in self.pairs.iter_mut().zip(other.pairs) {
            *pairs = pairs.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests the ledger and the file of ratings.

    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;
    use weights::WeightsVersion;

    use super::{Ledger, Player, Results, Tally};

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
    fn ratings_of_every_earlier_revision_are_read_with_their_content() {
        let json = |path: &Path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap();
        for path in earlier_revisions::of_each("ratings.json").unwrap() {
            let written = json(&path);
            let ledger = Ledger::load(&path, written["game"].as_str().unwrap()).unwrap();
            let again = TempDir::new().unwrap();
            ledger.save(&again.path().join("ratings.json"), &[]).unwrap();
            assert!(ledger.games() > 0);
            assert_eq!(json(&again.path().join("ratings.json"))["results"], written["results"]);
        }
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
        let elo = |player| ratings.iter().find(|rated| rated.player == player).unwrap().elo;
        assert!(elo(V1) > 150.0 && elo(WEAK) > 150.0, "{ratings:?}");
        assert_eq!(elo(Player::Random), 0.0);
        assert_eq!(ratings.len(), 3);
    }

    #[test]
    fn repeated_games_are_played_and_are_no_evidence() {
        let mut ledger = sample();
        ledger.add(WEAK, V1, Results { tally: Tally::default(), repeated: 5 });
        assert_eq!((ledger.games(), ledger.games_of(V1), ledger.games_between(V1, WEAK)), (34, 34, 22));
        assert_eq!(ledger.results(V1, WEAK), Results { tally: Tally { pairs: [1, 1, 2, 2, 0] }, repeated: 5 });
        let elo = |ledger: &Ledger| ledger.ratings().iter().map(|rated| rated.elo).collect::<Vec<_>>();
        assert_eq!(elo(&ledger), elo(&sample()));
    }

    #[test]
    fn all_games_and_ratings_survive_a_restart() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ratings.json");
        let mut ledger = sample();
        ledger.add(V1, WEAK, Results { tally: Tally::default(), repeated: 1 });
        ledger.save(&path, &ledger.ratings()).unwrap();
        let again = Ledger::load(&path, "connect_four").unwrap();
        assert_eq!(again, ledger);
        assert_eq!(again.ratings(), ledger.ratings());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        let line = r#"{"a":"v1","b":"random","pairs":[1,0,2,0,0]}"#;
        fs::write(&path, format!(r#"{{"format":2,"game":"connect_four","ratings":[],"results":[{line}]}}"#)).unwrap();
        assert_eq!(Ledger::load(&path, "connect_four").unwrap().games(), 6, "a file of an earlier release");
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
            ("{", "is not a ratings file; move it away"),
            (r#"{"format":1,"game":"connect_four","ratings":[],"results":[]}"#, "holds format 1, this run needs"),
            (r#"{"format":2,"game":"hex-5","ratings":[],"results":[]}"#, "holds games of hex-5"),
            (
                r#"{"format":2,"game":"connect_four","ratings":[],"results":[{"a":"v1","b":"v1","pairs":[1,0,0,0,0]}]}"#,
                "games of v1 against itself",
            ),
            (
                r#"{"format":2,"game":"connect_four","ratings":[],"results":[{"a":"you","b":"v1","pairs":[1,0,0,0,0]}]}"#,
                "is not a ratings file",
            ),
        ] {
            let error = refusal(&path, text);
            assert!(error.contains("ratings.json") && error.contains(reason), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn every_player_is_read_back_from_its_name() {
        let without_network = [Player::Random, Player::Playouts { simulations: 200 }, Player::AlphaBeta { depth: 3 }];
        for player in without_network.into_iter().chain([Player::Version(WeightsVersion(12))]) {
            assert_eq!(player.to_string().parse(), Ok(player));
        }
    }

    #[test]
    fn other_names_are_rejected_and_named() {
        for name in
            ["", "Random", "playouts-", "playouts-0", "playouts--1", "alphabeta-0", "alphabeta-15", "v", "vx", "12"]
        {
            let error = name.parse::<Player>().unwrap_err();
            assert!(error.starts_with(&format!("`{name}` is not a player")), "{error}");
        }
    }

    #[test]
    fn points_are_those_of_both_games() {
        let tally = Tally { pairs: [1, 2, 3, 4, 5] };
        assert_eq!((tally.openings(), tally.games()), (15, 30));
        assert!((tally.points() - 20.0).abs() < 1e-12 && (tally.reversed().points() - 10.0).abs() < 1e-12);
    }

    #[test]
    fn pairs_that_are_shared_deviate_from_an_even_score_by_nothing() {
        assert_eq!(Tally { pairs: [0, 0, 9, 0, 0] }.squared_error(0.5), 0.0);
        assert_eq!(Tally { pairs: [4, 0, 0, 0, 4] }.squared_error(0.5), 8.0);
    }
}
