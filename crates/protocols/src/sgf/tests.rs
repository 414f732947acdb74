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
    assert_eq!(Tree::parse(tree.to_string().as_bytes()).unwrap().nodes(), tree.nodes());
    assert_eq!(file.notes, ["text from byte 162 on is not read: the game ends there"]);
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
    let cases: [(&str, usize, &str); 9] = [
        ("", 0, "expected `(;`"),
        ("(B[aa])", 7, "expected `(;`"),
        ("(See [1])", 9, "expected `(;`"),
        ("(;GM[6])", 1, "GM[6]: expected 1 (Go), 2 (Othello), 4 (Gomoku) or 11 (Hex)"),
        ("(;SZ[0])", 1, "SZ[0]: expected a number from 1 to 52, or two with a colon"),
        ("(;SZ[9:x])", 1, "SZ[9:x]: expected a number from 1 to 52, or two with a colon"),
        ("(;SZ[9];B[jj])", 7, "B[jj]: expected a point of the board, or a pass"),
        ("(;B[aa][bb])", 1, "B[aa][bb]: expected one move"),
        ("(;AB[zz])", 1, "AB[zz]: expected a point of the board, or a rectangle"),
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
    assert_eq!(refused(format!("(;{}", "(".repeat(100_000))), "nested variations");
    assert_eq!(refused(format!("({})", ";".repeat(300_001))), "nodes");
    assert_eq!(refused(format!("(;C{})", "[]".repeat(600_001))), "values");
    assert_eq!(refused(format!("(;SZ[52]AB{})", "[aa:ZZ]".repeat(40))), "listed points");
    assert!(read(format!("({})", ";".repeat(300_000)).as_bytes()).is_ok());
}

#[test]
fn variations_at_every_move_and_megabytes_of_analysis_are_read() {
    let nested = format!("(;SZ[9]{}{}", "(;B[aa]".repeat(50_000), ")".repeat(50_001));
    assert_eq!(read(nested.as_bytes()).unwrap().record.plies.len(), 50_000);
    let analysis = format!(";B[ee]KT[{}]", "A".repeat(70_000));
    let large = read(format!("(;SZ[9]{})", analysis.repeat(200)).as_bytes()).unwrap();
    assert_eq!((large.record.plies.len(), large.notes), (200, Vec::<String>::new()));
}

/// Returns a record with these properties in the root and four moves.
fn four_moves(properties: &[u8]) -> Vec<u8> {
    [&b"(;GM[1]FF[4]SZ[9]"[..], properties, b";B[ee];W[cc];B[gc];W[cg])"].concat()
}

/// Reads a record and checks that it has four moves.
fn read_four(bytes: &[u8]) -> GameFile {
    let file = read(bytes).unwrap_or_else(|error| panic!("{error}: {}", bytes.escape_ascii()));
    let expected = [(4, 4), (2, 2), (6, 2), (2, 6)].map(|(column, row)| Move::Place(cell(column, row)));
    let played: Vec<Move> = file.record.plies.iter().map(|ply| ply.played).collect();
    assert_eq!(played, expected, "{}", bytes.escape_ascii());
    file
}

#[test]
fn names_are_read_in_the_charset_that_the_file_declares() {
    let cases: [(&str, &[u8], &str); 15] = [
        ("GB2312", b"\xb9\xc5\xc1\xa6", "古力"),
        ("gbk", b"\xbf\xc2\xbd\xe0", "柯洁"),
        ("cp936", b"\xb9\xc5\xc1\xa6", "古力"),
        ("GB18030", b"\xb9\xc5\xc1\xa6", "古力"),
        ("EUC-KR", b"\xc0\xcc\xbc\xbc\xb5\xb9", "이세돌"),
        ("CP949", b"\xc0\xcc\xbc\xbc\xb5\xb9", "이세돌"),
        // The second byte of the last character is `\`, in Big5 and in Shift_JIS.
        ("Big5", b"\xb3\x5c", "許"),
        ("Shift_JIS", b"\x83\x5c", "ソ"),
        ("SJIS", b"\x83\x5d", "ゾ"),
        ("EUC-JP", b"\xc6\xfc", "日"),
        ("ISO-8859-1", b"J\xf6rg", "Jörg"),
        ("Latin-1", b"J\xf6rg", "Jörg"),
        ("Windows-1251", b"\xc8\xe2\xe0\xed", "Иван"),
        ("ISO-8859-2", b"\xa3ukasz", "Łukasz"),
        ("UTF-8", "Renée 古".as_bytes(), "Renée 古"),
    ];
    for (charset, name, expected) in cases {
        for order in [["CA", "PB"], ["PB", "CA"]] {
            let value = |property: &str| if property == "CA" { charset.as_bytes() } else { name };
            let properties = order.map(|property| [property.as_bytes(), b"[", value(property), b"]"].concat()).concat();
            let file = read_four(&four_moves(&properties));
            assert_eq!((file.black.as_deref(), file.notes.len()), (Some(expected), 0), "{charset} {:?}", file.notes);
            assert_eq!(read(write(&file).as_bytes()), Ok(file), "{charset}");
        }
    }
}

