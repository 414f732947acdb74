//! Writes the games of a match as SGF records, with one file per game.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;
use game::Outcome;
use games::AnyGame;
use protocols::sgf::{Property, Tree};
use protocols::{GameResult, Victory};
use strength::matches::{GameEnd, Pair, Played, PlayedGame};

use super::report::{MatchPlayer, Report};
use crate::sgf::Recorder;

/// Comment at each move of an opening in the SGF record.
const OPENING_MOVE: &str = "random move of the opening";

/// The date of the games, in the form `2026-01-31`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Date(String);

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let midnight = humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
        midnight.map(|_| Self(text.to_owned())).map_err(|_| format!("`{text}` is not a date such as 2026-01-31"))
    }
}

/// Writes each game to a separate file, with a name that sorts by pairing, opening and game, such as
/// `1-0003-2.sgf`.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(
    folder: &Path,
    game: &AnyGame,
    date: Option<&Date>,
    report: &Report,
    played: &[Played],
) -> anyhow::Result<()> {
    let recorder = Recorder::of(game)?;
    let digits = |count: usize| count.to_string().len();
    let (pairing_digits, opening_digits) = (digits(played.len()), digits(report.openings));
    for (number, (pairing, played)) in (1..).zip(report.pairings.iter().zip(played)) {
        let players = [pairing.a, pairing.b].map(|player| &report.players[player]);
        for pair in played.pairs() {
            for (first, record) in pair.games.iter().enumerate() {
                let (opening, game) = (pair.opening + 1, first + 1);
                let name = format!("{number:0pairing_digits$}-{opening:0opening_digits$}-{game}.sgf");
                let title = format!("pairing {number}, opening {opening}, game {game}");
                let names = [players[first], players[1 - first]].map(label);
                let tree = tree(&recorder, pair, record, names, (title, date))?;
                let path = folder.join(name);
                fs::write(&path, tree.to_string()).with_context(|| format!("write {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// Returns the SGF tree of a game with date, title and comments.
fn tree(
    recorder: &Recorder<'_>,
    pair: &Pair,
    record: &PlayedGame,
    names: [String; 2],
    (title, date): (String, Option<&Date>),
) -> anyhow::Result<Tree> {
    let mut tree = recorder.record(&record.actions, result(record), names)?;
    tree.annotate(0, Property::new("GN", title));
    if let Some(Date(date)) = date {
        tree.annotate(0, Property::new("DT", date));
    }
    let forfeit = record.forfeit().map(|(_, reason)| format!("forfeited: {reason}"));
    let repeated = "does not count: a game with this opening repeats an earlier game";
    let repeated = pair.is_repeated.then(|| repeated.to_owned());
    let comments: Vec<String> = forfeit.into_iter().chain(repeated).collect();
    if !comments.is_empty() {
        tree.annotate(0, Property::new("C", comments.join("\n")));
    }
    for node in 1..=pair.opening_plies {
        tree.annotate(node, Property::new("C", OPENING_MOVE));
    }
    Ok(tree)
}

/// Returns the result of a game that ended by resignation or forfeit; `None` if the rules decided the game.
fn result(record: &PlayedGame) -> Option<GameResult> {
    let by = match record.end {
        GameEnd::Rules => return None,
        GameEnd::Resigned => Victory::Resignation,
        GameEnd::Forfeited { .. } => Victory::Forfeit,
    };
    match record.outcome {
        Outcome::Win(winner) => Some(GameResult::Win { color: winner.into(), by }),
        Outcome::Draw | Outcome::Finished | Outcome::Truncated => None,
    }
}

/// Returns the name of a player, with the weights version or the engine.
fn label(player: &MatchPlayer) -> String {
    let MatchPlayer { name, weights_version, simulations, engine, .. } = player;
    match (weights_version, simulations, engine) {
        (_, _, Some(engine)) => format!("{name} ({})", engine.title()),
        (Some(version), Some(simulations), None) => {
            format!("{name} (weights version {version}, {simulations} simulations)")
        }
        _ => name.clone(),
    }
}
