use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use experience::WeightsVersion;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use transport::Channel;
use transport::reconnect::{Backoff, Broken, Client, Reconnecting, entropy};

use super::order::{SampleReplies, SampleReply};
use super::v1::sample_request::Message;
use super::{SampleBatch, SampleQuery, client, v1};
use crate::limits::CREDIT_BATCHES_MAX;

/// The settings of a [`Sampler`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerSettings {
    /// Name of the game, as in the spec.
    pub game: String,
    /// The table to sample from: [`MAIN_TABLE`](super::MAIN_TABLE), or another table of the run file.
    pub table: String,
    /// Samples in a batch, 1 to [`SAMPLES_PER_BATCH_MAX`](crate::limits::SAMPLES_PER_BATCH_MAX).
    pub batch_size: usize,
    /// Steps after the first in a segment, K unroll steps plus n for the bootstrapped return: 0 to
    /// [`UNROLL_STEPS_MAX`](crate::limits::UNROLL_STEPS_MAX).
    pub unroll_steps: usize,
    /// Maximum number of buffered batches, 1 to [`CREDIT_BATCHES_MAX`].
    pub prefetch_batches: usize,
}

/// The latest weights version that the learner has published, which samplers send to the replay servers. Clones share
/// the version.
#[derive(Debug, Clone, Default)]
pub struct NewestWeights {
    /// Zero if no version has been published, as on the wire: versions count from 1.
    version: Arc<AtomicU64>,
}

impl NewestWeights {
    /// Sets the latest version.
    pub fn set(&self, version: WeightsVersion) {
        self.version.store(version.0, Ordering::Relaxed);
    }

    /// Returns the version as sent with credit.
    fn on_wire(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}

/// Draws batches from a replay server, some in advance.
///
/// A background task owns the stream, and reconnects with growing delays until the sampler is dropped. A batch in
/// flight on a broken stream is lost: the server has counted the batch as sampled, and no learner trains on it.
#[derive(Debug)]
pub struct Sampler {
    batches: mpsc::Receiver<SampleBatch>,
    state: watch::Receiver<State>,
    drawing: Reconnecting<Drawing>,
}

/// The state of the connection to the server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// No stream has been opened yet.
    Opening,
    /// Batches arrive, or will arrive once requested.
    Serving,
    /// The server holds batches back, for this reason.
    Waiting(Arc<str>),
    /// There is no stream, for this reason.
    Unreachable(Arc<str>),
}

impl Sampler {
    /// Starts the task for the server at `endpoint`, which [`check_endpoint`](transport::check_endpoint) accepts. Must
    /// be called inside a tokio runtime.
    #[must_use]
    pub fn start(endpoint: &str, settings: SamplerSettings) -> Self {
        Self::with_newest(NewestWeights::default(), endpoint, settings)
    }

    /// Starts like [`Sampler::start`], and also sends the latest weights version to the server with every request, as a
    /// learner does.
    #[must_use]
    pub fn with_newest(newest: NewestWeights, endpoint: &str, settings: SamplerSettings) -> Self {
        let SamplerSettings { game, table, batch_size, unroll_steps, prefetch_batches } = settings;
        let (sender, batches) = mpsc::channel(prefetch_batches.clamp(1, CREDIT_BATCHES_MAX as usize));
        let (sender_of_state, state) = watch::channel(State::Opening);
        let query = SampleQuery { game, batch_size, unroll_steps, table, timeout: None };
        let drawing = Drawing {
            endpoint: endpoint.into(),
            query,
            batches: sender,
            slots: Vec::new(),
            newest,
            state: sender_of_state,
        };
        Self { batches, state, drawing: Reconnecting::start(drawing, entropy()) }
    }

    /// Returns the next batch; waits while the table blocks samples or the server is unreachable. Cancel-safe.
    pub async fn next(&mut self) -> SampleBatch {
        self.batches.recv().await.expect("the sampler's task outlives it")
    }

