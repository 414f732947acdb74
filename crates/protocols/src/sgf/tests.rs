//! Tests of game records in SGF: hand-written files, seeded random trees and records, invalid text.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::{BoardGame, Cell, Color, GameResult, Move, Ply, Record, Setup, Size, Stone};

fn cell(column: u8, row: u8) -> Cell {
    Cell { column, row }
}

fn place(color: Color, column: u8, row: u8) -> Ply {
    Ply { color, played: Move::Place(cell(column, row)) }
}

#[test]
fn the_main_line_of_a_file_of_go_is_a_record() {
    let text = r"junk before (no tree) (
;FF[4]GM[1]SZ[9]KM[0.5]HA[2]AB[cc][gg]PB[A \] b\\]RE[W+3.5]C[a
comment: with \: colons]
;W[gc](;B[cg];W[];B[tt])(;B[aa](;W[bb])(;W[cc]))) (;GM[1])";
    let file = read(text.as_bytes()).unwrap();
    let Setup { size, komi, stones, to_move, .. } = &file.record.setup;
    assert_eq!((file.game, *size, *komi), (BoardGame::Go, Size::square(9).unwrap(), 0.5));
    assert_eq!(*to_move, Some(Color::White));
    let black = |column, row| Stone { color: Color::Black, cell: cell(column, row) };
    assert_eq!(*stones, [black(2, 2), black(6, 6)]);
    let pass = |color| Ply { color, played: Move::Pass };
    let expected = [place(Color::White, 6, 2), place(Color::Black, 2, 6), pass(Color::White), pass(Color::Black)];
    assert_eq!(file.record.plies, expected);
    assert_eq!(file.black.as_deref(), Some(r"A ] b\"));
    assert_eq!(file.result.map(|result| result.to_string()).as_deref(), Some("W+3.5"));
    let tree = Tree::parse(text.as_bytes()).unwrap();
    assert_eq!(tree.nodes().len(), 8);
    assert_eq!(tree.nodes()[0].value("C"), Some("a\ncomment: with : colons"));
    assert_eq!(Tree::parse(tree.to_string().as_bytes()).as_ref(), Ok(&tree));
}

#[test]
fn the_first_player_is_that_of_the_property_else_of_the_first_move_else_white_with_a_handicap() {
    let (black, white) = (Some(Color::Black), Some(Color::White));
    let cases = [
        ("AB[cc][gg];B[ee];W[cg]", black),
        ("HA[2]AB[cc][gg];B[ee]", black),
        ("AB[cc][gg];W[ee]", white),
        ("AB[cc][gg]PL[W];B[ee]", white),
        ("AB[cc][gg]PL[B];W[ee]", black),
        ("HA[2]AB[cc][gg]", white),
        ("AB[cc][gg]", None),
        (";B[ee]", black),
        ("", None),
    ];
    for (properties, expected) in cases {
        let file = read(format!("(;GM[1]SZ[9]{properties})").as_bytes()).unwrap();
        assert_eq!(file.record.setup.to_move, expected, "{properties}");
    }
}

#[test]
fn other_games_have_their_numbers_sizes_and_moves() {
    let hex = read(b"(;GM[11];B[a2];W[swap-pieces];B[D1];W[resign])").unwrap();
    let played: Vec<Move> = hex.record.plies.iter().map(|ply| ply.played).collect();
    assert_eq!(played, [Move::Place(cell(0, 1)), Move::Swap, Move::Place(cell(3, 0)), Move::Resign]);
    assert_eq!((hex.game, hex.record.setup.size), (BoardGame::Hex, Size::square(11).unwrap()));
    let othello = read(b"(;GM[2];B[dc];W[])").unwrap();
    assert_eq!(othello.record.setup.size, Size::square(8).unwrap());
    assert_eq!(othello.record.plies, [place(Color::Black, 3, 2), Ply { color: Color::White, played: Move::Pass }]);
    let gomoku = read(b"(;GM[4]SZ[20:15];B[ta])").unwrap();
    assert_eq!(gomoku.record.setup.size, Size::new(20, 15).unwrap());
    assert_eq!(gomoku.record.plies, [place(Color::Black, 19, 0)]);
}

#[test]
fn names_of_earlier_versions_rectangles_and_soft_line_breaks_are_read() {
    let file = read(b"(;GaMe[1]SiZe[9]AddBlack[aa:bc]AE[ab]AddWhite[ii]PLayer[black]C[a\\\r\nb\tc])");
    // Lower-case letters do not count: `GaMe` is `GM`, `PLayer` is `PL`.
    let setup = file.unwrap().record.setup;
    let black = setup.stones.iter().filter(|stone| stone.color == Color::Black).count();
    assert_eq!((setup.size, black, setup.stones.len()), (Size::square(9).unwrap(), 5, 6));
    let tree = Tree::parse(b"(;C[a\\\r\nb\tc\r\nd\re])").unwrap();
    assert_eq!(tree.nodes()[0].value("C"), Some("ab c\nd\ne"));
}

#[test]
fn invalid_text_is_refused_with_its_place() {
    let cases: [(&str, usize, &str); 17] = [
        ("", 0, "expected `(;`"),
        ("(B[aa])", 7, "expected `(;`"),
        ("(;B[aa]", 7, "expected `;`, `(` or `)`"),
        ("(;B[aa", 3, "expected `]` after a value"),
        ("(;B[aa\\", 3, "expected `]` after a value"),
        ("(;B)", 3, "expected `[` after a property name"),
        ("(;b[aa])", 2, "expected a property name in capital letters"),
        ("(;()", 3, "expected `;` behind `(`"),
        ("(;B[aa]x]", 7, "expected a property name in capital letters"),
        ("(;GM[6])", 1, "GM[6]: expected 1 (Go), 2 (Othello), 4 (Gomoku) or 11 (Hex)"),
        ("(;SZ[0])", 1, "SZ[0]: expected a number from 1 to 52, or two with a colon"),
        ("(;SZ[9:x])", 1, "SZ[9:x]: expected a number from 1 to 52, or two with a colon"),
        ("(;KM[NaN])", 1, "KM[NaN]: expected a number of points"),
        ("(;SZ[9];B[jj])", 7, "B[jj]: expected a point of the board, or a pass"),
        ("(;B[aa][bb])", 1, "B[aa][bb]: expected one move"),
        ("(;AB[zz])", 1, "AB[zz]: expected a point of the board, or a rectangle"),
        ("(;B[aa];AW[bb])", 7, "AW[bb]: expected stones before the first move only"),
    ];
    for (text, offset, problem) in cases {
        let error = read(text.as_bytes()).unwrap_err();
        assert_eq!((error.offset, error.problem.to_string().as_str()), (offset, problem), "{text}");
    }
}

#[test]
fn files_beyond_the_limits_are_refused() {
    let refused = |text: String| match read(text.as_bytes()).unwrap_err().problem {
        Problem::TooMany { what, .. } => what,
        problem => panic!("{problem}"),
    };
    assert_eq!(refused(" ".repeat(BYTES_MAX + 1)), "bytes");
    assert_eq!(refused("(;".repeat(2_000)), "nested variations");
    assert_eq!(refused(format!("({})", ";".repeat(100_001))), "nodes");
    assert_eq!(refused(format!("(;C{})", "[]".repeat(200_001))), "values");
    assert_eq!(refused(format!("(;SZ[52]AB{})", "[aa:ZZ]".repeat(40))), "listed points");
    assert!(read(format!("({})", ";".repeat(100_000)).as_bytes()).is_ok());
}

/// Characters for random values, including all with a meaning in the format.
const CHARACTERS: [char; 12] = ['a', 'Z', '[', ']', '\\', ';', '(', ')', ':', '\n', ' ', 'é'];

fn random_tree(rng: &mut ChaCha8Rng) -> Tree {
    let text = |rng: &mut ChaCha8Rng| {
        (0..rng.random_range(0..8)).map(|_| CHARACTERS[rng.random_range(0..CHARACTERS.len())]).collect::<String>()
    };
    let properties = |rng: &mut ChaCha8Rng| {
        let name = |rng: &mut ChaCha8Rng| ["B", "W", "AB", "C", "XYZ"][rng.random_range(0..5)].to_owned();
        let property = |rng: &mut ChaCha8Rng| Property {
            name: name(rng),
            values: (0..rng.random_range(1..4)).map(|_| text(rng)).collect(),
        };
        (0..rng.random_range(0..4)).map(|_| property(rng)).collect::<Vec<_>>()
    };
    let mut tree = Tree::new(Node::new(properties(rng)));
    for _ in 0..rng.random_range(0..30) {
        let parent = rng.random_range(0..tree.nodes().len());
        let properties = properties(rng);
        tree.add(parent, properties);
    }
    tree
}

/// Returns the nodes of a tree, each with own properties and child properties, independent of the order in memory,
/// which parsing changes.
fn walk(tree: &Tree, index: usize) -> String {
    let node = &tree.nodes()[index];
    let children: Vec<String> = node.children.iter().map(|&child| walk(tree, child)).collect();
    format!("{:?}{children:?}", node.properties)
}

#[test]
fn random_trees_are_read_as_they_are_written() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..300 {
        let tree = random_tree(&mut rng);
        let text = tree.to_string();
        let again = Tree::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(walk(&again, 0), walk(&tree, 0), "{text}");
        assert_eq!(again.to_string(), text);
    }
}

