use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use super::order::{Fault, SampleReplies, SampleReply};
use super::v1::sample_request::Message;
use super::{SampleBatch, SampleQuery, client, v1};
use crate::backoff::Backoff;
use crate::channel::{InvalidEndpoint, channel, is_our_fault};
use crate::limits::CREDIT_BATCHES_MAX;

/// What a [`Sampler`] draws, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerSettings {
    /// The replay server: `http://host:port`, checked by [`check_endpoint`](crate::check_endpoint).
    pub endpoint: String,
    /// The name of the game, as in its spec.
    pub game: String,
    /// Samples in a batch, 1 to [`SAMPLES_PER_BATCH_MAX`](crate::limits::SAMPLES_PER_BATCH_MAX).
    pub batch_size: usize,
    /// K: how many steps a segment unrolls, 0 to [`UNROLL_STEPS_MAX`](crate::limits::UNROLL_STEPS_MAX).
    pub unroll_steps: usize,
    /// How many batches may wait here to be taken, 1 to [`CREDIT_BATCHES_MAX`].
    pub prefetch_batches: usize,
}

/// Draws batches from a replay server, some ahead of their use.
///
/// A task of its own holds the stream, and connects again with growing delays for as long as the sampler lives. A batch
/// that was on its way when a stream broke is lost: it was counted as sampled and is not learnt from.
#[derive(Debug)]
pub struct Sampler {
    batches: mpsc::Receiver<SampleBatch>,
    waiting: watch::Receiver<Option<Arc<str>>>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Sampler {
    /// Starts the task. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(settings: SamplerSettings) -> Self {
        let SamplerSettings { endpoint, game, batch_size, unroll_steps, prefetch_batches } = settings;
        let (sender, batches) = mpsc::channel(prefetch_batches.clamp(1, CREDIT_BATCHES_MAX as usize));
        let (reason, waiting) = watch::channel(None);
        let stop = CancellationToken::new();
        let query = SampleQuery { game, batch_size, unroll_steps };
        let drawing =
            Drawing { endpoint, query, batches: sender, slots: Vec::new(), reason, backoff: Backoff::from_entropy() };
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let _ = stopped.run_until_cancelled(drawing.run()).await;
        });
        Self { batches, waiting, task, stop: stop.drop_guard() }
    }

    /// The next batch; waits for as long as the table holds it back or the server is away. Cancel-safe.
    pub async fn next(&mut self) -> SampleBatch {
        self.batches.recv().await.expect("the sampler's task outlives it")
    }

    /// Why no batch comes, for people; `None` while batches come.
    #[must_use]
    pub fn waiting_reason(&self) -> Option<String> {
        self.waiting.borrow().as_deref().map(str::to_owned)
    }

    /// Ends the stream and joins the task.
    pub async fn close(self) {
        let Self { task, stop, batches: _, waiting: _ } = self;
        drop(stop);
        task.await.expect("the sampler's task does not panic");
    }
}

/// The task of a sampler: one stream at a time, and a slot for each batch it has given credit for.
struct Drawing {
    endpoint: String,
    query: SampleQuery,
    batches: mpsc::Sender<SampleBatch>,
    /// A reserved slot is a credit: nothing is asked for that could not be put down.
    slots: Vec<mpsc::OwnedPermit<SampleBatch>>,
    reason: watch::Sender<Option<Arc<str>>>,
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
    #[error("the sampler is gone")]
    Abandoned,
}

impl Drawing {
    async fn run(mut self) {
        loop {
            let broken = match self.stream().await {
                Err(Broken::Abandoned) => return,
                Err(broken) => broken,
                Ok(never) => match never {},
            };
            let delay = self.backoff.delay();
            let delay_ms = delay.as_millis();
            match &broken {
                Broken::Status(status) if !is_our_fault(status) => {
                    tracing::info!(endpoint = self.endpoint, %broken, delay_ms, "sample stream broke");
                }
                Broken::Ended => tracing::info!(endpoint = self.endpoint, %broken, delay_ms, "sample stream broke"),
                // Nothing that waiting cures: a human must look.
                _ => tracing::error!(endpoint = self.endpoint, %broken, delay_ms, "sample stream broke"),
            }
            self.reason.send_replace(Some(format!("no stream from {}: {broken}", self.endpoint).into()));
            tokio::time::sleep(delay).await;
        }
    }

    /// One stream, from `open` to its end.
    async fn stream(&mut self) -> Result<std::convert::Infallible, Broken> {
        let (requests, receiver) = mpsc::channel(CREDIT_BATCHES_MAX as usize + 2);
        let mut order = SampleReplies::new(self.query.batch_size, self.query.unroll_steps);
        requests.try_send(request(Message::Open(self.query.clone().into()))).expect("a new channel has room");
        if let Ok(batches @ 1..) = u32::try_from(self.slots.len()) {
            order.gave(batches);
            requests.try_send(request(Message::Credit(v1::Credit { batches }))).expect("a new channel has room");
        }
        let mut client = client(channel(&self.endpoint)?);
        let mut replies = client.sample(ReceiverStream::new(receiver)).await?.into_inner();
        self.reason.send_replace(None);
        loop {
            tokio::select! {
                slot = self.batches.clone().reserve_owned() => {
                    self.slots.push(slot.map_err(|_| Broken::Abandoned)?);
                    order.gave(1);
                    let credit = request(Message::Credit(v1::Credit { batches: 1 }));
                    requests.send(credit).await.map_err(|_| Broken::Ended)?;
                }
                reply = replies.message() => match order.receive(reply?.ok_or(Broken::Ended)?)? {
                    SampleReply::Waiting(reason) => drop(self.reason.send_replace(Some(reason.into()))),
                    SampleReply::Part => {}
                    SampleReply::Batch(batch) => self.put_down(batch),
                },
            }
        }
    }

    fn put_down(&mut self, batch: SampleBatch) {
        self.slots.pop().expect("a batch came for a slot").send(batch);
        self.reason.send_replace(None);
        self.backoff.reset();
    }
}

fn request(message: Message) -> v1::SampleRequest {
    v1::SampleRequest { message: Some(message) }
}

#[cfg(test)]
mod tests;
