//! Messages of failed commands: [`Failure`].

use crate::Error;

/// The reason why a command failed. The texts are from the specification where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("unknown command")]
    UnknownCommand,
    #[error("syntax error")]
    Syntax,
    #[error("line too long")]
    LineTooLong,
    #[error("illegal move")]
    IllegalMove,
    #[error("unacceptable size")]
    Size,
    #[error("unacceptable komi")]
    Komi,
    #[error("unsupported rules")]
    Rules,
    #[error("cannot undo")]
    Undo,
    #[error("cannot score")]
    Score,
    #[error("board not empty")]
    BoardNotEmpty,
    #[error("invalid number of stones")]
    StoneCount,
    #[error("bad vertex list")]
    VertexList,
    #[error("cannot load file: {reason}")]
    File { reason: String },
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Failure {
    /// Returns the failure for an engine error: `refused` for a refusal, otherwise the failure of the engine.
    pub(super) fn of(error: Error, refused: Self) -> Self {
        match error {
            Error::Refused { .. } => refused,
            Error::Failed { .. } => Self::Engine(error),
        }
    }
}
