mod setup;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reference_games::{Reference, compare_moves, compare_position, compare_tree, perft};

use super::*;

const NO_LIMIT: usize = 60_000;

/// Returns the rules for a board of any size, with a limit of plies that no test reaches.
fn go(size: usize) -> Go {
    Go::with_limit(size, Komi::new(0.0).unwrap(), NO_LIMIT)
}

/// Returns the start in the slow rules, with the same komi and limit of plies.
fn slow(game: &Go) -> reference_games::Go {
    reference_games::Go::new(game.size(), game.komi().half_points(), game.spec.max_plies)
}

/// Returns the position after moves in notation, checked against the slow rules.
fn after(game: &Go, moves: &str) -> Position {
    compare_moves(game, &mut slow(game), moves)
}

fn is_legal(game: &Go, position: &Position, text: &str) -> bool {
    game.is_legal(position, game.parse_action(position, text).unwrap())
}

fn legal(game: &Go, position: &Position) -> Vec<usize> {
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    legal.iter().map(|action| action.index()).collect()
}

/// Draws a random action that is rarely a pass: games are then long, and superko forbids many moves.
fn choice(legal: &[usize], rng: &mut ChaCha8Rng) -> usize {
    let stones = legal.len() - 1;
    let passes = stones == 0 || rng.random_bool(0.02);
    legal[if passes { stones } else { rng.random_range(0..stones) }]
}

/// Asserts that all properties of a position agree with the slow rules.
fn assert_agrees(game: &Go, position: &Position, slow: &reference_games::Go) {
    compare_position(game, position, slow, &[]);
    let (area, owners) = (game.area(position), slow.owners());
    let owned: Vec<Option<Player>> = (0..owners.len()).map(|cell| area.owner(cell)).collect();
    assert_eq!(owned, owners, "\n{}", game.render(position));
    for player in [Player::First, Player::Second] {
        let count = owners.iter().filter(|&&owner| owner == Some(player)).count();
        assert_eq!(area.points(player), count, "\n{}", game.render(position));
    }
}

#[test]
fn random_games_agree_with_a_slow_reference_at_every_ply() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut forbidden = 0;
    for (size, games, plies_max) in
        [(1, 1, 9), (2, 60, 99), (3, 20, 300), (4, 10, 300), (5, 4, 300), (7, 2, 250), (13, 1, 90)]
    {
        let game = go(size);
        for _ in 0..games {
            let (mut position, mut slow) = (game.start(), slow(&game));
            for _ in 0..plies_max {
                assert_agrees(&game, &position, &slow);
                let legal = legal(&game, &position);
                if legal.is_empty() {
                    break;
                }
                forbidden += position.forbidden.len();
                let action = Action(narrow(choice(&legal, &mut rng)));
                game.play(&mut position, action);
                slow.play(action);
            }
        }
    }
    assert!(forbidden > 100, "superko forbade {forbidden} moves");
}

#[test]
fn perft_counts_are_those_of_a_slow_reference() {
    for (size, depth) in [(1, 4), (2, 6), (3, 4)] {
        let game = go(size);
        for depth in 1..=depth {
            let nodes = compare_tree(&game, &slow(&game), depth);
            assert_eq!(perft(&game, &game.start(), depth), nodes, "{depth} plies on {size}x{size}");
        }
    }
}

/// Tromp and Farnebäck, "Combinatorics of Go", 2007.
#[test]
fn the_numbers_of_boards_on_which_every_chain_has_a_liberty_are_the_published_ones() {
    for (size, expected) in [(1, 1), (2, 57), (3, 12_675)] {
        let board = Board::new(size);
        let cells = size * size;
        let boards = (0..3_usize.pow(u32::try_from(cells).unwrap())).filter(|&number| {
            let digit = |cell: usize| number / 3_usize.pow(u32::try_from(cell).unwrap()) % 3;
            let of = |digit_of: usize| -> Cells { (0..cells).filter(|&cell| digit(cell) == digit_of).collect() };
            let [empty, black, white] = [0, 1, 2].map(of);
            [black, white].into_iter().all(|stones| {
                stones.iter().all(|stone| {
                    let chain = board.connected(Cells::from_iter([stone]), stones);
                    !(board.around(chain) & empty).is_empty()
                })
            })
        });
        assert_eq!(boards.count(), expected, "{size}x{size}");
    }
}

