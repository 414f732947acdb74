//! The legal order of messages in each stream, as pure state machines.
//!
//! A machine converts each message on arrival, and returns an event or the fault that closes the stream. The server's
//! handlers use [`InsertOrder`] and [`SampleOrder`], the clients [`InsertReplies`] and [`SampleReplies`]. The
//! machines depend on no sockets and no tables.

use std::collections::HashSet;
use std::time::Duration;

use experience::{Invalid, Limits, Sample, Trajectory, TrajectoryId, WeightsVersion};
use tonic::Status;

use super::convert::{insert, sample, trajectory};
use super::v1::insert_request::Message as InsertRequest;
use super::v1::insert_response::Message as InsertResponse;
use super::v1::sample_request::Message as SampleRequest;
use super::v1::sample_response::Message as SampleResponse;
use super::{Answer, INSERT_REVISION, InsertWait, Origin, SampleBatch, SampleQuery, v1};
use crate::convert;
use crate::limits::CREDIT_BATCHES_MAX;

/// A protocol error in a message, for which the stream is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The message has no field that this side supports.
    #[error("empty message or unknown message kind")]
    Empty,
    /// The message came before another message that must precede it.
    #[error("`{got}` came before `{expected}`")]
    TooEarly {
        /// Name of the received message.
        got: &'static str,
        /// Name of the message that must come first.
        expected: &'static str,
    },
    /// The message came a second time, although the stream allows it only once.
    #[error("duplicate `{message}`")]
    Twice {
        /// Name of the repeated message.
        message: &'static str,
    },
    /// The message exceeds the credit.
    #[error("`{message}` exceeds the credit of {credit}")]
    OverCredit {
        /// Name of the message beyond the credit.
        message: &'static str,
        /// The credit of the stream.
        credit: u32,
    },
    /// A field is invalid that concerns the whole stream.
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

/// The server's side of an insert stream: `hello`, then trajectories within the credit, heartbeats and at most one
/// goodbye.
#[derive(Debug)]
pub struct InsertOrder {
    game: String,
    credit: u32,
    limits: Limits,
    heartbeat: Duration,
    origin: Option<Origin>,
    /// The stream revision of the client, which determines the supported features.
    revision: u32,
    goodbye_received: bool,
    unanswered: u32,
}

/// The event that a client message causes on an insert stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// The stream is open: respond with [`InsertOrder::ready`].
    Hello(Origin),
    /// A valid trajectory: make it durable, then send the response and call [`InsertOrder::answered`].
    Trajectory(Trajectory),
    /// An invalid trajectory: send this response and call [`InsertOrder::answered`]; the stream stays open.
    Refused(Answer),
    /// The client is alive.
    Heartbeat,
    /// The client uploads the remaining trajectories and disconnects.
    Goodbye,
}

impl InsertOrder {
    /// Creates the state machine for trajectories of `game` within `limits`, at most `credit` of them unanswered. The
    /// server asks the client for heartbeats at the interval `heartbeat`, in whole milliseconds; zero for none.
    #[must_use]
    pub fn new(game: impl Into<String>, credit: u32, limits: Limits, heartbeat: Duration) -> Self {
        Self {
            game: game.into(),
            credit,
            limits,
            heartbeat,
            origin: None,
            revision: 0,
            goodbye_received: false,
            unanswered: 0,
        }
    }

    /// Takes the next message from the client.
    ///
    /// # Errors
    /// The [`Fault`] for which the server must close the stream.
    pub fn receive(&mut self, request: v1::InsertRequest) -> Result<Inserted, Fault> {
        // The trace does not affect the order.
        let v1::InsertRequest { message, trace: _ } = request;
        match (message.ok_or(Fault::Empty)?, &self.origin) {
            (InsertRequest::Hello(hello), None) => self.open(hello),
            (InsertRequest::Hello(_), Some(_)) => Err(Fault::Twice { message: "hello" }),
            (InsertRequest::Trajectory(_), None) => Err(Fault::TooEarly { got: "trajectory", expected: "hello" }),
            (InsertRequest::Trajectory(trajectory), Some(_)) => self.take(trajectory),
            (InsertRequest::Heartbeat(_), None) => Err(Fault::TooEarly { got: "heartbeat", expected: "hello" }),
            (InsertRequest::Heartbeat(_), Some(_)) => Ok(Inserted::Heartbeat),
            (InsertRequest::Goodbye(_), None) => Err(Fault::TooEarly { got: "goodbye", expected: "hello" }),
            (InsertRequest::Goodbye(_), Some(_)) if self.goodbye_received => Err(Fault::Twice { message: "goodbye" }),
            (InsertRequest::Goodbye(_), Some(_)) => {
                self.goodbye_received = true;
                Ok(Inserted::Goodbye)
            }
        }
    }

