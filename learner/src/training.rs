//! The training thread: trains one step per batch, and periodically publishes weights and writes checkpoints.
//!
//! The thread owns the trainer and all state that changes in a training step. It does not use tokio: batches arrive
//! over bounded channels, and published versions are passed to a callback. On an accelerator, the results of a step are
//! read during the next step. [`crate::writer`] writes files concurrently. Before the trainer state is copied, the
//! results of all queued steps are read, so that the training step of the copy is known.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use crossbeam_channel::RecvTimeoutError;
use run_file::learner::{LearnerSection, Settings, trainer_settings};
use service::Health;
use service::trace::{self, Span};
use training::{Contents, Examples, Laps, Losses, StepTimes, Trained};
use version_store::VersionStore;
use version_store::checkpoint::{Checkpoints, Progress};
use weights::{Architecture, Manifest, WeightsVersion};

use crate::group::Group;
use crate::metrics;
use crate::pipeline::Batches;
use crate::priorities::{Item, Priorities};
use crate::records::{AtPublication, Records};
use crate::trainer::Trainer;
use crate::writer::{Job, Kind, Writer, Writing, Written};

mod together;

/// A prepared batch for a training step.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Input tensors and targets.
    pub(crate) examples: Examples,
    /// The items in row order of the batch; empty if no server uses value errors.
    pub(crate) items: Vec<Item>,
    /// Passes over the replay window: the sum over positions of 1 / items in the window at the time of the draw.
    pub(crate) window_passes: f64,
    /// Mean weights version of the searches that produced the positions.
    pub(crate) mean_version: f64,
    /// Trace of the batch, which ends with the training step.
    pub(crate) trace: Option<Span>,
}

/// State of the training thread.
pub(crate) struct Training {
    trainer: Box<dyn Trainer>,
    architecture: Architecture,
    checkpoints: Checkpoints,
    settings: Settings,
    priorities: Priorities,
    /// Board names, by board index.
    boards: Vec<String>,
    positions: u64,
    /// Mean number of passes over the replay windows of the boards.
    window_passes: f64,
    /// Running time of earlier processes of this run, in seconds.
    elapsed_before: f64,
    started: Instant,
    version: WeightsVersion,
    /// Training steps of the latest publication and the latest checkpoint, to do neither twice for the same step.
    published_step: Option<u64>,
    checkpoint_step: Option<u64>,
    /// Number of consecutive batches with a non-finite loss or gradient.
    not_finite: u32,
    /// True once a checkpoint was restored because of non-finite batches.
    is_restored: bool,
    /// Layers that were already reported as switched to float32.
    float32_layers: BTreeSet<String>,
    micro_batches: usize,
    /// Reason for steps without graphs, empty with graphs, as reported last.
    graphs: Option<String>,
    /// Number of steps that may remain queued while the thread waits for the next batch.
    queue_depth: usize,
    /// Steps queued in the trainer, oldest first.
    pending: VecDeque<Pending>,
    /// Trace of the step with the latest results, kept open in case this step is published.
    trace: Option<Span>,
    /// Losses of the latest step on the board of `run.game`, and policy lag in the latest step.
    losses: Option<Losses>,
    sample_version_lag: f64,
    /// Number of publications by this process.
    publications: u64,
}

/// Metadata of a queued step, kept until the results are read.
struct Pending {
    /// Board index of this learner's batch; `None` without a batch of this learner.
    board: Option<usize>,
    items: Vec<Item>,
    positions: usize,
    /// Passes over the replay window by the step, summed over boards.
    window_passes: f64,
    mean_version: f64,
    trace: Option<Span>,
    begun: Instant,
    /// End time of a simulated step; `None` for a real step.
    ends: Option<Instant>,
}

/// The initial state of the training thread, for a new or a continued run.
pub(crate) struct Start {
    /// The trainer with initial or restored weights.
    pub(crate) trainer: Box<dyn Trainer>,
    /// Architecture of the trained network.
    pub(crate) architecture: Architecture,
    /// Progress stored in the checkpoint; `None` for a new run.
    pub(crate) progress: Option<Progress>,
}

/// Duration of a training step or file write after which the thread counts as stalled. Steps of large networks on few
/// cores, and checkpoints on slow disks, take minutes.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(600);

