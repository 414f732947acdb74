use std::collections::HashSet;
use std::time::Duration;

use experience::{Invalid, Limits, Trajectory, TrajectoryId};

use super::{Fault, unlike};
use crate::convert;
use crate::convert::insert::Granted;
use crate::replay::v1::insert_request::Message as Request;
use crate::replay::v1::insert_response::Message as Response;
use crate::replay::{Answer, INSERT_REVISION, Origin, v1};

/// The server's side of an insert stream: `hello`, then trajectories within the credit, heartbeats and at most one
/// goodbye.
#[derive(Debug)]
pub struct InsertOrder {
    game: String,
    credit: u32,
    limits: Limits,
    heartbeat: Duration,
    origin: Option<Origin>,
    /// The features that the client supports.
    revision: u32,
    said_goodbye: bool,
    unanswered: u32,
}

/// The event that a message of an insert stream stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// The stream is open: answer with [`InsertOrder::ready`].
    Hello(Origin),
    /// A valid trajectory: make it durable, then answer it and call [`InsertOrder::answered`].
    Trajectory(Trajectory),
    /// An invalid one: send this answer and call [`InsertOrder::answered`]; the stream goes on.
    Refused(Answer),
    /// The client lives.
    Heartbeat,
    /// The client uploads what it has and leaves.
    Goodbye,
}

impl InsertOrder {
    /// A stream for trajectories of `game` within `limits`, at most `credit` of them unanswered.
    #[must_use]
    pub fn new(game: impl Into<String>, credit: u32, limits: Limits) -> Self {
        let heartbeat = Duration::ZERO;
        Self {
            game: game.into(),
            credit,
            limits,
            heartbeat,
            origin: None,
            revision: 0,
            said_goodbye: false,
            unanswered: 0,
        }
    }

    /// The same for a server that requests heartbeats at this interval, in whole milliseconds.
    #[must_use]
    pub fn with_heartbeat(self, heartbeat: Duration) -> Self {
        Self { heartbeat, ..self }
    }

    /// Takes the client's next message.
    ///
    /// # Errors
    /// The [`Fault`] that ends the stream.
    pub fn receive(&mut self, request: v1::InsertRequest) -> Result<Inserted, Fault> {
        // What it is traced as is nothing to the order.
        let v1::InsertRequest { message, trace: _ } = request;
        match (message.ok_or(Fault::Empty)?, &self.origin) {
            (Request::Hello(hello), None) => self.open(hello),
            (Request::Hello(_), Some(_)) => Err(Fault::Twice { message: "hello" }),
            (Request::Trajectory(_), None) => Err(Fault::TooEarly { got: "trajectory", expected: "hello" }),
            (Request::Trajectory(trajectory), Some(_)) => self.take(trajectory),
            (Request::Heartbeat(_), None) => Err(Fault::TooEarly { got: "heartbeat", expected: "hello" }),
            (Request::Heartbeat(_), Some(_)) => Ok(Inserted::Heartbeat),
            (Request::Goodbye(_), None) => Err(Fault::TooEarly { got: "goodbye", expected: "hello" }),
            (Request::Goodbye(_), Some(_)) if self.said_goodbye => Err(Fault::Twice { message: "goodbye" }),
            (Request::Goodbye(_), Some(_)) => {
                self.said_goodbye = true;
                Ok(Inserted::Goodbye)
            }
        }
    }

    /// The answer to `hello`; `highest_epoch` is the highest of which a trajectory of this actor is stored, or 0.
    #[must_use]
    pub fn ready(&self, highest_epoch: u64) -> v1::InsertResponse {
        let heartbeat = if self.keeps_lease() { self.heartbeat } else { Duration::ZERO };
        let heartbeat_ms = u32::try_from(heartbeat.as_millis()).unwrap_or(u32::MAX);
        v1::Ready { credit: self.credit, heartbeat_ms, highest_epoch }.into()
    }

    /// Returns true if the client sends heartbeats and goodbye, and accepts stale trajectories as an answer.
    #[must_use]
    pub fn keeps_lease(&self) -> bool {
        self.revision >= 1
    }

    /// An answer as the client understands it.
    #[must_use]
    pub fn understood(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Stale { sequence } if !self.keeps_lease() => Answer::Inserted { sequence },
            answer => answer,
        }
    }

    /// An answer goes out: one more trajectory may come.
    pub fn answered(&mut self) {
        debug_assert!(self.unanswered > 0, "each trajectory is answered once");
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Returns the number of trajectories without an answer.
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
        let valid = convert::trajectory::within_limit(&message.columns)
            .and_then(|columns| Trajectory::parse(id, columns, self.limits));
        // Another game is no fault of one trajectory: the whole stream is of another.
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

/// The client's side of an insert stream: `ready`, then one answer for each trajectory that was sent.
#[derive(Debug, Default)]
pub struct InsertReplies {
    granted: Option<Granted>,
    unanswered: HashSet<u64>,
}

/// The event that a server's message on an insert stream stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertReply {
    /// Trajectories may be sent.
    Ready {
        /// The highest epoch of which the server has stored a trajectory of this actor; 0 for none.
        highest_epoch: u64,
    },
    /// One of them is answered.
    Answer(Answer),
}

impl InsertReplies {
    /// Returns true if one more trajectory may be sent now.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.granted.is_some_and(|granted| self.unanswered.len() < granted.credit as usize)
    }

    /// Returns the heartbeat interval that the server requested; `None` before it is ready, and for a server that keeps
    /// no leases and does not support goodbye.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Duration> {
        self.granted.and_then(|granted| granted.heartbeat)
    }

    /// A trajectory goes out.
    pub fn sent(&mut self, sequence: u64) {
        debug_assert!(self.may_send(), "nothing is sent over the credit");
        self.unanswered.insert(sequence);
    }

    /// Takes the server's next message.
    ///
    /// # Errors
    /// The [`Fault`] for which the stream must be given up.
    pub fn receive(&mut self, response: v1::InsertResponse) -> Result<InsertReply, Fault> {
        let v1::InsertResponse { message } = response;
        match (message.ok_or(Fault::Empty)?, self.granted) {
            (Response::Ready(ready), None) => {
                let granted = convert::insert::ready_from_wire(ready)?;
                self.granted = Some(granted);
                Ok(InsertReply::Ready { highest_epoch: granted.highest_epoch })
            }
            (Response::Ready(_), Some(_)) => Err(Fault::Twice { message: "ready" }),
            (Response::Ack(_), None) => Err(Fault::TooEarly { got: "ack", expected: "ready" }),
            (Response::Refused(_), None) => Err(Fault::TooEarly { got: "refused", expected: "ready" }),
            (Response::Ack(ack), Some(_)) => self.answer(ack.try_into()),
            (Response::Refused(refused), Some(_)) => self.answer(refused.try_into()),
        }
    }

    fn answer(&mut self, answer: Result<Answer, Invalid>) -> Result<InsertReply, Fault> {
        let answer = answer?;
        if self.unanswered.remove(&answer.sequence()) {
            Ok(InsertReply::Answer(answer))
        } else {
            let reason = format!("{} does not wait for an answer", answer.sequence());
            Err(Fault::Invalid(convert::invalid("sequence", reason)))
        }
    }
}
