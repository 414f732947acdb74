//! What the process publishes about the table.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use proto::replay::TableStats;

/// Why an insert was refused, as the label `reason` says it.
const INVALID: &str = "invalid";
const NOT_STORED: &str = "not_stored";

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
        counter!("zerofleet_replay_refused_total", "reason" => INVALID).absolute(0);
        counter!("zerofleet_replay_refused_total", "reason" => NOT_STORED).absolute(0);
        Self(())
    }

    /// The log could not take a trajectory.
    pub(crate) fn count_not_stored(&self) {
        counter!("zerofleet_replay_refused_total", "reason" => NOT_STORED).increment(1);
    }

    /// Publishes how long which side of a table was held up by what.
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
