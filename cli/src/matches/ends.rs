//! Collects the games of a pairing that were not decided by the rules: [`Ends`].

use std::io::{self, Write};

use serde::Serialize;
use strength::matches::{GameEnd, Played};

/// Maximum number of forfeits, and of void openings, that the text report lists for each pairing.
const LISTED_MAX: usize = 5;

/// The resignations, forfeits and void openings of a pairing, which the rules did not decide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Ends {
    /// Number of games that ended by resignation.
    pub(super) resigned_games: usize,
    /// Forfeited games.
    pub(super) forfeits: Vec<Forfeit>,
    /// Openings without a result, because an engine rejected a legal move. Games with these openings do not count.
    pub(super) void_openings: Vec<VoidOpening>,
}

/// A game that a player forfeited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Forfeit {
    /// Index of the player that forfeited the game.
    pub(super) player: usize,
    /// Number of the opening, from 1.
    pub(super) opening: usize,
    /// Number of the game with this opening: 1 or 2.
    pub(super) game: usize,
    /// Reason for the forfeit, such as an illegal move.
    pub(super) reason: String,
}

/// An opening without a result, because an engine rejected a legal move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct VoidOpening {
    /// Number of the opening, from 1.
    pub(super) opening: usize,
    /// Reason why the opening has no result.
    pub(super) reason: String,
}

impl Ends {
    /// Collects the resignations, forfeits and void openings in the games between two players.
    pub(super) fn of(players: [usize; 2], played: &Played) -> Self {
        let mut ends = Self::default();
        for pair in played.pairs() {
            for (first, record) in pair.games.iter().enumerate() {
                ends.resigned_games += usize::from(record.end == GameEnd::Resigned);
                if let Some((loser, reason)) = record.forfeit() {
                    let player = players[(first + loser.index()) % 2];
                    let (opening, game, reason) = (pair.opening + 1, first + 1, reason.to_owned());
                    ends.forfeits.push(Forfeit { player, opening, game, reason });
                }
            }
        }
        let void = played.void().iter();
        ends.void_openings =
            void.map(|void| VoidOpening { opening: void.opening + 1, reason: void.reason.clone() }).collect();
        ends
    }

    /// Writes the resignations, forfeits and void openings as text; writes nothing if there are none.
    pub(super) fn write(&self, [first, second]: [&str; 2], output: &mut impl Write) -> io::Result<()> {
        let Self { resigned_games, forfeits, void_openings } = self;
        if *resigned_games > 0 {
            writeln!(output, "{first} against {second}: {resigned_games} games ended by resignation")?;
        }
        if !void_openings.is_empty() {
            let count = void_openings.len();
            writeln!(output, "{first} against {second}: {count} openings have no result and do not count")?;
            let line = |VoidOpening { opening, reason }: &VoidOpening| format!("opening {opening}: {reason}");
            write_list(void_openings.iter().map(line), output)?;
        }
        if !forfeits.is_empty() {
            writeln!(output, "{first} against {second}: {} games were forfeited", forfeits.len())?;
            let line =
                |Forfeit { opening, game, reason, .. }: &Forfeit| format!("opening {opening}, game {game}: {reason}");
            write_list(forfeits.iter().map(line), output)?;
        }
        Ok(())
    }
}

/// Writes the first [`LISTED_MAX`] lines, and the number of further lines.
fn write_list(lines: impl ExactSizeIterator<Item = String>, output: &mut impl Write) -> io::Result<()> {
    let left = lines.len().saturating_sub(LISTED_MAX);
    for line in lines.take(LISTED_MAX) {
        writeln!(output, "  {line}")?;
    }
    if left > 0 { writeln!(output, "  and {left} more, which --json lists") } else { Ok(()) }
}
