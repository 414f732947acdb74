//! The legal order of the messages of each stream, as pure state machines.
//!
//! A machine takes each message as it comes, converts it, and answers with an event or with the fault that ends the
//! stream. [`InsertOrder`] and [`SampleOrder`] stand in the server's handlers; [`InsertReplies`] and [`SampleReplies`]
//! are the other side, in the clients. They know no socket and no table.

mod insert;
mod sample;

use experience::Invalid;
pub use insert::{InsertOrder, InsertReplies, InsertReply, Inserted};
pub use sample::{SampleOrder, SampleReplies, SampleReply, Sampled};
use tonic::Status;

use crate::convert;

/// A message that ends its stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A message with nothing in it that this side knows.
    #[error("a message is empty or of an unknown kind")]
    Empty,
    /// A message before the one that opens the stream.
    #[error("`{got}` came before `{expected}`")]
    TooEarly {
        /// The message that arrived.
        got: &'static str,
        /// The message that must come first.
        expected: &'static str,
    },
    /// The message that opens the stream, again.
    #[error("`{message}` came twice")]
    Twice {
        /// The message.
        message: &'static str,
    },
    /// More than the credit allows.
    #[error("`{message}` is over the credit of {credit}")]
    OverCredit {
        /// The message.
        message: &'static str,
        /// The credit of the stream.
        credit: u32,
    },
    /// A field whose fault concerns the whole stream.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Empty | Fault::TooEarly { .. } | Fault::Twice { .. } => Self::failed_precondition(fault.to_string()),
            Fault::OverCredit { .. } => Self::resource_exhausted(fault.to_string()),
            Fault::Invalid(invalid) => convert::status(&invalid),
        }
    }
}

fn unlike(field: &str, got: impl std::fmt::Display, expected: impl std::fmt::Display) -> Fault {
    Fault::Invalid(convert::invalid(field, format!("is `{got}`, this stream is for `{expected}`")))
}

#[cfg(test)]
mod tests;
