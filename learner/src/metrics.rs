//! The learner's metrics; all names are listed in `docs/metrics.md`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use metrics::{counter, gauge};
use training::{Losses, Memory, Placed, StepTimes};
use weights::WeightsVersion;

use crate::target_range::TargetRange;

/// Bits of the largest absolute target so far. The bits of non-negative floats have the same order as the floats.
static LARGEST_TARGET: AtomicU32 = AtomicU32::new(0);

/// Registers the counters of rare events with the value zero. If a counter appeared only with the first event, no rate
/// would include this event.
pub(crate) fn begin() {
    counter!("zerofleet_learner_not_finite_total").increment(0);
    counter!("zerofleet_learner_skipped_steps_total").increment(0);
    layers_in_float32(0);
    counter!("zerofleet_learner_groups_lost_total").increment(0);
    counter!("zerofleet_learner_rejected_trajectories_total").increment(0);
    held_out(0);
    for what in ["checkpoint", "weights"] {
        counter!("zerofleet_learner_writes_skipped_total", "what" => what).increment(0);
    }
    micro_batches(1);
}

/// Counts a write that was skipped because the previous write was still in progress; `what` is `checkpoint` or
/// `weights`.
pub(crate) fn write_skipped(what: &'static str) {
    counter!("zerofleet_learner_writes_skipped_total", "what" => what).increment(1);
}

/// Adds to the working time of the writing thread; `what` is `checkpoint` or `weights`.
pub(crate) fn wrote(what: &'static str, time: Duration) {
    gauge!("zerofleet_learner_write_seconds_total", "what" => what).increment(time.as_secs_f64());
}

/// Sets the number of micro-batches per batch.
pub(crate) fn micro_batches(count: usize) {
    gauge!("zerofleet_learner_micro_batches").set(count as f64);
}

/// Sets the memory that training is computed to need, by part.
pub(crate) fn memory(memory: &Memory) {
    for (part, bytes) in memory.parts() {
        gauge!("zerofleet_learner_memory_bytes", "part" => part).set(bytes as f64);
    }
}

/// Sets the peak memory of the process, in bytes.
pub(crate) fn memory_peak(bytes: u64) {
    gauge!("zerofleet_learner_memory_peak_bytes").set(bytes as f64);
}

/// Sets whether the latest write attempt failed; `what` is `checkpoint` or `weights`.
pub(crate) fn write_failed(what: &'static str, failed: bool) {
    gauge!("zerofleet_learner_write_failed", "what" => what).set(if failed { 1.0 } else { 0.0 });
}

/// Adds to the time of the training thread in a phase: `wait` (no batch is ready, because the rate limiter of the
/// replay server delays samples or self-play is slow), `train` (forward, backward and optimiser) or `publish` (copying
/// the state for weights and checkpoints).
pub(crate) fn spent(phase: &'static str, time: Duration) {
    gauge!("zerofleet_learner_seconds_total", "phase" => phase).increment(time.as_secs_f64());
}

/// Adds to the time of all preparing threads in a part: `wait` (no samples have arrived), `prepare` (replaying
/// positions and computing targets) or `hand_over` (the queue of prepared batches is full).
pub(crate) fn prepared(part: &'static str, time: Duration) {
    gauge!("zerofleet_learner_prepare_seconds_total", "part" => part).increment(time.as_secs_f64());
}

/// Adds the time that each part of a training step took.
pub(crate) fn trained(StepTimes { stage, forward, backward, optimiser }: StepTimes) {
    for (part, time) in [("stage", stage), ("forward", forward), ("backward", backward), ("optimiser", optimiser)] {
        gauge!("zerofleet_learner_train_seconds_total", "part" => part).increment(time.as_secs_f64());
    }
}

/// Adds to the time of the phase `publish`, by part. Both durations are usually zero.
pub(crate) fn held_up(publish: Duration, checkpoint: Duration) {
    for (part, time) in [("publish", publish), ("checkpoint", checkpoint)] {
        gauge!("zerofleet_learner_publish_seconds_total", "part" => part).increment(time.as_secs_f64());
    }
}

/// Sets the number of learners in the group and the rank of this learner; 0 and 0 without a group.
pub(crate) fn group(members: usize, rank: usize) {
    gauge!("zerofleet_learner_group_members").set(members as f64);
    gauge!("zerofleet_learner_group_rank").set(rank as f64);
}

/// Adds to the time of sums over the group, including the wait for the slowest member.
pub(crate) fn reduced(time: Duration) {
    gauge!("zerofleet_learner_group_reduce_seconds_total").increment(time.as_secs_f64());
}

/// Counts a group that ended because a member was lost.
pub(crate) fn lost_group() {
    counter!("zerofleet_learner_groups_lost_total").increment(1);
}

