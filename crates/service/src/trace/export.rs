//! The exporter of spans: gathers a batch, sends it, and backs off exponentially while the collector is away.

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

/// Spans per request at most.
const BATCH_SPANS_MAX: usize = 512;
/// An ended span waits this long for others to share its request.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The shortest and the longest pause after a failed request.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The interval between warnings that the collector is away.
const WARN_INTERVAL: Duration = Duration::from_secs(300);
/// The time limit of the final flush when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A running exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    closing: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Sends the spans from `records` to the collector. Must be called on a runtime.
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

    /// Flushes queued spans, within a time limit.
    pub(crate) async fn finish(mut self) {
        self.closing.cancel();
        if timeout(FLUSH_TIMEOUT, &mut self.task).await.is_err() {
            tracing::warn!("the collector of traces takes too long; the last spans are given up");
            self.task.abort();
        }
    }
}

/// Counts lost spans, by reason.
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
                    // Meanwhile the queue fills, and spans beyond its capacity are dropped.
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

    /// Gathers a batch. An empty one means that the channel is closed.
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
                // No new spans arrive from here on, and queued ones are received at once.
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
