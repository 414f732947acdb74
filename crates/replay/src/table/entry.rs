use std::num::NonZeroU32;
use std::time::Duration;

use experience::{Trajectory, WeightsVersion};

use super::Held;
use crate::tree::Leaf;
use crate::{Selector, TableSettings};

/// Maximum weight of an item: a sum over 10^12 items is still finite.
const WEIGHT_MAX: f64 = 1e296;

/// The priority of an item if none was set.
pub(super) const PRIORITY_DEFAULT: f64 = 1.0;

/// A trajectory in the table. The struct fits in one cache line, which contains all data that a draw reads.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) trajectory: Trajectory,
    /// The number of the trajectory's first item.
    pub(super) first: u64,
    /// The weights version that searched the last step.
    pub(super) last_weights_version: WeightsVersion,
    /// Time of the insert, in nanoseconds since the epoch of the caller's clock.
    inserted_ns: u64,
    /// Revision of the searches: 0 for self-play.
    pub(super) revision: u64,
    /// Time of the last revision, in nanoseconds since the same epoch; 0 if there was none.
    revised_ns: u64,
    marks: Option<Box<Marks>>,
    /// Number of items that may be drawn.
    pub(super) drawable: u32,
    /// True if the trajectory itself is in quarantine.
    pub(super) quarantined: bool,
    /// True if the actor of the trajectory is in quarantine.
    pub(super) actor_quarantined: bool,
}

/// Per-item state. Each slice is parallel to the trajectory's full plies, or empty if the settings never needed it.
#[derive(Debug, Default)]
struct Marks {
    priorities: Box<[f64]>,
    /// The ply of each item, parallel to the priorities: updates name items by ply, and one request of a client may
    /// name every item of long trajectories.
    plies: Box<[u32]>,
    times_sampled: Box<[u32]>,
}

impl Entry {
    pub(super) fn new(trajectory: Trajectory, first: u64, now: Duration) -> Self {
        let inserted_ns = nanoseconds(now);
        let (quarantined, actor_quarantined) = (false, false);
        Self {
            last_weights_version: trajectory.last_weights_version(),
            trajectory,
            first,
            inserted_ns,
            revision: 0,
            revised_ns: 0,
            marks: None,
            drawable: 0,
            quarantined,
            actor_quarantined,
        }
    }

    pub(super) fn inserted(&self) -> Duration {
        Duration::from_nanos(self.inserted_ns)
    }

    /// Returns the entry as callers see it.
    pub(super) fn held(&self) -> Held<'_> {
        Held {
            trajectory: &self.trajectory,
            items: u64::from(self.drawable),
            quarantined: self.is_quarantined(),
            inserted: self.inserted(),
            revision: self.revision,
            revised: self.revised(),
        }
    }

    /// Returns the time of the last revision; `None` if there was none.
    pub(super) fn revised(&self) -> Option<Duration> {
        (self.revision > 0).then(|| Duration::from_nanos(self.revised_ns))
    }

    /// Replaces the trajectory by one with the same items and with searches of `revision`.
    pub(super) fn revise(&mut self, trajectory: Trajectory, revision: u64, now: Duration) {
        debug_assert_eq!(trajectory.full_steps(), self.items(), "a revision has the items of its trajectory");
        self.last_weights_version = trajectory.last_weights_version();
        self.trajectory = trajectory;
        (self.revision, self.revised_ns) = (revision, nanoseconds(now));
    }

    /// Returns the number of items in the trajectory, including items that may not be drawn.
    pub(super) fn items(&self) -> usize {
        self.trajectory.full_steps()
    }

    /// Returns true if the trajectory or the actor is in quarantine.
    pub(super) fn is_quarantined(&self) -> bool {
        self.quarantined || self.actor_quarantined
    }

    /// Returns true if all items are exhausted; false if there are none.
    pub(super) fn is_exhausted(&self, weigh: ItemWeights) -> bool {
        let items = self.items();
        items > 0 && (0..items).all(|item| self.is_exhausted_at(item, weigh))
    }

    /// Returns true if the item is exhausted.
    pub(super) fn is_exhausted_at(&self, item: usize, weigh: ItemWeights) -> bool {
        weigh.exhausts(self.times_sampled(item))
    }

    /// Recounts the items that may be drawn. O(items) if draws are counted.
    pub(super) fn count_drawable(&mut self, weigh: ItemWeights) {
        let items = if self.is_quarantined() { 0 } else { self.items() };
        let drawable = (0..items).filter(|&item| !self.is_exhausted_at(item, weigh)).count();
        self.drawable = u32::try_from(drawable).expect("an episode has under 2^32 steps");
    }

    /// Returns the priority of an item; `None` if the entry stores no priorities.
    pub(super) fn priority(&self, item: usize) -> Option<f64> {
        self.marks.as_ref()?.priorities.get(item).copied()
    }

    /// Returns the item at a ply. O(log items) with priorities, O(plies) without.
    pub(super) fn item_at(&self, ply: usize) -> Option<usize> {
        match &self.marks {
            Some(marks) if !marks.plies.is_empty() => marks.plies.binary_search(&u32::try_from(ply).ok()?).ok(),
            _ => self.trajectory.full_plies().position(|full| full == ply),
        }
    }

    pub(super) fn set_priority(&mut self, item: usize, priority: f64) {
        let kept = self.marks.as_mut().and_then(|marks| marks.priorities.get_mut(item));
        // −0 is stored as +0.
        *kept.expect("a table with priorities keeps one for each item") = priority.abs();
    }

    /// Starts to store a priority for each item, initially `priority`, unless the entry already does.
    pub(super) fn assume_priority(&mut self, priority: f64) {
        let items = self.items();
        let marks = self.marks.get_or_insert_default();
        if marks.priorities.is_empty() {
            marks.priorities = vec![priority; items].into();
            let ply = |ply| u32::try_from(ply).expect("an episode has under 2^32 steps");
            marks.plies = self.trajectory.full_plies().map(ply).collect();
        }
    }

    fn times_sampled(&self, item: usize) -> u32 {
        self.marks.as_ref().and_then(|marks| marks.times_sampled.get(item)).copied().unwrap_or(0)
    }

    /// Starts to count the draws of each item, unless the entry already does.
    pub(super) fn count_draws(&mut self) {
        let items = self.items();
        let marks = self.marks.get_or_insert_default();
        if marks.times_sampled.is_empty() {
            marks.times_sampled = vec![0; items].into();
        }
    }

    /// Counts a draw of an item; returns the number of draws so far.
    pub(super) fn count_draw(&mut self, item: usize) -> u32 {
        let times = self.marks.as_mut().and_then(|marks| marks.times_sampled.get_mut(item));
        let times = times.expect("a table that counts draws counts them for each item");
        *times = times.saturating_add(1);
        *times
    }

    /// Returns the size of the trajectory, in bytes.
    pub(super) fn trajectory_bytes(&self) -> u64 {
        self.trajectory.bytes() as u64
    }

    /// Returns the size of the per-item state, in bytes.
    pub(super) fn mark_bytes(&self) -> u64 {
        let bytes = |Marks { priorities, plies, times_sampled }: &Marks| {
            size_of::<Marks>() + size_of_val(&**priorities) + size_of_val(&**plies) + size_of_val(&**times_sampled)
        };
        self.marks.as_deref().map_or(0, bytes) as u64
    }
}

