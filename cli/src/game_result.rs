//! Converts the outcome of a game to a result for protocols and SGF records. Start with [`game_result`].

use game::{Game as _, Outcome, Player};
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
    let [black, white] = discs(game, position);
    Some(GameResult::from_margin(black as f32 - white as f32))
}

/// Returns the score of a position, whether the game is over or not: the areas and komi in Go, the discs in Othello;
/// `None` in other games. The players have the letters with which the rules draw a board.
pub(crate) fn score(game: &AnyGame, position: &AnyPosition) -> Option<String> {
    if let (AnyGame::Go(go), AnyPosition::Go(position)) = (game, position) {
        let [black, white] = [Player::First, Player::Second].map(|player| go.area(position).points(player));
        return Some(format!("area: X {black}, O {white} and komi {}", go.komi().points()));
    }
    let [black, white] = discs(game, position);
    matches!(game, AnyGame::Othello(_)).then(|| format!("discs: X {black}, O {white}"))
}

/// Returns the numbers of black and white stones on the board.
fn discs(game: &AnyGame, position: &AnyPosition) -> [usize; 2] {
    let stones = board::stones(game, position);
    [Color::Black, Color::White].map(|color| stones.iter().filter(|stone| **stone == Some(color)).count())
}
