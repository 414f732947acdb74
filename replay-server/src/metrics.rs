//! Records all metrics of the process; docs/metrics.md lists the names.

use std::time::Duration;

use experience::{Invalid, Trajectory, WeightsVersion};
use metrics::{Histogram, counter, gauge, histogram};
use proto::replay::{ActorState, ReviseRefusal, TableStats};
use replay::{RateLimiterCounts, Table};
use service::reasons::Reasons;

use crate::repetition::Repetition;

/// Reasons for rejecting an insert, as values of the label `reason`.
const INVALID: &str = "invalid";
/// The log could not store the trajectory.
pub(crate) const NOT_STORED: &str = "not_stored";
/// The trajectory would exceed the memory limit.
pub(crate) const OVER_MEMORY: &str = "over_memory";

/// The reasons why trajectories were rejected.
static DEFECTS: Reasons = Reasons::new();

/// Initialises the counters that would otherwise appear with the first event.
pub(crate) fn begin() {
    counter!("zerofleet_replay_stale_total").absolute(0);
    counter!("zerofleet_replay_without_items_total").absolute(0);
    counter!("zerofleet_replay_evicted_for_memory_total").absolute(0);
    for reason in [INVALID, NOT_STORED, OVER_MEMORY] {
        counter!("zerofleet_replay_refused_total", "reason" => reason).absolute(0);
    }
    counter!("zerofleet_replay_revisions_total").absolute(0);
    counter!("zerofleet_replay_revised_positions_total").absolute(0);
    for refusal in ReviseRefusal::ALL {
        counter!("zerofleet_replay_revisions_refused_total", "reason" => refusal.name()).absolute(0);
    }
}

/// Counts the defect of a permanently rejected trajectory.
pub(crate) fn count_defect(fault: &Invalid) {
    counter!("zerofleet_replay_defects_total", "why" => DEFECTS.label(&fault.to_string())).increment(1);
}

/// Counts a trajectory rejected for [`NOT_STORED`] or [`OVER_MEMORY`].
pub(crate) fn count_refused(reason: &'static str) {
    counter!("zerofleet_replay_refused_total", "reason" => reason).increment(1);
}

/// Counts a trajectory that was not stored because of the policy lag.
pub(crate) fn count_stale() {
    counter!("zerofleet_replay_stale_total").increment(1);
}

/// Counts a trajectory that was acknowledged but not stored, since it has no items.
pub(crate) fn count_without_items() {
    counter!("zerofleet_replay_without_items_total").increment(1);
}

/// Counts a trajectory evicted from full tables because of the memory limit.
pub(crate) fn count_evicted_for_memory() {
    counter!("zerofleet_replay_evicted_for_memory_total").increment(1);
}

/// Counts a revision, and records the number of versions from the last replaced step to the new weights.
pub(crate) fn revised(trajectory: &Trajectory, replaced: WeightsVersion) {
    counter!("zerofleet_replay_revisions_total").increment(1);
    counter!("zerofleet_replay_revised_positions_total").increment(trajectory.searched_steps() as u64);
    let lag = trajectory.last_weights_version().0.saturating_sub(replaced.0);
    histogram!("zerofleet_replay_revision_lag_versions").record(lag as f64);
}

/// Counts a rejected revision.
pub(crate) fn count_revision_refused(refusal: ReviseRefusal) {
    counter!("zerofleet_replay_revisions_refused_total", "reason" => refusal.name()).increment(1);
}

/// Records the time from the arrival of a trajectory to the insertion into the tables.
pub(crate) fn inserted_after(latency: Duration) {
    histogram!("zerofleet_replay_insert_seconds").record(latency);
}

/// Publishes the total memory use of all tables, and the limit; 0 without a limit.
pub(crate) fn publish_memory(bytes: u64, bytes_max: Option<u64>) {
    gauge!("zerofleet_replay_memory_bytes").set(bytes as f64);
    gauge!("zerofleet_replay_memory_bytes_max").set(bytes_max.unwrap_or(0) as f64);
}

/// Publishes size and sample count of one table.
pub(crate) fn publish_table(name: &str, table: &Table, counts: RateLimiterCounts) {
    let labels = [("table", name.to_owned())];
    gauge!("zerofleet_replay_tables_items", &labels).set(table.items() as f64);
    gauge!("zerofleet_replay_tables_window_items", &labels).set(table.window_items() as f64);
    gauge!("zerofleet_replay_table_bytes", &labels).set(table.bytes() as f64);
    gauge!("zerofleet_replay_tables_quarantined", &labels).set(table.quarantined() as f64);
    counter!("zerofleet_replay_tables_samples_total", &labels).absolute(counts.sampled);
}

