//! The training thread, which takes one step per batch and periodically publishes weights and writes checkpoints.
//!
//! It owns the trainer and everything that changes with a step. It does not use tokio: batches come over a bounded
//! channel and published versions are passed to a callback.

use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use network_torch::{StepTimes, Trainer, TrainingBatch};
use service::trace::{self, Span};
use weights::{Architecture, Digest, Manifest, WeightsVersion};

use crate::metrics;
use crate::priorities::{Item, Priorities};
use learner::checkpoint::{Checkpoint, Checkpoints, Progress};
use learner::config::Settings;
use learner::published::Published;

/// A batch ready to train on.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The data of its tensors.
    pub(crate) batch: TrainingBatch,
    /// The items of its rows; empty where value errors are not used.
    pub(crate) items: Vec<Item>,
    /// The mean of the weights versions that searched its positions.
    pub(crate) mean_version: f64,
    /// The trace that it is part of, which ends with its step.
    pub(crate) trace: Option<Span>,
}

/// The training thread's state.
pub(crate) struct Training<P> {
    trainer: Trainer,
    architecture: Architecture,
    checkpoints: Checkpoints,
    published: Published,
    publish: P,
    settings: Settings,
    priorities: Priorities,
    positions: u64,
    /// The duration of earlier runs of the process, in seconds.
    elapsed_before: f64,
    started: Instant,
    version: WeightsVersion,
    /// The step of the newest publication and checkpoint: neither is made twice for one step.
    published_step: Option<u64>,
    checkpoint_step: Option<u64>,
    /// Batches in a row whose loss was not finite.
    not_finite: u32,
    /// The trace of the step just taken, until it is known whether its weights are published.
    trace: Option<Span>,
}

/// The state that a run continues from.
pub(crate) struct Start {
    /// The trainer, new or restored.
    pub(crate) trainer: Trainer,
    /// Its network.
    pub(crate) architecture: Architecture,
    /// The checkpoint's progress; `None` for a new run.
    pub(crate) progress: Option<Progress>,
}

/// The time that the thread waits for a batch before it checks whether something else is due.
const POLL: Duration = Duration::from_millis(50);

/// The number of consecutive batches without a finite loss after which the last checkpoint is restored.
const NOT_FINITE_MAX: u32 = 3;

impl<P: FnMut(Manifest, Bytes)> Training<P> {
    /// Continues a run from `start`. `publish` is called with every new version, `priorities` receives value errors.
    pub(crate) fn new(
        settings: Settings,
        start: Start,
        checkpoints: Checkpoints,
        publish: P,
        priorities: Priorities,
    ) -> Self {
        let Start { trainer, architecture, progress } = start;
        let checkpoint_step = progress.as_ref().map(|progress| progress.training_step);
        Self {
            trainer,
            architecture,
            checkpoints,
            published: Published::new(settings.run.directory.join("weights"), settings.learner.versions_kept),
            publish,
            settings,
            priorities,
            positions: progress.as_ref().map_or(0, |progress| progress.positions),
            elapsed_before: progress.as_ref().map_or(0.0, |progress| progress.elapsed_seconds),
            started: Instant::now(),
            version: WeightsVersion(0),
            published_step: None,
            checkpoint_step,
            not_finite: 0,
            trace: None,
        }
    }

