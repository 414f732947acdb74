//! Writes the games of a match as CSV, with one line per game and moves in the notation of the game.

use std::path::Path;

use anyhow::Context as _;
use game::Game;
use service::directory::replace;
use strength::matches::{GameEnd, Pair, Played, PlayedGame};

use crate::csv;
use crate::move_names::move_names;

const COLUMNS: [&str; 9] =
    ["pairing", "opening", "first", "second", "result", "counts", "opening_moves", "moves", "end"];

/// The games of a pairing with the names of both players.
pub(super) struct Games<'a> {
    /// Names of both players in the order of the pairing.
    pub(super) names: [&'a str; 2],
    /// Openings and games of the pairing.
    pub(super) played: &'a Played,
}

/// Writes the games of all pairings to the CSV file `path`.
///
/// # Errors
/// The file cannot be written, or a game contains an illegal move.
pub(super) fn write<G: Game>(path: &Path, game: &G, pairings: &[Games<'_>]) -> anyhow::Result<()> {
    let failed = || format!("write {}", path.display());
    let mut text = csv::line(COLUMNS);
    for (number, Games { names, played }) in (1..).zip(pairings) {
        for pair in played.pairs() {
            for (first, record) in pair.games.iter().enumerate() {
                let [first, second] = [names[first], names[1 - first]];
                let counts = if pair.is_repeated { "no" } else { "yes" };
                let (before, after) = moves(game, pair, record).with_context(failed)?;
                let [number, opening] = [number, pair.opening + 1].map(|number: usize| number.to_string());
                let places = [number.as_str(), opening.as_str(), first, second];
                let end = end(record);
                text += &csv::line(places.into_iter().chain([result(record), counts, &before, &after, &end]));
            }
        }
    }
    replace(path, text.as_bytes()).with_context(failed)
}

/// Returns the result of a game as in PGN: the first player's points, then the second player's points.
fn result(record: &PlayedGame) -> &'static str {
    match record.half_points_of_first() {
        0 => "0-1",
        1 => "1/2-1/2",
        _ => "1-0",
    }
}

/// Returns the reason why a game ended: `rules`, `resigned` or `forfeited: REASON`.
fn end(record: &PlayedGame) -> String {
    match &record.end {
        GameEnd::Rules => "rules".to_owned(),
        GameEnd::Resigned => "resigned".to_owned(),
        GameEnd::Forfeited { reason } => format!("forfeited: {reason}"),
    }
}

/// Returns the opening moves and the players' moves, both in the notation of the game.
fn moves<G: Game>(game: &G, pair: &Pair, record: &PlayedGame) -> anyhow::Result<(String, String)> {
    let actions = record.actions.iter().copied();
    let names = move_names(game, game.start(), actions).collect::<Result<Vec<String>, _>>()?;
    let (before, after) = names.split_at(pair.opening_plies.min(names.len()));
    Ok((before.join(" "), after.join(" ")))
}
