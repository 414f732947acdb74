//! Settings of the simulated server, small enough that a short run reaches every bound.

use std::time::Duration;

use replay::SeenLimits;
use run_file::replay::{Config, Settings};
use run_file::replay::{SelectorName, TableKeys, TableSection};

use crate::content::{GAME, LIMITS};

/// Memory limits of the server, in bytes; a seed uses one of them. Three are several times what honest clients fill,
/// and one is a limit at which full tables make room.
const MEMORY_BYTES_MAX: [u64; 4] = [120_000, 120_000, 120_000, 36_000];

/// Size at which a segment is closed, in bytes.
pub(crate) const SEGMENT_BYTES: u64 = 3_000;

/// Bounds on the ids seen: enough for all actors, and for all epochs of each actor in a run.
pub(crate) const SEEN: SeenLimits = SeenLimits { actors_max: 32, intervals: 128, actor_intervals_min: 8 };

/// Heartbeat interval of actors.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(2);

/// Name of the table that draws the item with the highest priority first.
pub(crate) const GREATEST: &str = "greatest";

/// Window of the table `greatest`, in items.
pub(crate) const WINDOW_ITEMS: usize = 90;

/// Returns the settings of a seed.
pub(crate) fn settings(seed: u64) -> Settings {
    let mut config = Config::default();
    GAME.clone_into(&mut config.run.game);
    config.replay.main.min_items = 4;
    config.replay.main.samples_per_insert = 2.0;
    config.replay.main.error_items = 40.0;
    config.replay.main.capacity_items = 60;
    config.replay.main.window_items_min = 20;
    config.replay.tables = vec![TableSection {
        name: GREATEST.to_owned(),
        keys: TableKeys {
            selector: SelectorName::MaxHeap,
            min_items: 1,
            samples_per_insert: 8.0,
            error_items: 1e6,
            capacity_items: WINDOW_ITEMS as u64,
            window_items_min: WINDOW_ITEMS as u64,
            ..TableKeys::default()
        },
        blocks_inserts: false,
    }];
    // The remainder is an index.
    config.replay.memory_bytes_max = MEMORY_BYTES_MAX[(seed % MEMORY_BYTES_MAX.len() as u64) as usize];
    let settings = config.settings().expect("the settings are valid");
    // The segment size is below the minimum of the configuration.
    Settings { segment_bytes: SEGMENT_BYTES, heartbeat: HEARTBEAT, limits: LIMITS, seen: SEEN, ..settings }
}
