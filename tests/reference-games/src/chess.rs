use std::rc::Rc;

use game::{Action, Outcome, Player};

use crate::{Reference, action};

const SIDE: isize = 8;

/// Number of ways in which a piece may leave a cell.
const WAYS: usize = 73;

/// Chess on a board of characters: capital letters are White's pieces, `.` is an empty cell.
#[derive(Clone)]
pub(crate) struct Chess {
    board: Board,
    /// Plies since the last capture or pawn step.
    quiet_plies: usize,
    plies: usize,
    /// Earlier boards of the game, the latest first.
    earlier: Option<Rc<Earlier>>,
}

struct Earlier {
    board: Board,
    before: Option<Rc<Self>>,
}

/// The part of a position that must match for a repetition.
#[derive(Clone, PartialEq)]
struct Board {
    /// Rows from the eighth rank down, columns from the left.
    rows: [[char; 8]; 8],
    mover: Player,
    /// Remaining castling letters of FEN: `K` and `Q` for White, `k` and `q` for Black.
    castling: Vec<char>,
    /// Cell passed by a pawn that has made two steps, if the pawn can be captured there.
    en_passant: Option<Cell>,
}

/// A cell: row from the top, and column.
type Cell = (isize, isize);

/// A move between cells of the board, with the letter of the promoted piece.
#[derive(Clone, Copy)]
struct Move {
    from: Cell,
    to: Cell,
    promotion: Option<char>,
}

impl Chess {
    pub(crate) fn new() -> Self {
        let rows = ["rnbqkbnr", "pppppppp", "........", "........", "........", "........", "PPPPPPPP", "RNBQKBNR"];
        let rows = rows.map(|row| {
            let mut letters = row.chars();
            std::array::from_fn(|_| letters.next().expect("a row has eight cells"))
        });
        let board = Board { rows, mover: Player::First, castling: vec!['K', 'Q', 'k', 'q'], en_passant: None };
        Self { board, quiet_plies: 0, plies: 0, earlier: None }
    }

    /// Returns true if the board has occurred twice before.
    fn is_third_occurrence(&self) -> bool {
        let mut occurrences = 0;
        let mut next = &self.earlier;
        while let Some(earlier) = next {
            occurrences += usize::from(earlier.board == self.board);
            next = &earlier.before;
        }
        occurrences >= 2
    }
}

impl Board {
    fn at(&self, (row, column): Cell) -> Option<char> {
        let [row, column] = [row, column].map(|at| usize::try_from(at).ok());
        self.rows.get(row?)?.get(column?).copied()
    }

    fn put(&mut self, (row, column): Cell, piece: char) {
        let [row, column] = [row, column].map(|at| usize::try_from(at).expect("the cell is on the board"));
        self.rows[row][column] = piece;
    }

    fn is_own(&self, cell: Cell) -> bool {
        self.at(cell).is_some_and(|piece| owner(piece) == Some(self.mover))
    }

    /// Returns the change of row in a pawn step of a player.
    fn forward(player: Player) -> isize {
        match player {
            Player::First => -1,
            Player::Second => 1,
        }
    }

    /// Returns the move of an action, if it stays on the board. Action `cell · 73 + way` counts cells from the top left
    /// as the player to move sees the board.
    fn step(&self, action: Action) -> Option<Move> {
        let ((rows, columns), promotion) = way(action.index() % WAYS);
        let cell = isize::try_from(action.index() / WAYS).expect("there are 64 cells");
        let seen = (cell / SIDE, cell % SIDE);
        let on_board = |(row, column): Cell| match self.mover {
            Player::First => (row, column),
            Player::Second => (SIDE - 1 - row, column),
        };
        let (from, to) = (on_board(seen), on_board((seen.0 + rows, seen.1 + columns)));
        self.at(to)?;
        let is_pawn = self.at(from)?.eq_ignore_ascii_case(&'p');
        let reaches_last_row = seen.0 + rows == 0;
        let promotion = match promotion {
            Some(_) if !is_pawn || !reaches_last_row => return None,
            None if is_pawn && reaches_last_row => Some('q'),
            other => other,
        };
        Some(Move { from, to, promotion })
    }

