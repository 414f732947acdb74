//! Claims about the ledger and its file.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use weights::WeightsVersion;

use super::Ledger;
use crate::matches::Tally;
use crate::player::Player;

const V1: Player = Player::Version(WeightsVersion(1));
const WEAK: Player = Player::Playouts { simulations: 50 };

fn sample() -> Ledger {
    let mut ledger = Ledger::new("connect_four");
    ledger.add(V1, Player::Random, &Tally { first_won: [5, 1], drawn: [0, 1], second_won: [1, 4] });
    ledger.add(V1, WEAK, &Tally { first_won: [2, 4], drawn: [2, 0], second_won: [2, 2] });
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
fn a_player_who_scores_more_is_rated_higher_and_random_is_at_zero() {
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
fn a_damaged_file_or_one_of_another_run_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ratings.json");
    for (text, reason) in [
        ("{", "is not a file of ratings; move it away"),
        (r#"{"format":2,"game":"connect_four","ratings":[],"results":[]}"#, "holds form 2, this run needs form 1"),
        (r#"{"format":1,"game":"hex-5","ratings":[],"results":[]}"#, "holds games of hex-5"),
        (
            r#"{"format":1,"game":"connect_four","ratings":[],"results":[{"first":"v1","second":"v1","first_won":1,"drawn":0,"second_won":0}]}"#,
            "games of v1 against itself",
        ),
        (
            r#"{"format":1,"game":"connect_four","ratings":[],"results":[{"first":"you","second":"v1","first_won":1,"drawn":0,"second_won":0}]}"#,
            "is not a file of ratings",
        ),
    ] {
        let error = refusal(&path, text);
        assert!(error.contains("ratings.json") && error.contains(reason), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
