//! The client's side of insert streams, as a pure state machine: owns the unacknowledged trajectories of one epoch.
//!
//! It depends on no sockets and no clock; calls that need the time take it as an argument. The driver is the task of
//! a [`Writer`](super::Writer), or a simulator. Start with [`Outbox::open`], which documents the order of calls.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use experience::Trajectory;
use service::trace::Span;

use crate::replay::order::{Fault, InsertReplies, InsertReply};
use crate::replay::v1::insert_request::Message;
use crate::replay::{Answer, InsertWait, Origin, v1};

/// Shortest heartbeat interval, also for a server that requests a shorter one.
const HEARTBEAT_MIN: Duration = Duration::from_millis(20);

/// Distinguishes new epochs from epochs that may have been used for trajectories before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochUse {
    /// The epoch has never been used. It stays unused if the server has stored this or a later epoch.
    New,
    /// An earlier process may have sent trajectories under the epoch.
    Known,
}

/// Counters of a writer since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Trajectories acknowledged as new.
    pub inserted: u64,
    /// Trajectories acknowledged as already stored, because an earlier acknowledgement was lost.
    pub duplicates: u64,
    /// Lost trajectories: the server had already stored other trajectories under the same ids, and acknowledged these
    /// as already stored although sent for the first time.
    pub collisions: u64,
    /// Trajectories that the server dropped because the policy lag was too large.
    pub stale: u64,
    /// Trajectories that the server refused as invalid.
    pub refused: u64,
    /// Streams that broke, or could not be opened.
    pub broken_streams: u64,
}

/// The progress of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadStatus {
    /// The counters so far.
    pub stats: WriterStats,
    /// The highest epoch stored by the server, if not below the new epoch of the outbox.
    pub epoch_taken: Option<u64>,
    /// Time of the last sign that the server stores trajectories, or time when the stream was lost; `None` while no
    /// sign is due.
    pub silent_since: Option<Instant>,
    /// Longest time between two signs of a server that stores trajectories; zero without a stream.
    pub silence_max: Duration,
}

impl UploadStatus {
    /// Returns how long the server has been away. A server is away without a stream; or if responses are due, but the
    /// server sends neither a response nor a report that trajectories wait for a turn or for a rate limiter. `None`
    /// while the server is not away.
    #[must_use]
    pub fn away_for(&self, now: Instant) -> Option<Duration> {
        let silent_for = now.saturating_duration_since(self.silent_since?);
        (silent_for >= self.silence_max).then_some(silent_for)
    }
}

/// The unacknowledged trajectories of one actor and epoch, and the client's side of the upload stream.
#[derive(Debug)]
pub struct Outbox {
    origin: Origin,
    epoch_use: EpochUse,
    /// Accepted, unacknowledged trajectories, in order: first the trajectories sent on this stream, then the unsent.
    items: VecDeque<Item>,
    /// Number of trajectories sent on this stream.
    sent: usize,
    /// True until the server confirms that it has stored no trajectories of a new epoch.
    epoch_is_unchecked: bool,
    /// True once no further trajectories will be accepted.
    is_closing: bool,
    stream: Stream,
    status: UploadStatus,
}

/// A trajectory in flight.
#[derive(Debug)]
struct Item {
    trajectory: Trajectory,
    /// The span from here to the acknowledgement, if traced.
    trace: Option<Span>,
    /// True if the trajectory may have been sent before: on another stream, or by an earlier process.
    resent: bool,
}

/// The state of the current stream.
#[derive(Debug, Default)]
struct Stream {
    order: InsertReplies,
    next_heartbeat: Option<Instant>,
    goodbye_sent: bool,
}

/// The effect of a message from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Trajectories may be sent.
    Ready,
    /// The server has stored the new epoch, or a later one: the outbox is done and has sent nothing.
    EpochTaken,
    /// The response to one trajectory, which was removed.
    Answered,
    /// The unanswered trajectories wait for this reason.
    Waiting(InsertWait),
}

impl Outbox {
    /// Creates an outbox for the trajectories of `origin`; the server counts as away from `now`.
    #[must_use]
    pub fn new(origin: Origin, epoch_use: EpochUse, now: Instant) -> Self {
        Self {
            origin,
            epoch_use,
            items: VecDeque::new(),
            sent: 0,
            epoch_is_unchecked: epoch_use == EpochUse::New,
            is_closing: false,
            stream: Stream::default(),
            status: UploadStatus {
                stats: WriterStats::default(),
                epoch_taken: None,
                silent_since: Some(now),
                silence_max: Duration::ZERO,
            },
        }
    }