    /// Returns true if the piece on `from` attacks the cell `to`, whatever is there.
    fn attacks(&self, from: Cell, to: Cell) -> bool {
        let Some(piece) = self.at(from) else { return false };
        let Some(player) = owner(piece) else { return false };
        let (rows, columns) = (to.0 - from.0, to.1 - from.1);
        let (far, near) = (rows.abs().max(columns.abs()), rows.abs().min(columns.abs()));
        let is_free =
            || (1..far).all(|at| self.at((from.0 + rows / far * at, from.1 + columns / far * at)) == Some('.'));
        let (straight, diagonal) = (near == 0 && far > 0, near == far && far > 0);
        match piece.to_ascii_lowercase() {
            'p' => rows == Self::forward(player) && columns.abs() == 1,
            'n' => (far, near) == (2, 1),
            'b' => diagonal && is_free(),
            'r' => straight && is_free(),
            'q' => (diagonal || straight) && is_free(),
            _ => far == 1,
        }
    }

    fn is_attacked_by(&self, player: Player, cell: Cell) -> bool {
        cells().any(|from| self.at(from).and_then(owner) == Some(player) && self.attacks(from, cell))
    }

    fn is_in_check(&self, player: Player) -> bool {
        let king = match player {
            Player::First => 'K',
            Player::Second => 'k',
        };
        let king = cells().find(|&cell| self.at(cell) == Some(king)).expect("each player has a king");
        self.is_attacked_by(player.opponent(), king)
    }

    /// Returns true if the piece can make a move, ignoring checks.
    fn is_pseudo_legal(&self, chosen: Move) -> bool {
        let Move { from, to, .. } = chosen;
        if !self.is_own(from) || self.is_own(to) {
            return false;
        }
        let is_empty = |cell| self.at(cell) == Some('.');
        match self.at(from).map(|piece| piece.to_ascii_lowercase()) {
            Some('p') => {
                let forward = Self::forward(self.mover);
                let first_row = if self.mover == Player::First { 6 } else { 1 };
                let is_single = to == (from.0 + forward, from.1);
                let is_double = to == (from.0 + 2 * forward, from.1) && from.0 == first_row;
                let captures = self.attacks(from, to) && (!is_empty(to) || self.en_passant == Some(to));
                let steps = is_single || is_double && is_empty((from.0 + forward, from.1));
                captures || steps && is_empty(to)
            }
            Some('k') if (to.0 - from.0, (to.1 - from.1).abs()) == (0, 2) => self.may_castle(from, to),
            _ => self.attacks(from, to),
        }
    }

    /// Returns true if the king may castle: with the castling right, over empty cells, and from, over and to cells that
    /// no piece attacks.
    fn may_castle(&self, from: Cell, to: Cell) -> bool {
        let (right, between) = if to.1 > from.1 { ('K', 5..7) } else { ('Q', 1..4) };
        let right = if self.mover == Player::First { right } else { right.to_ascii_lowercase() };
        let passed = [from.1, (from.1 + to.1) / 2, to.1];
        self.castling.contains(&right)
            && between.into_iter().all(|column| self.at((from.0, column)) == Some('.'))
            && passed.into_iter().all(|column| !self.is_attacked_by(self.mover.opponent(), (from.0, column)))
    }

    fn is_legal(&self, chosen: Move) -> bool {
        self.is_pseudo_legal(chosen) && !self.moved(chosen).is_in_check(self.mover)
    }

    /// Returns the board after a move; the en passant cell may belong to a capture that is not legal.
    fn moved(&self, Move { from, to, promotion }: Move) -> Self {
        let mut next = self.clone();
        let piece = self.at(from).expect("a move begins on the board");
        let is_pawn = piece.eq_ignore_ascii_case(&'p');
        if is_pawn && from.1 != to.1 && self.at(to) == Some('.') {
            next.put((from.0, to.1), '.');
        }
        if piece.eq_ignore_ascii_case(&'k') && (to.1 - from.1).abs() == 2 {
            let (rook_from, rook_to) = if to.1 > from.1 { (7, 5) } else { (0, 3) };
            next.put((from.0, rook_to), self.at((from.0, rook_from)).expect("the rook is on the board"));
            next.put((from.0, rook_from), '.');
        }
        next.put(from, '.');
        let promoted = promotion.map(|letter| match self.mover {
            Player::First => letter.to_ascii_uppercase(),
            Player::Second => letter,
        });
        next.put(to, promoted.unwrap_or(piece));
        // A move from or to the home cell of a rook or king takes the castling right away.
        let homes = [('K', (7, 4), (7, 7)), ('Q', (7, 4), (7, 0)), ('k', (0, 4), (0, 7)), ('q', (0, 4), (0, 0))];
        for (right, king, rook) in homes {
            if [from, to].iter().any(|&cell| cell == king || cell == rook) {
                next.castling.retain(|&left| left != right);
            }
        }
        next.en_passant = (is_pawn && (to.0 - from.0).abs() == 2).then_some(((from.0 + to.0) / 2, from.1));
        next.mover = self.mover.opponent();
        next
    }

