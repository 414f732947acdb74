use std::collections::VecDeque;
use std::sync::Arc;

use experience::{PackedTrajectory, TrajectoryId};
use rand::{Rng, RngExt};

use crate::{SeenIds, Window};

/// The trajectories held, oldest first, and uniform sampling over the items in the window.
///
/// Each trajectory knows how many items were ever numbered before it, so the items are one long line: a draw is a
/// number in the window's stretch of it and a binary search. Removal from the front and insertion at the back leave
/// the numbers alone; only a quarantine, an operator's act, renumbers what came later.
#[derive(Debug)]
pub struct Table {
    window: Window,
    entries: VecDeque<Entry>,
    /// The number that the next item gets.
    end: u64,
    seen: SeenIds,
    totals: TableTotals,
    quarantined: usize,
    /// Bytes of the trajectories held.
    trajectory_bytes: u64,
}

/// Kept small, since there is one for each trajectory: what its items are, the trajectory knows.
#[derive(Debug)]
struct Entry {
    trajectory: Arc<PackedTrajectory>,
    /// The number of its first item.
    first: u64,
    quarantined: bool,
}

impl Entry {
    /// How many items it has; none while in quarantine. O(plies).
    fn items(&self) -> u64 {
        if self.quarantined { 0 } else { self.trajectory.full_plies().count() as u64 }
    }

    /// Bytes of the trajectory and of the two counters that an `Arc` keeps beside it.
    fn trajectory_bytes(&self) -> u64 {
        (self.trajectory.bytes() + 2 * size_of::<usize>()) as u64
    }
}

/// What ever came in, removed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableTotals {
    /// Trajectories ever inserted.
    pub trajectories: u64,
    /// Their items.
    pub items: u64,
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Insertion {
    /// It is in, and pushed these out of the capacity.
    Inserted {
        /// Its items.
        items: u64,
        /// What fell out at the old end.
        removed: Vec<Removed>,
    },
    /// Its id came in before; nothing changed.
    Duplicate,
}

/// A trajectory that left the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Which one.
    pub id: TrajectoryId,
    /// Items that can no longer be drawn; none if it was in quarantine.
    pub items: u64,
}

/// What became of a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quarantine {
    /// It is out of sampling; so many items went with it.
    Quarantined {
        /// Items that can no longer be drawn.
        items: u64,
    },
    /// It was in quarantine already.
    Already,
    /// The table does not hold it.
    Unknown,
}

/// One draw.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// From which trajectory.
    pub trajectory: Arc<PackedTrajectory>,
    /// Which of its plies.
    pub ply: usize,
    /// With which probability, given the table at that moment.
    pub probability: f64,
    /// How many items could have been drawn.
    pub table_items: u64,
}

/// One trajectory as a list of the table shows it.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The trajectory itself.
    pub trajectory: &'a Arc<PackedTrajectory>,
    /// How many of its items may be drawn if the window reaches them.
    pub items: u64,
    /// Whether it was taken out of sampling.
    pub quarantined: bool,
}