/// Van der Werf, "AI techniques for the game of Go", 2005: with area scoring and positional superko, Black wins by
/// one point on 2x2.
#[test]
fn best_play_on_2x2_wins_by_one_point() {
    /// Returns true if the player to move achieves an area difference of at least `points`.
    fn gets(game: &Go, position: &Position, points: i32) -> bool {
        if game.outcome(position).is_some() {
            let (area, mover) = (game.area(position), game.to_move(position));
            let [own, opponent] = [mover, mover.opponent()].map(|player| i32::from(narrow(area.points(player))));
            return own - opponent >= points;
        }
        // A pass may end the game at once, so it comes first.
        legal(game, position).into_iter().rev().any(|action| {
            let mut position = position.clone();
            game.play(&mut position, Action(narrow(action)));
            !gets(game, &position, 1 - points)
        })
    }
    let game = go(2);
    for points in -4..=4 {
        assert_eq!(gets(&game, &game.start(), points), points <= 1, "{points} points");
    }
}

/// Recounts the liberties of every chain from scratch.
#[test]
fn liberties_that_are_updated_with_each_stone_are_those_of_the_whole_board() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let game = go(9);
    let mut position = game.start();
    for _ in 0..600 {
        let actions = legal(&game, &position);
        if actions.is_empty() {
            break;
        }
        game.play(&mut position, Action(narrow(choice(&actions, &mut rng))));
        let empty = game.empty(&position);
        let mut expected = [Cells::EMPTY; 3];
        for stones in position.stones {
            for stone in stones.iter() {
                let chain = game.board.connected(Cells::from_iter([stone]), stones);
                let count = (game.board.around(chain) & empty).len();
                assert!(count > 0);
                if let Some(chains) = expected.get_mut(count - 1) {
                    chains.insert(stone);
                }
            }
        }
        assert_eq!(position.liberties, expected, "\n{}", game.render(&position));
    }
}

#[test]
fn a_ko_is_retaken_only_after_another_move() {
    let game = go(5);
    let ko = "A3 C4 B4 D3 B2 C2 C3 B3";
    assert_eq!(
        game.render(&after(&game, ko)),
        " 5 . . . . .\n 4 . X O . .\n 3 X O . O .\n 2 . X O . .\n 1 . . . . .\n   A B C D E"
    );
    assert!(!is_legal(&game, &after(&game, ko), "C3"));
    let threatened = format!("{ko} E5 E1");
    assert!(is_legal(&game, &after(&game, &threatened), "C3"));
    assert!(!is_legal(&game, &after(&game, &format!("{threatened} C3")), "B3"));
    // A pass leaves the board unchanged, and the other player to move.
    assert!(is_legal(&game, &after(&game, &format!("{ko} pass E5")), "C3"));
}

#[test]
fn sending_two_stones_and_returning_one_is_forbidden() {
    let game = go(5);
    let returning = after(&game, "A2 C2 B2 D1 pass B1 E5 A1 C1");
    assert!(!is_legal(&game, &returning, "B1"), "\n{}", game.render(&returning));
    assert!(is_legal(&game, &returning, "A1"));
}

/// No move retakes a ko at once, and the sixth recreates the board before the first.
#[test]
fn a_triple_ko_ends_with_the_first_repetition() {
    let game = go(9);
    let walls = "A2 D2 B3 C3 B1 C1 A5 D5 B6 C6 B4 C4 A8 D8 B9 C9 B7 C7";
    let kos = format!("{walls} C2 B5 pass B8 C5 B2 C8 B5 C2");
    assert!(!is_legal(&game, &after(&game, &kos), "B8"));
    assert!(is_legal(&game, &after(&game, &format!("{kos} E5 pass")), "B8"));
}

#[test]
fn a_snapback_captures_the_stones_that_captured() {
    let game = go(5);
    let thrown_in = "A3 A2 B3 B2 C3 C2 D2 C1 D1 pass B1 A1";
    let captured = " 5 . . . . .\n 4 . . . . .\n 3 X X X . .\n 2 O O O X .\n 1 O . O X .\n   A B C D E";
    assert_eq!(game.render(&after(&game, thrown_in)), captured);
    let snapped = " 5 . . . . .\n 4 . . . . .\n 3 X X X . .\n 2 . . . X .\n 1 . X . X .\n   A B C D E";
    assert_eq!(game.render(&after(&game, &format!("{thrown_in} B1"))), snapped);
}

