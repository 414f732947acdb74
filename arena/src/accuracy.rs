//! Solved positions as a yardstick: which of them are asked, and how the answers are gathered. Start with [`measure`].

use std::ops::ControlFlow;

use game::Game;

use crate::contestant::Contestant;
use crate::solved::{Accuracy, SolvedPosition};

/// Positions asked before the next pause.
const CHUNK: usize = 100;

/// At most `count_max` of the positions, evenly spaced, so that every band keeps its share; always the same ones.
#[must_use]
pub fn subset(positions: Vec<SolvedPosition>, count_max: usize) -> Vec<SolvedPosition> {
    let all = positions.len();
    if all <= count_max {
        return positions;
    }
    // Position i is taken if a new multiple of all / count_max begins there.
    let is_taken = |index: usize| (index + 1) * count_max / all > index * count_max / all;
    positions.into_iter().enumerate().filter(|(index, _)| is_taken(*index)).map(|(_, position)| position).collect()
}

/// How well `contestant` answers `positions`; `None` if `pause`, called between chunks, broke off.
///
/// # Errors
/// If an evaluator fails.
pub fn measure<G: Game>(
    game: &G,
    positions: &[SolvedPosition],
    contestant: &mut dyn Contestant<G>,
    pause: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Accuracy>, inference::Error> {
    let mut accuracy = Accuracy::default();
    let mut actions = Vec::new();
    for chunk in positions.chunks(CHUNK) {
        let boards: Vec<G::Position> = chunk.iter().map(|solved| solved.position(game)).collect();
        contestant.choose(game, &boards, &mut actions)?;
        for (solved, &action) in chunk.iter().zip(&actions) {
            accuracy.add(solved, action);
        }
        if pause().is_break() {
            return Ok(None);
        }
    }
    Ok(Some(accuracy))
}

#[cfg(test)]
mod tests;