#[test]
fn random_records_of_every_game_are_read_as_they_are_written() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for number in 0..200 {
        let game = BoardGame::ALL[number % 4];
        let size = Size::new(rng.random_range(1..=19), rng.random_range(1..=19)).unwrap();
        let cells: Vec<Cell> = size.cells().collect();
        let color = |rng: &mut ChaCha8Rng| if rng.random() { Color::Black } else { Color::White };
        let mut setup = Setup { komi: f32::from(rng.random_range(-20_i8..20)) / 2.0, ..Setup::empty(size) };
        for &cell in &cells {
            if rng.random_range(0..5) == 0 {
                setup.stones.push(Stone { color: color(&mut rng), cell });
            }
        }
        setup.to_move = Some(color(&mut rng));
        let mut record = Record::new(setup);
        for _ in 0..rng.random_range(0..40) {
            let played = match (rng.random_range(0..10), game) {
                (0, BoardGame::Hex) => Move::Swap,
                (0, _) => Move::Pass,
                _ => Move::Place(cells[rng.random_range(0..cells.len())]),
            };
            record.plies.push(Ply { color: color(&mut rng), played });
        }
        let result = Some(GameResult::from_margin(f32::from(rng.random_range(-9_i8..9)) / 2.0));
        let file = GameFile { black: Some("a]\\b".into()), ..GameFile::new(game, record, result) };
        let text = write(&file);
        assert_eq!(read(text.as_bytes()).as_ref(), Ok(&file), "{text}");
    }
}
