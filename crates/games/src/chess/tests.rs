use game::HEURISTIC_MAX;
use reference_games::{compare_tree, perft, reference};

use super::moves::Step;
use super::*;

/// Two rooks and a king for each player, with all castling rights.
const CASTLING: &str = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1";

/// Returns the position of a text in Forsyth-Edwards notation.
fn position(fen: &str) -> Position {
    Position::at_start(fen.parse().unwrap())
}

fn play(position: &mut Position, moves: &str) {
    let game = Chess::new();
    for text in moves.split_whitespace() {
        let action = game.parse_action(position, text).unwrap();
        game.try_play(position, action).unwrap();
    }
}

/// Returns the position after moves in either notation.
fn after(fen: &str, moves: &str) -> Position {
    let mut position = position(fen);
    play(&mut position, moves);
    position
}

fn start() -> Position {
    Chess::new().start()
}

/// Returns the names of all legal actions, in alphabetical order.
fn names(position: &Position) -> Vec<String> {
    let game = Chess::new();
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    let mut names: Vec<String> = legal.into_iter().map(|action| game.action_name(position, action)).collect();
    names.sort_unstable();
    names
}

fn observe(position: &Position) -> Vec<f32> {
    let mut planes = vec![f32::NAN; PLANES * CELLS];
    Chess::new().observe(position, &mut planes);
    planes
}

/// Returns the non-zero cells of a plane, numbered from the top left.
fn cells(position: &Position, plane: usize) -> Vec<usize> {
    let planes = observe(position);
    (0..CELLS).filter(|cell| planes[plane * CELLS + cell] != 0.0).collect()
}

/// Returns the value of a constant plane.
fn constant(position: &Position, plane: usize) -> f32 {
    let planes = observe(position);
    let plane = &planes[plane * CELLS..][..CELLS];
    assert!(plane.iter().all(|value| value == &plane[0]), "{plane:?}");
    plane[0]
}

/// Returns the board as FEN, with player, rights and counters.
fn fen(position: &Position) -> String {
    position.board.to_string()
}

#[test]
fn trees_have_the_published_numbers_of_nodes() {
    // Positions from the chess programming wiki, the fourth also with colours exchanged.
    let positions: [(&str, &[u64]); 7] = [
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", &[20, 400, 8_902, 197_281]),
        ("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", &[48, 2_039, 97_862]),
        ("8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", &[14, 191, 2_812, 43_238]),
        ("r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1", &[6, 264, 9_467]),
        ("r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1", &[6, 264, 9_467]),
        ("rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8", &[44, 1_486, 62_379]),
        ("r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10", &[46, 2_079, 89_890]),
    ];
    for (fen, expected) in positions {
        let nodes: Vec<u64> =
            (1..).take(expected.len()).map(|depth| perft(&Chess::new(), &position(fen), depth)).collect();
        assert_eq!(nodes, expected, "{fen}");
    }
}

#[test]
fn all_games_agree_with_the_slow_rules_to_a_depth() {
    assert_eq!(compare_tree(&Chess::new(), &*reference("chess").unwrap(), 2), 400);
}

#[test]
fn every_step_on_the_board_has_one_action() {
    let all = (0..Chess::new().spec().actions).map(|action| Action(u16::try_from(action).unwrap()));
    let steps: Vec<(Action, Step)> = all.filter_map(|action| Some((action, Step::of(action)?))).collect();
    for &(action, step) in &steps {
        assert_eq!(step.action(), Some(action), "{step:?}");
    }
    // The same number as in Leela Chess Zero: 1456 by a queen, 336 by a knight, and 22 pawn steps to three pieces.
    assert_eq!(steps.len(), 1_858);
    assert_eq!(Step::of(Action(u16::MAX)), None);
}

#[test]
fn both_players_castle_to_both_sides() {
    for (moves, black, white) in [
        ("e1g1 e8g8", "r4rk1", "R4RK1"),
        ("e1c1 e8c8", "2kr3r", "2KR3R"),
        ("O-O O-O-O", "2kr3r", "R4RK1"),
        ("O-O-O O-O", "r4rk1", "2KR3R"),
    ] {
        let between = "pppppppp/8/8/8/8/PPPPPPPP";
        let castled = after(&format!("r3k2r/{between}/R3K2R w KQkq - 0 1"), moves);
        assert_eq!(fen(&castled), format!("{black}/{between}/{white} w - - 2 2"), "{moves}");
    }
}

