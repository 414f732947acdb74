//! Converts the outcome of a game to a result for protocols and SGF records. Start with [`game_result`].

use game::{Game as _, Outcome};
use games::{AnyGame, AnyPosition};
use protocols::{Color, GameResult, Victory};

use crate::engine::board;

/// Returns the result that the rules give in a position; `None` before the end of the game. In Go, an unfinished
/// position is scored as if the game ended there. Results of Go and Othello have a margin in points, other results only
/// a winner.
pub(crate) fn game_result(game: &AnyGame, position: &AnyPosition) -> Option<GameResult> {
    if let (AnyGame::Go(go), AnyPosition::Go(position)) = (game, position) {
        let area = go.area(position);
        let [black, white] = [Color::Black, Color::White].map(|color| area.points(color.into()) as f32);
        return Some(GameResult::from_margin(black - white - go.komi().points()));
    }
    let Outcome::Win(winner) = game.outcome(position)? else { return Some(GameResult::Draw) };
    if !matches!(game, AnyGame::Othello(_)) {
        return Some(GameResult::Win { color: winner.into(), by: Victory::Unspecified });
    }
    let stones = board::stones(game, position);
    let count = |color| stones.iter().filter(|stone| **stone == Some(color)).count() as f32;
    Some(GameResult::from_margin(count(Color::Black) - count(Color::White)))
}
