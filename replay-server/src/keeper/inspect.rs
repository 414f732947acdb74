//! Read access to the keeper's tables.

use experience::{Trajectory, TrajectoryId};
use proto::replay::ServerStats;

use super::Keeper;
use super::handle::Found;
use crate::config::TableIndex;

impl Keeper {
    pub(super) fn stats(&self, table: TableIndex) -> ServerStats {
        ServerStats {
            table: self.tables[table.0].stats(self.common),
            tables: self.tables.iter().map(|table| table.name().to_owned()).collect(),
            memory_bytes: self.memory_bytes(),
        }
    }

    /// All that a table holds, newest first. It costs a pointer for each.
    pub(super) fn held(&self, table: TableIndex) -> Vec<Trajectory> {
        self.tables[table.0].table().held().map(|held| held.trajectory.clone()).collect()
    }

    /// O(trajectories): called rarely, by a person.
    pub(super) fn get(&self, id: TrajectoryId) -> Option<Found> {
        let mut found: Option<Found> = None;
        for table in &self.tables {
            let Some(held) = table.table().held().find(|held| held.trajectory.id() == id) else { continue };
            let found = found.get_or_insert_with(|| Found {
                trajectory: held.trajectory.clone(),
                tables: Vec::new(),
                inserted: held.inserted,
                quarantined: held.quarantined,
            });
            found.tables.push(table.name().to_owned());
        }
        found
    }

    /// Bytes of all tables, and of what is on its way into them. Every table holds the newest stretch of the same
    /// trajectories, so the longest stretch is all of them.
    pub(super) fn memory_bytes(&self) -> u64 {
        let tables = || self.tables.iter().map(|table| table.table());
        let shared = tables().map(|table| table.trajectory_bytes()).max().unwrap_or(0);
        let own: u64 = tables().map(|table| table.bytes() - table.trajectory_bytes()).sum();
        shared + own + self.in_flight_bytes
    }
}
