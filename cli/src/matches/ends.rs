//! The games of a pairing that the rules did not end: [`Ends`].

use std::io::{self, Write};

use arena::matches::{GameEnd, Played};
use serde::Serialize;

/// The most forfeits, and the most void openings, that the text of a report lists for a pairing.
const LISTED_MAX: usize = 5;

/// The games of a pairing that the rules did not end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Ends {
    /// The number of games in which a player resigned.
    pub(super) resigned_games: usize,
    /// The games that a player forfeited.
    pub(super) forfeits: Vec<Forfeit>,
    /// The openings without a result, because an engine refused a legal move. Their games do not count.
    pub(super) void_openings: Vec<VoidOpening>,
}

/// A game that a player forfeited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Forfeit {
    /// The index of the player.
    pub(super) player: usize,
    /// The number of the opening, from 1.
    pub(super) opening: usize,
    /// The number of the game of the opening, 1 or 2.
    pub(super) game: usize,
    /// The reason.
    pub(super) reason: String,
}

/// An opening without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct VoidOpening {
    /// The number of the opening, from 1.
    pub(super) opening: usize,
    /// The reason.
    pub(super) reason: String,
}

impl Ends {
    /// Returns the games of two players that the rules did not end.
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

    /// Writes the games as text: nothing if there are none.
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

/// Writes the first lines, and the number of the others.
fn write_list(lines: impl ExactSizeIterator<Item = String>, output: &mut impl Write) -> io::Result<()> {
    let left = lines.len().saturating_sub(LISTED_MAX);
    for line in lines.take(LISTED_MAX) {
        writeln!(output, "  {line}")?;
    }
    if left > 0 { writeln!(output, "  and {left} more, which --json lists") } else { Ok(()) }
}