    /// Accepts the next trajectory, which must match the origin. `trace` ends with the acknowledgement.
    pub fn accept(&mut self, trajectory: Trajectory, trace: Option<Span>, now: Instant) {
        debug_assert!(!self.is_closing, "a closed outbox accepts nothing");
        self.items.push_back(Item { trajectory, trace, resent: self.epoch_use == EpochUse::Known });
        if self.status.silent_since.is_none() {
            self.expect_sign_after(now);
        }
    }

    /// Records that no further trajectories will be accepted.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// Returns true if [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Returns true if no work is left: the outbox is closed and everything is acknowledged, or the epoch is taken.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.status.epoch_taken.is_some() || self.is_closing && self.items.is_empty()
    }

    /// Starts a stream and returns the first request.
    ///
    /// During the stream, the driver sends the result of [`next_request`](Self::next_request) as soon as there is
    /// room, and a [`heartbeat`](Self::heartbeat) at the time [`next_heartbeat`](Self::next_heartbeat), and passes
    /// each reply to [`receive`](Self::receive). After a stream that fails, or could not be opened, the driver calls
    /// [`broke`](Self::broke) and opens another. Once [`is_done`](Self::is_done), the driver sends
    /// [`goodbye`](Self::goodbye), closes the stream, and opens no other.
    pub fn open(&mut self) -> v1::InsertRequest {
        debug_assert_eq!(self.sent, 0, "the last stream has ended");
        self.stream = Stream::default();
        request(Message::Hello(self.origin.clone().into()))
    }

    /// Returns true if [`next_request`](Self::next_request) would return a request.
    #[must_use]
    pub fn has_request(&self) -> bool {
        self.owes_goodbye() || self.may_send_trajectory()
    }

    /// Returns the next request to send, in order, and records it as sent. `None` if nothing may be sent until the
    /// next event.
    pub fn next_request(&mut self, now: Instant) -> Option<v1::InsertRequest> {
        if self.owes_goodbye() {
            return self.goodbye();
        }
        if !self.may_send_trajectory() {
            return None;
        }
        let Item { trajectory, trace, .. } = self.items.get(self.sent)?;
        let trace = trace.as_ref().map(|span| span.context().to_string()).unwrap_or_default();
        self.sent += 1;
        self.stream.order.sent(trajectory.id().sequence);
        let sent = v1::InsertRequest { trace, ..request(Message::Trajectory(trajectory.clone().into())) };
        self.schedule_heartbeat(now);
        Some(sent)
    }

    /// Returns the time at which a heartbeat is due, if the server requests heartbeats.
    #[must_use]
    pub fn next_heartbeat(&self) -> Option<Instant> {
        self.stream.next_heartbeat
    }

    /// Returns a heartbeat and schedules the next. If the send queue has no room for a heartbeat, the requests that
    /// fill the queue serve as one.
    pub fn heartbeat(&mut self, now: Instant) -> v1::InsertRequest {
        self.schedule_heartbeat(now);
        request(Message::Heartbeat(v1::Heartbeat {}))
    }

    /// Takes the next message from the server.
    ///
    /// # Errors
    /// The [`Fault`] for which the client must close the stream.
    pub fn receive(&mut self, response: v1::InsertResponse, now: Instant) -> Result<Received, Fault> {
        Ok(match self.stream.order.receive(response)? {
            InsertReply::Ready { highest_epoch } if self.is_taken(highest_epoch) => {
                self.status.epoch_taken = Some(highest_epoch);
                Received::EpochTaken
            }
            InsertReply::Ready { .. } => {
                self.epoch_is_unchecked = false;
                // A server with a full disk is ready too: responses that were due before remain due.
                if self.items.is_empty() || self.stream.order.silence_max().is_none() {
                    self.status.silent_since = None;
                }
                self.schedule_heartbeat(now);
                Received::Ready
            }
            InsertReply::Answer(answer) => {
                self.settle(&answer);
                self.expect_sign_after(now);
                Received::Answered
            }
            InsertReply::Waiting(wait) => {
                match wait {
                    InsertWait::Turn | InsertWait::Limited => self.expect_sign_after(now),
                    InsertWait::Log | InsertWait::Unspecified => {}
                }
                Received::Waiting(wait)
            }
        })
    }

    /// Records that the stream broke, or could not be opened: all trajectories are unsent again.
    pub fn broke(&mut self, now: Instant) {
        self.items.iter_mut().take(self.sent).for_each(|item| item.resent = true);
        self.sent = 0;
        self.stream = Stream::default();
        self.status.silent_since.get_or_insert(now);
        self.status.silence_max = Duration::ZERO;
        self.status.stats.broken_streams += 1;
    }

    /// Returns the goodbye of this stream, unless already sent or not supported by the server.
    pub fn goodbye(&mut self) -> Option<v1::InsertRequest> {
        let is_due = self.expects_goodbye() && !std::mem::replace(&mut self.stream.goodbye_sent, true);
        is_due.then(|| request(Message::Goodbye(v1::Goodbye {})))
    }

    /// Returns true if the server of this stream expects a goodbye: the stream must not be dropped before delivery.
    #[must_use]
    pub fn expects_goodbye(&self) -> bool {
        self.stream.order.heartbeat().is_some()
    }

    /// Returns the progress so far.
    #[must_use]
    pub fn status(&self) -> UploadStatus {
        self.status
    }

    /// Returns the number of accepted, unacknowledged trajectories.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.items.len()
    }

    /// Returns the unacknowledged trajectories, in order.
    #[must_use]
    pub fn into_unacknowledged(self) -> Vec<Trajectory> {
        self.items.into_iter().map(|item| item.trajectory).collect()
    }

    /// Returns true if a goodbye must announce that the remaining trajectories are the last.
    fn owes_goodbye(&self) -> bool {
        self.is_closing && self.expects_goodbye() && !self.stream.goodbye_sent
    }

    fn may_send_trajectory(&self) -> bool {
        self.status.epoch_taken.is_none() && self.stream.order.may_send() && self.sent < self.items.len()
    }

    /// Records a sign at `now` that the server stores trajectories. The next sign is due while responses are
    /// due from a server that gives signs.
    fn expect_sign_after(&mut self, now: Instant) {
        let silence_max = self.stream.order.silence_max().filter(|_| !self.items.is_empty());
        self.status.silent_since = silence_max.map(|_| now);
        self.status.silence_max = silence_max.unwrap_or_default();
    }

    fn schedule_heartbeat(&mut self, now: Instant) {
        self.stream.next_heartbeat = self.stream.order.heartbeat().map(|interval| now + interval.max(HEARTBEAT_MIN));
    }

    /// Returns true if the server has stored trajectories under the epoch, or a later one, before any was sent.
    fn is_taken(&self, highest_epoch: u64) -> bool {
        self.epoch_is_unchecked && highest_epoch > 0 && highest_epoch >= self.origin.epoch
    }

    fn settle(&mut self, answer: &Answer) {
        let Item { trajectory, trace, resent } = self.take_answered(answer.sequence());
        if let Some(span) = trace {
            span.end();
        }
        let stats = &mut self.status.stats;
        let counter = match answer {
            Answer::Inserted { .. } => &mut stats.inserted,
            Answer::Duplicate { .. } if resent => &mut stats.duplicates,
            Answer::Duplicate { .. } => {
                tracing::error!(
                    id = %trajectory.id(),
                    "trajectory lost: the replay server holds a different trajectory with this id; two actors share an \
                     id, or an actor lost the stored epoch"
                );
                &mut stats.collisions
            }
            Answer::Stale { .. } => {
                tracing::debug!(id = %trajectory.id(), "trajectory too old to be stored");
                &mut stats.stale
            }
            Answer::Refused { fault, .. } => {
                tracing::error!(id = %trajectory.id(), field = fault.field, reason = fault.reason, "trajectory refused");
                &mut stats.refused
            }
        };
        *counter += 1;
    }

    /// Removes the trajectory of a response from the trajectories sent on this stream.
    fn take_answered(&mut self, sequence: u64) -> Item {
        let mut sent = self.items.iter().take(self.sent);
        let index = sent.position(|item| item.trajectory.id().sequence == sequence);
        self.sent -= 1;
        index.and_then(|index| self.items.remove(index)).expect("every response is to a sent trajectory")
    }
}

fn request(message: Message) -> v1::InsertRequest {
    v1::InsertRequest { message: Some(message), trace: String::new() }
}

#[cfg(test)]
mod tests;
