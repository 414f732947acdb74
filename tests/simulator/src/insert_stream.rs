//! The server's side of an insert stream: the order of messages is that of the real server, the rest a model of its
//! handler.

use std::collections::BTreeMap;

use experience::{Trajectory, TrajectoryId};
use proto::replay::order::{InsertOrder, Inserted as Message};
use proto::replay::{Answer, v1};
use replay_server::insert_stream::INSERT_CREDIT;
use replay_server::leases::MISSED_MAX;
use replay_server::table_service::Inserted;
use tokio::sync::mpsc;

use crate::content::{GAME, LIMITS};
use crate::settings::HEARTBEAT;

/// A stream of one client.
#[derive(Debug)]
pub(crate) struct InsertStream {
    order: InsertOrder,
    answer: mpsc::Sender<Inserted>,
    answers: mpsc::Receiver<Inserted>,
    /// The trajectories without an answer, by sequence; the first that came under a sequence.
    received: BTreeMap<u64, Trajectory>,
    /// The virtual time of the last message, in nanoseconds.
    last_message_ns: u64,
    /// True once the client has ended the stream.
    client_ended: bool,
}

/// What a message asks of the server.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Answer with the highest epoch of this actor.
    Ready(u64),
    /// Insert this trajectory.
    Insert(Trajectory),
    /// Count a refused trajectory and send this answer.
    Refused(v1::InsertResponse),
    Nothing,
}

/// An answer of the table service on its way to the client.
#[derive(Debug)]
pub(crate) enum Answered {
    /// A promise about this trajectory.
    Promise(Promise, TrajectoryId, Option<Trajectory>, v1::InsertResponse),
    /// The stream ends, since the trajectory is not stored.
    End(String),
}

/// What an answer promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    Inserted,
    Duplicate,
    Stale,
}

impl InsertStream {
    pub(crate) fn new(now_ns: u64) -> Self {
        let order = InsertOrder::new(GAME, INSERT_CREDIT, LIMITS, HEARTBEAT);
        let (answer, answers) = mpsc::channel(INSERT_CREDIT as usize);
        Self { order, answer, answers, received: BTreeMap::new(), last_message_ns: now_ns, client_ended: false }
    }

    /// Takes a message; the error ends the stream.
    pub(crate) fn receive(&mut self, message: v1::InsertRequest, now_ns: u64) -> Result<Asked, String> {
        self.last_message_ns = now_ns;
        Ok(match self.order.receive(message).map_err(|fault| fault.to_string())? {
            Message::Hello(origin) => Asked::Ready(origin.actor),
            Message::Trajectory(trajectory) => {
                self.received.entry(trajectory.id().sequence).or_insert_with(|| trajectory.clone());
                Asked::Insert(trajectory)
            }
            Message::Refused(answer) => {
                self.order.answered();
                Asked::Refused(answer.into())
            }
            Message::Heartbeat | Message::Goodbye => Asked::Nothing,
        })
    }

    pub(crate) fn ready(&self, highest_epoch: u64) -> v1::InsertResponse {
        self.order.ready(highest_epoch)
    }

    pub(crate) fn reply(&self) -> mpsc::Sender<Inserted> {
        self.answer.clone()
    }

    /// Records that the client has ended the stream: it ends once everything is answered.
    pub(crate) fn client_ended(&mut self) {
        self.client_ended = true;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.client_ended && self.order.unanswered() == 0
    }

    /// Returns true if the client has been silent for so long that it is lost.
    pub(crate) fn is_silent(&self, now_ns: u64) -> bool {
        let silence_max = u128::from(MISSED_MAX) * HEARTBEAT.as_nanos();
        self.order.keeps_lease() && u128::from(now_ns - self.last_message_ns) > silence_max
    }

    /// Returns the next answer of the table service.
    pub(crate) fn poll(&mut self) -> Option<Answered> {
        let inserted = self.answers.try_recv().ok()?;
        let id = inserted.id();
        self.order.answered();
        let received = self.received.remove(&id.sequence);
        let sequence = id.sequence;
        let (promise, answer) = match inserted {
            Inserted::New(_) => (Promise::Inserted, Answer::Inserted { sequence }),
            Inserted::Duplicate(_) => (Promise::Duplicate, Answer::Duplicate { sequence }),
            Inserted::Stale(_) => (Promise::Stale, self.order.understood(Answer::Stale { sequence })),
            Inserted::NotStored(..) => return Some(Answered::End(format!("{id} cannot be stored now"))),
            Inserted::OverMemory { .. } => return Some(Answered::End(format!("{id} is over the memory limit"))),
            Inserted::Draining(_) => return Some(Answered::End("the server drains".to_owned())),
        };
        Some(Answered::Promise(promise, id, received, answer.into()))
    }
}
