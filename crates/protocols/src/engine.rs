//! The interface of a playing program: [`Engine`].

use std::ops::ControlFlow;

use crate::{Analysis, BoardGame, Cell, Color, GameResult, GoRules, Move, Rules, Size, Stone};

/// A program that plays one game at a time. A protocol session drives it and keeps the moves; to take back a move,
/// the session replays the earlier moves.
pub trait Engine {
    /// Returns name, version and game.
    fn identity(&self) -> &Identity;

    /// Starts a game.
    ///
    /// # Errors
    /// [`Error::Refused`] for an unsupported size, komi, rules or stones; the game is then undefined until the next
    /// start.
    fn start(&mut self, setup: &Setup) -> Result<(), Error>;

    /// Returns the supported rules of Go nearest to `rules`; by default `rules`. Analyses by them replace those by
    /// unsupported rules.
    fn nearest_rules(&self, rules: GoRules) -> GoRules {
        rules
    }

    /// Plays a move that is not [`Move::Resign`]. An engine may accept a color out of turn, as if the opponent had
    /// passed, and a pass in a game without passes. After the end of the game, a pass changes nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] for an illegal move; the position is then unchanged.
    fn play(&mut self, color: Color, played: Move) -> Result<(), Error>;

    /// Returns the player to move.
    fn to_move(&self) -> Color;

    /// Returns the legal moves of the player to move; none after the end of the game.
    fn legal_moves(&self) -> Vec<Move>;

    /// Searches the position without changing it, until the visits are reached or `progress` breaks off. Calls
    /// `progress` after every slice of the search, which should take a few hundredths of a second: `progress` also
    /// stops the search when the time is up, so that an engine needs no clock.
    ///
    /// # Errors
    /// [`Error::Refused`] if the game is over or a restriction is not supported, [`Error::Failed`] if the search fails.
    fn search(&mut self, search: &Search<'_>, progress: &mut Progress<'_>) -> Result<Analysis, Error>;

    /// Returns the result of the game; in Go, the result if the game ended in this position.
    ///
    /// # Errors
    /// [`Error::Refused`] if the position has no result.
    fn result(&mut self) -> Result<GameResult, Error>;

    /// Returns the strings of stones with this status at the end of the game.
    ///
    /// # Errors
    /// [`Error::Refused`] if the engine does not determine the status, as by default.
    fn status(&mut self, status: Status) -> Result<Vec<Vec<Cell>>, Error> {
        let _ = status;
        Err(Error::refused("the status of stones is not determined"))
    }

    /// Returns the board as lines of text. The last lines are the rows from the top, which have `X`, `O` and `.` for
    /// cells and nowhere else.
    fn render(&self) -> String;

    /// Returns true if the engine searches while the opponent thinks. It then receives a search without limits, which
    /// stops at the next line of input.
    fn ponders(&self) -> bool {
        false
    }

    /// Discards evaluations of earlier searches.
    fn clear_cache(&mut self) {}
}

/// A function that a search calls with the result so far.
pub type Progress<'a> = dyn FnMut(&Analysis) -> ControlFlow<()> + 'a;

/// Name, version and game of an engine, and the initial size, komi and rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Name, without line breaks.
    pub name: String,
    /// Version, without line breaks.
    pub version: String,
    /// The game that the engine plays.
    pub game: BoardGame,
    /// Board size of the first game.
    pub size: Size,
    /// Komi of the first game; 0 in other games than Go.
    pub komi: f32,
    /// Rules of the first game.
    pub rules: Rules,
}

/// The start of a game.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Size of the board.
    pub size: Size,
    /// Points that White receives in Go.
    pub komi: f32,
    /// Rules of the game.
    pub rules: Rules,
    /// Stones on the board before the first move, in any order.
    pub stones: Vec<Stone>,
    /// Player of the first move; `None` for the usual player.
    pub to_move: Option<Color>,
}

impl Setup {
    /// Returns a start on an empty board by the usual rules, without komi.
    #[must_use]
    pub const fn empty(size: Size) -> Self {
        Self { size, komi: 0.0, rules: Rules::Usual, stones: Vec::new(), to_move: None }
    }
}

/// A request for a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Search<'a> {
    /// Player to search a move for, usually the player to move.
    pub color: Color,
    /// Maximum number of simulations; `None` is unlimited.
    pub visits: Option<u32>,
    /// Moves to avoid, or the only moves to search.
    pub restrictions: &'a [Restriction],
}

/// A restriction on the moves of a search in the searched position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restriction {
    /// Player with restricted moves.
    pub color: Color,
    /// Forbids the moves, or allows no other moves.
    pub kind: RestrictionKind,
    /// The listed moves.
    pub moves: Vec<Move>,
}

/// The kind of a restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestrictionKind {
    /// All moves except the listed moves are searched.
    Avoid,
    /// Only the listed moves are searched.
    Allow,
}

/// The status of stones at the end of a Go game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The stones stay on the board.
    Alive,
    /// The stones stay on the board without territory.
    Seki,
    /// The stones are removed.
    Dead,
}

/// The reason why an engine did not fulfil a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is impossible: an illegal move, an unsupported size, a finished game.
    #[error("{reason}")]
    Refused {
        /// Reason, as a phrase.
        reason: String,
    },
    /// The engine failed.
    #[error("the engine failed: {reason}")]
    Failed {
        /// Reason, as a phrase.
        reason: String,
    },
}

impl Error {
    /// Returns a refusal with this reason.
    #[must_use]
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }
}