    /// Returns the board with the en passant cell only if such a capture is legal.
    fn with_legal_en_passant(mut self) -> Self {
        self.en_passant = self.en_passant.filter(|&to| {
            let pawn = |from| self.at(from).is_some_and(|piece| piece.eq_ignore_ascii_case(&'p'));
            let promotion = None;
            cells().any(|from| pawn(from) && from.1 != to.1 && self.is_legal(Move { from, to, promotion }))
        });
        self
    }

    fn legal_actions(&self) -> Vec<Action> {
        let all = (0..WAYS * 64).map(action);
        all.filter(|&action| self.step(action).is_some_and(|chosen| self.is_legal(chosen))).collect()
    }

    /// Returns true if only kings are left, with one knight or bishop, or with bishops on cells of one colour.
    fn is_insufficient(&self) -> bool {
        let others: Vec<(char, isize)> = cells()
            .filter_map(|(row, column)| Some((self.at((row, column))?.to_ascii_lowercase(), (row + column) % 2)))
            .filter(|&(piece, _)| piece != '.' && piece != 'k')
            .collect();
        let bishops = |colour| others.iter().all(|&other| other == ('b', colour));
        matches!(others[..], [('n', _)]) || bishops(0) || bishops(1)
    }
}

impl Reference for Chess {
    fn to_move(&self) -> Player {
        self.board.mover
    }

    fn legal_actions(&self) -> Vec<Action> {
        if self.outcome().is_some() { Vec::new() } else { self.board.legal_actions() }
    }

    fn play(&mut self, action: Action) {
        let chosen = self.board.step(action).expect("the action is legal");
        let is_pawn = self.board.at(chosen.from).is_some_and(|piece| piece.eq_ignore_ascii_case(&'p'));
        let is_quiet = !is_pawn && self.board.at(chosen.to) == Some('.');
        let after = self.board.moved(chosen).with_legal_en_passant();
        let board = std::mem::replace(&mut self.board, after);
        self.earlier = Some(Rc::new(Earlier { board, before: self.earlier.take() }));
        self.quiet_plies = if is_quiet { self.quiet_plies + 1 } else { 0 };
        self.plies += 1;
    }

    fn outcome(&self) -> Option<Outcome> {
        if self.board.legal_actions().is_empty() {
            let is_mate = self.board.is_in_check(self.board.mover);
            return Some(if is_mate { Outcome::Win(self.board.mover.opponent()) } else { Outcome::Draw });
        }
        let is_over = self.is_third_occurrence() || self.quiet_plies >= 100 || self.plies >= 512;
        (is_over || self.board.is_insufficient()).then_some(Outcome::Draw)
    }

    fn stones(&self) -> String {
        self.board.rows.iter().flatten().collect()
    }

    fn drawn_stones(&self, board: &str) -> String {
        // After the letters of columns, each row starts with its number.
        let rows = board.lines().skip(1).flat_map(|row| row.chars().skip(2));
        rows.filter(|cell| *cell != ' ').collect()
    }

    fn copied(&self) -> Box<dyn Reference> {
        Box::new(self.clone())
    }
}

/// Returns the rows and columns of a way to leave a cell, and the letter of an underpromotion.
fn way(way: usize) -> (Cell, Option<char>) {
    // Both lists go clockwise from the top.
    let lines = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)];
    let jumps = [(-2, 1), (-1, 2), (1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1)];
    let far = |at: usize| isize::try_from(at).expect("there are 73 ways");
    match way {
        0..56 => {
            let (rows, columns) = lines[way / 7];
            ((rows * far(way % 7 + 1), columns * far(way % 7 + 1)), None)
        }
        56..64 => (jumps[way - 56], None),
        _ => ((-1, far((way - 64) % 3) - 1), Some(['n', 'b', 'r'][(way - 64) / 3])),
    }
}

/// Returns the owner of a piece; `None` for an empty cell.
fn owner(piece: char) -> Option<Player> {
    match piece {
        '.' => None,
        _ if piece.is_ascii_uppercase() => Some(Player::First),
        _ => Some(Player::Second),
    }
}

fn cells() -> impl Iterator<Item = Cell> {
    (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column)))
}