/// Maximum time to wait for a batch before checking for other due work.
const POLL: Duration = Duration::from_millis(50);

/// Number of consecutive batches with a non-finite loss after which the last checkpoint is restored.
const NOT_FINITE_MAX: u32 = 3;

impl Training {
    /// Creates the training state for a run that continues from `start`. `priorities` receives value errors.
    pub(crate) fn new(settings: Settings, start: Start, checkpoints: Checkpoints, priorities: Priorities) -> Self {
        let Start { trainer, architecture, progress } = start;
        let checkpoint_step = progress.as_ref().map(|progress| progress.training_step);
        let boards: Vec<String> = settings.games().map(ToString::to_string).collect();
        boards.iter().for_each(|board| metrics::trained_on(board, 0));
        Self {
            queue_depth: if settings.simulated_step.is_some() { 1 } else { trainer.queue_depth() },
            trainer,
            architecture,
            checkpoints,
            boards,
            settings,
            priorities,
            positions: progress.as_ref().map_or(0, |progress| progress.positions),
            window_passes: progress.as_ref().map_or(0.0, |progress| progress.window_passes),
            elapsed_before: progress.as_ref().map_or(0.0, |progress| progress.elapsed_seconds),
            started: Instant::now(),
            version: WeightsVersion(0),
            published_step: None,
            checkpoint_step,
            not_finite: 0,
            is_restored: false,
            float32_layers: BTreeSet::new(),
            micro_batches: 1,
            graphs: None,
            pending: VecDeque::new(),
            trace: None,
            losses: None,
            sample_version_lag: 0.0,
            publications: 0,
        }
    }

    /// Publishes the current weights, trains until `batches` closes or `stop` returns true, and writes a final
    /// checkpoint. The writing thread calls `publish` for every new version. With a `group`, trains together with other
    /// learners.
    ///
    /// # Errors
    /// The first or last version or the last checkpoint cannot be written, or a training step fails.
    pub(crate) fn run(
        mut self,
        batches: &mut Batches,
        stop: &dyn Fn() -> bool,
        group: Option<Group>,
        health: &Health,
        publish: impl FnMut(Manifest, Bytes) + Send,
    ) -> anyhow::Result<()> {
        let versions = VersionStore::of_learner(&self.settings.run.directory);
        if self.trainer.step_count() == 0
            && let Some(newest) = versions.pin_trained()?
        {
            tracing::warn!("the network starts from scratch; trained weights up to {newest} are kept without a limit");
        }
        let (architecture, checkpoints) = (self.architecture.clone(), self.checkpoints.clone());
        let layers = trainer_settings(&self.settings.learner).layers(&architecture)?;
        let records = Records::of_publications(&self.settings, self.trainer.step_count());
        let versions_kept = self.settings.learner.versions_kept;
        let mut writer = Writer { architecture, versions, versions_kept, checkpoints, publish, records, layers };
        self.report_progress();
        if let Some(manifest) = writer.publish_newest()? {
            self.version = manifest.version;
            self.published_step = Some(manifest.training_step);
            metrics::published(manifest.version);
        }
        let (writing, jobs, written) = Writing::new();
        std::thread::scope(|scope| {
            let beats = health.heartbeat("write", STALLED_AFTER);
            let work = move || {
                let _beats = beats.of_thread();
                writer.work(&jobs, &written);
            };
            std::thread::Builder::new().name("write".into()).spawn_scoped(scope, work).context("start a thread")?;
            // The writing thread stops when `writing` is dropped, at the latest at the end of this call.
            match group {
                None => self.train(batches, stop, writing),
                Some(group) => self.train_together(group, batches, stop, writing),
            }
        })
    }

