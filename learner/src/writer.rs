//! Encodes, hashes and writes weights and checkpoints in a separate thread, while training continues.
//!
//! The training thread submits copies of the state, with at most one job of each kind in progress, which bounds the
//! memory. With P parameters and running statistics, a copy takes 4 P bytes for weights and, with AdamW, 16 P bytes for
//! a checkpoint. The encoded bytes take the same memory again while they are written. Jobs run in order, so version
//! numbers increase with training steps.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use service::trace::Span;
use training::{ModelLayers, Snapshot};
use version_store::checkpoint::{Checkpoint, Checkpoints, Progress};
use version_store::{Retention, VersionStore};
use weights::{Architecture, Manifest, WeightsVersion};

use crate::metrics;
use crate::records::{self, AtPublication, Records};

/// The kind of a write job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The averaged weights, which actors load.
    Weights,
    /// The complete training state, which a restart loads.
    Checkpoint,
}

impl Kind {
    /// Returns the name of the kind for metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// A write job with a copy of the trainer's state.
#[derive(Debug)]
pub(crate) enum Job {
    /// Publication of the averaged weights.
    Weights {
        /// The copy of the averaged weights.
        snapshot: Box<dyn Snapshot>,
        /// Training step at the time of the copy.
        training_step: u64,
        /// Version number agreed on by the learners in a group; `None` uses the next number of this learner.
        version: Option<WeightsVersion>,
        /// Data for the event files.
        record: AtPublication,
        /// Trace of the publication; `None` if it is not traced.
        span: Option<Span>,
    },
    /// A checkpoint of the complete training state.
    Checkpoint {
        /// The copy of the complete state.
        snapshot: Box<dyn Snapshot>,
        /// Progress of the run at the time of the copy.
        progress: Progress,
    },
}

impl Job {
    /// Returns the kind and the training step of the job, for messages.
    fn names(&self) -> (Kind, u64) {
        match self {
            Self::Weights { training_step, .. } => (Kind::Weights, *training_step),
            Self::Checkpoint { progress, .. } => (Kind::Checkpoint, progress.training_step),
        }
    }
}

/// The result of a finished write job.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) kind: Kind,
    pub(crate) training_step: u64,
    /// The published weights version, `None` for a checkpoint, or the error.
    pub(crate) outcome: anyhow::Result<Option<WeightsVersion>>,
}

/// The writing thread's state: the files of a run, and the callback for published versions.
pub(crate) struct Writer<P> {
    pub(crate) architecture: Architecture,
    pub(crate) versions: VersionStore,
    /// Number of latest versions to keep on disk.
    pub(crate) versions_kept: usize,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) publish: P,
    /// The event file for publications.
    pub(crate) records: Records,
    /// Layers of the trained network, for histograms.
    pub(crate) layers: ModelLayers,
}

impl<P: FnMut(Manifest, Bytes)> Writer<P> {
    /// Publishes the latest version on disk, if it has the architecture of this network; otherwise returns `None`.
    ///
    /// # Errors
    /// The latest version cannot be read.
    pub(crate) fn publish_newest(&mut self) -> anyhow::Result<Option<Manifest>> {
        let kept = self.versions.newest()?.filter(|(manifest, _)| manifest.architecture == self.architecture);
        Ok(kept.map(|(manifest, bytes)| {
            (self.publish)(manifest.clone(), bytes.into());
            manifest
        }))
    }

