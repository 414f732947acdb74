use std::collections::HashSet;

use experience::{Invalid, Limits, Trajectory, TrajectoryId};

use super::{Fault, unlike};
use crate::convert;
use crate::replay::v1::insert_request::Message as Request;
use crate::replay::v1::insert_response::Message as Response;
use crate::replay::{Answer, Origin, v1};

/// The server's side of an insert stream: `hello`, then trajectories within the credit.
#[derive(Debug)]
pub struct InsertOrder {
    game: String,
    credit: u32,
    limits: Limits,
    origin: Option<Origin>,
    unanswered: u32,
}

/// What a message of an insert stream means.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// The stream is open: answer with [`InsertOrder::ready`].
    Hello(Origin),
    /// A valid trajectory: make it durable, then answer it and say so with [`InsertOrder::answered`].
    Trajectory(Trajectory),
    /// An invalid one: send this answer and say so with [`InsertOrder::answered`]; the stream goes on.
    Refused(Answer),
}

impl InsertOrder {
    /// A stream for trajectories of `game` within `limits`, at most `credit` of them unanswered.
    #[must_use]
    pub fn new(game: impl Into<String>, credit: u32, limits: Limits) -> Self {
        Self { game: game.into(), credit, limits, origin: None, unanswered: 0 }
    }

    /// Takes the client's next message.
    ///
    /// # Errors
    /// The [`Fault`] that ends the stream.
    pub fn receive(&mut self, request: v1::InsertRequest) -> Result<Inserted, Fault> {
        let v1::InsertRequest { message } = request;
        match (message.ok_or(Fault::Empty)?, &self.origin) {
            (Request::Hello(hello), None) => self.open(hello),
            (Request::Hello(_), Some(_)) => Err(Fault::Twice { message: "hello" }),
            (Request::Trajectory(_), None) => Err(Fault::TooEarly { got: "trajectory", expected: "hello" }),
            (Request::Trajectory(trajectory), Some(_)) => self.take(trajectory),
        }
    }

    /// The answer to `hello`.
    #[must_use]
    pub fn ready(&self) -> v1::InsertResponse {
        v1::Ready { credit: self.credit }.into()
    }

    /// An answer goes out: one more trajectory may come.
    pub fn answered(&mut self) {
        debug_assert!(self.unanswered > 0, "each trajectory is answered once");
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// How many trajectories wait for their answers.
    #[must_use]
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    fn open(&mut self, hello: v1::Hello) -> Result<Inserted, Fault> {
        let origin = Origin::try_from(hello)?;
        if origin.game != self.game {
            return Err(unlike("game", &origin.game, &self.game));
        }
        self.origin = Some(origin.clone());
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
        if message.game != origin.game {
            return Err(unlike("game", convert::cut(message.game), &origin.game));
        }
        if self.unanswered == self.credit {
            return Err(Fault::OverCredit { message: "trajectory", credit: self.credit });
        }
        self.unanswered += 1;
        let valid =
            Trajectory::try_from(message).and_then(|trajectory| trajectory.validate(self.limits).map(|()| trajectory));
        Ok(match valid {
            Ok(trajectory) => Inserted::Trajectory(trajectory),
            Err(fault) => Inserted::Refused(Answer::Refused { sequence: id.sequence, fault }),
        })
    }
}

/// The client's side of an insert stream: `ready`, then one answer for each trajectory that was sent.
#[derive(Debug, Default)]
pub struct InsertReplies {
    credit: Option<u32>,
    unanswered: HashSet<u64>,
}

/// What a server's message on an insert stream means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertReply {
    /// Trajectories may be sent.
    Ready,
    /// One of them is answered.
    Answer(Answer),
}

impl InsertReplies {
    /// Whether one more trajectory may be sent now.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.credit.is_some_and(|credit| self.unanswered.len() < credit as usize)
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
        match (message.ok_or(Fault::Empty)?, self.credit) {
            (Response::Ready(ready), None) => {
                self.credit = Some(convert::insert::ready_from_wire(ready)?);
                Ok(InsertReply::Ready)
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
