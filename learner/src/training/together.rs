//! Trains together with other learners: the main loop of the training thread in a group.

mod summed;

use std::time::Instant;

use anyhow::Context as _;
use crossbeam_channel::RecvTimeoutError;
use version_store::checkpoint::Checkpoint;

use super::{POLL, Pending, Prepared, Training};
use crate::group::{Control, Group, state};
use crate::metrics;
use crate::pipeline::Batches;
use crate::writer::{Kind, Writing};

/// Maximum time to wait for a batch, after which a member takes part in a step without a batch. Slow replay servers
/// thus delay other members by at most this time.
const BATCH_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// Maximum number of bytes in a state for each value of a contribution, in addition to [`STATE_BYTES_BESIDE`]: five
/// copies of four bytes, doubled as a margin.
const STATE_BYTES_PER_NUMBER: usize = 40;
/// Maximum size of the rest of a state, in bytes.
const STATE_BYTES_BESIDE: usize = 2 << 20;

impl Training {
    /// Trains in groups until `batches` closes or `stop` returns true, then writes a checkpoint.
    pub(super) fn train_together(
        mut self,
        mut group: Group,
        batches: &mut Batches,
        stop: &dyn Fn() -> bool,
        mut writing: Writing,
    ) -> anyhow::Result<()> {
        let mut published_at = None;
        let mut checkpoint_at = Instant::now();
        let mut is_member = self.form(&mut group, stop)?;
        while is_member && !stop() {
            self.try_again_later(writing.ended());
            let waiting = Instant::now();
            let arrived = service::waiting(|| next(batches, stop));
            metrics::spent("wait", waiting.elapsed());
            let training = Instant::now();
            let Ok(prepared) = arrived else { break };
            let is_due = published_at.is_none_or(|at: Instant| match self.settings.learner.publish_interval_steps {
                0 => at.elapsed() >= self.settings.publish_interval,
                _ => self.is_boundary(self.trainer.step_count() + 1),
            });
            let Some(control) = self.step_together(&mut group, prepared, is_due, &mut writing, stop)? else { break };
            let publishing = Instant::now();
            metrics::spent("train", publishing.duration_since(training));
            // All members may have rejected the step that was to be published.
            let publishes = control.publishes() && self.is_boundary(self.trainer.step_count());
            if let Some(version) = publishes.then(|| group.give_number()).flatten() {
                let begun = self.publish_as(Some(version), &mut writing);
                self.failed_to_begin(Kind::Weights, begun);
                published_at = Some(Instant::now());
            }
            let is_checkpoint_due = checkpoint_at.elapsed() >= self.settings.checkpoint_interval;
            self.end_round(publishing, is_checkpoint_due.then_some(&mut checkpoint_at), &mut writing);
            if control.reform > 0.0 {
                is_member = self.form(&mut group, stop)?;
            }
        }
        // Closes the connections, which the other members notice.
        drop(group);
        self.try_again_later(writing.wait());
        // No version is published at the end: the other members continue, and would assign the same number to other
        // weights.
        let checkpoint = self.checkpoint(&mut writing);
        checkpoint.and(self.note_all(writing.wait()))?;
        self.end_trace();
        tracing::info!("stopped at training step {}", self.trainer.step_count());
        Ok(())
    }

    /// Joins the next group, and loads the state of the member with the most steps. Returns false if `stop` returned
    /// true first.
    fn form(&mut self, group: &mut Group, stop: &dyn Fn() -> bool) -> anyhow::Result<bool> {
        loop {
            let Some(roster) = group.form(self.trainer.step_count(), stop)? else { return Ok(false) };
            let (source, members) = (roster.source, roster.members.len());
            if members == 1 {
                return Ok(true);
            }
            match self.share_state(group, source)? {
                Ok(()) => return Ok(true),
                Err(error) => tracing::warn!("cannot share the training state of rank {source}: {error}"),
            }
        }
    }

