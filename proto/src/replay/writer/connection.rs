use std::sync::Arc;
use std::time::Duration;

use experience::Trajectory;
use service::trace::Span;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use transport::Channel;
use transport::reconnect::{Backoff, Broken, Client, until};

use super::outbox::{Outbox, Received, UploadStatus};
use crate::replay::order::Fault;
use crate::replay::{client, v1};

/// Capacity of the request queue between task and socket: enough to keep a connection busy, at no cost.
const REQUESTS_BUFFERED: usize = 16;
/// Maximum time to wait for the server to close the stream, which shows that the goodbye has arrived.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// The client of a writer: drives the [`Outbox`] over one stream at a time.
#[derive(Debug)]
pub(super) struct Connection {
    /// The current endpoint of the server; a change takes effect with the next stream.
    pub(super) endpoint: watch::Receiver<Arc<str>>,
    pub(super) items: mpsc::Receiver<Item>,
    pub(super) outbox: Outbox,
    pub(super) in_flight: Arc<Semaphore>,
    pub(super) status: watch::Sender<UploadStatus>,
}

/// A trajectory for the outbox, with the span from here to the acknowledgement, if traced.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) trajectory: Trajectory,
    pub(super) trace: Option<Span>,
}

impl Client for Connection {
    const STREAM: &'static str = "insert";

    fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.endpoint.borrow())
    }

    async fn stream(&mut self, channel: Channel, backoff: &mut Backoff) -> Result<(), Broken> {
        let (requests, receiver) = mpsc::channel(REQUESTS_BUFFERED);
        requests.try_send(self.outbox.open()).expect("a new channel has room");
        let mut client = client(channel);
        let mut replies = tokio::select! {
            response = client.insert(ReceiverStream::new(receiver)) => response?.into_inner(),
            () = self.finished() => return Ok(()),
        };
        while !self.outbox.is_done() {
            tokio::select! {
                item = self.items.recv(), if !self.outbox.is_closing() => self.accept(item),
                slot = requests.reserve(), if self.outbox.has_request() => {
                    let slot = slot.map_err(|_| Broken::Ended)?;
                    if let Some(request) = self.outbox.next_request(now()) {
                        slot.send(request);
                    }
                }
                () = until(self.outbox.next_heartbeat().map(Instant::from_std)) => {
                    let _ = requests.try_send(self.outbox.heartbeat(now()));
                }
                reply = replies.message() => self.receive(reply?.ok_or(Broken::Ended)?, backoff).map_err(Broken::invalid)?,
            }
        }
        if self.outbox.expects_goodbye() {
            if let Some(goodbye) = self.outbox.goodbye() {
                let _ = requests.try_send(goodbye);
            }
            drop(requests);
            // Dropping the stream before the server has read it would discard the goodbye.
            let _ = timeout(GOODBYE_TIMEOUT, async { while let Ok(Some(_)) = replies.message().await {} }).await;
        }
        Ok(())
    }

    fn broke(&mut self, _: &Broken) {
        self.outbox.broke(now());
        self.publish();
    }

    /// Accepts trajectories from the writer while waiting.
    async fn finished(&mut self) {
        while !self.outbox.is_closing() {
            let item = self.items.recv().await;
            self.accept(item);
        }
        if !self.outbox.is_done() {
            std::future::pending().await
        }
    }
}

impl Connection {
    /// Returns the unacknowledged trajectories, in order.
    pub(super) fn into_unacknowledged(mut self) -> Vec<Trajectory> {
        while let Ok(item) = self.items.try_recv() {
            self.accept(Some(item));
        }
        self.outbox.into_unacknowledged()
    }

    /// Adds the next trajectory of the writer; `None` means that the writer is closed.
    fn accept(&mut self, item: Option<Item>) {
        match item {
            Some(Item { trajectory, trace }) => self.outbox.accept(trajectory, trace, now()),
            None => self.outbox.close(),
        }
        self.publish();
    }

    fn receive(&mut self, reply: v1::InsertResponse, backoff: &mut Backoff) -> Result<(), Fault> {
        let received = self.outbox.receive(reply, now())?;
        self.publish();
        if received == Received::Answered {
            // The status comes first: a writer with a free slot also finds the response counted.
            self.in_flight.add_permits(1);
            backoff.reset();
        }
        Ok(())
    }

    fn publish(&self) {
        let status = self.outbox.status();
        self.status.send_if_modified(|before| std::mem::replace(before, status) != status);
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