#[test]
fn suicide_of_one_or_several_stones_is_illegal_and_a_capture_at_the_same_cell_is_not() {
    let game = go(5);
    assert!(!is_legal(&game, &after(&game, "pass A2 pass B1"), "A1"));
    let three = "A1 A3 A2 B2 pass C1";
    assert!(!is_legal(&game, &after(&game, three), "B1"));
    let captured = after(&game, &format!("{three} pass B1"));
    assert_eq!(captured.stones[Player::First.index()], Cells::EMPTY);
    assert_eq!(captured.captured[Player::First.index()].len(), 2);
}

/// The shared liberties C1 and C2 belong to neither player: Black has 12 points and White 11.
fn seki() -> String {
    let black = "A1 A2 A3 A4 A5 B1 B2 B3 B4 B5 C3 C4".split_whitespace();
    let white = "D1 D2 D3 D4 D5 E1 E2 E3 E4 E5 C5 pass".split_whitespace();
    black.zip(white).map(|(black, white)| format!("{black} {white} ")).collect::<String>() + "pass"
}

#[test]
fn stones_in_seki_are_counted_and_their_shared_liberties_are_not() {
    let game = go(5);
    let area = game.area(&after(&game, &seki()));
    assert_eq!([Player::First, Player::Second].map(|player| area.points(player)), [12, 11]);
    let [c1, c3, e1] = ["C1", "C3", "E1"].map(|text| game.parse_action(&game.start(), text).unwrap().index());
    assert_eq!([c1, c3, e1].map(|cell| area.owner(cell)), [None, Some(Player::First), Some(Player::Second)]);
}

#[test]
fn komi_decides_whether_the_difference_of_areas_wins_draws_or_loses() {
    let outcome = |points| {
        let game = Go::with_komi(Size::new(5).unwrap(), Komi::new(points).unwrap());
        game.outcome(&after(&game, &seki()))
    };
    assert_eq!(outcome(0.5), Some(Outcome::Win(Player::First)));
    assert_eq!(outcome(1.0), Some(Outcome::Draw));
    assert_eq!(outcome(1.5), Some(Outcome::Win(Player::Second)));
    assert_eq!(outcome(-20.0), Some(Outcome::Win(Player::First)));
}

#[test]
fn a_komi_has_whole_or_half_points() {
    for points in [f32::NAN, f32::INFINITY, 0.25, 6.6, 361.5, -362.0] {
        assert_eq!(Komi::new(points), None, "{points}");
    }
    for points in [0.0, 6.5, -3.0, 361.0] {
        assert_eq!(Komi::new(points).map(Komi::points), Some(points));
    }
    let usual = |size| Go::new(Size::new(size).unwrap()).komi().points();
    assert_eq!([5, 6, 7, 8, 9, 13, 19].map(usual), [24.0, 4.0, 9.0, 10.0, 7.0, 7.0, 7.0]);
}

#[test]
fn two_passes_in_a_row_end_the_game_and_two_with_a_move_between_them_do_not() {
    let game = Go::new(Size::new(9).unwrap());
    assert_eq!(game.outcome(&after(&game, "pass pass")), Some(Outcome::Win(Player::Second)), "White has komi");
    assert_eq!(game.outcome(&after(&game, "pass E5 pass")), None);
    assert_eq!(game.outcome(&after(&game, "E5 pass pass")), Some(Outcome::Win(Player::First)), "Black owns the board");
}

#[test]
fn the_limit_of_plies_ends_a_game_and_scores_it_as_it_stands() {
    let game = Go::with_limit(5, Komi::usual(5), 3);
    assert_eq!(game.outcome(&after(&game, "C3 pass")), None);
    let ended = after(&game, "C3 pass C4");
    assert_eq!(game.outcome(&ended), Some(Outcome::Win(Player::First)), "25 cells to 24 points");
    assert_eq!(legal(&game, &ended), [0; 0]);
    assert_eq!(Go::new(Size::new(19).unwrap()).spec().max_plies, 722);
}