/// Sets device, precision and backend of training, as labels.
pub(crate) fn device(device: String, precision: String, backend: String) {
    let labels = [("device", device), ("precision", precision), ("backend", backend)];
    gauge!("zerofleet_learner_device", &labels).set(1.0);
}

/// Sets the devices that hold the tensors of the trainer.
pub(crate) fn placed(placement: &[Placed]) {
    for Placed { what, device } in placement {
        service::devices::placed(what, device);
    }
}

/// Sets K, the number of unrolled steps per position; 0 for AlphaZero.
pub(crate) fn unroll_steps(steps: usize) {
    gauge!("zerofleet_learner_unroll_steps").set(steps as f64);
}

/// Sets the gauges that show the training progress. A resumed learner starts with the final values of the previous
/// process.
pub(crate) fn stands_at(step: u64, positions: u64, window_passes: f64, learning_rate: f64) {
    gauge!("zerofleet_learner_steps_total").set(step as f64);
    gauge!("zerofleet_learner_positions_total").set(positions as f64);
    gauge!("zerofleet_learner_window_passes").set(window_passes);
    gauge!("zerofleet_learner_learning_rate").set(learning_rate);
}

/// Counts training steps on a board of the run; `steps` 0 registers the counter.
pub(crate) fn trained_on(board: &str, steps: u64) {
    counter!("zerofleet_learner_board_steps_total", "board" => board.to_owned()).increment(steps);
}

/// Sets the losses of the latest step on an additional board of the run.
pub(crate) fn board_losses(board: &str, losses: &Losses) {
    for (part, loss) in [("total", losses.total), ("policy", losses.policy), ("value", losses.value)] {
        gauge!("zerofleet_learner_board_loss", "board" => board.to_owned(), "part" => part).set(loss);
    }
}

/// Sets the losses of the latest step; with several boards, the latest step on the board of `run.game`.
pub(crate) fn losses(losses: &Losses) {
    for (part, loss) in losses.parts().into_iter().chain([("total", losses.total), ("l2", losses.l2)]) {
        gauge!("zerofleet_learner_loss", "part" => part).set(loss);
    }
    gauge!("zerofleet_learner_gradient_norm").set(losses.gradient_norm);
}

pub(crate) fn published(version: WeightsVersion) {
    gauge!("zerofleet_learner_weights_version").set(version.0 as f64);
}

pub(crate) fn sample_version_lag(mean: f64) {
    gauge!("zerofleet_learner_sample_version_lag").set(mean);
}

/// Counts samples of held-out trajectories.
pub(crate) fn held_out(samples: usize) {
    counter!("zerofleet_learner_held_out_samples_total").increment(samples as u64);
}

/// Adds to the time of the validation thread in a part: `prepare` (replaying positions and computing targets) or
/// `evaluate`.
pub(crate) fn validated(part: &'static str, time: Duration) {
    gauge!("zerofleet_learner_validation_seconds_total", "part" => part).increment(time.as_secs_f64());
}

/// Sets the total number of replay servers, and the number of servers that are currently sampled.
pub(crate) fn replay_servers(servers: usize, drawn_from: usize) {
    for (state, servers) in [("all", servers), ("drawn_from", drawn_from)] {
        gauge!("zerofleet_learner_replay_servers", "state" => state).set(servers as f64);
    }
}

pub(crate) fn not_finite() {
    counter!("zerofleet_learner_not_finite_total").increment(1);
}

/// Sets the largest integer of the categorical support, and registers the counters of categorical targets.
pub(crate) fn support(support: Option<usize>) {
    if let Some(support) = support {
        gauge!("zerofleet_learner_support").set(support as f64);
        targets(&TargetRange::default());
    }
}

/// Adds the categorical targets of a batch to the counters.
pub(crate) fn targets(range: &TargetRange) {
    let &TargetRange { targets, beyond, largest } = range;
    counter!("zerofleet_learner_targets_total").increment(targets);
    counter!("zerofleet_learner_targets_beyond_support_total").increment(beyond);
    let before = LARGEST_TARGET.fetch_max(largest.to_bits(), Ordering::Relaxed);
    gauge!("zerofleet_learner_target_magnitude_max").set(f64::from(f32::from_bits(before).max(largest)));
}

/// Counts a step that was skipped because the scaled gradient overflowed.
pub(crate) fn skipped_step() {
    counter!("zerofleet_learner_skipped_steps_total").increment(1);
}

/// Sets the loss scale of float16 training.
pub(crate) fn loss_scale(scale: f64) {
    gauge!("zerofleet_learner_loss_scale").set(scale);
}

/// Sets the number of layers that adaptive precision has switched to float32.
pub(crate) fn layers_in_float32(layers: usize) {
    gauge!("zerofleet_learner_layers_in_float32").set(layers as f64);
}

pub(crate) fn rejected_trajectory() {
    counter!("zerofleet_learner_rejected_trajectories_total").increment(1);
}