    /// Publishes the current weights, then trains until `batches` closes or `stop` returns true; ends with a
    /// checkpoint.
    ///
    /// # Errors
    /// If the first version, the last version or the last checkpoint cannot be written, or libtorch fails.
    pub(crate) fn run(mut self, batches: &Receiver<Prepared>, stop: &dyn Fn() -> bool) -> anyhow::Result<()> {
        self.report_progress();
        self.publish_first()?;
        let (mut published_at, mut checkpoint_at) = (Instant::now(), Instant::now());
        while !stop() {
            let waiting = Instant::now();
            let received = batches.recv_timeout(POLL);
            metrics::spent("wait", waiting.elapsed());
            match received {
                Ok(prepared) => self.step(&prepared)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let publishing = Instant::now();
            if published_at.elapsed() >= self.settings.publish_interval {
                try_again_later("weights", self.publish());
                published_at = Instant::now();
            }
            if let Some(span) = self.trace.take() {
                span.end();
            }
            let publish = publishing.elapsed();
            if checkpoint_at.elapsed() >= self.settings.checkpoint_interval {
                try_again_later("checkpoint", self.checkpoint());
                checkpoint_at = Instant::now();
            }
            let both = publishing.elapsed();
            metrics::spent("publish", both);
            metrics::wrote(publish, both.saturating_sub(publish));
        }
        // The checkpoint holds state that no other file does: it must be written even if the last version cannot be.
        let published = self.publish();
        self.checkpoint()?;
        published?;
        let (step, learning_rate) = (self.trainer.step_count(), self.trainer.learning_rate());
        tracing::info!("stopped at training step {step}, learning rate {learning_rate}");
        Ok(())
    }

    fn report_progress(&self) {
        metrics::stands_at(self.trainer.step_count(), self.positions, self.trainer.learning_rate());
    }

    fn step(&mut self, prepared: &Prepared) -> anyhow::Result<()> {
        let begun = Instant::now();
        self.trace.clone_from(&prepared.trace);
        self.trainer.set_progress(self.elapsed_seconds() / self.settings.schedule.as_secs_f64());
        let (losses, times) = match self.trainer.step_timed(&prepared.batch, &mut Instant::now) {
            Ok(trained) => trained,
            Err(network_torch::Error::NotFinite { quantity, .. }) => return self.refuse(quantity),
            Err(error) => return Err(error).context("train"),
        };
        self.not_finite = 0;
        self.priorities.report(&prepared.items, self.trainer.value_errors());
        self.positions += prepared.batch.policy_weights.len() as u64;
        self.report_progress();
        metrics::losses(&losses);
        metrics::sample_version_lag(self.version.0 as f64 - prepared.mean_version);
        metrics::trained(times);
        metrics::spent("train", begun.elapsed());
        if let Some(span) = &mut self.trace {
            span.set("step", self.trainer.step_count());
            span.set("positions", prepared.batch.policy_weights.len());
            span.set("loss", losses.total);
            show_step(span, begun, times);
        }
        Ok(())
    }

    /// Handles a step that was not taken because it would have corrupted the weights. After [`NOT_FINITE_MAX`] in a
    /// row, restores the last checkpoint.
    fn refuse(&mut self, quantity: &str) -> anyhow::Result<()> {
        metrics::not_finite();
        if let Some(span) = &mut self.trace {
            span.fail(quantity);
        }
        self.not_finite += 1;
        tracing::error!(
            "the {quantity} of training step {} is not finite: the step was not taken, the weights are as before ({} in a \
             row)",
            self.trainer.step_count() + 1,
            self.not_finite
        );
        if self.not_finite < NOT_FINITE_MAX {
            return Ok(());
        }
        self.not_finite = 0;
        let Some(found) = self.checkpoints.newest()? else {
            anyhow::bail!(
                "the {quantity} of {NOT_FINITE_MAX} batches in a row is not finite and there is no checkpoint to restore"
            );
        };
        let step = found.checkpoint.progress.training_step;
        self.trainer.load(&found.checkpoint.files).context("restore the checkpoint")?;
        tracing::error!("restored the checkpoint of training step {step}");
        Ok(())
    }

    /// Publishes a first version for subscribers: the version on disk if there is one, else the initial weights.
    fn publish_first(&mut self) -> anyhow::Result<()> {
        let kept = self.published.newest()?.filter(|(manifest, _)| manifest.architecture == self.architecture);
        match kept {
            Some((manifest, bytes)) => {
                self.version = manifest.version;
                self.published_step = Some(manifest.training_step);
                metrics::published(manifest.version);
                (self.publish)(manifest, bytes.into());
                Ok(())
            }
            None => self.publish(),
        }
    }

    /// Publishes the averaged weights as a new version, if a step was taken since the last one.
    fn publish(&mut self) -> anyhow::Result<()> {
        let step = self.trainer.step_count();
        if self.published_step == Some(step) {
            return Ok(());
        }
        // Publications are few, and all actors wait for them: each is traced, within the trace of its step if there is
        // one.
        let below = |step: &Span| Some(step.child("publish"));
        let mut span = self.trace.as_ref().map_or_else(|| trace::rare("publish"), below);
        let bytes = self.trainer.published().context("read the averaged weights")?;
        let manifest = Manifest {
            version: self.published.next_version()?,
            training_step: step,
            digest: Digest::of(&bytes),
            size_bytes: bytes.len() as u64,
            architecture: self.architecture.clone(),
        };
        self.published.write(&manifest, &bytes)?;
        self.version = manifest.version;
        self.published_step = Some(step);
        metrics::published(manifest.version);
        metrics::placed(&self.trainer);
        tracing::info!("published weights {} at training step {step}", manifest.version);
        if let Some(span) = &mut span {
            span.set("weights_version", manifest.version.0);
            span.set("step", step);
            span.set("bytes", bytes.len());
        }
        (self.publish)(manifest, bytes.into());
        if let Some(span) = span {
            span.end();
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> anyhow::Result<()> {
        let training_step = self.trainer.step_count();
        if self.checkpoint_step == Some(training_step) {
            return Ok(());
        }
        let progress = Progress {
            training_step,
            positions: self.positions,
            elapsed_seconds: self.elapsed_seconds(),
            architecture: self.architecture.clone(),
        };
        let files = self.trainer.save().context("read the trainer's state")?;
        let path = self.checkpoints.write(&Checkpoint { progress, files })?;
        self.checkpoint_step = Some(training_step);
        tracing::info!("wrote checkpoint {}", path.display());
        Ok(())
    }

    fn elapsed_seconds(&self) -> f64 {
        self.elapsed_before + self.started.elapsed().as_secs_f64()
    }
}

/// Adds the spans of a step and of its consecutive parts to its trace.
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

/// Reports whether a write failed. A full disk must not end the training: nothing is lost by continuing, and there may
/// be free space at the next interval.
fn try_again_later(what: &'static str, written: anyhow::Result<()>) {
    metrics::write_failed(what, written.is_err());
    if let Err(error) = written {
        tracing::error!("training goes on, the next interval tries again: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the training thread, with a network small enough to train in a test.

    use std::fs;
    use std::path::Path;

    use learner::config::{Config, LearnerSection};
    use network_torch::{Device, Network, TrainerSettings};
    use service::config::RunSection;

    use super::*;

    fn architecture() -> Architecture {
        Architecture {
            game: "any".into(),
            planes: 2,
            height: 3,
            width: 3,
            actions: 9,
            channels: 8,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
        }
    }

    /// A batch of one empty board with a uniform policy.
    fn prepared() -> Prepared {
        let batch = TrainingBatch {
            observations: vec![0.0; 2 * 9],
            policies: vec![1.0 / 9.0; 9],
            legal: vec![1.0; 9],
            wdl: vec![0.0, 1.0, 0.0],
            policy_weights: vec![1.0],
            importance: Vec::new(),
        };
        Prepared { batch, items: Vec::new(), mean_version: 1.0, trace: None }
    }

    fn checkpoints(folder: &Path) -> Checkpoints {
        Checkpoints::new(folder.join("checkpoints"), 2)
    }

    /// A batch whose loss is NaN.
    fn not_finite() -> Prepared {
        let mut prepared = prepared();
        prepared.batch.observations[0] = f32::NAN;
        prepared
    }

    /// A run that begins in `folder`, or resumes from the last checkpoint there.
    fn start(folder: &Path) -> Start {
        let (architecture, settings) = (architecture(), TrainerSettings::default());
        let Some(found) = checkpoints(folder).newest().unwrap() else {
            let network = Network::new(&architecture, Device::Cpu, 1).unwrap();
            return Start { trainer: Trainer::new(network, settings).unwrap(), architecture, progress: None };
        };
        let trainer = Trainer::restore(&architecture, settings, Device::Cpu, &found.checkpoint.files).unwrap();
        Start { trainer, architecture, progress: Some(found.checkpoint.progress) }
    }

    /// Trains on these batches in `folder` and ends; no interval passes in between.
    fn train(folder: &Path, batches: Vec<Prepared>, publish: impl FnMut(Manifest, Bytes)) -> anyhow::Result<()> {
        let run = RunSection { directory: folder.into(), ..RunSection::default() };
        let learner = LearnerSection {
            schedule_minutes: 60.0,
            publish_interval_seconds: 3600.0,
            checkpoint_interval_seconds: 3600.0,
            ..LearnerSection::default()
        };
        let settings = Config { run, learner, ..Config::default() }.settings().unwrap();
        let (sender, receiver) = crossbeam_channel::unbounded();
        batches.into_iter().for_each(|batch| sender.send(batch).unwrap());
        drop(sender);
        Training::new(settings, start(folder), checkpoints(folder), publish, Priorities::new().0)
            .run(&receiver, &|| false)
    }

    fn last_checkpoint(folder: &Path) -> Option<u64> {
        checkpoints(folder).newest().unwrap().map(|found| found.checkpoint.progress.training_step)
    }

    #[test]
    fn a_run_ends_with_a_published_version_and_a_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let mut steps = Vec::new();
        train(folder.path(), vec![prepared()], |manifest, _| steps.push(manifest.training_step)).unwrap();
        assert_eq!(steps, [0, 1]);
        assert_eq!(last_checkpoint(folder.path()), Some(1));
    }

    #[test]
    fn the_last_checkpoint_is_written_also_when_the_last_version_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("weights");
        // After the first version is published, a file replaces the folder.
        let spoil = |_: Manifest, _: Bytes| {
            fs::remove_dir_all(&weights).unwrap();
            fs::write(&weights, "no folder").unwrap();
        };
        let error = train(folder.path(), vec![prepared()], spoil).unwrap_err();
        assert!(format!("{error:#}").contains("weights"), "{error:#}");
        assert_eq!(last_checkpoint(folder.path()), Some(1));
    }

    #[test]
    fn batches_that_are_not_finite_bring_the_last_checkpoint_back_when_they_keep_coming() {
        let trained_on = |not_finite_in_a_row: usize| {
            let folder = tempfile::tempdir().unwrap();
            train(folder.path(), vec![prepared()], |_, _| {}).unwrap();
            let then = (0..not_finite_in_a_row).map(|_| not_finite());
            train(folder.path(), [prepared()].into_iter().chain(then).collect(), |_, _| {}).unwrap();
            last_checkpoint(folder.path())
        };
        assert_eq!((trained_on(2), trained_on(3)), (Some(2), Some(1)));
    }

    #[test]
    fn batches_that_are_not_finite_end_a_run_that_has_no_checkpoint_to_go_back_to() {
        let folder = tempfile::tempdir().unwrap();
        let error = train(folder.path(), (0..3).map(|_| not_finite()).collect(), |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("there is no checkpoint to restore"), "{error:#}");
    }
}
