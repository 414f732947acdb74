use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use experience::Trajectory;
use service::trace::Span;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::{Counters, Epoch};
use crate::channel::Channel;
use crate::reconnect::{Backoff, Broken, Client, until};
use crate::replay::order::{InsertReplies, InsertReply};
use crate::replay::v1::insert_request::Message;
use crate::replay::{Answer, Origin, client, v1};

/// The capacity of the queue of requests between the task and the socket: enough to keep a connection busy, at no cost.
const REQUESTS_BUFFERED: usize = 16;
/// The shortest heartbeat interval: a server that requests a shorter one gets this.
const HEARTBEAT_MIN: Duration = Duration::from_millis(20);
/// The time to wait for the server to end the stream, so that the goodbye is delivered.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// The client of a writer: owns the unacknowledged trajectories, and one stream at a time.
#[derive(Debug)]
pub(super) struct Connection {
    /// The current endpoint of the server; a change takes effect with the next stream.
    endpoint: watch::Receiver<Arc<str>>,
    origin: Origin,
    items: mpsc::Receiver<Item>,
    /// True once the writer is closing: no further trajectories will arrive.
    draining: bool,
    outstanding: Outstanding,
    in_flight: Arc<Semaphore>,
    counters: Arc<Counters>,
    /// True while the epoch is new and the server has not confirmed that it has stored none of its trajectories.
    epoch_is_unchecked: bool,
}

impl Client for Connection {
    const STREAM: &'static str = "insert";

    fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.endpoint.borrow())
    }

    async fn stream(&mut self, channel: Channel, backoff: &mut Backoff) -> Result<(), Broken> {
        let (requests, receiver) = mpsc::channel(REQUESTS_BUFFERED);
        let hello = Message::Hello(self.origin.clone().into());
        requests.try_send(request(hello)).expect("a new channel has room");
        let mut client = client(channel);
        let mut replies = tokio::select! {
            response = client.insert(ReceiverStream::new(receiver)) => response?.into_inner(),
            () = self.finished() => return Ok(()),
        };
        let mut order = InsertReplies::default();
        let (mut next_heartbeat, mut goodbye_sent) = (None, false);
        while !self.is_done() {
            let goodbye_pending = self.draining && !goodbye_sent && order.heartbeat().is_some();
            tokio::select! {
                item = self.items.recv(), if !self.draining => self.accept(item),
                slot = requests.reserve(), if order.may_send() && self.outstanding.has_unsent() => {
                    let slot = slot.map_err(|_| Broken::Ended)?;
                    let (trajectory, trace) = self.outstanding.send_next().expect("something is unsent");
                    order.sent(trajectory.id().sequence);
                    slot.send(v1::InsertRequest { trace, ..request(Message::Trajectory(trajectory.into())) });
                    next_heartbeat = heartbeat_after(&order);
                }
                slot = requests.reserve(), if goodbye_pending => {
                    slot.map_err(|_| Broken::Ended)?.send(request(Message::Goodbye(v1::Goodbye {})));
                    goodbye_sent = true;
                }
                () = until(next_heartbeat) => {
                    // If the queue is full, the requests in it serve as the heartbeat.
                    let _ = requests.try_send(request(Message::Heartbeat(v1::Heartbeat {})));
                    next_heartbeat = heartbeat_after(&order);
                }
                reply = replies.message() => match order.receive(reply?.ok_or(Broken::Ended)?)? {
                    InsertReply::Ready { highest_epoch } if self.is_taken(highest_epoch) => {
                        self.counters.epoch_taken.send_replace(Some(highest_epoch));
                        break;
                    }
                    InsertReply::Ready { .. } => {
                        self.epoch_is_unchecked = false;
                        self.counters.reached();
                        next_heartbeat = heartbeat_after(&order);
                    }
                    InsertReply::Answer(answer) => {
                        self.settle(answer);
                        backoff.reset();
                    }
                },
            }
        }
        if order.heartbeat().is_some() {
            if !goodbye_sent {
                let _ = requests.try_send(request(Message::Goodbye(v1::Goodbye {})));
            }
            drop(requests);
            // Dropping the stream before the server has read it would discard the goodbye.
            let _ = timeout(GOODBYE_TIMEOUT, async { while let Ok(Some(_)) = replies.message().await {} }).await;
        }
        Ok(())
    }

    fn broke(&mut self, _: &Broken) {
        self.outstanding.stream_broke();
        self.counters.lost(Instant::now());
        self.counters.stats().broken_streams += 1;
    }

    /// Accepts the writer's trajectories while it waits.
    async fn finished(&mut self) {
        while !self.draining {
            let item = self.items.recv().await;
            self.accept(item);
        }
        if !self.outstanding.is_empty() {
            std::future::pending().await
        }
    }
}

