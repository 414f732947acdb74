use clap::Parser as _;

use super::*;
use crate::{Cli, Command};

fn play(line: &str) -> play::Settings {
    let words = ["zerofleet", "play", "--run", "first"].into_iter().chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Play(command) => command.settings(SearchSettings::default()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_person_begins_unless_told_otherwise() {
    assert_eq!(play("").person, Player::First);
    assert_eq!(play("--second").person, Player::Second);
}

#[test]
fn a_picture_of_an_unknown_run_is_answered_with_the_runs_there_are() {
    let runs = tempfile::tempdir().unwrap();
    let picture = Picture { run: "second".to_owned(), runs: runs.path().to_owned() };
    let error = picture.run().unwrap_err().to_string();
    assert!(error.starts_with("no run second in") && error.ends_with("zerofleet train makes one"), "{error}");
}
