//! Publishes the free space on the log's file system, since a full disk blocks inserts.

use std::path::PathBuf;
use std::time::Duration;

use service::directory::{Room, room};

use crate::metrics;

/// Interval between two queries. A log at full speed writes some hundred megabytes in this time.
const INTERVAL: Duration = Duration::from_secs(5);

/// Publishes the space at intervals. Logs once that a file system does not report the space.
pub(crate) async fn watch(folder: PathBuf) {
    let mut is_failing = false;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let folder = folder.clone();
        // A network file system may be slow; a caller that drops this future does not wait for it.
        let answer = tokio::task::spawn_blocking(move || room(&folder)).await;
        match answer.unwrap_or_else(|error| Err(error.into())) {
            Ok(Room { free_bytes, bytes }) => metrics::disk(free_bytes, bytes),
            Err(error) if !is_failing => {
                is_failing = true;
                tracing::warn!(%error, "cannot read the free space of the replay log's file system");
            }
            Err(_) => {}
        }
    }
}