/// Superko holds in images too, with earlier boards that were never turned.
#[test]
fn games_go_on_in_images_of_their_positions_as_in_the_positions() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let game = go(3);
    let mut forbidden = 0;
    for _ in 0..40 {
        let (mut position, mut image) = (game.start(), game.start());
        // The image of each action under all symmetries so far.
        let mut turned: Vec<Action> = (0..10).map(Action).collect();
        for _ in 0..80 {
            let symmetry = rng.random_range(0..8);
            image = game.image(&image, symmetry);
            turned.iter_mut().for_each(|action| *action = game.symmetries()[symmetry].action(*action));
            let actions = legal(&game, &position);
            let mut expected: Vec<usize> = actions.iter().map(|&action| turned[action].index()).collect();
            expected.sort_unstable();
            assert_eq!(legal(&game, &image), expected, "\n{}", game.render(&image));
            forbidden += image.forbidden.len();
            if actions.is_empty() {
                break;
            }
            let action = choice(&actions, &mut rng);
            game.play(&mut position, Action(narrow(action)));
            game.play(&mut image, turned[action]);
        }
    }
    assert!(forbidden > 50, "superko forbade {forbidden} moves");
}

#[test]
fn orders_of_moves_that_end_alike_share_a_hash_and_all_else_that_is_observed_differs_in_it() {
    let game = go(5);
    let hash = |moves: &str| game.hash(&after(&game, moves));
    let position = hash("A1 B1 C3 D4");
    assert_eq!(position, hash("C3 B1 A1 D4"), "the same last move");
    for other in ["A1 D4 C3 B1", "A1 B1 C3 pass", "B1 A1 C3 D4", "A1 B1 C3 D4 pass", "A1 B1 C3 D4 pass pass"] {
        assert_ne!(position, hash(other), "{other}");
    }
    // Equal stones, last move and number of plies; a ko forbids a move in one.
    let ko = "A3 C4 B4 D3 B2 C2 C3 E5 E1 B3";
    let other = "A3 C4 B4 D3 B2 C2 E1 E5 pass B3";
    let positions = [ko, other].map(|moves| after(&game, moves));
    assert_eq!(positions[0].stones, positions[1].stones);
    assert_ne!(game.hash(&positions[0]), game.hash(&positions[1]));
}

#[test]
fn the_observation_has_liberties_the_ko_and_the_last_move_from_the_view_of_the_player_to_move() {
    let game = go(5);
    let observe = |moves: &str| {
        let mut planes = vec![f32::NAN; game.spec().observation.len()];
        game.observe(&after(&game, moves), &mut planes);
        let cells = |plane: &[f32]| -> String {
            let ones = (0..25).filter(|&cell| plane[cell] == 1.0);
            ones.map(|cell| game.action_name(&game.start(), Action(cell as u16)) + " ").collect()
        };
        planes.chunks_exact(25).map(cells).collect::<Vec<_>>()
    };
    let all = "A5 B5 C5 D5 E5 A4 B4 C4 D4 E4 A3 B3 C3 D3 E3 A2 B2 C2 D2 E2 A1 B1 C1 D1 E1 ";
    let black_to_move = observe("A3 C4 B4 D3 B2 C2 C3 B3");
    let expected = ["B4 A3 B2 ", "C4 B3 D3 C2 ", "B3 ", "B4 A3 B2 ", "C4 C2 ", "C3 ", "B3 ", "", all, ""];
    assert_eq!(black_to_move, expected);
    assert_eq!(observe("pass"), ["", "", "", "", "", "", "", all, "", all]);
}

#[test]
fn vertices_are_those_of_the_go_text_protocol() {
    let game = Go::new(Size::new(19).unwrap());
    let start = game.start();
    let parse = |text: &str| game.parse_action(&start, text).map(|action| action.index());
    for (text, action) in [("A1", 18 * 19), ("T19", 18), ("h19", 7), ("J19", 8), (" d4 ", 15 * 19 + 3), ("PASS", 361)] {
        assert_eq!(parse(text), Ok(action), "{text}");
    }
    for text in ["I5", "A0", "A20", "U1", "A", "5", "A+5", "AA1"] {
        assert!(parse(text).is_err(), "{text}");
    }
    let message = parse("I5").unwrap_err().to_string();
    assert_eq!(message, "`I5` is not a move: expected a vertex from A1 to T19, or pass");
}

#[test]
fn a_size_lies_between_5_and_19() {
    let sizes: Vec<u8> = (0..=u8::MAX).filter(|&cells| Size::new(cells).is_some()).collect();
    assert_eq!(sizes, (5..=19).collect::<Vec<u8>>());
}