    /// Returns the response to `hello`; `highest_epoch` is the highest epoch of this actor with a stored trajectory, or
    /// 0.
    #[must_use]
    pub fn ready(&self, highest_epoch: u64) -> v1::InsertResponse {
        let heartbeat = if self.keeps_lease() { self.heartbeat } else { Duration::ZERO };
        let heartbeat_ms = u32::try_from(heartbeat.as_millis()).unwrap_or(u32::MAX);
        v1::Ready { credit: self.credit, heartbeat_ms, highest_epoch, revision: self.revision }.into()
    }

    /// Returns true if the client supports reports of why trajectories wait, which stream revision 2 added.
    #[must_use]
    pub fn reads_waiting(&self) -> bool {
        self.revision >= 2
    }

    /// Returns true if the client sends heartbeats and goodbye, and supports the response for stale trajectories.
    #[must_use]
    pub fn keeps_lease(&self) -> bool {
        self.revision >= 1
    }

    /// Returns `answer` in a form supported by the client's revision.
    #[must_use]
    pub fn understood(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Stale { sequence } if !self.keeps_lease() => Answer::Inserted { sequence },
            answer => answer,
        }
    }

    /// Records that a response was sent: the client may send one more trajectory.
    pub fn answered(&mut self) {
        debug_assert!(self.unanswered > 0, "each trajectory is answered once");
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Returns the number of unanswered trajectories.
    #[must_use]
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    fn open(&mut self, hello: v1::Hello) -> Result<Inserted, Fault> {
        let revision = hello.revision.min(INSERT_REVISION);
        let origin = Origin::try_from(hello)?;
        if origin.game != self.game {
            return Err(unlike("game", &origin.game, &self.game));
        }
        self.origin = Some(origin.clone());
        self.revision = revision;
        Ok(Inserted::Hello(origin))
    }

    fn take(&mut self, message: v1::Trajectory) -> Result<Inserted, Fault> {
        let origin = self.origin.as_ref().expect("a stream that takes trajectories is open");
        let id = TrajectoryId::from(convert::required("id", message.id)?);
        if id.actor != origin.actor {
            return Err(unlike("id.actor", id.actor, origin.actor));
        }
        if id.epoch != origin.epoch {
            return Err(unlike("id.epoch", id.epoch, origin.epoch));
        }
        if self.unanswered == self.credit {
            return Err(Fault::OverCredit { message: "trajectory", credit: self.credit });
        }
        self.unanswered += 1;
        let valid =
            trajectory::within_limit(&message.columns).and_then(|columns| Trajectory::parse(id, columns, self.limits));
        // Another game is a fault of the whole stream, not of a single trajectory.
        if let Ok(trajectory) = &valid
            && trajectory.game() != origin.game
        {
            return Err(unlike("game", trajectory.game(), &origin.game));
        }
        Ok(match valid {
            Ok(trajectory) => Inserted::Trajectory(trajectory),
            Err(fault) => Inserted::Refused(Answer::Refused { sequence: id.sequence, fault }),
        })
    }
}

/// The client's side of an insert stream: `ready`, then one response for each sent trajectory.
#[derive(Debug, Default)]
pub struct InsertReplies {
    ready: Option<v1::Ready>,
    unanswered: HashSet<u64>,
}

/// The event that a server message causes on an insert stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertReply {
    /// Trajectories may be sent.
    Ready {
        /// The highest epoch of this actor with a trajectory stored by the server; 0 for none.
        highest_epoch: u64,
    },
    /// The response to a trajectory.
    Answer(Answer),
    /// Unanswered trajectories wait for this reason.
    Waiting(InsertWait),
}

