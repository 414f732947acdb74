use std::collections::HashSet;

use games::Generator;
use games::hex::{Position, Size};

use super::*;
use crate::FullSearch;

fn hex(size: u8) -> Hex {
    Hex::new(Size::new(size).unwrap())
}

fn legal(game: &Hex, position: &Position) -> Vec<Action> {
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    legal
}

#[test]
fn every_position_of_3_cells_a_side_has_the_scores_of_a_search_of_every_line() {
    let game = hex(3);
    let (mut oracle, mut other) =
        (HexOracle::new(game.clone()).unwrap(), FullSearch::new(game.clone(), plies, usize::MAX));
    let mut seen = HashSet::from([game.hash(&game.start())]);
    let mut waiting = vec![game.start()];
    while let Some(position) = waiting.pop() {
        assert_eq!(oracle.scores(&position), other.scores(&position), "\n{}", game.render(&position));
        for action in legal(&game, &position) {
            let mut next = position;
            game.play(&mut next, action);
            if game.outcome(&next).is_none() && seen.insert(game.hash(&next)) {
                waiting.push(next);
            }
        }
    }
    assert!(seen.len() > 3_000, "{} positions", seen.len());
}

#[test]
fn random_late_positions_have_the_scores_of_a_search_of_every_line() {
    let mut random = Generator::new(4);
    for (size, empty_max) in [(4, 10), (5, 9)] {
        let game = hex(size);
        let (mut oracle, mut other) =
            (HexOracle::new(game.clone()).unwrap(), FullSearch::new(game.clone(), plies, usize::MAX));
        let mut count = 0;
        while count < 40 {
            let mut position = game.start();
            while game.outcome(&position).is_none() && legal(&game, &position).len() > empty_max {
                let legal = legal(&game, &position);
                game.play(&mut position, legal[random.below(legal.len())]);
            }
            if game.outcome(&position).is_none() {
                assert_eq!(oracle.scores(&position), other.scores(&position), "\n{}", game.render(&position));
                count += 1;
            }
        }
    }
}

/// Both players play the best actions, and the winner finishes with the stones in hand that the first score predicts.
#[test]
fn best_play_on_5_cells_a_side_ends_when_every_score_predicts_it() {
    let game = hex(5);
    let mut oracle = HexOracle::new(game.clone()).unwrap();
    let mut random = Generator::new(6);
    for _ in 0..3 {
        let mut position = game.start();
        for _ in 0..3 {
            let legal = legal(&game, &position);
            game.play(&mut position, legal[random.below(legal.len())]);
        }
        let mut expected = None;
        while game.outcome(&position).is_none() {
            let scores = oracle.scores(&position);
            let best = *scores.iter().flatten().max().unwrap();
            assert_eq!(best, *expected.get_or_insert(best), "\n{}", game.render(&position));
            let action = scores.iter().position(|&score| score == Some(best)).unwrap();
            game.play(&mut position, Action(u16::try_from(action).unwrap()));
            // The opponent's score is the negative.
            expected = Some(-best);
        }
        let in_hand = (game.spec().max_plies - plies(&game, &position)) / 2;
        assert_eq!(expected, Some(-1 - i32::try_from(in_hand).unwrap()), "\n{}", game.render(&position));
    }
}

/// Returns true if the first player wins with this opening without the swap rule.
fn wins_with(game: &Hex, solver: &mut Solver, opening: Action) -> bool {
    let mut position = game.start();
    game.play(&mut position, opening);
    let [own, opponent] = stones(game, &position);
    !solver.wins(own, opponent)
}

/// Returns the names of the openings that win for the first player without the swap rule.
fn winning_openings(size: u8) -> HashSet<String> {
    let game = hex(size);
    let (start, mut solver) = (game.start(), Solver::new(game.size()));
    let openings = legal(&game, &start).into_iter().filter(|&action| wins_with(&game, &mut solver, action));
    openings.map(|action| game.action_name(&start, action)).collect()
}