    /// Returns the human-readable reason why no batch arrives; `None` while batches arrive.
    #[must_use]
    pub fn waiting_reason(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Opening | State::Serving => None,
            State::Waiting(reason) | State::Unreachable(reason) => Some(reason.as_ref().to_owned()),
        }
    }

    /// Returns the state of the connection.
    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Returns a buffered batch, if there is one.
    pub(super) fn try_next(&mut self) -> Option<SampleBatch> {
        self.batches.try_recv().ok()
    }

    /// Waits for a batch, or for a change of the state. Cancel-safe.
    pub(super) async fn next_or_change(&mut self) -> Option<SampleBatch> {
        tokio::select! {
            biased;
            batch = self.batches.recv() => Some(batch.expect("the sampler's task outlives it")),
            () = changed(&mut self.state) => None,
        }
    }

    /// Waits for a change of the state. Cancel-safe.
    pub(super) async fn change(&mut self) {
        changed(&mut self.state).await;
    }

    /// Stops the stream and joins the task.
    pub async fn close(self) {
        drop(self.drawing.stop().await);
    }
}

/// The client of a sampler: one stream at a time, and a slot for each batch of credit.
#[derive(Debug)]
struct Drawing {
    endpoint: Arc<str>,
    query: SampleQuery,
    batches: mpsc::Sender<SampleBatch>,
    /// A reserved slot is a credit: no batch is requested without capacity.
    slots: Vec<mpsc::OwnedPermit<SampleBatch>>,
    newest: NewestWeights,
    state: watch::Sender<State>,
}

async fn changed(state: &mut watch::Receiver<State>) {
    state.changed().await.expect("the sampler's task outlives it");
}

impl Client for Drawing {
    const STREAM: &'static str = "sample";

    fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.endpoint)
    }

    async fn stream(&mut self, channel: Channel, backoff: &mut Backoff) -> Result<(), Broken> {
        let (requests, receiver) = mpsc::channel(CREDIT_BATCHES_MAX as usize + 2);
        let mut order = SampleReplies::new(self.query.batch_size, self.query.unroll_steps);
        requests.try_send(request(Message::Open(self.query.clone().into()))).expect("a new channel has room");
        if let Ok(batches @ 1..) = u32::try_from(self.slots.len()) {
            order.gave(batches);
            requests.try_send(self.credit(batches)).expect("a new channel has room");
        }
        let mut client = client(channel);
        let mut replies = client.sample(ReceiverStream::new(receiver)).await?.into_inner();
        self.state.send_replace(State::Serving);
        loop {
            tokio::select! {
                slot = self.batches.clone().reserve_owned() => {
                    // The receiver of batches was dropped.
                    let Ok(slot) = slot else { return Ok(()) };
                    self.slots.push(slot);
                    order.gave(1);
                    requests.send(self.credit(1)).await.map_err(|_| Broken::Ended)?;
                }
                reply = replies.message() => match order.receive(reply?.ok_or(Broken::Ended)?).map_err(Broken::invalid)? {
                    SampleReply::Waiting(reason) => drop(self.state.send_replace(State::Waiting(reason.into()))),
                    SampleReply::Part => {}
                    SampleReply::Batch(batch) => {
                        self.deliver(*batch);
                        backoff.reset();
                    }
                },
            }
        }
    }

    fn broke(&mut self, broken: &Broken) {
        let reason = format!("no stream from {}: {broken}", self.endpoint);
        self.state.send_replace(State::Unreachable(reason.into()));
    }
}

impl Drawing {
    fn credit(&self, batches: u32) -> v1::SampleRequest {
        request(Message::Credit(v1::Credit { batches, newest_weights_version: self.newest.on_wire() }))
    }

    fn deliver(&mut self, batch: SampleBatch) {
        self.slots.pop().expect("a batch came for a slot").send(batch);
        self.state.send_replace(State::Serving);
    }
}

fn request(message: Message) -> v1::SampleRequest {
    v1::SampleRequest { message: Some(message) }
}

#[cfg(test)]
mod tests;
