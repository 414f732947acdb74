//! Messages of failed commands: [`Failure`].

use crate::Error;

/// The reason why a command failed. The texts are from the specification where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Text(&'static str),
    #[error("cannot load file: {reason}")]
    File { reason: String },
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Failure {
    pub(super) const UNKNOWN_COMMAND: Self = Self::Text("unknown command");
    pub(super) const SYNTAX: Self = Self::Text("syntax error");
    pub(super) const LINE_TOO_LONG: Self = Self::Text("line too long");
    pub(super) const ILLEGAL_MOVE: Self = Self::Text("illegal move");
    pub(super) const SIZE: Self = Self::Text("unacceptable size");
    pub(super) const KOMI: Self = Self::Text("unacceptable komi");
    pub(super) const RULES: Self = Self::Text("unsupported rules");
    pub(super) const UNDO: Self = Self::Text("cannot undo");
    pub(super) const SCORE: Self = Self::Text("cannot score");
    pub(super) const BOARD_NOT_EMPTY: Self = Self::Text("board not empty");
    pub(super) const STONE_COUNT: Self = Self::Text("invalid number of stones");
    pub(super) const VERTEX_LIST: Self = Self::Text("bad vertex list");

    /// Returns the failure for an engine error: `refused` for a refusal, otherwise the failure of the engine.
    pub(super) fn of(error: Error, refused: Self) -> Self {
        match error {
            Error::Refused { .. } => refused,
            Error::Failed { .. } => Self::Engine(error),
        }
    }
}