    fn train(mut self, batches: &mut Batches, stop: &dyn Fn() -> bool, mut writing: Writing) -> anyhow::Result<()> {
        self.publish(&mut writing)?;
        self.note_all(writing.wait())?;
        let (mut published_at, mut checkpoint_at) = (Instant::now(), Instant::now());
        let mut begun_step = self.trainer.step_count();
        while !stop() {
            let waiting = Instant::now();
            let received = service::waiting(|| batches.recv_timeout(POLL));
            metrics::spent("wait", waiting.elapsed());
            let training = Instant::now();
            match received {
                Ok(prepared) => self.step(prepared, &mut writing)?,
                // No batch is ready, so there is time to read the results of queued steps.
                Err(RecvTimeoutError::Timeout) => self.collect_all(&mut writing)?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let step = self.trainer.step_count() + self.pending.len() as u64;
            let mut is_publication_due = match self.settings.learner.publish_interval_steps {
                0 => published_at.elapsed() >= self.settings.publish_interval,
                _ => step != begun_step && self.is_boundary(step),
            };
            let is_checkpoint_due = checkpoint_at.elapsed() >= self.settings.checkpoint_interval;
            if is_publication_due || is_checkpoint_due {
                self.collect_all(&mut writing)?;
                // A queued step may have been rejected, so the step count may differ from the expected count.
                is_publication_due &= self.is_boundary(self.trainer.step_count());
            }
            let publishing = Instant::now();
            metrics::spent("train", publishing.duration_since(training));
            self.try_again_later(writing.ended());
            if is_publication_due {
                let begun = self.publish(&mut writing);
                self.failed_to_begin(Kind::Weights, begun);
                (published_at, begun_step) = (Instant::now(), self.trainer.step_count());
            }
            self.end_round(publishing, is_checkpoint_due.then_some(&mut checkpoint_at), &mut writing);
        }
        self.collect_all(&mut writing)?;
        self.try_again_later(writing.wait());
        // Only the checkpoint holds the complete state, so it is written even if the last version cannot be written.
        let published = self.publish(&mut writing);
        let checkpoint = self.checkpoint(&mut writing);
        let mut ended = writing.wait();
        ended.sort_by_key(|written| written.kind == Kind::Weights);
        checkpoint.and(self.note_all(ended)).and(published)?;
        self.end_trace();
        let (step, learning_rate) = (self.trainer.step_count(), self.trainer.learning_rate());
        tracing::info!("stopped at training step {step}, learning rate {learning_rate}");
        Ok(())
    }

    /// Finishes the work after a step and the publication that began at `publishing`: starts a checkpoint if it is due,
    /// and then replaces the time in `checkpoint_at`.
    fn end_round(&mut self, publishing: Instant, checkpoint_at: Option<&mut Instant>, writing: &mut Writing) {
        self.end_trace();
        let publish = publishing.elapsed();
        if let Some(checkpoint_at) = checkpoint_at {
            let begun = self.checkpoint(writing);
            self.failed_to_begin(Kind::Checkpoint, begun);
            *checkpoint_at = Instant::now();
        }
        let both = publishing.elapsed();
        metrics::spent("publish", both);
        metrics::held_up(publish, both.saturating_sub(publish));
    }

    /// Returns true if the weights after `step` may be published. Without `publish_interval_steps`, the weights after
    /// any step may.
    fn is_boundary(&self, step: u64) -> bool {
        let interval = self.settings.learner.publish_interval_steps;
        interval == 0 || step.is_multiple_of(interval)
    }

    fn report_progress(&self) {
        let (step, learning_rate) = (self.trainer.step_count(), self.trainer.learning_rate());
        metrics::stands_at(step, self.positions, self.window_passes, learning_rate);
    }

    /// Queues a training step, and reads the results of older steps beyond the queue depth.
    fn step(&mut self, prepared: Prepared, writing: &mut Writing) -> anyhow::Result<()> {
        let begun = Instant::now();
        let Prepared { examples, items, window_passes, mean_version, trace } = prepared;
        self.trainer.set_progress(self.settings.schedule.progress(self.elapsed_seconds(), self.positions));
        let simulated = self.settings.simulated_step;
        let queued = match simulated {
            None => self.trainer.queue(&examples, &mut Laps::new(&mut Instant::now)),
            Some(_) => self.trainer.queue_nothing(&examples, &mut Laps::new(&mut Instant::now)),
        };
        queued.map_err(failed)?;
        self.report_micro_batches();
        // A device computes queued steps one after another.
        let free = self.pending.back().and_then(|before| before.ends).unwrap_or(begun).max(begun);
        let ends = simulated.map(|time| free + time);
        let (board, positions) = (Some(examples.board()), examples.positions());
        self.pending.push_back(Pending { board, items, positions, window_passes, mean_version, trace, begun, ends });
        while self.pending.len() > self.queue_depth {
            self.collect(writing)?;
        }
        Ok(())
    }

    fn collect_all(&mut self, writing: &mut Writing) -> anyhow::Result<()> {
        while !self.pending.is_empty() {
            self.collect(writing)?;
        }
        Ok(())
    }

    /// Reads the results of the oldest queued step.
    fn collect(&mut self, writing: &mut Writing) -> anyhow::Result<()> {
        let Some(pending) = self.pending.pop_front() else { return Ok(()) };
        if let Some(ends) = pending.ends {
            std::thread::sleep(ends.saturating_duration_since(Instant::now()));
        }
        let trained = self.trainer.collect(&mut Laps::new(&mut Instant::now)).context("no step is queued")?;
        self.take(pending, trained, writing)
    }

    /// Records the results of a training step, or handles the error.
    fn take(
        &mut self,
        pending: Pending,
        trained: Result<Trained, training::Error>,
        writing: &mut Writing,
    ) -> anyhow::Result<()> {
        self.end_trace();
        self.trace = pending.trace;
        self.report_precision();
        self.report_graphs();
        let Trained { losses, value_errors, times } = match trained {
            Ok(trained) => trained,
            Err(training::Error::NotFinite { quantity, .. }) => return self.refuse(quantity, writing),
            Err(training::Error::Overflow { loss_scale, .. }) => {
                self.skip_step(loss_scale);
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        self.not_finite = 0;
        self.priorities.report(&pending.items, &value_errors);
        self.positions += pending.positions as u64;
        self.window_passes += pending.window_passes / self.boards.len() as f64;
        if let Some(board) = pending.board.and_then(|board| self.boards.get(board)) {
            metrics::trained_on(board, 1);
        }
        self.report_progress();
        // Losses of different boards are not comparable, so the losses of the run are from the first board.
        match pending.board.filter(|&board| board > 0).and_then(|board| self.boards.get(board)) {
            Some(board) => metrics::board_losses(board, &losses),
            None => {
                self.losses = Some(losses);
                metrics::losses(&losses);
            }
        }
        self.sample_version_lag = self.version.0 as f64 - pending.mean_version;
        metrics::sample_version_lag(self.sample_version_lag);
        metrics::trained(times);
        if let Some(span) = &mut self.trace {
            span.set("step", self.trainer.step_count());
            span.set("positions", pending.positions);
            span.set("loss", losses.total);
            show_step(span, pending.begun, times);
        }
        Ok(())
    }

    fn end_trace(&mut self) {
        if let Some(span) = self.trace.take() {
            span.end();
        }
    }

    /// Reports that the trainer has split batches into more micro-batches, because the device has too little memory for
    /// a batch.
    fn report_micro_batches(&mut self) {
        let now = self.trainer.micro_batches();
        metrics::micro_batches(now);
        if now > self.micro_batches && self.settings.learner.micro_batch == 0 {
            tracing::warn!(
                "not enough device memory for a batch of {}; training on {now} micro-batches per batch, with separate \
                 batch norm statistics (learner.micro_batch sets the size)",
                self.settings.learner.batch_size
            );
        }
        self.micro_batches = now;
    }

    /// Reports the loss scale, and the layers that were switched to float32 since the last report.
    fn report_precision(&mut self) {
        if let Some(scale) = self.trainer.loss_scale() {
            metrics::loss_scale(scale);
        }
        let layers = self.trainer.float32_layers();
        metrics::layers_in_float32(layers.len());
        for (layer, error) in layers.iter().filter(|(layer, _)| !self.float32_layers.contains(*layer)) {
            tracing::warn!(
                "switching layer {layer} to float32: the weight gradient has an error of {:.1} % in lower precision",
                100.0 * error
            );
        }
        if layers.len() != self.float32_layers.len() {
            self.float32_layers = layers.keys().cloned().collect();
        }
    }

    /// Reports the first CUDA graph of a training step, or the reason for steps without graphs.
    fn report_graphs(&mut self) {
        let graphs = self.trainer.graphs().map(str::to_owned);
        if graphs == self.graphs {
            return;
        }
        match graphs.as_deref() {
            Some("") => tracing::info!("submitting training steps as CUDA graphs"),
            Some(reason) => tracing::warn!("training without CUDA graphs: {reason}"),
            None => {}
        }
        service::devices::graphs("training", graphs.clone());
        self.graphs = graphs;
    }

    /// Records a step that was skipped because the scaled gradient overflowed. Losses and weights are still valid, so
    /// the step does not count towards [`NOT_FINITE_MAX`].
    fn skip_step(&mut self, loss_scale: f64) {
        metrics::skipped_step();
        if let Some(span) = &mut self.trace {
            span.fail("the gradient overflows");
        }
        let step = self.trainer.step_count() + 1;
        tracing::info!("gradient overflow in training step {step} at loss scale {loss_scale}; halving the scale");
    }

    /// Handles a training step with a non-finite `quantity`, which was rejected to protect the weights. After
    /// [`NOT_FINITE_MAX`] consecutive rejections, restores the latest checkpoint.
    fn refuse(&mut self, quantity: &str, writing: &mut Writing) -> anyhow::Result<()> {
        metrics::not_finite();
        if let Some(span) = &mut self.trace {
            span.fail(quantity);
        }
        self.not_finite += 1;
        tracing::error!(
            "the {quantity} of training step {} is not finite; step skipped, weights unchanged ({} in a row)",
            self.trainer.step_count() + 1,
            self.not_finite
        );
        if self.not_finite < NOT_FINITE_MAX {
            return Ok(());
        }
        self.not_finite = 0;
        // A checkpoint write in progress may become the latest, and removes old checkpoints.
        self.try_again_later(writing.wait());
        let Some(found) = self.checkpoints.newest()? else {
            anyhow::bail!(
                "the {quantity} of {NOT_FINITE_MAX} batches in a row is not finite; there is no checkpoint to restore"
            );
        };
        let step = found.checkpoint.progress.training_step;
        self.trainer.load(&found.checkpoint.files).context("restore the checkpoint")?;
        // Loading the checkpoint also discards the steps that were queued later.
        self.pending.clear();
        self.is_restored = true;
        tracing::error!("restored the checkpoint of training step {step}");
        Ok(())
    }

    /// Starts to publish the averaged weights as a new version. Does nothing if no step was trained since the last
    /// version, or if another publication is in progress.
    fn publish(&mut self, writing: &mut Writing) -> anyhow::Result<()> {
        if self.published_step == Some(self.trainer.step_count()) {
            return Ok(());
        }
        self.publish_as(None, writing)
    }

    /// Starts to publish the averaged weights as `version`, or for `None` as the next version of this learner. Does
    /// nothing if another publication is in progress.
    fn publish_as(&mut self, version: Option<WeightsVersion>, writing: &mut Writing) -> anyhow::Result<()> {
        if self.settings.learner.publish_interval_steps > 0 && writing.is_writing(Kind::Weights) {
            // With publication by steps, no version is skipped because of a slow disk.
            self.try_again_later(writing.wait());
        }
        if skip(Kind::Weights, writing) {
            return Ok(());
        }
        let training_step = self.trainer.step_count();
        // Publications are rare, and all actors wait for them, so each publication is traced, within the trace of the
        // step if that exists.
        let below = |step: &Span| Some(step.child("publish"));
        let span = self.trace.as_ref().map_or_else(|| trace::rare("publish"), below);
        let snapshot =
            self.trainer.snapshot(Contents::Average).map_err(unless_lost).context("copy the averaged weights")?;
        let record = self.record()?;
        writing.begin(Job::Weights { snapshot, training_step, version, record, span });
        metrics::placed(&self.trainer.placement());
        Ok(())
    }

    /// Returns the data that the event files record about this publication. If the next publication has histograms, the
    /// trainer keeps the gradient of a step until then.
    fn record(&mut self) -> anyhow::Result<AtPublication> {
        let LearnerSection { event_files, histogram_publications: interval, .. } = self.settings.learner;
        let has_histograms = |publication: u64| event_files && interval > 0 && publication.is_multiple_of(interval);
        let publication = self.publications;
        self.publications += 1;
        let gradient = match has_histograms(publication) {
            true => self.trainer.take_gradient().context("read the gradient")?,
            false => None,
        };
        if has_histograms(publication + 1) {
            self.trainer.keep_gradient();
        }
        Ok(AtPublication {
            losses: self.losses,
            learning_rate: self.trainer.learning_rate(),
            positions: self.positions,
            window_passes: self.window_passes,
            sample_version_lag: self.sample_version_lag,
            has_histograms: has_histograms(publication),
            gradient,
        })
    }

    /// Starts to write a checkpoint. Does nothing if no step was trained since the last checkpoint, or if another
    /// checkpoint write is in progress.
    fn checkpoint(&mut self, writing: &mut Writing) -> anyhow::Result<()> {
        let training_step = self.trainer.step_count();
        if self.checkpoint_step == Some(training_step) || skip(Kind::Checkpoint, writing) {
            return Ok(());
        }
        let progress = self.progress();
        let snapshot = self.trainer.snapshot(Contents::All).map_err(unless_lost).context("copy the trainer's state")?;
        writing.begin(Job::Checkpoint { snapshot, progress });
        Ok(())
    }

    /// Returns the progress of the run, as stored in a checkpoint.
    fn progress(&self) -> Progress {
        Progress {
            training_step: self.trainer.step_count(),
            positions: self.positions,
            window_passes: self.window_passes,
            elapsed_seconds: self.elapsed_seconds(),
            architecture: self.architecture.clone(),
        }
    }

    /// Records the results of finished write jobs.
    ///
    /// # Errors
    /// The error of the first failed job.
    fn note_all(&mut self, ended: Vec<Written>) -> anyhow::Result<()> {
        let mut first = Ok(());
        for written in ended {
            let noted = self.note(written);
            first = first.and(noted);
        }
        first
    }

    fn note(&mut self, Written { kind, training_step, outcome }: Written) -> anyhow::Result<()> {
        metrics::write_failed(kind.name(), outcome.is_err());
        if let Some(bytes) = service::machine::peak_memory_bytes() {
            metrics::memory_peak(bytes);
        }
        match kind {
            Kind::Weights => {
                if let Some(version) = outcome? {
                    self.version = version;
                    metrics::published(version);
                }
                self.published_step = Some(training_step);
            }
            Kind::Checkpoint => {
                outcome?;
                self.checkpoint_step = Some(training_step);
            }
        }
        Ok(())
    }

    /// Records finished write jobs, and logs failures. Training continues on a full disk: nothing is lost, and space
    /// may be free at the next interval.
    fn try_again_later(&mut self, ended: Vec<Written>) {
        for written in ended {
            if let Err(error) = self.note(written) {
                log_failure(&error);
            }
        }
    }

    /// Reports that the state could not be copied, for example because device memory ran out.
    fn failed_to_begin(&self, kind: Kind, begun: anyhow::Result<()>) {
        if let Err(error) = begun {
            metrics::write_failed(kind.name(), true);
            log_failure(&error);
        }
    }

    fn elapsed_seconds(&self) -> f64 {
        self.elapsed_before + self.started.elapsed().as_secs_f64()
    }
}

/// Returns the error of a training step.
fn failed(error: training::Error) -> anyhow::Error {
    anyhow::Error::new(unless_lost(error)).context("train")
}

/// Returns the error unless the device is lost: then the process ends here, before anything on the device is freed.
fn unless_lost(error: training::Error) -> training::Error {
    if let training::Error::DeviceLost(reason) = &error {
        service::device_loss::end(reason);
    }
    error
}

/// Returns true if a write of this kind is in progress, and then counts a skipped write.
fn skip(kind: Kind, writing: &Writing) -> bool {
    let is_writing = writing.is_writing(kind);
    if is_writing {
        metrics::write_skipped(kind.name());
    }
    is_writing
}

fn log_failure(error: &anyhow::Error) {
    tracing::error!("{error:#}; training continues, next try after the interval");
}

/// Adds the span of a training step to the trace, with consecutive child spans for the parts of the step.
fn show_step(trace: &Span, begun: Instant, times: StepTimes) {
    let step = trace.child("step").since(begun);
    let StepTimes { stage, forward, backward, optimiser } = times;
    let mut from = begun;
    for (part, time) in [("stage", stage), ("forward", forward), ("backward", backward), ("optimiser", optimiser)] {
        step.child(part).since(from).end_at(from + time);
        from += time;
    }
    step.end();
}

#[cfg(test)]
mod tests;
