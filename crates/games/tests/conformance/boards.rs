//! Checks boards against the rendered text, the legal actions and the board after an action.

use std::collections::HashMap;

use game::{Action, Board, Game, Mark, Place, Player, Players};
use games::{Chess, GAMES, GameKind, TicTacToe};

/// Maximum number of actions for one pair of cells: a pawn's promotions.
const PROMOTIONS: usize = 4;

/// Returns what is wrong with the board of a position; `None` for a game without a board.
pub(super) fn flaw<G: Game>(game: &G, position: &G::Position, legal: &[Action]) -> Option<String> {
    let (players, text) = (game.spec().players, game.render(position));
    flaw_of(&game.board(position)?, &text, legal, players, game.to_move(position))
}

fn flaw_of(board: &Board, text: &str, legal: &[Action], players: Players, mover: Player) -> Option<String> {
    let cells = board.rows * board.columns;
    if cells == 0 || board.marks.len() != cells {
        return Some(format!("{} marks on {} x {} cells", board.marks.len(), board.rows, board.columns));
    }
    if !board.moves.iter().map(|(action, _)| action).eq(legal) {
        return Some(format!("the board has the moves {:?}, legal are {legal:?}", board.moves));
    }
    if !is_rendered(board, text) {
        return Some(format!("the marks are not those of the text: {:?}\n{text}", board.marks));
    }
    let mut actions = HashMap::new();
    board.moves.iter().for_each(|&(_, place)| *actions.entry(place).or_insert(0) += 1);
    let is_own = |cell: usize| owner(board, cell) == Some(mover);
    let is_fine = |place: Place| match place {
        Place::Nowhere => players == Players::One || actions[&place] == 1,
        Place::Cell(cell) => cell < cells && board.marks[cell].is_none() && actions[&place] == 1,
        Place::Step { from, to } => {
            from < cells && to < cells && is_own(from) && !is_own(to) && actions[&place] <= PROMOTIONS
        }
    };
    let wrong = board.moves.iter().find(|&&(_, place)| !is_fine(place))?;
    Some(format!("{wrong:?} is not where an action can be"))
}

fn owner(board: &Board, cell: usize) -> Option<Player> {
    board.marks[cell].as_ref()?.owner
}

/// Returns what is wrong with the cells of an action of `mover`, according to the board after the action.
pub(super) fn flaw_of_move(before: &Board, after: &Board, action: Action, mover: Player) -> Option<String> {
    let is_played = match before.place(action)? {
        Place::Nowhere => true,
        Place::Cell(cell) => owner(after, cell) == Some(mover),
        Place::Step { from, to } => after.marks[from].is_none() && owner(after, to) == Some(mover),
    };
    (!is_played).then(|| format!("{action} is not on the cells {:?}", before.place(action)))
}

/// Returns true if consecutive lines of the text show the rows of the board.
fn is_rendered(board: &Board, text: &str) -> bool {
    let lines: Vec<Vec<String>> = text.lines().map(|line| cells_of(line, board.columns)).collect();
    let shows = |(cell, (mark, text)): (usize, (&Option<Mark>, &String))| match mark {
        Some(mark) => mark.label == *text,
        // Tic-tac-toe numbers the empty cells.
        None => text == "." || *text == (cell + 1).to_string(),
    };
    lines.windows(board.rows).any(|rows| {
        let cells = rows.concat();
        cells.len() == board.marks.len() && board.marks.iter().zip(&cells).enumerate().all(shows)
    })
}

/// Returns the cells in a line: the last words, or the characters where cells are not separated.
fn cells_of(line: &str, columns: usize) -> Vec<String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match words.len().checked_sub(columns) {
        Some(before) => words[before..].to_vec(),
        None => words.concat().chars().map(String::from).collect(),
    }
}

#[test]
fn every_game_for_two_players_has_a_board() {
    for name in GAMES.iter().flat_map(|entry| entry.examples()) {
        let game = name.parse::<GameKind>().unwrap().rules();
        let has_board = game.board(&game.start()).is_some();
        assert!(has_board || game.spec().players == Players::One, "{name}");
    }
}

/// Returns a position, the legal actions and the board.
fn parts<G: Game>(game: &G, moves: &[&str]) -> (G::Position, Vec<Action>, Board) {
    let mut position = game.start();
    for text in moves {
        let action = game.parse_action(&position, text).expect("it names a move");
        game.try_play(&mut position, action).expect("the move is legal");
    }
    let mut legal = Vec::new();
    game.legal_actions(&position, &mut legal);
    let board = game.board(&position).expect("the game has a board");
    (position, legal, board)
}

#[test]
fn flaws_of_boards_are_found() {
    let game = TicTacToe::new();
    let (position, legal, board) = parts(&game, &["5", "1"]);
    let text = game.render(&position);
    let check = |change: fn(&mut Board), expected: &str| {
        let mut board = board.clone();
        change(&mut board);
        let flaw = flaw_of(&board, &text, &legal, Players::Two, Player::First).unwrap_or_default();
        assert!(flaw.contains(expected), "{flaw:?} is not {expected:?}");
    };
    assert_eq!(flaw_of(&board, &text, &legal, Players::Two, Player::First), None);
    check(|board| board.rows = 2, "9 marks on 2 x 3 cells");
    check(|board| board.moves.truncate(1), "legal are");
    check(|board| board.marks.swap(0, 4), "not those of the text");
    check(|board| board.marks[8] = board.marks[0].clone(), "not those of the text");
    check(|board| board.moves[0].1 = Place::Cell(9), "not where an action can be");
    check(|board| board.moves[0].1 = Place::Cell(0), "not where an action can be");
    check(|board| board.moves[0].1 = board.moves[1].1, "not where an action can be");
    check(|board| (board.moves[0].1, board.moves[1].1) = (Place::Nowhere, Place::Nowhere), "not where");
}

#[test]
fn a_move_on_the_wrong_cells_is_found() {
    let game = TicTacToe::new();
    let (_, legal, mut before) = parts(&game, &[]);
    let (_, _, after) = parts(&game, &["1"]);
    assert_eq!(flaw_of_move(&before, &after, legal[0], Player::First), None);
    assert!(flaw_of_move(&before, &after, legal[0], Player::Second).is_some());
    before.moves[0].1 = Place::Cell(1);
    assert!(flaw_of_move(&before, &after, legal[0], Player::First).is_some());
}

#[test]
fn castling_is_a_step_of_the_king_and_a_promotion_has_the_cells_of_the_pawn() {
    let game = Chess::new();
    let (position, _, board) = parts(&game, &["e2e4", "e7e5", "g1f3", "g8f6", "f1e2", "f8e7"]);
    let castling = game.parse_action(&position, "O-O").unwrap();
    assert_eq!(board.place(castling), Some(Place::Step { from: 60, to: 62 }));
    assert_eq!(board.marks[60].as_ref().map(|mark| (mark.kind, mark.label.as_str())), Some(("king", "K")));
    let moves = ["a2a4", "b7b5", "a4b5", "a7a6", "b5a6", "c8b7", "a6b7", "d7d6"];
    let (position, _, board) = parts(&game, &moves);
    for text in ["b7a8q", "b7a8n", "b7a8b", "b7a8r"] {
        let promotion = game.parse_action(&position, text).unwrap();
        assert_eq!(board.place(promotion), Some(Place::Step { from: 9, to: 0 }), "{text}");
    }
}