/// Returns a time in nanoseconds: 64 bits cover five centuries.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Computes the weights of items under the settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemWeights {
    selector: Selector,
    max_times_sampled: Option<NonZeroU32>,
    /// The weights version that gives items weight one, for staleness.
    base: WeightsVersion,
}

impl ItemWeights {
    pub(super) fn new(settings: &TableSettings, base: WeightsVersion) -> Self {
        let TableSettings { selector, max_times_sampled, .. } = *settings;
        Self { selector, max_times_sampled, base }
    }

    /// Returns the size of per-item state for this number of trajectories and items, in bytes.
    pub(super) fn mark_bytes(settings: &TableSettings, trajectories: u64, items: u64) -> u64 {
        let priority = if settings.selector.uses_priorities() { size_of::<f64>() + size_of::<u32>() } else { 0 };
        let draws = if settings.max_times_sampled.is_some() { size_of::<u32>() } else { 0 };
        let marks = if priority + draws > 0 { size_of::<Marks>() } else { 0 };
        trajectories.saturating_mul(marks as u64).saturating_add(items.saturating_mul((priority + draws) as u64))
    }

    /// Returns true if an item with this number of draws is exhausted.
    pub(super) fn exhausts(self, times_sampled: u32) -> bool {
        self.max_times_sampled.is_some_and(|max| times_sampled >= max.get())
    }

    /// Returns the tree's leaves for the `items` items of an entry.
    pub(super) fn leaves(self, entry: &Entry, items: usize) -> impl ExactSizeIterator<Item = Leaf> + '_ {
        let staleness = self.staleness(entry);
        (0..items).map(move |item| self.leaf_of(entry, item, staleness))
    }

    /// Returns the tree's leaf for one item of an entry.
    pub(super) fn leaf(self, entry: &Entry, item: usize) -> Leaf {
        self.leaf_of(entry, item, self.staleness(entry))
    }

    fn leaf_of(self, entry: &Entry, item: usize, staleness: Option<f64>) -> Leaf {
        if entry.is_quarantined() || entry.is_exhausted_at(item, self) {
            return Leaf::VACANT;
        }
        Leaf::new(staleness.unwrap_or_else(|| self.weight(entry.priority(item).unwrap_or(PRIORITY_DEFAULT))))
    }

    /// Returns the weight of an item by priority, for selectors that ignore the age of a trajectory.
    fn weight(self, priority: f64) -> f64 {
        match self.selector {
            Selector::Prioritised { exponent } if priority > 0.0 => {
                // The bounds are beyond any useful priority; the lower bound ensures that an item with a priority above
                // zero can be drawn.
                libm::pow(priority, exponent).clamp(f64::MIN_POSITIVE, WEIGHT_MAX)
            }
            Selector::Prioritised { exponent } => libm::pow(priority, exponent),
            Selector::MinHeap | Selector::MaxHeap => priority,
            Selector::Uniform | Selector::Fifo | Selector::Lifo | Selector::StalenessAware { .. } => 1.0,
        }
    }

    /// Returns the weight of all items of an entry if the selector uses age: `2^((version - base) / half_life)`.
    fn staleness(self, entry: &Entry) -> Option<f64> {
        let Selector::StalenessAware { half_life_versions } = self.selector else { return None };
        let version = entry.last_weights_version;
        // Exact to 2^53 versions.
        let newer = (i128::from(version.0) - i128::from(self.base.0)) as f64;
        Some(libm::exp2(newer / half_life_versions).min(WEIGHT_MAX))
    }
}
