//! The task that sends spans: gathers a batch, sends it, and waits longer and longer while nobody takes it.

use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::http::NotTaken;
use super::span::Record;
use super::{Collector, Epoch, otlp};
use crate::identity::Identity;

/// Spans in one request.
const BATCH_SPANS_MAX: usize = 512;
/// What has ended waits so long for others to share a request with.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// A collector that takes longer does not count as there.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The shortest and the longest pause after a request that was not taken.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// How often it is told that a collector is away.
const WARN_INTERVAL: Duration = Duration::from_secs(300);
/// What waits when the process ends is given up after so long.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A running exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    closing: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Sends what comes out of `records` to the collector. Must be called on a runtime.
    pub(crate) fn start(
        collector: Collector,
        identity: Identity,
        epoch: Epoch,
        records: mpsc::Receiver<Record>,
    ) -> Self {
        let closing = CancellationToken::new();
        let sending = Sending { collector, identity, epoch, records, closing: closing.clone(), warned: None };
        Self { closing, task: tokio::spawn(sending.run()) }
    }

    /// Sends what waits, within a limit.
    pub(crate) async fn finish(mut self) {
        self.closing.cancel();
        if timeout(FLUSH_TIMEOUT, &mut self.task).await.is_err() {
            tracing::warn!("the collector of traces takes too long; the last spans are given up");
            self.task.abort();
        }
    }
}

/// Spans that nobody will see, by why.
pub(super) fn dropped(result: &'static str, spans: usize) {
    metrics::counter!("zerofleet_telemetry_spans_total", "result" => result).increment(spans as u64);
}

struct Sending {
    collector: Collector,
    identity: Identity,
    epoch: Epoch,
    records: mpsc::Receiver<Record>,
    closing: CancellationToken,
    warned: Option<Instant>,
}

impl Sending {
    async fn run(mut self) {
        let (mut batch, mut pause) = (Vec::new(), PAUSE[0]);
        loop {
            self.gather(&mut batch).await;
            if batch.is_empty() {
                return;
            }
            match self.send(&batch).await {
                Ok(()) => {
                    dropped("sent", batch.len());
                    batch.clear();
                    if self.warned.take().is_some() {
                        tracing::info!(collector = self.collector.address, "the collector takes traces again");
                    }
                    pause = PAUSE[0];
                }
                Err(NotTaken::Away(reason)) if !self.closing.is_cancelled() => {
                    self.warn(&reason);
                    // Meanwhile the queue fills, and what finds it full is dropped.
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = self.closing.cancelled() => {}
                    }
                    pause = (pause * 2).min(PAUSE[1]);
                }
                Err(error) => {
                    self.warn(&error.to_string());
                    dropped(if matches!(error, NotTaken::Away(_)) { "unsent" } else { "refused" }, batch.len());
                    batch.clear();
                }
            }
        }
    }

    /// Fills up a batch. An empty one means that nothing comes any more.
    async fn gather(&mut self, batch: &mut Vec<Record>) {
        if batch.is_empty() {
            let first = tokio::select! {
                record = self.records.recv() => record,
                () = self.closing.cancelled() => {
                    self.records.close();
                    self.records.recv().await
                }
            };
            batch.extend(first);
        }
        let deadline = Instant::now() + GATHER_TIME;
        while batch.len() < BATCH_SPANS_MAX {
            if self.closing.is_cancelled() {
                // From here on nothing new comes, and what is there comes at once.
                self.records.close();
            }
            let next = tokio::select! {
                record = timeout_at(deadline, self.records.recv()) => record.ok().flatten(),
                () = self.closing.cancelled(), if !self.closing.is_cancelled() => continue,
            };
            let Some(record) = next else { return };
            batch.push(record);
        }
    }

    async fn send(&self, batch: &[Record]) -> Result<(), NotTaken> {
        let body = otlp::request(&self.identity, self.epoch, batch).encode_to_vec();
        match timeout(REQUEST_TIMEOUT, self.collector.post(body.into())).await {
            Ok(answered) => answered,
            Err(_) => Err(NotTaken::Away(format!("{} does not answer", self.collector.address))),
        }
    }

    fn warn(&mut self, reason: &str) {
        if self.warned.is_none_or(|last| last.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!(reason, "traces are not taken; what does not fit the queue is dropped and counted");
        }
    }
}