    /// Runs all jobs until `jobs` closes. A panic counts as a failed job: a later job may succeed, and a checkpoint
    /// must be written even if a publication panics.
    pub(crate) fn work(mut self, jobs: &Receiver<Job>, written: &Sender<Written>) {
        while let Ok(job) = service::waiting(|| jobs.recv()) {
            let begun = Instant::now();
            let (kind, training_step) = job.names();
            // A job changes only files, and every file is written atomically.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| match job {
                Job::Weights { snapshot, training_step, version, record, span } => {
                    self.weights(snapshot.as_ref(), training_step, version, &record, span).map(Some)
                }
                Job::Checkpoint { snapshot, progress } => self.checkpoint(snapshot, progress).map(|()| None),
            }));
            let outcome = outcome.unwrap_or_else(|_| anyhow::bail!("writing {} panicked", kind.name()));
            let done = Written { kind, training_step, outcome };
            metrics::wrote(done.kind.name(), begun.elapsed());
            if written.send(done).is_err() {
                return;
            }
        }
    }

    fn weights(
        &mut self,
        snapshot: &dyn Snapshot,
        training_step: u64,
        version: Option<WeightsVersion>,
        record: &AtPublication,
        mut span: Option<Span>,
    ) -> anyhow::Result<WeightsVersion> {
        let bytes = snapshot.published().context("read the averaged weights")?;
        let version = version.map_or_else(|| self.versions.next_version(), Ok)?;
        let manifest = Manifest::of(&bytes, version, training_step, self.architecture.clone());
        self.versions.write(&manifest, &bytes, Retention::Latest(self.versions_kept))?;
        tracing::info!("published weights {version} at training step {training_step}");
        if let Some(span) = &mut span {
            span.set("weights_version", version.0);
            span.set("step", training_step);
            span.set("bytes", bytes.len());
        }
        let bytes = Bytes::from(bytes);
        (self.publish)(manifest, bytes.clone());
        if let Some(span) = span {
            span.end();
        }
        self.record(training_step, record, &bytes);
        Ok(version)
    }

    /// Writes the event of a publication, after the weights are available to actors.
    fn record(&mut self, training_step: u64, record: &AtPublication, bytes: &[u8]) {
        let layers = &self.layers;
        self.records.append(training_step, || {
            let summary = records::scalars(record);
            if !record.has_histograms {
                return summary;
            }
            match records::histograms(summary.clone(), layers, bytes, record.gradient.as_deref()) {
                Ok(summary) => summary,
                Err(error) => {
                    tracing::warn!("cannot compute histograms for the weights of step {training_step}: {error}");
                    summary
                }
            }
        });
    }

    fn checkpoint(&self, snapshot: Box<dyn Snapshot>, progress: Progress) -> anyhow::Result<()> {
        let files = snapshot.files().context("read the trainer's state")?;
        // The copy is dropped early, because it occupies device memory that training needs.
        drop(snapshot);
        let path = self.checkpoints.write(&Checkpoint { progress, files })?;
        tracing::info!("wrote checkpoint {}", path.display());
        Ok(())
    }
}

/// The training thread's handle to the writing thread.
#[derive(Debug)]
pub(crate) struct Writing {
    jobs: Sender<Job>,
    written: Receiver<Written>,
    in_flight: Vec<Kind>,
}

/// Number of job kinds; at most one job of each kind is in progress.
const KINDS: usize = 2;

impl Writing {
    /// Creates the handle to a writing thread, and the two arguments of [`Writer::work`].
    pub(crate) fn new() -> (Self, Receiver<Job>, Sender<Written>) {
        let (jobs, todo) = crossbeam_channel::bounded(KINDS);
        let (done, written) = crossbeam_channel::bounded(KINDS);
        (Self { jobs, written, in_flight: Vec::new() }, todo, done)
    }

    /// Returns true if a job of this kind is in progress.
    pub(crate) fn is_writing(&self, kind: Kind) -> bool {
        self.in_flight.contains(&kind)
    }

    /// Starts a job. No job of the same kind may be in progress.
    pub(crate) fn begin(&mut self, job: Job) {
        self.in_flight.push(job.names().0);
        self.jobs
            .try_send(job)
            .expect("the channel has room for one job per kind, and the thread outlives this handle");
    }

    /// Returns the results of all jobs that finished since the last call, without waiting.
    pub(crate) fn ended(&mut self) -> Vec<Written> {
        let ended: Vec<Written> = self.written.try_iter().collect();
        self.in_flight.retain(|kind| ended.iter().all(|written| written.kind != *kind));
        ended
    }

    /// Waits until no job is in progress, and returns the results of the finished jobs.
    pub(crate) fn wait(&mut self) -> Vec<Written> {
        let mut all = self.ended();
        while !self.in_flight.is_empty() {
            // The writing thread has a separate heartbeat, so this wait counts as idle.
            let written = service::waiting(|| self.written.recv()).expect("the writing thread outlives this handle");
            self.in_flight.retain(|kind| *kind != written.kind);
            all.push(written);
        }
        all
    }
}