#[test]
fn a_king_castles_by_two_cells_and_an_action_is_legal_where_it_is_listed() {
    let game = Chess::new();
    let mut legal = Vec::new();
    for fen in [CASTLING, "r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1", "4k3/P6P/8/8/8/8/p6p/4K3 w - - 0 1"] {
        let position = position(fen);
        game.legal_actions(&position, &mut legal);
        let all = (0..u16::try_from(game.spec().actions).unwrap()).map(Action);
        let accepted: Vec<Action> = all.filter(|&action| game.is_legal(&position, action)).collect();
        assert_eq!(legal, accepted, "{fen}");
    }
    let position = position(CASTLING);
    let onto_the_rook = game.parse_action(&position, "e1h1").unwrap();
    assert!(!game.is_legal(&position, onto_the_rook), "castling has one action");
}

#[test]
fn a_king_castles_neither_in_check_nor_over_an_attacked_cell_nor_without_the_right() {
    for (fen, expected) in [
        ("4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1", &["e1c1", "e1g1"][..]),
        ("4k3/4r3/8/8/8/8/8/R3K2R w KQ - 0 1", &[]),
        ("4k3/5r2/8/8/8/8/8/R3K2R w KQ - 0 1", &["e1c1"]),
        ("1r2k3/8/8/8/8/8/8/R3K2R w KQ - 0 1", &["e1c1", "e1g1"]),
        ("4k3/8/8/8/8/8/8/R3K2R w K - 0 1", &["e1g1"]),
    ] {
        let castling: Vec<String> =
            names(&position(fen)).into_iter().filter(|name| name == "e1c1" || name == "e1g1").collect();
        assert_eq!(castling, expected, "{fen}");
    }
}

#[test]
fn both_players_capture_en_passant_at_once_or_not_at_all() {
    let white = after("4k3/3p4/8/4P3/8/8/8/4K3 b - - 0 1", "d7d5");
    assert_eq!(cells(&white, 17), [2 * SIDE + 3], "d6 is in the third row of White");
    let mut captured = white.clone();
    play(&mut captured, "exd6");
    assert_eq!(fen(&captured), "4k3/8/3P4/8/8/8/8/4K3 b - - 0 2");
    let mut later = white;
    play(&mut later, "Kd1 Kd8");
    assert!(!names(&later).contains(&"e5d6".into()) && cells(&later, 17).is_empty());

    let black = after("4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1", "e2e4");
    assert_eq!(cells(&black, 17), [2 * SIDE + 4], "e3 is in the third row of Black");
    assert!(names(&black).contains(&"d4e3".into()));
}

#[test]
fn a_capture_en_passant_that_exposes_the_king_is_neither_legal_nor_observed() {
    let pinned = after("8/8/8/8/k2p3R/8/4P3/4K3 w - - 0 1", "e2e4");
    assert!(!names(&pinned).contains(&"d4e3".into()) && cells(&pinned, 17).is_empty());
}

#[test]
fn pawns_of_both_players_become_each_piece_straight_ahead_and_by_captures() {
    let game = Chess::new();
    let pawn_moves = |fen: &str, from: &str| -> Vec<String> {
        names(&position(fen)).into_iter().filter(|name| name.starts_with(from)).collect()
    };
    let white = "r1b1k3/1P6/8/8/8/8/8/4K3 w - - 0 1";
    let targets = ["b7a8", "b7b8", "b7c8"].into_iter();
    let expected: Vec<String> =
        targets.flat_map(|step| ["b", "n", "q", "r"].map(|piece| format!("{step}{piece}"))).collect();
    assert_eq!(pawn_moves(white, "b7"), expected);
    let black = "4k3/8/8/8/8/8/1p6/R1B1K3 b - - 0 1";
    let expected: Vec<String> = expected.iter().map(|name| name.replace('7', "2").replace('8', "1")).collect();
    assert_eq!(pawn_moves(black, "b2"), expected);
    for (fen, moves, expected) in [
        (white, "bxa8=N", "N1b1k3/8/8/8/8/8/8/4K3 b - - 0 1"),
        (white, "b8=R", "rRb1k3/8/8/8/8/8/8/4K3 b - - 0 1"),
        (white, "b7c8q", "r1Q1k3/8/8/8/8/8/8/4K3 b - - 0 1"),
        (black, "b2c1b", "4k3/8/8/8/8/8/8/R1b1K3 w - - 0 2"),
        (black, "b1=Q", "4k3/8/8/8/8/8/8/RqB1K3 w - - 0 2"),
    ] {
        assert_eq!(self::fen(&after(fen, moves)), expected, "{moves}");
    }
    // Directions are from the view of the player: for both players, the capture on the a-file is to the left.
    let action = |fen: &str, text| game.parse_action(&position(fen), text).unwrap();
    assert_eq!(action(white, "b7a8n"), Action(number(SIDE + 1, 64)));
    assert_eq!(action(black, "b2a1n"), action(white, "b7a8n"));
    assert_eq!(action(white, "b7c8r"), Action(number(SIDE + 1, 72)));
}