/// Publishes how long inserts and samples of a table were blocked, by reason.
pub(crate) fn publish_waits(table: &str, waits: impl Iterator<Item = (&'static str, &'static str, Duration)>) {
    for (side, reason, total) in waits {
        let labels = [("table", table.to_owned()), ("side", side.to_owned()), ("reason", reason.to_owned())];
        gauge!("zerofleet_replay_rate_limiter_wait_seconds_total", &labels).set(total.as_secs_f64());
    }
}

/// Publishes the statistics of the main table.
pub(crate) fn publish(table: &TableStats, [insert_wait, sample_wait]: [Duration; 2]) {
    gauge!("zerofleet_replay_trajectories").set(table.trajectories as f64);
    gauge!("zerofleet_replay_items").set(table.items as f64);
    gauge!("zerofleet_replay_window_items").set(table.window_items as f64);
    gauge!("zerofleet_replay_samples_per_insert").set(table.samples_per_insert);
    gauge!("zerofleet_replay_bytes").set(table.bytes as f64);
    gauge!("zerofleet_replay_quarantined").set(table.quarantined_total as f64);
    gauge!("zerofleet_replay_insert_wait_seconds_total").set(insert_wait.as_secs_f64());
    gauge!("zerofleet_replay_sample_wait_seconds_total").set(sample_wait.as_secs_f64());
    counter!("zerofleet_replay_inserts_total").absolute(table.trajectories_inserted_total);
    counter!("zerofleet_replay_items_inserted_total").absolute(table.items_inserted_total);
    counter!("zerofleet_replay_samples_total").absolute(table.samples_total);
    counter!("zerofleet_replay_duplicates_total").absolute(table.duplicates_total);
    counter!("zerofleet_replay_refused_total", "reason" => INVALID).absolute(table.refused_total);
}

/// Publishes how often the latest games repeat positions.
pub(crate) fn publish_repetition(found: &Repetition) {
    for &(part, share) in &found.distinct_shares {
        gauge!("zerofleet_replay_distinct_share", "part" => part).set(share);
    }
    gauge!("zerofleet_replay_top_1000_share").set(found.top_1000_share);
}

/// Frequently recorded metrics, with handles that are looked up once.
#[derive(Debug)]
pub(crate) struct TableMetrics {
    /// Age of a drawn item: time since the insertion.
    pub(crate) age: Histogram,
    /// Policy lag of a drawn item, in weights versions.
    pub(crate) lag: Histogram,
    /// Time from the request for a batch to the draw.
    pub(crate) latency: Histogram,
}

impl TableMetrics {
    /// Looks up the handles for a table.
    pub(crate) fn new(table: &str) -> Self {
        let table = table.to_owned();
        Self {
            age: histogram!("zerofleet_replay_sample_age_seconds", "table" => table.clone()),
            lag: histogram!("zerofleet_replay_sample_lag_versions", "table" => table.clone()),
            latency: histogram!("zerofleet_replay_sample_seconds", "table" => table),
        }
    }
}

/// Publishes the size of the archive and counts a pass by result.
pub(crate) fn archived(bytes: u64, is_kept_up: bool) {
    gauge!("zerofleet_replay_archive_bytes").set(bytes as f64);
    // Both results are incremented, one by 0, so that both series exist from the first pass on.
    for (result, passes) in [("ok", u64::from(is_kept_up)), ("failed", u64::from(!is_kept_up))] {
        counter!("zerofleet_replay_archive_passes_total", "result" => result).increment(passes);
    }
}

/// Publishes the free and total space of the log's file system.
pub(crate) fn disk(free_bytes: u64, bytes: u64) {
    gauge!("zerofleet_replay_disk_free_bytes").set(free_bytes as f64);
    gauge!("zerofleet_replay_disk_bytes").set(bytes as f64);
}

/// Publishes the number of actors in each state and the total number of losses.
pub(crate) fn actors(states: impl Iterator<Item = (ActorState, usize)>, lost_total: u64) {
    for (state, actors) in states {
        gauge!("zerofleet_replay_actors", "state" => state.name()).set(actors as f64);
    }
    counter!("zerofleet_replay_actors_lost_total").absolute(lost_total);
}