impl InsertReplies {
    /// Returns true if one more trajectory may be sent now.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.ready.is_some_and(|ready| self.unanswered.len() < ready.credit as usize)
    }

    /// Returns the heartbeat interval that the server requests; `None` before `ready`, and for a server without leases,
    /// which does not support a goodbye either.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Duration> {
        let heartbeat_ms = self.ready.map(|ready| ready.heartbeat_ms).filter(|&interval| interval > 0)?;
        Some(Duration::from_millis(heartbeat_ms.into()))
    }

    /// Returns the longest time between two messages from a server that reports why trajectories wait: one heartbeat
    /// interval, twice the interval at which the server sends reports. `None` before `ready`, and for a server without
    /// such reports.
    #[must_use]
    pub fn silence_max(&self) -> Option<Duration> {
        self.heartbeat().filter(|_| self.reads_waiting())
    }

    fn reads_waiting(&self) -> bool {
        self.ready.is_some_and(|ready| ready.revision >= 2)
    }

    /// Records that a trajectory was sent.
    pub fn sent(&mut self, sequence: u64) {
        debug_assert!(self.may_send(), "nothing is sent over the credit");
        self.unanswered.insert(sequence);
    }

    /// Takes the next message from the server.
    ///
    /// # Errors
    /// The [`Fault`] for which the client must close the stream.
    pub fn receive(&mut self, response: v1::InsertResponse) -> Result<InsertReply, Fault> {
        let v1::InsertResponse { message } = response;
        match (message.ok_or(Fault::Empty)?, self.ready) {
            (InsertResponse::Ready(ready), None) => {
                self.ready = Some(insert::checked_ready(ready)?);
                Ok(InsertReply::Ready { highest_epoch: ready.highest_epoch })
            }
            (InsertResponse::Ready(_), Some(_)) => Err(Fault::Twice { message: "ready" }),
            (InsertResponse::Ack(_), None) => Err(Fault::TooEarly { got: "ack", expected: "ready" }),
            (InsertResponse::Refused(_), None) => Err(Fault::TooEarly { got: "refused", expected: "ready" }),
            (InsertResponse::Waiting(_), None) => Err(Fault::TooEarly { got: "waiting", expected: "ready" }),
            (InsertResponse::Waiting(_), Some(ready)) if !self.reads_waiting() => {
                let reason = format!("requires revision 2, the stream has revision {}", ready.revision);
                Err(Fault::Invalid(convert::invalid("waiting", reason)))
            }
            (InsertResponse::Waiting(waiting), Some(_)) => Ok(InsertReply::Waiting(insert::checked_wait(waiting)?)),
            (InsertResponse::Ack(ack), Some(_)) => self.answer(ack.try_into()),
            (InsertResponse::Refused(refused), Some(_)) => self.answer(refused.try_into()),
        }
    }

    fn answer(&mut self, answer: Result<Answer, Invalid>) -> Result<InsertReply, Fault> {
        let answer = answer?;
        if self.unanswered.remove(&answer.sequence()) {
            Ok(InsertReply::Answer(answer))
        } else {
            let reason = format!("{} awaits no response", answer.sequence());
            Err(Fault::Invalid(convert::invalid("sequence", reason)))
        }
    }
}

/// The server's side of a sample stream: `open`, then credit.
#[derive(Debug)]
pub struct SampleOrder {
    game: String,
    query: Option<SampleQuery>,
    credit: u32,
}

/// The event that a client message causes on a sample stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sampled {
    /// The stream is open.
    Open(SampleQuery),
    /// [`SampleOrder::credit`] has grown.
    Credit {
        /// The latest weights version published by the client, if it publishes any.
        newest: Option<WeightsVersion>,
    },
}

impl SampleOrder {
    /// Creates the state machine for samples of `game`.
    #[must_use]
    pub fn new(game: impl Into<String>) -> Self {
        Self { game: game.into(), query: None, credit: 0 }
    }

    /// Takes the next message from the client.
    ///
    /// # Errors
    /// The [`Fault`] for which the server must close the stream.
    pub fn receive(&mut self, request: v1::SampleRequest) -> Result<Sampled, Fault> {
        let v1::SampleRequest { message } = request;
        match (message.ok_or(Fault::Empty)?, &self.query) {
            (SampleRequest::Open(open), None) => self.open(open),
            (SampleRequest::Open(_), Some(_)) => Err(Fault::Twice { message: "open" }),
            (SampleRequest::Credit(_), None) => Err(Fault::TooEarly { got: "credit", expected: "open" }),
            (SampleRequest::Credit(credit), Some(_)) => self.add(credit),
        }
    }

