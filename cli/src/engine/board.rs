//! The stones on a board, and text diagrams with the coordinates of the protocols.

use game::Player;
use games::{AnyGame, AnyPosition};
use protocols::{BoardGame, Color};
use strength::notation::Notation;

/// Returns the stone on each cell, row by row from the top left. The result is empty for games that no protocol
/// supports.
pub(crate) fn stones(game: &AnyGame, position: &AnyPosition) -> Vec<Option<Color>> {
    let cells = Notation::of(game).map_or(0, |notation| notation.size().len());
    (0..cells).map(|cell| owner(game, position, cell).map(Color::from)).collect()
}

fn owner(game: &AnyGame, position: &AnyPosition, cell: usize) -> Option<Player> {
    match (game, position) {
        (AnyGame::Go(game), AnyPosition::Go(position)) => game.stone(position, cell),
        (AnyGame::Hex(game), AnyPosition::Hex(position)) => game.stone(position, cell),
        (AnyGame::Gomoku(game), AnyPosition::Gomoku(position)) => game.stone(position, cell),
        (AnyGame::Othello(game), AnyPosition::Othello(position)) => game.disc(position, cell),
        _ => None,
    }
}

/// Renders a board as text with column and row names, `X` for Black and `O` for White. In Hex, each row is shifted to
/// the right, so that adjacent cells are next to each other.
pub(super) fn render(notation: Notation, stones: &[Option<Color>]) -> String {
    let (game, size) = (notation.game(), notation.size());
    let name = |column, row| size.cell(column, row).map(|cell| game.cell_name(size, cell)).unwrap_or_default();
    let mut text = String::from("  ");
    for column in 0..size.width() {
        let name = name(column, 0);
        text.push_str(&format!("{:>2}", name.trim_end_matches(|c: char| c.is_ascii_digit())));
    }
    for (row, cells) in stones.chunks(size.width()).enumerate() {
        let name = name(0, row);
        let number = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let shift = if game == BoardGame::Hex { row } else { 0 };
        text.push_str(&format!("\n{}{number:>2}", " ".repeat(shift)));
        for stone in cells {
            text.push_str(match stone {
                Some(Color::Black) => " X",
                Some(Color::White) => " O",
                None => " .",
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use game::Game as _;
    use games::GameKind;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Compares with the diagrams from the rules of each game, which are independent. With up to 13 columns, no column
    /// is named `O` or `X`.
    #[test]
    fn the_stones_of_random_games_are_those_that_the_rules_draw() {
        for name in ["go-7", "hex-5", "gomoku-9", "othello-8"] {
            let game = name.parse::<GameKind>().unwrap().rules();
            let notation = Notation::of(&game).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(4);
            let (mut position, mut legal) = (game.start(), Vec::new());
            while game.outcome(&position).is_none() {
                let stones_of = |text: &str| text.chars().filter(|c| ['X', 'O', '.'].contains(c)).collect::<String>();
                let drawn = render(notation, &stones(&game, &position));
                assert_eq!(stones_of(&drawn), stones_of(&game.render(&position)), "{name}\n{drawn}");
                game.legal_actions(&position, &mut legal);
                game.play(&mut position, legal[rng.random_range(0..legal.len())]);
            }
        }
    }

    #[test]
    fn a_board_has_the_coordinates_of_the_protocol() {
        let drawn = |name: &str| {
            let game = name.parse::<GameKind>().unwrap().rules();
            render(Notation::of(&game).unwrap(), &stones(&game, &game.start()))
        };
        assert_eq!(drawn("hex-3"), "   a b c\n 1 . . .\n  2 . . .\n   3 . . .");
        assert!(drawn("gomoku-15").starts_with("   A B C D E F G H J K L M N O P\n15 . . "), "{}", drawn("gomoku-15"));
        assert!(drawn("othello-6").ends_with("\n 4 . . X O . .\n 5 . . . . . .\n 6 . . . . . ."));
    }
}