#[test]
fn halves_of_characters_may_be_escaped_or_not() {
    // The second byte is that of a backslash in the first name, and of `]` in the second.
    for (plain, escaped, name) in [(b"\x83\x5c", b"\x83\x5c\x5c", "ソ"), (b"\x83\x5d", b"\x83\x5c\x5d", "ゾ")] {
        for bytes in [&plain[..], &escaped[..]] {
            let file = read_four(&four_moves(&[&b"CA[Shift_JIS]PB["[..], bytes, b"]PW[", bytes, b"]"].concat()));
            assert_eq!([file.black.as_deref(), file.white.as_deref()], [Some(name); 2], "{}", bytes.escape_ascii());
            assert_eq!(file.notes, [""; 0], "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn without_a_known_charset_text_is_utf_8_or_latin_1() {
    let cases: [(&[u8], &str, &[&str]); 7] = [
        (b"PB[J\xf6rg]", "Jörg", &["there is no CA: the file is read as windows-1252"]),
        ("PB[Jörg]".as_bytes(), "Jörg", &[]),
        ("CA[]PB[Jörg]".as_bytes(), "Jörg", &[]),
        ("CA[ISO-8859-1]PB[Jörg]".as_bytes(), "Jörg", &["CA[ISO-8859-1] is wrong: the file is read as UTF-8"]),
        (b"CA[klingon]PB[J\xf6rg]", "Jörg", &["CA[klingon] is no known charset: the file is read as windows-1252"]),
        ("CA[GB2312]PB[古力]".as_bytes(), "古力", &["CA[GB2312] is wrong: the file is read as UTF-8"]),
        (b"CA[UTF-8]PB[J\xf6rg]", "J\u{fffd}rg", &["some bytes are not UTF-8: they are read as U+FFFD"]),
    ];
    for (properties, black, notes) in cases {
        let file = read_four(&four_moves(properties));
        let notes: Vec<String> = notes.iter().map(|note| (*note).to_owned()).collect();
        assert_eq!((file.black.as_deref(), file.notes), (Some(black), notes));
    }
}

#[test]
fn a_byte_order_mark_names_the_charset_and_utf_16_needs_none() {
    let text = String::from_utf8(four_moves("CA[GB2312]PB[Jörg 古力]".as_bytes())).unwrap();
    let little = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let big = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let marked = format!("\u{feff}{text}");
    for bytes in [marked.clone().into_bytes(), little(&marked), big(&marked), little(&text), big(&text)] {
        let file = read_four(&bytes);
        assert_eq!((file.black.as_deref(), file.notes.len()), (Some("Jörg 古力"), 0), "{:?}", file.notes);
    }
    let ascii = String::from_utf8(four_moves(b"PB[A]")).unwrap();
    for bytes in [little(&ascii), big(&ascii)] {
        assert_eq!(read_four(&bytes).black.as_deref(), Some("A"));
    }
}

#[test]
fn a_written_tree_names_its_charset() {
    let tree = Tree::parse(&four_moves(b"CA[Big5]PB[\xb3\x5c]")).unwrap();
    let again = Tree::parse(tree.to_string().as_bytes()).unwrap();
    assert_eq!((again.nodes()[0].value("CA"), again.nodes()[0].value("PB")), (Some("UTF-8"), Some("許")));
    assert_eq!(again, tree);
}

#[test]
fn records_with_slips_are_read_and_what_is_skipped_is_noted() {
    const MOVES: &str = ";B[ee];W[cc];B[gc];W[cg]";
    let skipped = |at: usize| Some(format!("text that is no property is skipped, first at byte {at}"));
    let ends = || Some("the file ends before the game: moves may be missing".to_owned());
    let cases = [
        ("(\r\nTE[A title]\r\nSZ[9]\r\n;B[ee];W[cc];B[gc];W[cg])", None),
        ("To: a@b (see below)\n\n( ;SZ[9];B[ee]()(;W[cc];B[gc](;W[cg])(;W[aa])))", None),
        ("(;SiZe[9];Black[ee];White[cc];b[gc];w[cg])", None),
        (" ( ; SZ [9] ; B\t[ee]\n; W [ cc ];B[GC];W[cG] ) \n", None),
        ("(;SZ[9]AE[];B[ee](;W[cc](;B[gc](;W[cg](;B[](;W[tt](;B[TT])))))))", None),
        ("(;SZ[9];B[ee];W[cc];B[gc];W[cg]", ends()),
        ("(;SZ[9];B[ee];W[cc];B[gc];W[cg](;C[not finished", ends()),
        ("(;SZ[9];B[ee]; - ;W[cc]x;B[gc]] ;W[cg])", skipped(15)),
        ("(;SZ[9];B[ee]PB;W[cc] see: [B[aa\\];) ];B[gc];W[cg])", skipped(13)),
        (
            "(;SZ[9];B[ee];W[cc];B[gc];W[cg]) ;B[aa])",
            Some("text from byte 33 on is not read: the game ends there".to_owned()),
        ),
    ];
    for (text, note) in cases {
        let file = read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
        let written = read(format!("(;SZ[9]{MOVES})").as_bytes()).unwrap().record.plies;
        assert_eq!(file.record.plies[..4], written, "{text}");
        assert!(file.record.plies[4..].iter().all(|ply| ply.played == Move::Pass), "{text}");
        assert_eq!(file.notes, Vec::from_iter(note), "{text}");
    }
}

#[test]
fn komi_in_any_unit_is_points_and_an_unclear_one_is_noted() {
    let cases = [
        ("KM[6,5]", Some(6.5), Some("KM[6,5] is read as 6.5 points")),
        ("KM[6.5目]", Some(6.5), Some("KM[6.5目] is read as 6.5 points")),
        ("KO[6.5]", Some(6.5), None),
        ("KO[6,5]", Some(6.5), Some("KO[6,5] is read as 6.5 points")),
        ("KM[3.75]RU[Chinese]", Some(7.5), Some("KM[3.75] is read as 7.5 points")),
        ("KM[375]", Some(7.5), Some("KM[375] is read as 7.5 points")),
        ("KM[0]", Some(0.0), None),
        ("KM[]", None, None),
        ("KM[?]", None, Some("at byte 1: KM[?]: expected a number of points; the usual komi is used")),
        ("KM[NaN]", None, Some("at byte 1: KM[NaN]: expected a number of points; the usual komi is used")),
    ];
    for (properties, komi, note) in cases {
        let file = read_four(&four_moves(properties.as_bytes()));
        assert_eq!((file.komi, file.record.setup.komi), (komi, komi.unwrap_or(0.0)), "{properties}");
        assert_eq!(file.notes, Vec::from_iter(note.map(str::to_owned)), "{properties}");
    }
    let large = GameFile::new(
        BoardGame::Go,
        Record::new(Setup { komi: 150.0, ..Setup::empty(Size::square(9).unwrap()) }),
        None,
    );
    assert_eq!(read(write(&large).as_bytes()), Ok(large));
}

#[test]
fn a_record_ends_before_stones_or_an_impossible_move_after_the_first_and_keeps_the_problem() {
    for (rest, problem) in [
        ("AB[gg][gc];W[cg]", "at byte 24: AB[gg]: expected stones before the first move only"),
        ("AE[ee];W[cg]", "at byte 24: AE[ee]: expected stones before the first move only"),
        ("B[zz];W[cg]", "at byte 24: B[zz]: expected a point of the board, or a pass"),
    ] {
        let file = read(format!("(;SZ[9]PB[A];B[ee];W[cc];{rest})").as_bytes()).unwrap();
        assert_eq!(file.record.plies, [place(Color::Black, 4, 4), place(Color::White, 2, 2)], "{rest}");
        assert_eq!(file.notes, [format!("{problem}; the record ends after move 2")]);
        assert_eq!(file.rest.map(|error| error.to_string()).as_deref(), Some(problem));
    }
}

#[test]
fn properties_of_the_game_after_the_root_count_and_contradictions_are_noted() {
    let file = read(b"(;SZ[9];PB[A]KM[5.5]HA[3]AB[cc:cd];PL[x]W[ee])").unwrap();
    assert_eq!((file.black.as_deref(), file.komi, file.record.setup.stones.len()), (Some("A"), Some(5.5), 2));
    assert_eq!(file.notes, ["at byte 34: PL[x]: expected B or W", "HA[3] is the handicap, but AB places 2 stones"]);
    let sizes = ["SZ[13x9]", "SZ[13:9]"].map(|size| read(format!("(;{size})").as_bytes()).unwrap().record.setup.size);
    assert_eq!(sizes, [Size::new(13, 9).unwrap(); 2]);
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