impl Connection {
    pub(super) fn new(
        endpoint: watch::Receiver<Arc<str>>,
        origin: Origin,
        items: mpsc::Receiver<Item>,
        in_flight: Arc<Semaphore>,
        counters: Arc<Counters>,
        epoch_use: Epoch,
    ) -> Self {
        let (outstanding, draining, epoch_is_unchecked) = (Outstanding::default(), false, epoch_use == Epoch::New);
        Self { endpoint, origin, items, draining, outstanding, in_flight, counters, epoch_is_unchecked }
    }

    /// Returns true if the server has stored trajectories under this writer's epoch, or a later one, before this writer
    /// sent any.
    fn is_taken(&self, highest_epoch: u64) -> bool {
        self.epoch_is_unchecked && highest_epoch > 0 && highest_epoch >= self.origin.epoch
    }

    /// Returns the unacknowledged trajectories, in order.
    pub(super) fn into_unacknowledged(mut self) -> Vec<Trajectory> {
        while let Ok(item) = self.items.try_recv() {
            self.outstanding.push(item);
        }
        self.outstanding.into_trajectories()
    }

    /// Adds the next trajectory of the writer; `None` means that the writer is closed.
    fn accept(&mut self, item: Option<Item>) {
        match item {
            Some(item) => self.outstanding.push(item),
            None => self.draining = true,
        }
    }

    fn settle(&mut self, answer: Answer) {
        let Some((trajectory, resent)) = self.outstanding.answered(answer.sequence()) else { return };
        let mut stats = self.counters.stats();
        let counter = match &answer {
            Answer::Inserted { .. } => &mut stats.inserted,
            Answer::Duplicate { .. } if resent => &mut stats.duplicates,
            Answer::Duplicate { .. } => {
                tracing::error!(
                    id = %trajectory.id(),
                    "the replay server holds another trajectory under this id, and this one is lost: two actors have one id, \
                     or an actor has lost its epoch"
                );
                &mut stats.collisions
            }
            Answer::Stale { .. } => {
                tracing::debug!(id = %trajectory.id(), "a trajectory came too late to be of use");
                &mut stats.stale
            }
            Answer::Refused { fault, .. } => {
                tracing::error!(id = %trajectory.id(), field = fault.field, reason = fault.reason, "trajectory refused");
                &mut stats.refused
            }
        };
        *counter += 1;
        drop(stats);
        self.in_flight.add_permits(1);
    }

    fn is_done(&self) -> bool {
        self.draining && self.outstanding.is_empty()
    }
}

/// A trajectory in flight.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) trajectory: Trajectory,
    /// The span from here to the acknowledgement, if that is traced.
    pub(super) trace: Option<Span>,
    /// True if it may have been sent before: on another stream, or by an earlier process.
    pub(super) resent: bool,
}

/// The trajectories accepted and not acknowledged, in order: first those sent on this stream, then the unsent.
#[derive(Debug, Default)]
struct Outstanding {
    items: VecDeque<Item>,
    sent: usize,
}

impl Outstanding {
    fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn has_unsent(&self) -> bool {
        self.sent < self.items.len()
    }

    /// Returns the next trajectory of this stream and its trace context, and marks it as sent.
    fn send_next(&mut self) -> Option<(Trajectory, String)> {
        let Item { trajectory, trace, .. } = self.items.get(self.sent)?;
        self.sent += 1;
        Some((trajectory.clone(), trace.as_ref().map(|span| span.context().to_string()).unwrap_or_default()))
    }

    /// Removes the answered trajectory. Returns it, if it was unanswered, with true if it may have been sent before.
    fn answered(&mut self, sequence: u64) -> Option<(Trajectory, bool)> {
        let index = self.items.iter().take(self.sent).position(|item| item.trajectory.id().sequence == sequence)?;
        self.sent -= 1;
        let Item { trajectory, trace, resent } = self.items.remove(index)?;
        if let Some(span) = trace {
            span.end();
        }
        Some((trajectory, resent))
    }

    /// Marks all trajectories as unsent after the stream broke.
    fn stream_broke(&mut self) {
        self.items.iter_mut().take(self.sent).for_each(|item| item.resent = true);
        self.sent = 0;
    }

    fn into_trajectories(self) -> Vec<Trajectory> {
        self.items.into_iter().map(|item| item.trajectory).collect()
    }
}

/// The deadline of the next heartbeat, if the server requests heartbeats.
fn heartbeat_after(order: &InsertReplies) -> Option<Instant> {
    order.heartbeat().map(|interval| Instant::now() + interval.max(HEARTBEAT_MIN))
}

fn request(message: Message) -> v1::InsertRequest {
    v1::InsertRequest { message: Some(message), trace: String::new() }
}
