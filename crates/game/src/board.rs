use crate::{Action, Game, Player};

/// A position as a board, for user interfaces: what to draw in each cell, and which cells mean which action.
///
/// Cells are numbered row by row from the top left, as in the text of [`Game::render`]. The last action is no part of
/// a position: [`place`](Self::place) on the board before the action returns the cells to highlight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    /// Shape of the cells.
    pub geometry: Geometry,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Mark on each cell, `[rows · columns]`; `None` for an empty cell.
    pub marks: Vec<Option<Mark>>,
    /// Every legal action with the cells that mean it, in ascending order of actions. A promotion in chess has the same
    /// cells as the other promotions of the pawn.
    pub moves: Vec<(Action, Place)>,
}

/// The shape of the cells of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// Squares with pieces or objects on them.
    Squares,
    /// Crossings of lines, with stones on them.
    Points,
    /// Hexagons; each row lies half a cell to the right of the row above.
    Hexagons,
    /// Squares in columns: a stone falls to the lowest empty cell, and every cell of the column means the action.
    Columns,
}

/// A thing on a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Owner of a stone or a piece; `None` for objects of an environment.
    pub owner: Option<Player>,
    /// Kind of thing, in words: `stone`, `king`, `wall`.
    pub kind: &'static str,
    /// The thing in the text of [`Game::render`]: `X`, `K`, `#`, `2048`.
    pub label: String,
}

/// The cells that mean an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// No cell: a pass, a swap, or the action of an environment.
    Nowhere,
    /// The empty cell on which a stone is placed.
    Cell(usize),
    /// The move of a piece.
    Step {
        /// Cell of the piece.
        from: usize,
        /// Cell of the piece after the move.
        to: usize,
    },
}

impl Board {
    /// Returns a board with the mark of each cell, and without moves.
    pub fn new(geometry: Geometry, rows: usize, columns: usize, mark: impl Fn(usize) -> Option<Mark>) -> Self {
        Self { geometry, rows, columns, marks: (0..rows * columns).map(mark).collect(), moves: Vec::new() }
    }

    /// Adds the legal actions; `place` returns the cells of each.
    #[must_use]
    pub fn with_moves<G: Game>(self, game: &G, position: &G::Position, place: impl Fn(Action) -> Place) -> Self {
        let mut legal = Vec::new();
        game.legal_actions(position, &mut legal);
        Self { moves: legal.into_iter().map(|action| (action, place(action))).collect(), ..self }
    }

    /// Returns the cells of a legal action; `None` if the action is illegal.
    #[must_use]
    pub fn place(&self, action: Action) -> Option<Place> {
        let index = self.moves.binary_search_by_key(&action, |&(action, _)| action).ok()?;
        Some(self.moves[index].1)
    }
}