    /// Sends the state to the other members if this member has rank `source`; otherwise loads the state of rank
    /// `source`. The inner error means that a member was lost.
    fn share_state(&mut self, group: &mut Group, source: usize) -> anyhow::Result<Result<(), collective::Error>> {
        let is_source = group.rank() == Some(source);
        let mut bytes = match is_source {
            true => {
                let files = self.trainer.files().context("copy the trainer's state")?;
                state::encode(&Checkpoint { progress: self.progress(), files })?
            }
            false => Vec::new(),
        };
        let mut length = (bytes.len() as u64).to_le_bytes();
        if let Err(error) = group.broadcast(source, &mut length) {
            return Ok(Err(error));
        }
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        let numbers = self.trainer.no_contribution().numbers().len();
        anyhow::ensure!(
            length <= numbers * STATE_BYTES_PER_NUMBER + STATE_BYTES_BESIDE,
            "rank {source} sent a state of {length} bytes for a network of {numbers} numbers"
        );
        bytes.resize(length, 0);
        if let Err(error) = group.broadcast(source, &mut bytes) {
            return Ok(Err(error));
        }
        if !is_source {
            let Checkpoint { progress, files } = state::decode(&bytes)?;
            anyhow::ensure!(progress.architecture == self.architecture, "the group trains a different network");
            self.trainer.load(&files).context("load the state of the group")?;
            (self.positions, self.window_passes) = (progress.positions, progress.window_passes);
            self.elapsed_before = progress.elapsed_seconds - self.started.elapsed().as_secs_f64();
            self.not_finite = 0;
            self.report_progress();
            tracing::info!("loaded the state of training step {} from rank {source}", self.trainer.step_count());
        }
        group.reached(self.trainer.step_count());
        Ok(Ok(()))
    }

    /// Trains a step together with the other members. If a member is lost, repeats the step in the next group. Returns
    /// the sums of the control values; `None` if `stop` returned true.
    fn step_together(
        &mut self,
        group: &mut Group,
        prepared: Option<Prepared>,
        is_publication_due: bool,
        writing: &mut Writing,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Option<Control>> {
        let begun = Instant::now();
        let (summed, control) = loop {
            let control = self.control(group, prepared.as_ref(), is_publication_due);
            match self.sum(group, prepared.as_ref(), control)? {
                Ok(summed) => break summed,
                Err(error) => {
                    tracing::warn!("lost a member of the group: {error}");
                    metrics::lost_group();
                    if stop() || !self.form(group, stop)? {
                        return Ok(None);
                    }
                }
            }
        };
        self.report_micro_batches();
        if control.batches > 0.0 {
            self.trainer.set_progress(f64::from(control.progress));
            let trained = self.apply_mean(summed, control.batches as usize);
            let (board, items, mean_version, trace) = match prepared {
                Some(batch) => (Some(batch.examples.board()), batch.items, batch.mean_version, batch.trace),
                None => (None, Vec::new(), self.version.0 as f64, None),
            };
            let (positions, window_passes) = (control.positions as usize, f64::from(control.window_passes));
            let pending = Pending { board, items, positions, window_passes, mean_version, trace, begun, ends: None };
            self.take(pending, trained, writing)?;
            group.reached(self.trainer.step_count());
            // Every member has restored a local checkpoint, so the next group starts with the state of the member with
            // the most steps.
            if std::mem::take(&mut self.is_restored) {
                return Ok(Some(Control { reform: 1.0, publish: 0.0, ..control }));
            }
        }
        Ok(Some(control))
    }

    /// Returns this member's control values for the next step.
    fn control(&self, group: &mut Group, prepared: Option<&Prepared>, is_publication_due: bool) -> Control {
        let flag = |is_set: bool| if is_set { 1.0 } else { 0.0 };
        let mine = Control {
            batches: flag(prepared.is_some()),
            positions: prepared.map_or(0.0, |prepared| prepared.examples.positions() as f32),
            window_passes: prepared.map_or(0.0, |prepared| prepared.window_passes as f32),
            unready: flag(!group.is_ready_to_publish()),
            ..Control::default()
        };
        if !group.is_coordinator() {
            return mine;
        }
        let is_new = self.published_step != Some(self.trainer.step_count()) || prepared.is_some();
        let publish = flag(is_publication_due && is_new);
        let progress = self.settings.schedule.progress(self.elapsed_seconds(), self.positions) as f32;
        Control { progress, publish, reform: flag(group.wants_reform()), ..mine }
    }
}

/// Waits up to [`BATCH_WAIT`] for a batch; returns `None` without a batch.
///
/// # Errors
/// The queue is closed and empty.
fn next(batches: &mut Batches, stop: &dyn Fn() -> bool) -> Result<Option<Prepared>, RecvTimeoutError> {
    let begun = Instant::now();
    while !stop() && begun.elapsed() < BATCH_WAIT {
        match batches.recv_timeout(POLL) {
            Err(RecvTimeoutError::Timeout) => {}
            received => return received.map(Some),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
