//! The messages of failed commands: [`Failure`].

use crate::Error;

/// The reason for which a command failed. The texts are those of the specification where it has one.
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
    /// Returns the message for an error of the engine: `refused` for a refusal, and that of a failed engine otherwise.
    pub(super) fn of(error: Error, refused: Self) -> Self {
        match error {
            Error::Refused { .. } => refused,
            Error::Failed { .. } => Self::Engine(error),
        }
    }
}
