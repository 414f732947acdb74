//! Publishes the free space of the log's file system: a full disk blocks inserts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use service::Drain;

use crate::metrics;

/// The interval between two queries, in which a log at full speed writes some hundred megabytes.
const INTERVAL: Duration = Duration::from_secs(5);

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    /// The bytes available to a process without privileges.
    free_bytes: u64,
    /// The total size in bytes.
    bytes: u64,
}

/// Publishes the space at intervals until the drain fires. A file system that does not report its space is logged once.
pub(crate) async fn watch(folder: PathBuf, drain: Drain) {
    let mut is_failing = false;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = drain.wait() => return,
            _ = ticks.tick() => {}
        }
        let folder = folder.clone();
        // A network file system may be slow; a drain does not wait for it.
        let query = tokio::task::spawn_blocking(move || room(&folder));
        let answer = tokio::select! {
            () = drain.wait() => return,
            answer = query => answer.unwrap_or_else(|error| Err(error.into())),
        };
        match answer {
            Ok(Room { free_bytes, bytes }) => metrics::disk(free_bytes, bytes),
            Err(error) if !is_failing => {
                is_failing = true;
                tracing::warn!(%error, "the file system of the replay log does not report its free space");
            }
            Err(_) => {}
        }
    }
}

fn room(folder: &Path) -> std::io::Result<Room> {
    let stat = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Room { free_bytes: bytes(stat.f_bavail), bytes: bytes(stat.f_blocks) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Room, room};

    #[test]
    fn the_free_and_total_bytes_of_a_file_system_are_read_from_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let Room { free_bytes, bytes } = room(folder.path()).unwrap();
        assert!(0 < bytes && free_bytes <= bytes, "{free_bytes} of {bytes} bytes are free");
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(room(Path::new("/nothing/is/here")).is_err());
    }
}
