use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use experience::Trajectory;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::Counters;
use super::outstanding::{Item, Outstanding};
use crate::backoff::Backoff;
use crate::channel::{InvalidEndpoint, channel, is_our_fault};
use crate::replay::order::{Fault, InsertReplies, InsertReply};
use crate::replay::v1::insert_request::Message;
use crate::replay::{Answer, Origin, client, v1};

/// Requests between the task and the socket: enough to keep a connection busy, few enough to lose nothing by it.
const REQUESTS_BUFFERED: usize = 16;

/// The task of a writer: owns what is outstanding, and one stream at a time.
pub(super) struct Connection {
    endpoint: String,
    origin: Origin,
    items: mpsc::Receiver<Item>,
    /// The writer is closing: nothing more will come.
    draining: bool,
    outstanding: Outstanding,
    in_flight: Arc<Semaphore>,
    counters: Arc<Counters>,
    backoff: Backoff,
}

/// Why a stream is over.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    #[error(transparent)]
    Status(#[from] Status),
    #[error(transparent)]
    Order(#[from] Fault),
    #[error("the server ended the stream")]
    Ended,
}

impl Connection {
    pub(super) fn new(
        endpoint: String,
        origin: Origin,
        items: mpsc::Receiver<Item>,
        in_flight: Arc<Semaphore>,
        counters: Arc<Counters>,
    ) -> Self {
        let (outstanding, backoff) = (Outstanding::default(), Backoff::from_entropy());
        Self { endpoint, origin, items, draining: false, outstanding, in_flight, counters, backoff }
    }

    /// Runs until everything is acknowledged and nothing more can come, or until it is stopped; what is left.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Vec<Trajectory> {
        let _ = stop.run_until_cancelled(self.deliver()).await;
        while let Ok(item) = self.items.try_recv() {
            self.outstanding.push(item);
        }
        self.outstanding.into_trajectories()
    }

    async fn deliver(&mut self) {
        while !self.is_done() {
            let Err(broken) = self.stream().await else { return };
            self.outstanding.stream_broke();
            self.counters.broken_streams.fetch_add(1, Ordering::Relaxed);
            let delay = self.backoff.delay();
            let delay_ms = delay.as_millis();
            match &broken {
                Broken::Status(status) if !is_our_fault(status) => {
                    tracing::info!(endpoint = self.endpoint, %broken, delay_ms, "insert stream broke");
                }
                Broken::Ended => tracing::info!(endpoint = self.endpoint, %broken, delay_ms, "insert stream broke"),
                // Nothing that waiting cures: a human must look.
                Broken::Endpoint(_) | Broken::Order(_) | Broken::Status(_) => {
                    tracing::error!(endpoint = self.endpoint, %broken, delay_ms, "insert stream broke");
                }
            }
            if self.meanwhile(tokio::time::sleep(delay)).await.is_none() {
                return;
            }
        }
    }

    /// Awaits `other` and accepts what the writer hands in; `None` once there is nothing left to do. A writer that closes
    /// with nothing to say must not wait for a server that is away.
    async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> Option<T> {
        let mut other = pin!(other);
        while !self.is_done() {
            tokio::select! {
                output = &mut other => return Some(output),
                item = self.items.recv(), if !self.draining => self.accept(item),
            }
        }
        None
    }

    /// What the writer handed in; nothing if it will hand in no more.
    fn accept(&mut self, item: Option<Item>) {
        match item {
            Some(item) => self.outstanding.push(item),
            None => self.draining = true,
        }
    }

    /// One stream, from `hello` to its end; `Ok` if there is nothing left to do.
    async fn stream(&mut self) -> Result<(), Broken> {
        let (requests, receiver) = mpsc::channel(REQUESTS_BUFFERED);
        let hello = Message::Hello(self.origin.clone().into());
        requests.try_send(request(hello)).expect("a new channel has room");
        let mut client = client(channel(&self.endpoint)?);
        let Some(response) = self.meanwhile(client.insert(ReceiverStream::new(receiver))).await else { return Ok(()) };
        let mut replies = response?.into_inner();
        let mut order = InsertReplies::default();
        while !self.is_done() {
            tokio::select! {
                item = self.items.recv(), if !self.draining => self.accept(item),
                slot = requests.reserve(), if order.may_send() && self.outstanding.has_unsent() => {
                    let slot = slot.map_err(|_| Broken::Ended)?;
                    let message = self.outstanding.send_next().expect("something is unsent");
                    order.sent(message.id.map_or(0, |id| id.sequence));
                    slot.send(request(Message::Trajectory(message)));
                }
                reply = next(&mut replies) => match order.receive(reply?)? {
                    InsertReply::Ready => {}
                    InsertReply::Answer(answer) => self.settle(answer),
                },
            }
        }
        Ok(())
    }

    fn settle(&mut self, answer: Answer) {
        let Some(trajectory) = self.outstanding.answered(answer.sequence()) else { return };
        let counter = match &answer {
            Answer::Inserted { .. } => &self.counters.inserted,
            Answer::Duplicate { .. } => &self.counters.duplicates,
            Answer::Refused { fault, .. } => {
                tracing::error!(id = %trajectory.id, field = fault.field, reason = fault.reason, "trajectory refused");
                &self.counters.refused
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.in_flight.add_permits(1);
        self.backoff.reset();
    }

    fn is_done(&self) -> bool {
        self.draining && self.outstanding.is_empty()
    }
}

fn request(message: Message) -> v1::InsertRequest {
    v1::InsertRequest { message: Some(message) }
}

async fn next(replies: &mut Streaming<v1::InsertResponse>) -> Result<v1::InsertResponse, Broken> {
    replies.message().await?.ok_or(Broken::Ended)
}
