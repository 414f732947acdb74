use std::collections::VecDeque;
use std::time::Duration;

use experience::WeightsVersion;
use proto::convert;
use proto::limits::CREDIT_BATCHES_MAX;
use proto::replay::order::{SampleOrder, Sampled as Message};
use proto::replay::{SampleBatch, SampleQuery, TableStats, batch_to_wire, v1, waiting_to_wire};
use replay::Drawn;
use run_file::replay::TableIndex;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tonic::{Status, Streaming};
use transport::reconnect::until;

use super::{Answers, ReplayService, draining};
use crate::table_service::{Command, Sampled};

/// Number of trajectories that are prefetched into the CPU cache together, before samples are cut from the first.
const CUT_TOGETHER: usize = 16;

/// Maximum number of unsent wait reasons.
const REASONS_MAX: usize = 16;

/// The stream of one learner: receives credit, sends batches.
pub(super) struct SampleStream {
    inbound: Streaming<v1::SampleRequest>,
    order: SampleOrder,
    query: Option<(TableIndex, SampleQuery)>,
    service: ReplayService,
    reply: mpsc::Sender<Sampled>,
    replies: mpsc::Receiver<Sampled>,
    /// The latest weights version received on this stream.
    newest: Option<WeightsVersion>,
    /// Number of batches that are requested but not yet drawn.
    requested: u32,
    /// Deadline of the next batch.
    due: Option<Instant>,
    /// The last reason why no batch was drawn.
    wait_reason: Option<String>,
    /// Unsent parts of the last drawn batch.
    parts: VecDeque<v1::SampleResponse>,
    reading: bool,
    _permit: OwnedSemaphorePermit,
}

impl SampleStream {
    pub(super) fn new(
        inbound: Streaming<v1::SampleRequest>,
        service: ReplayService,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        // Capacity for every batch with credit, and for some wait reasons.
        let (reply, replies) = mpsc::channel(CREDIT_BATCHES_MAX as usize + REASONS_MAX);
        Self {
            inbound,
            order: SampleOrder::new(service.settings.game.as_str()),
            query: None,
            service,
            reply,
            replies,
            newest: None,
            requested: 0,
            due: None,
            wait_reason: None,
            parts: VecDeque::new(),
            reading: true,
            _permit: permit,
        }
    }

    pub(super) fn answers(self) -> Answers<v1::SampleResponse> {
        Box::pin(futures::stream::try_unfold(self, async |mut stream| {
            Ok::<_, Status>(stream.next().await?.map(|answer| (answer, stream)))
        }))
    }

    /// Returns the next part of a batch, or the next wait reason; an error or `None` ends the stream.
    async fn next(&mut self) -> Result<Option<v1::SampleResponse>, Status> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Ok(Some(part));
            }
            if !self.reading && self.requested == 0 {
                return Ok(None);
            }
            tokio::select! {
                biased;
                () = self.service.drain.cancelled() => return Err(draining()),
                message = self.inbound.message(), if self.reading => match message? {
                    None => self.reading = false,
                    Some(message) => self.receive(message).await?,
                },
                Some(sampled) = self.replies.recv() => match sampled {
                    Sampled::Waiting(reason) => {
                        self.wait_reason = Some(reason.clone());
                        return Ok(Some(waiting_to_wire(reason)));
                    }
                    Sampled::TooLarge { items_max } => {
                        return Err(too_large(self.query.as_ref().map_or(0, |(_, query)| query.batch_size), items_max));
                    }
                    Sampled::Batch { drawn, table } => self.parts = self.batch(drawn, *table).await?.into(),
                },
                () = until(self.due) => return Err(self.late()),
            }
        }
    }

    async fn receive(&mut self, message: v1::SampleRequest) -> Result<(), Status> {
        match self.order.receive(message)? {
            Message::Open(query) => {
                let table = self.service.table(&query.table)?;
                let items_max = self.service.handle.request(|reply| Command::BatchItemsMax(table, reply)).await?;
                if query.batch_size as u64 > items_max {
                    return Err(too_large(query.batch_size, items_max));
                }
                let SampleQuery { batch_size, unroll_steps, .. } = query;
                tracing::info!(table = query.table, batch_size, unroll_steps, "sample stream opened");
                self.query = Some((table, query));
            }
            Message::Credit { newest } => {
                if let Some(version) = newest
                    && self.newest != newest
                {
                    self.newest = newest;
                    self.service.handle.send(Command::NewestWeights(version)).await?;
                }
                let Some((table, query)) = &self.query else { return Ok(()) };
                let (table, items) = (*table, query.batch_size as u64);
                if self.requested == 0 {
                    self.due = self.next_due();
                }
                for _ in self.requested..self.order.credit() {
                    self.service.handle.send(Command::Sample { table, items, reply: self.reply.clone() }).await?;
                    self.requested += 1;
                }
            }
        }
        Ok(())
    }

    /// Returns the deadline of the next batch, counted from now.
    fn next_due(&self) -> Option<Instant> {
        let timeout = self.query.as_ref().and_then(|(_, query)| query.timeout)?;
        Instant::now().checked_add(timeout)
    }

    fn late(&self) -> Status {
        let (table, timeout) = match &self.query {
            Some((_, query)) => (query.table.as_str(), query.timeout.unwrap_or_default()),
            None => ("", Duration::ZERO),
        };
        let reason = self.wait_reason.as_deref().unwrap_or("server overloaded");
        let timeout = timeout.as_millis();
        Status::deadline_exceeded(format!("no batch from table {table} within {timeout} ms: {reason}"))
    }

    async fn batch(&mut self, drawn: Vec<Drawn>, table: TableStats) -> Result<Vec<v1::SampleResponse>, Status> {
        self.requested -= 1;
        self.order.sent();
        self.due = if self.requested > 0 { self.next_due() } else { None };
        self.wait_reason = None;
        let unroll_steps = self.query.as_ref().map_or(0, |(_, query)| query.unroll_steps);
        // A large batch takes milliseconds, which must not block a thread that drives sockets.
        let parts = tokio::task::spawn_blocking(move || batch_to_wire(&cut(&drawn, table, unroll_steps))).await;
        parts.map_err(|_| Status::internal("cannot build a batch"))
    }
}

fn too_large(batch_size: usize, items_max: u64) -> Status {
    let reason =
        format!("{batch_size} exceeds {items_max}, the limit at this replay.error_items; raise replay.error_items");
    convert::status(&convert::invalid("batch_size", reason))
}

fn cut(drawn: &[Drawn], table: TableStats, unroll_steps: usize) -> SampleBatch {
    let mut samples = Vec::with_capacity(drawn.len());
    for group in drawn.chunks(CUT_TOGETHER) {
        group.iter().for_each(|drawn| drawn.trajectory.fetch(drawn.item));
        samples.extend(group.iter().map(|drawn| drawn.sample(unroll_steps)));
    }
    SampleBatch { samples, table }
}
