//! The interface of a program that plays: [`Engine`].

use std::ops::ControlFlow;
use std::time::Duration;

use crate::{Analysis, BoardGame, Cell, Color, GameResult, Move, Rules, Size, Stone};

/// A program that plays one game at a time. A session of a protocol drives it, keeps the moves, and takes a move back
/// by playing the others again.
pub trait Engine {
    /// Returns the name, the version and the game.
    fn identity(&self) -> &Identity;

    /// Starts a game.
    ///
    /// # Errors
    /// [`Error::Refused`] for a size, komi, rules or stones that are not supported; the game is then undefined until
    /// the next start.
    fn start(&mut self, setup: &Setup) -> Result<(), Error>;

    /// Plays a move that is not [`Move::Resign`]. An engine of Go may accept a color out of turn, as if the opponent
    /// had passed.
    ///
    /// # Errors
    /// [`Error::Refused`] for an illegal move; the position is then unchanged.
    fn play(&mut self, color: Color, played: Move) -> Result<(), Error>;

    /// Returns the player to move.
    fn to_move(&self) -> Color;

    /// Searches the position without changing it, until the visits are made or `progress` breaks off. Calls `progress`
    /// after every slice of the search, which should take a few hundredths of a second: it also ends the search when
    /// its time is up, so that an engine needs no clock.
    ///
    /// # Errors
    /// [`Error::Refused`] if the game is over or a restriction is not supported, [`Error::Failed`] if the search fails.
    fn search(&mut self, search: &Search<'_>, progress: &mut Progress<'_>) -> Result<Analysis, Error>;

    /// Returns the result of the game; in Go, of the position if the game ended here.
    ///
    /// # Errors
    /// [`Error::Refused`] if the position has no result.
    fn result(&mut self) -> Result<GameResult, Error>;

    /// Returns the strings of stones with this status at the end of the game.
    ///
    /// # Errors
    /// [`Error::Refused`] if the engine does not determine it, as by default.
    fn status(&mut self, status: Status) -> Result<Vec<Vec<Cell>>, Error> {
        let _ = status;
        Err(Error::refused("the status of stones is not determined"))
    }

    /// Returns the board as lines of text.
    fn render(&self) -> String;

    /// Returns true if the engine searches while the opponent thinks. It then gets a search without limits, which
    /// ends with the next line of input.
    fn ponders(&self) -> bool {
        false
    }

    /// Returns true if each analysis has its [`ownership`](Analysis::ownership). Otherwise a request for it is answered
    /// with a warning where the protocol has one.
    fn predicts_ownership(&self) -> bool {
        false
    }

    /// Forgets evaluations of earlier searches.
    fn clear_cache(&mut self) {}
}

/// A function that a search calls with its result so far.
pub type Progress<'a> = dyn FnMut(&Analysis) -> ControlFlow<()> + 'a;

/// The name, the version and the game of an engine, with the size, the komi and the rules that it starts with.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// The name, without line breaks.
    pub name: String,
    /// The version, without line breaks.
    pub version: String,
    /// The game that it plays.
    pub game: BoardGame,
    /// The size of the board of the first game.
    pub size: Size,
    /// The komi of the first game; 0 in games but Go.
    pub komi: f32,
    /// The rules of the first game.
    pub rules: Rules,
}

/// The start of a game.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The size of the board.
    pub size: Size,
    /// The points that White gets in Go.
    pub komi: f32,
    /// The rules.
    pub rules: Rules,
    /// Stones that are on the board before the first move, in no order.
    pub stones: Vec<Stone>,
    /// The player of the first move; `None` for the usual one.
    pub to_move: Option<Color>,
}

impl Setup {
    /// Returns the start on an empty board by the usual rules, without komi.
    #[must_use]
    pub const fn empty(size: Size) -> Self {
        Self { size, komi: 0.0, rules: Rules::Usual, stones: Vec::new(), to_move: None }
    }
}

/// A request for a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Search<'a> {
    /// The player for whom a move is searched, usually the player to move.
    pub color: Color,
    /// The most simulations; `None` for any number.
    pub visits: Option<u32>,
    /// The time that `progress` grants; `None` for any time.
    pub time: Option<Duration>,
    /// Moves that are not searched, or that alone are.
    pub restrictions: &'a [Restriction],
}

/// A restriction of the moves of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restriction {
    /// The player whose moves are restricted.
    pub color: Color,
    /// Whether the moves are the forbidden or the allowed ones.
    pub kind: RestrictionKind,
    /// The moves.
    pub moves: Vec<Move>,
    /// The number of plies from the root within which the restriction applies.
    pub until_depth: u32,
}

/// The kind of a restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestrictionKind {
    /// All moves but the listed ones are searched.
    Avoid,
    /// No moves but the listed ones are searched.
    Allow,
}

/// The status of stones at the end of a game of Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// They stay on the board.
    Alive,
    /// They stay on the board without territory.
    Seki,
    /// They are removed.
    Dead,
}

/// The reason for which an engine did not do what was requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is not possible: an illegal move, a size without rules, a game that is over.
    #[error("{reason}")]
    Refused {
        /// The reason, as a phrase.
        reason: String,
    },
    /// The engine failed.
    #[error("the engine failed: {reason}")]
    Failed {
        /// The reason, as a phrase.
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
