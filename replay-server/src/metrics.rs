//! Publishes the metrics of the tables.

use std::time::Duration;

use metrics::{Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use proto::replay::{ActorState, TableStats};
use replay::{RateLimiterCounts, Table};

/// The reasons for which an insert is rejected, as values of the label `reason`.
const INVALID: &str = "invalid";
const NOT_STORED: &str = "not_stored";
const OVER_MEMORY: &str = "over_memory";

/// The names of all metrics live here; the keeper only hands over figures.
#[derive(Debug)]
pub(crate) struct Metrics(());

impl Metrics {
    /// Describes all of them.
    pub(crate) fn new() -> Self {
        describe_gauge!("zerofleet_replay_trajectories", "Trajectories held");
        describe_gauge!("zerofleet_replay_items", "Items held: positions that may be drawn");
        describe_gauge!("zerofleet_replay_window_items", "Items in the window, the newest of those held");
        describe_gauge!(
            "zerofleet_replay_samples_per_insert",
            "Samples drawn for each item inserted, since the run began"
        );
        describe_gauge!("zerofleet_replay_bytes", "Bytes of the log on disk");
        describe_gauge!("zerofleet_replay_table_bytes", "Bytes of memory that the table keeps");
        describe_counter!("zerofleet_replay_inserts_total", "Trajectories stored since the run began");
        describe_counter!("zerofleet_replay_items_inserted_total", "Items stored since the run began");
        describe_counter!("zerofleet_replay_samples_total", "Items drawn since the run began");
        describe_counter!(
            "zerofleet_replay_duplicates_total",
            "Trajectories that came again and were not counted again"
        );
        describe_counter!("zerofleet_replay_refused_total", "Trajectories refused, by reason");
        describe_gauge!("zerofleet_replay_insert_wait_seconds_total", "Time during which the limiter held up inserts");
        describe_gauge!("zerofleet_replay_sample_wait_seconds_total", "Time during which the limiter held up samples");
        describe_gauge!(
            "zerofleet_replay_held_up_seconds_total",
            "Time during which a table held up one side, by the kind of reason"
        );
        describe_gauge!("zerofleet_replay_quarantined", "Trajectories held that were taken out of sampling");
        describe_counter!("zerofleet_replay_stale_total", "Trajectories not stored: their weights were too far behind");
        counter!("zerofleet_replay_stale_total").absolute(0);
        describe_gauge!("zerofleet_replay_actors", "Actors that insert, by how it stands with them");
        describe_counter!("zerofleet_replay_actors_lost_total", "How often an actor was silent for too long");
        counter!("zerofleet_replay_refused_total", "reason" => INVALID).absolute(0);
        counter!("zerofleet_replay_refused_total", "reason" => NOT_STORED).absolute(0);
        counter!("zerofleet_replay_refused_total", "reason" => OVER_MEMORY).absolute(0);
        describe_gauge!("zerofleet_replay_memory_bytes", "Bytes of memory of all tables and of what is on its way");
        describe_gauge!("zerofleet_replay_memory_bytes_max", "Bytes of memory allowed; 0 for any number");
        describe_gauge!("zerofleet_replay_tables_items", "Items held by each table");
        describe_gauge!("zerofleet_replay_tables_window_items", "Items in the window of each table");
        describe_gauge!("zerofleet_replay_tables_bytes", "Bytes of memory that each table keeps, shared ones too");
        describe_gauge!("zerofleet_replay_tables_quarantined", "Trajectories of each table out of sampling");
        describe_counter!("zerofleet_replay_tables_samples_total", "Items drawn from each table since the run began");
        describe_histogram!("zerofleet_replay_insert_seconds", "From the arrival of a trajectory to its answer");
        describe_histogram!("zerofleet_replay_sample_seconds", "From the wish for a batch to the batch");
        describe_histogram!("zerofleet_replay_sample_age_seconds", "How long ago what is drawn came in");
        describe_histogram!("zerofleet_replay_sample_lag_versions", "How far what is drawn is behind the newest held");
        describe_gauge!("zerofleet_replay_archive_bytes", "Bytes of the log in its archive");
        describe_counter!("zerofleet_replay_archive_passes_total", "Passes over the archive, by result");
        describe_gauge!("zerofleet_replay_disk_free_bytes", "Bytes that the log's file system still takes");
        describe_gauge!("zerofleet_replay_disk_bytes", "Bytes of the log's file system");
        Self(())
    }

    /// The log could not take a trajectory.
    pub(crate) fn count_not_stored(&self) {
        counter!("zerofleet_replay_refused_total", "reason" => NOT_STORED).increment(1);
    }

    /// The weights of a trajectory were too far behind.
    pub(crate) fn count_stale(&self) {
        counter!("zerofleet_replay_stale_total").increment(1);
    }

    /// There was no room in memory for a trajectory.
    pub(crate) fn count_over_memory(&self) {
        counter!("zerofleet_replay_refused_total", "reason" => OVER_MEMORY).increment(1);
    }

    /// A trajectory is in the tables so long after it came.
    pub(crate) fn inserted_after(&self, latency: Duration) {
        histogram!("zerofleet_replay_insert_seconds").record(latency);
    }

    /// Publishes what all tables together keep.
    pub(crate) fn publish_memory(&self, bytes: u64, bytes_max: Option<u64>) {
        gauge!("zerofleet_replay_memory_bytes").set(bytes as f64);
        gauge!("zerofleet_replay_memory_bytes_max").set(bytes_max.unwrap_or(0) as f64);
    }

    /// Publishes what one table holds and has done.
    pub(crate) fn publish_table(&self, name: &str, table: &Table, counts: RateLimiterCounts) {
        let name = name.to_owned();
        gauge!("zerofleet_replay_tables_items", "table" => name.clone()).set(table.items() as f64);
        gauge!("zerofleet_replay_tables_window_items", "table" => name.clone()).set(table.window_items() as f64);
        gauge!("zerofleet_replay_tables_bytes", "table" => name.clone()).set(table.bytes() as f64);
        gauge!("zerofleet_replay_tables_quarantined", "table" => name.clone()).set(table.quarantined() as f64);
        counter!("zerofleet_replay_tables_samples_total", "table" => name).absolute(counts.sampled);
    }

    /// Publishes the time for which each side of a table was blocked, by the reason.
    pub(crate) fn publish_waits(
        &self,
        table: &str,
        waits: impl Iterator<Item = (&'static str, &'static str, Duration)>,
    ) {
        for (side, reason, total) in waits {
            let labels = [("table", table.to_owned()), ("side", side.to_owned()), ("reason", reason.to_owned())];
            gauge!("zerofleet_replay_held_up_seconds_total", &labels).set(total.as_secs_f64());
        }
    }

    /// Publishes the figures of the table.
    pub(crate) fn publish(&self, table: &TableStats, table_bytes: u64, [insert_wait, sample_wait]: [Duration; 2]) {
        gauge!("zerofleet_replay_trajectories").set(table.trajectories as f64);
        gauge!("zerofleet_replay_items").set(table.items as f64);
        gauge!("zerofleet_replay_window_items").set(table.window_items as f64);
        gauge!("zerofleet_replay_samples_per_insert").set(table.samples_per_insert);
        gauge!("zerofleet_replay_bytes").set(table.bytes as f64);
        gauge!("zerofleet_replay_table_bytes").set(table_bytes as f64);
        counter!("zerofleet_replay_inserts_total").absolute(table.trajectories_inserted_total);
        counter!("zerofleet_replay_items_inserted_total").absolute(table.items_inserted_total);
        counter!("zerofleet_replay_samples_total").absolute(table.samples_total);
        counter!("zerofleet_replay_duplicates_total").absolute(table.duplicates_total);
        counter!("zerofleet_replay_refused_total", "reason" => INVALID).absolute(table.refused_total);
        gauge!("zerofleet_replay_quarantined").set(table.quarantined_total as f64);
        // Counters hold whole numbers; these are seconds with fractions that only grow.
        gauge!("zerofleet_replay_insert_wait_seconds_total").set(insert_wait.as_secs_f64());
        gauge!("zerofleet_replay_sample_wait_seconds_total").set(sample_wait.as_secs_f64());
    }
}

/// Metrics that are recorded so often that their handles are looked up once.
#[derive(Clone)]
pub(crate) struct TableMetrics {
    age: Histogram,
    lag: Histogram,
    latency: Histogram,
}

impl TableMetrics {
    /// Those of a table.
    pub(crate) fn new(table: &str) -> Self {
        let table = table.to_owned();
        Self {
            age: histogram!("zerofleet_replay_sample_age_seconds", "table" => table.clone()),
            lag: histogram!("zerofleet_replay_sample_lag_versions", "table" => table.clone()),
            latency: histogram!("zerofleet_replay_sample_seconds", "table" => table),
        }
    }

    /// An item was drawn, so long after it came in, so many versions behind the newest.
    pub(crate) fn drawn(&self, age: Duration, lag_versions: u64) {
        self.age.record(age);
        self.lag.record(lag_versions as f64);
    }

    /// Records the time from the request of a batch to its draw.
    pub(crate) fn batch_after(&self, latency: Duration) {
        self.latency.record(latency);
    }
}

impl std::fmt::Debug for TableMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableMetrics").finish_non_exhaustive()
    }
}

/// So much lies in the archive; the last pass over it came to its end or not.
pub(crate) fn archived(bytes: u64, is_kept_up: bool) {
    gauge!("zerofleet_replay_archive_bytes").set(bytes as f64);
    // Both, so that neither appears with its first event.
    for (result, passes) in [("ok", u64::from(is_kept_up)), ("failed", u64::from(!is_kept_up))] {
        counter!("zerofleet_replay_archive_passes_total", "result" => result).increment(passes);
    }
}

/// The file system of the log.
pub(crate) fn disk(free_bytes: u64, bytes: u64) {
    gauge!("zerofleet_replay_disk_free_bytes").set(free_bytes as f64);
    gauge!("zerofleet_replay_disk_bytes").set(bytes as f64);
}

/// So many actors are in each state, and so often one was lost.
pub(crate) fn actors(states: impl Iterator<Item = (ActorState, usize)>, lost_total: u64) {
    for (state, actors) in states {
        gauge!("zerofleet_replay_actors", "state" => state.name()).set(actors as f64);
    }
    counter!("zerofleet_replay_actors_lost_total").absolute(lost_total);
}