/// Returns the number of an action: a way to leave a cell.
fn number(cell: usize, way: usize) -> u16 {
    u16::try_from(cell * moves::WAYS + way).unwrap()
}

#[test]
fn actions_have_the_numbers_that_the_documentation_states() {
    let game = Chess::new();
    let action = |text| game.parse_action(&start(), text).unwrap().0;
    assert_eq!(action("e2e4"), number(6 * SIDE + 4, 1), "two cells to the top");
    assert_eq!(action("g1f3"), number(7 * SIDE + 6, 63), "two rows up and one column to the left");
    assert_eq!(action("b1c3"), number(7 * SIDE + 1, 56), "two rows up and one column to the right");
    let black = after("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "d4");
    assert_eq!(
        game.parse_action(&black, "e7e5").unwrap().0,
        action("e2e4"),
        "Black sees the board from the other side"
    );
}

/// A policy by cells depends on this order.
#[test]
fn an_action_is_one_of_the_cell_on_which_the_piece_that_it_moves_is_observed() {
    let game = Chess::new();
    assert_eq!(game.spec().actions, CELLS * moves::WAYS);
    for mut position in [start(), position(CASTLING)] {
        for ply in 0..20 {
            let mut legal = Vec::new();
            game.legal_actions(&position, &mut legal);
            let of_mover: Vec<usize> = (0..Piece::NUM).flat_map(|plane| cells(&position, plane)).collect();
            for action in &legal {
                let cell = action.index() / moves::WAYS;
                assert!(of_mover.contains(&cell), "{action} of {of_mover:?} in {}", fen(&position));
            }
            let Some(&action) = legal.get(ply * 7 % legal.len().max(1)) else { break };
            game.play(&mut position, action);
        }
    }
}

#[test]
fn the_third_occurrence_of_a_position_is_a_draw_and_the_second_is_observed() {
    let game = Chess::new();
    let mut position = start();
    let mut occurred = vec![constant(&position, 12)];
    for _ in 0..2 {
        for text in ["g1f3", "g8f6", "f3g1", "f6g8"] {
            assert_eq!(game.outcome(&position), None);
            play(&mut position, text);
            occurred.push(constant(&position, 12));
        }
    }
    assert_eq!(occurred, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(game.outcome(&position), Some(Outcome::Draw));
    assert!(names(&position).is_empty());
}

#[test]
fn positions_with_other_rights_are_not_repeated() {
    // Castling rights are lost on the way.
    let rooks = after(CASTLING, "Rg1 Rg8 Rh1 Rh8");
    assert_eq!(rooks.occurrences, 0);
    // A possible capture en passant makes another position, an impossible one does not.
    let possible = after("4k2n/3p4/8/4P3/8/8/8/4K2N b - - 0 1", "d5 Ng3 Ng6 Nh1 Nh8");
    assert_eq!(possible.occurrences, 0);
    let impossible = after("4k2n/3p4/8/8/8/8/8/4K2N b - - 0 1", "d5 Ng3 Ng6 Nh1 Nh8");
    assert_eq!(impossible.occurrences, 1);
}

#[test]
fn fifty_moves_without_a_capture_or_a_step_of_a_pawn_are_a_draw_unless_the_last_one_mates() {
    let game = Chess::new();
    let mut position = position("4k3/8/8/8/8/8/P7/R3K3 w - - 98 100");
    play(&mut position, "Rb1");
    assert_eq!((game.outcome(&position), constant(&position, 18)), (None, 0.99));
    play(&mut position, "Kd8");
    assert_eq!((game.outcome(&position), constant(&position, 18)), (Some(Outcome::Draw), 1.0));
    assert_eq!(game.outcome(&after("7k/R7/6K1/8/8/8/8/8 w - - 99 100", "Ra8#")), Some(Outcome::Win(Player::First)));
}

#[test]
fn a_step_of_a_pawn_begins_the_count_anew() {
    let position = after("4k3/8/8/8/8/8/P7/R3K3 w - - 98 100", "a3 Kd8");
    assert_eq!((Chess::new().outcome(&position), constant(&position, 18)), (None, 0.01));
}

#[test]
fn mates_win_and_stalemates_are_draws() {
    let game = Chess::new();
    let mut fools_mate = start();
    play(&mut fools_mate, "f3 e5 g4 Qh4#");
    assert_eq!(game.outcome(&fools_mate), Some(Outcome::Win(Player::Second)));
    assert!(names(&fools_mate).is_empty());
    assert_eq!(game.outcome(&position("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")), Some(Outcome::Draw));
}

#[test]
fn a_game_ends_where_neither_player_can_be_mated() {
    let game = Chess::new();
    for (pieces, is_draw) in [
        ("4k3/8/8/8/8/8/8/4K3", true),
        ("4k3/8/8/8/8/8/8/3NK3", true),
        ("3bk3/8/8/8/8/8/8/4K3", true),
        ("4k3/8/8/8/8/8/8/2B1K1B1", true),
        ("4k3/8/8/8/8/8/8/2B1KB2", false),
        ("4kb2/8/8/8/8/8/8/2B1K3", true),
        ("2b1k3/8/8/8/8/8/8/2B1K3", false),
        ("4k3/8/8/8/8/8/8/1N1NK3", false),
        ("3nk3/8/8/8/8/8/8/3BK3", false),
        ("4k3/8/8/8/8/8/P7/4K3", false),
        ("4k3/8/8/8/8/8/8/R3K3", false),
    ] {
        let outcome = game.outcome(&position(&format!("{pieces} w - - 0 1")));
        assert_eq!(outcome, is_draw.then_some(Outcome::Draw), "{pieces}");
    }
}

#[test]
fn a_game_is_drawn_at_the_limit_of_plies() {
    let game = Chess::new();
    let mut position = Position { plies: PLIES_MAX - 2, ..start() };
    play(&mut position, "e4");
    assert_eq!(game.outcome(&position), None);
    play(&mut position, "e5");
    assert_eq!(game.outcome(&position), Some(Outcome::Draw));
    assert_eq!(game.spec().max_plies, usize::from(PLIES_MAX));
}

#[test]
fn a_player_sees_the_board_from_the_own_side() {
    let game = Chess::new();
    let white = position("r3k2r/8/8/3pP3/8/2n5/6P1/R2QK3 w Qkq d6 3 9");
    let black = position("r2qk3/6p1/2N5/8/3Pp3/8/8/R3K2R b KQq d3 3 9");
    assert_eq!(observe(&white), observe(&black));
    let mut legal = [Vec::new(), Vec::new()];
    game.legal_actions(&white, &mut legal[0]);
    game.legal_actions(&black, &mut legal[1]);
    assert_eq!(legal[0], legal[1]);
    assert_ne!(game.hash(&white), game.hash(&black), "another player is to move");
    assert_eq!(game.heuristic_value(&white), game.heuristic_value(&black));

    let square = |row: usize, column: usize| row * SIDE + column;
    assert_eq!(cells(&white, 0), [square(3, 4), square(6, 6)], "own pawns");
    assert_eq!(cells(&white, 6), [square(3, 3)], "pawns of the opponent");
    assert_eq!(cells(&white, 4), [square(7, 3)], "the queen");
    assert_eq!(cells(&white, 11), [square(0, 4)], "the king of the opponent");
    let constants = [13, 14, 15, 16, 18, 19].map(|plane| constant(&white, plane));
    assert_eq!(constants, [0.0, 1.0, 1.0, 1.0, 0.03, 1.0]);
}

#[test]
fn orders_of_moves_that_end_alike_have_one_hash_unless_the_observation_differs() {
    let game = Chess::new();
    let hash = |moves| {
        let mut position = start();
        play(&mut position, moves);
        game.hash(&position)
    };
    assert_eq!(hash("Nf3 Nf6 Nc3 Nc6"), hash("Nc3 Nc6 Nf3 Nf6"));
    assert_ne!(hash("Nf3 Nf6 e3 e6"), hash("e3 e6 Nf3 Nf6"), "the plies without a step of a pawn differ");
    assert_ne!(hash(""), hash("Nf3 Nf6 Ng1 Ng8"), "the position has occurred before");
}

#[test]
fn standard_algebraic_notation_is_read_where_it_describes_one_legal_move() {
    let game = Chess::new();
    let knights = position("4k3/8/8/8/8/8/8/1N3N1K w - - 0 1");
    let name = |position: &Position, text| {
        game.parse_action(position, text).ok().map(|action| game.action_name(position, action))
    };
    assert_eq!(name(&knights, "Nbd2"), Some("b1d2".into()));
    assert_eq!(name(&knights, "N1d2"), None, "both are in the first rank");
    assert_eq!(name(&knights, "Nd2"), None);
    assert_eq!(name(&knights, "Nf1d2"), Some("f1d2".into()));
    assert_eq!(name(&start(), "e4!?"), Some("e2e4".into()));
    let castling = position(CASTLING);
    assert_eq!(name(&castling, "O-O"), Some("e1g1".into()));
    assert_eq!(name(&castling, "0-0-0"), Some("e1c1".into()));
    assert_eq!(name(&castling, "Kh1"), None, "the rook is there");
    assert_eq!(name(&castling, "Rxh8+"), Some("h1h8".into()));
}

#[test]
fn the_error_for_an_invalid_move_shows_both_notations() {
    let game = Chess::new();
    let promoting = position("4k3/P7/8/8/8/8/8/4K3 w - - 0 1");
    for text in ["e9", "a7a8", "a7a8k", "a7a8p", "e1e2q", "e1e1", "a1b4", "Nf9", "a8=", "a8=K", "O-O", "xx"] {
        let message = game.parse_action(&promoting, text).unwrap_err().to_string();
        let expected = "a move between cells, such as e2e4, e1g1 or e7e8q, or algebraic notation, such as Nf3 or O-O";
        assert_eq!(message, format!("`{text}` is not a move: expected {expected}"));
    }
}

#[test]
fn the_heuristic_value_counts_pieces_mobility_and_advanced_pawns_for_the_player_to_move() {
    let game = Chess::new();
    let value = |fen: &str| game.heuristic_value(&position(fen));
    assert_eq!(game.heuristic_value(&start()), 0);
    // A knight in the corner reaches two cells.
    assert_eq!(value("4k3/8/8/8/8/8/P7/N3K3 w - - 0 1"), 320 + 2 * 4 + 100);
    assert_eq!(value("4k3/8/8/8/8/8/P7/N3K3 b - - 0 1"), -(320 + 2 * 4 + 100));
    assert_eq!(value("4k3/P7/8/8/8/8/8/4K3 w - - 0 1"), 100 + 25);
    assert_eq!(value("4k3/8/8/8/8/8/8/R3K3 w - - 0 1"), 500 + (7 + 4) * 2);
    let queens = value("QQQQQQ2/QQQ5/8/8/8/8/7k/K7 b - - 0 1");
    assert!((-HEURISTIC_MAX..-9 * 900).contains(&queens), "{queens}");
}

#[test]
fn a_position_is_no_larger_than_that_of_other_games() {
    // Positions of any game share one type, which has the size of the largest position.
    assert!(size_of::<Position>() <= size_of::<crate::go::Position>());
}

#[test]
fn the_board_is_drawn_with_white_at_the_bottom_in_capital_letters() {
    let mut position = start();
    play(&mut position, "e4 Nf6");
    let board = [
        "   a b c d e f g h",
        " 8 r n b q k b . r",
        " 7 p p p p p p p p",
        " 6 . . . . . n . .",
        " 5 . . . . . . . .",
        " 4 . . . . P . . .",
        " 3 . . . . . . . .",
        " 2 P P P P . P P P",
        " 1 R N B Q K B N R",
    ];
    assert_eq!(Chess::new().render(&position), board.join("\n"));
}
