//! The writing thread: encodes, hashes and writes weights and checkpoints while training continues.
//!
//! The training thread hands over copies of the state, at most one of each kind at a time, so that memory is bounded
//! by one publication and one checkpoint. With P parameters and running statistics, copies take 4 P bytes and, with
//! AdamW, 16 P; the encoded bytes of the copy being written take the same again. Jobs run in order, so versions are
//! numbered in step order.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use service::trace::Span;
use training::{ModelLayers, Snapshot};
use version_store::checkpoint::{Checkpoint, Checkpoints, Progress};
use version_store::{Retention, VersionStore};
use weights::{Architecture, Digest, Manifest, WeightsVersion};

use crate::metrics;
use crate::records::{self, AtPublication, Records};

/// The kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The averaged weights, for actors.
    Weights,
    /// The whole state, for resuming.
    Checkpoint,
}

impl Kind {
    /// Returns the name of the kind in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// A copy of the trainer's state, to be written.
#[derive(Debug)]
pub(crate) enum Job {
    /// The averaged weights, to be published.
    Weights {
        /// The copy of the averaged weights.
        snapshot: Box<dyn Snapshot>,
        /// Training step of the copy.
        training_step: u64,
        /// The version number agreed on by the members of a group; `None`: the next number of this learner.
        version: Option<WeightsVersion>,
        /// Data for the event files.
        record: AtPublication,
        /// The trace of the publication.
        span: Option<Span>,
    },
    /// The whole state, for a checkpoint.
    Checkpoint {
        /// The copy of the whole state.
        snapshot: Box<dyn Snapshot>,
        /// Progress of the run at the step of the copy.
        progress: Progress,
    },
}

impl Job {
    /// Returns the kind and the training step of the job.
    fn names(&self) -> (Kind, u64) {
        match self {
            Self::Weights { training_step, .. } => (Kind::Weights, *training_step),
            Self::Checkpoint { progress, .. } => (Kind::Checkpoint, progress.training_step),
        }
    }
}

/// The result of a finished job.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) kind: Kind,
    pub(crate) training_step: u64,
    /// The published weights version, if any; or the reason why nothing was written.
    pub(crate) outcome: anyhow::Result<Option<WeightsVersion>>,
}

/// The files of a run, and the callback that takes each published version.
pub(crate) struct Writer<P> {
    pub(crate) architecture: Architecture,
    pub(crate) versions: VersionStore,
    /// Number of latest versions that stay on disk.
    pub(crate) versions_kept: usize,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) publish: P,
    /// The event file of publications.
    pub(crate) records: Records,
    /// Layers of the trained network.
    pub(crate) layers: ModelLayers,
}

impl<P: FnMut(Manifest, Bytes)> Writer<P> {
    /// Publishes the latest version on disk, if it belongs to this network.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn publish_newest(&mut self) -> anyhow::Result<Option<Manifest>> {
        let kept = self.versions.newest()?.filter(|(manifest, _)| manifest.architecture == self.architecture);
        Ok(kept.map(|(manifest, bytes)| {
            (self.publish)(manifest.clone(), bytes.into());
            manifest
        }))
    }

    /// Runs every job until `jobs` closes. A panicking job counts as failed: the next job of the kind may succeed,
    /// and a checkpoint is written even if weights cannot be.
    pub(crate) fn work(mut self, jobs: &Receiver<Job>, written: &Sender<Written>) {
        while let Ok(job) = service::waiting(|| jobs.recv()) {
            let begun = Instant::now();
            let (kind, training_step) = job.names();
            // A job only leaves files, each either whole or absent.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| self.outcome(job)))
                .unwrap_or_else(|_| anyhow::bail!("writing {} panicked", kind.name()));
            let done = Written { kind, training_step, outcome };
            metrics::wrote(done.kind.name(), begun.elapsed());
            if written.send(done).is_err() {
                return;
            }
        }
    }

    fn outcome(&mut self, job: Job) -> anyhow::Result<Option<WeightsVersion>> {
        match job {
            Job::Weights { snapshot, training_step, version, record, span } => {
                self.weights(snapshot.as_ref(), training_step, version, &record, span).map(Some)
            }
            Job::Checkpoint { snapshot, progress } => self.checkpoint(snapshot, progress).map(|()| None),
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
        let manifest = Manifest {
            version: version.map_or_else(|| self.versions.next_version(), Ok)?,
            training_step,
            digest: Digest::of(&bytes),
            size_bytes: bytes.len() as u64,
            architecture: self.architecture.clone(),
        };
        self.versions.write(&manifest, &bytes, Retention::Latest(self.versions_kept))?;
        let version = manifest.version;
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

    /// Writes the event of a publication, after actors have the weights.
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
                    tracing::warn!("no histograms for the weights of step {training_step}: {error}");
                    summary
                }
            }
        });
    }

    fn checkpoint(&self, snapshot: Box<dyn Snapshot>, progress: Progress) -> anyhow::Result<()> {
        let files = snapshot.files().context("read the trainer's state")?;
        // The memory of the copy is on the device, and needed there.
        drop(snapshot);
        let path = self.checkpoints.write(&Checkpoint { progress, files })?;
        tracing::info!("wrote checkpoint {}", path.display());
        Ok(())
    }
}

/// The training thread's handle of the writing thread.
#[derive(Debug)]
pub(crate) struct Writing {
    jobs: Sender<Job>,
    written: Receiver<Written>,
    in_flight: Vec<Kind>,
}

/// Number of kinds, each with at most one job at a time.
const KINDS: usize = 2;

impl Writing {
    /// Creates the channels of a writing thread: the handle, then the arguments of [`Writer::work`].
    pub(crate) fn new() -> (Self, Receiver<Job>, Sender<Written>) {
        let (jobs, todo) = crossbeam_channel::bounded(KINDS);
        let (done, written) = crossbeam_channel::bounded(KINDS);
        (Self { jobs, written, in_flight: Vec::new() }, todo, done)
    }

    /// Returns true if a job of this kind is in flight.
    pub(crate) fn is_writing(&self, kind: Kind) -> bool {
        self.in_flight.contains(&kind)
    }

    /// Starts a job; none of this kind may be in flight.
    pub(crate) fn begin(&mut self, job: Job) {
        self.in_flight.push(job.names().0);
        self.jobs
            .try_send(job)
            .expect("the channel has room for a job of each kind, and its thread ends after this end");
    }

    /// Returns the jobs that finished since the last call.
    pub(crate) fn ended(&mut self) -> Vec<Written> {
        let ended: Vec<Written> = self.written.try_iter().collect();
        self.in_flight.retain(|kind| ended.iter().all(|written| written.kind != *kind));
        ended
    }

    /// Waits until no job is in flight, and returns the finished jobs.
    pub(crate) fn wait(&mut self) -> Vec<Written> {
        let mut all = self.ended();
        while !self.in_flight.is_empty() {
            // The writing thread has a heartbeat, too.
            let written = service::waiting(|| self.written.recv()).expect("the writing thread ends after this end");
            self.in_flight.retain(|kind| *kind != written.kind);
            all.push(written);
        }
        all
    }
}
