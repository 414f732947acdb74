use service::trace::TraceContext;

use crate::convert::{Invalid, cut, invalid, name, sentence};
use crate::replay::{Answer, INSERT_REVISION, InsertWait, Origin, v1};

impl From<Origin> for v1::Hello {
    fn from(Origin { actor, epoch, game }: Origin) -> Self {
        Self { actor, epoch, game, revision: INSERT_REVISION }
    }
}

impl TryFrom<v1::Hello> for Origin {
    type Error = Invalid;

    fn try_from(v1::Hello { actor, epoch, game, revision: _ }: v1::Hello) -> Result<Self, Invalid> {
        Ok(Self { actor, epoch, game: name("game", game)? })
    }
}

/// Returns the trace context in a message of an insert stream.
#[must_use]
pub fn trace_of(message: &v1::InsertRequest) -> Option<TraceContext> {
    TraceContext::parse(&message.trace)
}

impl From<v1::Ready> for v1::InsertResponse {
    fn from(ready: v1::Ready) -> Self {
        Self { message: Some(v1::insert_response::Message::Ready(ready)) }
    }
}

/// Checks the first message of a server.
pub(crate) fn checked_ready(ready: v1::Ready) -> Result<v1::Ready, Invalid> {
    if ready.credit == 0 {
        return Err(invalid("credit", "is zero"));
    }
    if ready.highest_epoch == u64::MAX {
        return Err(invalid("highest_epoch", "is the maximum; no higher epoch is left"));
    }
    if ready.revision > INSERT_REVISION {
        return Err(invalid("revision", format!("is {}, the client has {INSERT_REVISION}", ready.revision)));
    }
    Ok(ready)
}

impl From<InsertWait> for v1::InsertResponse {
    fn from(wait: InsertWait) -> Self {
        Self { message: Some(v1::insert_response::Message::Waiting(v1::InsertWaiting { wait: wait.into() })) }
    }
}

/// Checks a server's report of why trajectories wait.
pub(crate) fn checked_wait(v1::InsertWaiting { wait }: v1::InsertWaiting) -> Result<InsertWait, Invalid> {
    match InsertWait::try_from(wait) {
        Ok(InsertWait::Unspecified) | Err(_) => Err(invalid("wait", format!("{wait} is not a wait reason"))),
        Ok(wait) => Ok(wait),
    }
}

impl From<Answer> for v1::InsertResponse {
    fn from(answer: Answer) -> Self {
        let ack = |sequence, disposition: v1::Disposition| {
            v1::insert_response::Message::Ack(v1::Ack { sequence, disposition: disposition.into() })
        };
        let message = match answer {
            Answer::Inserted { sequence } => ack(sequence, v1::Disposition::Inserted),
            Answer::Duplicate { sequence } => ack(sequence, v1::Disposition::Duplicate),
            Answer::Stale { sequence } => ack(sequence, v1::Disposition::Stale),
            Answer::Refused { sequence, fault: Invalid { field, reason } } => {
                v1::insert_response::Message::Refused(v1::Refused { sequence, field: cut(field), reason: cut(reason) })
            }
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<v1::Ack> for Answer {
    type Error = Invalid;

    fn try_from(v1::Ack { sequence, disposition }: v1::Ack) -> Result<Self, Invalid> {
        match v1::Disposition::try_from(disposition) {
            Ok(v1::Disposition::Inserted) => Ok(Self::Inserted { sequence }),
            Ok(v1::Disposition::Duplicate) => Ok(Self::Duplicate { sequence }),
            Ok(v1::Disposition::Stale) => Ok(Self::Stale { sequence }),
            Ok(v1::Disposition::Unspecified) | Err(_) => {
                Err(invalid("disposition", format!("{disposition} is not a disposition")))
            }
        }
    }
}

impl TryFrom<v1::Refused> for Answer {
    type Error = Invalid;

    fn try_from(v1::Refused { sequence, field, reason }: v1::Refused) -> Result<Self, Invalid> {
        let fault = Invalid { field: sentence("field", field)?, reason: sentence("reason", reason)? };
        Ok(Self::Refused { sequence, fault })
    }
}