impl Table {
    /// An empty table. The window's parameters must have passed [`Window::check`].
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self {
            window,
            entries: VecDeque::new(),
            end: 0,
            seen: SeenIds::new(),
            totals: TableTotals::default(),
            quarantined: 0,
            trajectory_bytes: 0,
        }
    }

    /// Remembers an earlier life beyond the trajectories that could be read back: ids seen, and how much ever came in.
    pub fn remember(&mut self, seen: &SeenIds, totals: TableTotals) {
        for (actor, epoch, sequences) in seen.intervals() {
            self.seen.insert_interval(actor, epoch, sequences);
        }
        self.totals.trajectories = self.totals.trajectories.max(totals.trajectories);
        self.totals.items = self.totals.items.max(totals.items);
    }

    /// Puts a trajectory in, once. Trajectories of which no item is among the newest `capacity_items` leave.
    ///
    /// A trajectory without items counts as seen and is held until it reaches the front.
    pub fn insert(&mut self, trajectory: Arc<PackedTrajectory>) -> Insertion {
        if !self.seen.insert(trajectory.id()) {
            return Insertion::Duplicate;
        }
        let entry = Entry { trajectory, first: self.end, quarantined: false };
        let items = entry.items();
        self.trajectory_bytes += entry.trajectory_bytes();
        self.entries.push_back(entry);
        self.end += items;
        self.totals.trajectories += 1;
        self.totals.items += items;
        Insertion::Inserted { items, removed: self.remove_beyond_capacity() }
    }

    /// Draws one item uniformly from the window; `None` while there is none.
    pub fn sample(&self, rng: &mut (impl Rng + ?Sized)) -> Option<Drawn> {
        let table_items = self.window_items();
        if table_items == 0 {
            return None;
        }
        let number = rng.random_range(self.end - table_items..self.end);
        // The last entry that begins at or before the number; entries without items begin where the next one does.
        let entry = &self.entries[self.entries.partition_point(|entry| entry.first <= number) - 1];
        let item = usize::try_from(number - entry.first).expect("an index into a trajectory in memory");
        Some(Drawn {
            trajectory: Arc::clone(&entry.trajectory),
            ply: entry.trajectory.full_plies().nth(item).expect("the next entry begins after as many items"),
            probability: 1.0 / table_items as f64,
            table_items,
        })
    }

    /// Takes a trajectory out of sampling for good; it stays listed until it leaves the table. O(trajectories): it is so
    /// rare that an index by id would cost more memory than it saves time.
    pub fn quarantine(&mut self, id: TrajectoryId) -> Quarantine {
        if !self.seen.contains(id) {
            return Quarantine::Unknown;
        }
        let Some(at) = self.entries.iter().position(|entry| entry.trajectory.id() == id) else {
            return Quarantine::Unknown;
        };
        let entry = &mut self.entries[at];
        if entry.quarantined {
            return Quarantine::Already;
        }
        let items = entry.items();
        entry.quarantined = true;
        self.entries.range_mut(at + 1..).for_each(|later| later.first -= items);
        self.end -= items;
        self.quarantined += 1;
        Quarantine::Quarantined { items }
    }

    /// Whether an id ever came in.
    #[must_use]
    pub fn has_seen(&self, id: TrajectoryId) -> bool {
        self.seen.contains(id)
    }

    /// What ever came in.
    #[must_use]
    pub fn totals(&self) -> TableTotals {
        self.totals
    }

    /// Trajectories held, quarantined ones included.
    #[must_use]
    pub fn trajectories(&self) -> usize {
        self.entries.len()
    }

    /// Trajectories held but out of sampling.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Items held, in the window or not.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.entries.front().map_or(0, |front| self.end - front.first)
    }

    /// Bytes of memory that it keeps: trajectories and their entries. Not counted are ids seen, which close up to
    /// intervals, and what the allocator adds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.trajectory_bytes + (self.entries.capacity() * size_of::<Entry>()) as u64
    }

    /// Items that may be drawn now.
    #[must_use]
    pub fn window_items(&self) -> u64 {
        self.window.items(self.totals.items).min(self.items())
    }

    /// The window it was made with.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// What is held, newest first.
    pub fn held(&self) -> impl Iterator<Item = Held<'_>> + '_ {
        self.entries.iter().rev().map(|entry| Held {
            trajectory: &entry.trajectory,
            items: entry.items(),
            quarantined: entry.quarantined,
        })
    }

    /// The trajectory that leaves next.
    #[must_use]
    pub fn oldest(&self) -> Option<&Arc<PackedTrajectory>> {
        self.entries.front().map(|entry| &entry.trajectory)
    }

    /// The trajectory that came last.
    #[must_use]
    pub fn newest(&self) -> Option<&Arc<PackedTrajectory>> {
        self.entries.back().map(|entry| &entry.trajectory)
    }

    fn remove_beyond_capacity(&mut self) -> Vec<Removed> {
        let mut removed = Vec::new();
        // The newest trajectory stays whatever its size: it has items among the newest.
        while self.entries.len() > 1 && self.end - self.entries[1].first >= self.window.capacity_items {
            let Some(entry) = self.entries.pop_front() else { break };
            self.quarantined -= usize::from(entry.quarantined);
            self.trajectory_bytes -= entry.trajectory_bytes();
            removed.push(Removed { id: entry.trajectory.id(), items: entry.items() });
        }
        removed
    }
}

#[cfg(test)]
mod tests;