    /// Returns the number of batches that may be sent now.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.credit
    }

    /// Records that a batch was sent.
    pub fn sent(&mut self) {
        debug_assert!(self.credit > 0, "a batch is sent for credit only");
        self.credit = self.credit.saturating_sub(1);
    }

    fn open(&mut self, open: v1::Open) -> Result<Sampled, Fault> {
        let query = SampleQuery::try_from(open)?;
        if query.game != self.game {
            return Err(unlike("game", &query.game, &self.game));
        }
        self.query = Some(query.clone());
        Ok(Sampled::Open(query))
    }

    fn add(&mut self, credit: v1::Credit) -> Result<Sampled, Fault> {
        let (batches, newest) = sample::credit_from_wire(credit)?;
        if batches > CREDIT_BATCHES_MAX - self.credit {
            return Err(Fault::OverCredit { message: "credit", credit: CREDIT_BATCHES_MAX });
        }
        self.credit += batches;
        Ok(Sampled::Credit { newest })
    }
}

/// The client's side of a sample stream: batches of the requested size, in parts, within the credit.
#[derive(Debug)]
pub struct SampleReplies {
    batch_size: usize,
    unroll_steps: usize,
    credit: u32,
    /// The received samples of the next batch.
    samples: Vec<Sample>,
}

/// The event that a server message causes on a sample stream.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleReply {
    /// A part of a batch; further parts follow.
    Part,
    /// A complete batch, for one credit: the last part has arrived.
    Batch(Box<SampleBatch>),
    /// The reason why no batch arrives.
    Waiting(String),
}

impl SampleReplies {
    /// Creates the state machine for batches of `batch_size` segments, each with at most `unroll_steps` steps after the
    /// first.
    #[must_use]
    pub fn new(batch_size: usize, unroll_steps: usize) -> Self {
        Self { batch_size, unroll_steps, credit: 0, samples: Vec::new() }
    }

    /// Records that credit was sent.
    pub fn gave(&mut self, batches: u32) {
        self.credit += batches;
    }

    /// Takes the next message from the server.
    ///
    /// # Errors
    /// The [`Fault`] for which the client must close the stream.
    pub fn receive(&mut self, response: v1::SampleResponse) -> Result<SampleReply, Fault> {
        let v1::SampleResponse { message } = response;
        match message.ok_or(Fault::Empty)? {
            SampleResponse::Waiting(waiting) => Ok(SampleReply::Waiting(sample::waiting_from_wire(waiting)?)),
            SampleResponse::Batch(_) if self.credit == 0 => Err(Fault::OverCredit { message: "batch", credit: 0 }),
            SampleResponse::Batch(part) => self.add(part),
        }
    }

    fn add(&mut self, part: v1::Batch) -> Result<SampleReply, Fault> {
        let (got, wanted) = (part.samples.len(), self.batch_size - self.samples.len());
        convert::one_to("samples", got, "entries", wanted)?;
        let SampleBatch { samples, table } = part.try_into()?;
        self.check_segments(&samples)?;
        self.samples.extend(samples);
        if got < wanted {
            return Ok(SampleReply::Part);
        }
        self.credit -= 1;
        let samples = std::mem::take(&mut self.samples);
        Ok(SampleReply::Batch(Box::new(SampleBatch { samples, table })))
    }

    /// Rejects segments longer than requested. The last segments of an episode may be shorter.
    fn check_segments(&self, samples: &[Sample]) -> Result<(), Invalid> {
        samples.iter().enumerate().try_for_each(|(index, sample)| {
            let field = format!("samples[{index}].segment.steps");
            convert::one_to(&field, sample.segment.len(), "entries", self.unroll_steps + 1)
        })
    }
}

fn unlike(field: &str, got: impl std::fmt::Display, expected: impl std::fmt::Display) -> Fault {
    Fault::Invalid(convert::invalid(field, format!("is `{got}`, this stream is for `{expected}`")))
}

#[cfg(test)]
mod tests;