/// Returns true if `mover` wins without a swap on 3 cells a side, computed from the rules alone.
fn is_won(cells: [Option<Player>; 9], mover: Player) -> bool {
    let connected = |player: Player| {
        let along = |cell: usize| if player == Player::First { cell / 3 } else { cell % 3 };
        let mut reached = [false; 9];
        for _ in 0..9 {
            for cell in (0..9).filter(|&cell| cells[cell] == Some(player)) {
                let beside = |other: usize| {
                    let (down, right) =
                        (other as isize / 3 - cell as isize / 3, other as isize % 3 - cell as isize % 3);
                    matches!((down, right), (0, 1 | -1) | (1 | -1, 0) | (1, -1) | (-1, 1))
                };
                let touches = (0..9).any(|other| reached[other] && beside(other));
                reached[cell] |= along(cell) == 0 || touches;
            }
        }
        (0..9).any(|cell| reached[cell] && along(cell) == 2)
    };
    if connected(mover.opponent()) {
        return false;
    }
    (0..9).filter(|&cell| cells[cell].is_none()).any(|cell| {
        let mut next = cells;
        next[cell] = Some(mover);
        !is_won(next, mover.opponent())
    })
}

#[test]
fn the_winning_openings_of_3_cells_a_side_without_swap_are_those_of_brute_force() {
    let game = hex(3);
    let expected = (0..9).filter(|&cell| {
        let mut cells = [None; 9];
        cells[cell] = Some(Player::First);
        !is_won(cells, Player::Second)
    });
    let name = |cell: usize| game.action_name(&game.start(), Action(u16::try_from(cell).unwrap()));
    assert_eq!(winning_openings(3), expected.map(name).collect::<HashSet<String>>());
}

/// Published results on openings without swap: every cell of the short diagonal wins on small boards, and a1 and b1
/// lose on every board (van Rijswijck, "Computer Hex: are bees better than fruitflies?", 2000).
#[test]
fn openings_on_the_short_diagonal_win_and_those_in_the_sharp_corner_lose() {
    for size in [4, 5] {
        let game = hex(size);
        let mut solver = Solver::new(game.size());
        let size = u16::from(size);
        for column in 0..size {
            let opening = Action((size - 1 - column) * size + column);
            assert!(wins_with(&game, &mut solver, opening), "{size}: {opening}");
        }
        for opening in [0, 1].map(Action) {
            assert!(!wins_with(&game, &mut solver, opening), "{size}: {opening}");
        }
    }
}

/// Half a turn of the board is a symmetry of the rules.
#[test]
fn an_opening_wins_where_that_turned_by_half_a_turn_does() {
    let openings = winning_openings(4);
    let name = |column: u8, row: u8| format!("{}{}", char::from(b'a' + column), row + 1);
    for (column, row) in (0..4).flat_map(|column| (0..4).map(move |row| (column, row))) {
        let turned = name(3 - column, 3 - row);
        assert_eq!(openings.contains(&name(column, row)), openings.contains(&turned), "{turned}: {openings:?}");
    }
}

/// With the swap rule, the second player swaps exactly the winning openings.
#[test]
fn every_opening_loses_and_only_winning_ones_are_swapped() {
    let game = hex(4);
    let mut oracle = HexOracle::new(game.clone()).unwrap();
    let openings = winning_openings(4);
    let scores = oracle.scores(&game.start());
    assert!(scores[..16].iter().all(|score| score.is_some_and(|score| score < 0)), "{scores:?}");
    assert_eq!(scores[16], None, "there is nothing to swap");
    for action in legal(&game, &game.start()) {
        let mut position = game.start();
        game.play(&mut position, action);
        let swap = oracle.scores(&position)[game.swap().index()].unwrap();
        assert_eq!(swap > 0, openings.contains(&game.action_name(&game.start(), action)), "{action}");
    }
}
