use std::time::Duration;

use experience::{Trajectory, WeightsVersion};

use super::Held;
use crate::Selector;
use crate::tree::Leaf;

/// Maximum weight of an item, which keeps a sum over 10^12 items finite.
const WEIGHT_MAX: f64 = 1e296;

/// The default priority of an item.
pub(super) const PRIORITY_DEFAULT: f64 = 1.0;

/// Number of steps between surprises that differ by 1. The maximum surprise, 2, fits in 16 bits, and one value remains
/// for trajectories without a surprise.
const SURPRISE_STEPS: f32 = 32_767.0;

const _: () = assert!(size_of::<Entry>() == 64);

/// A trajectory in the table. The struct has all data needed by a draw and fits in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) trajectory: Trajectory,
    /// The number of the first item in the trajectory.
    pub(super) first: u64,
    /// The weights version in the last step of the trajectory.
    pub(super) last_weights_version: WeightsVersion,
    /// Time of the insert, in nanoseconds of the caller's clock.
    inserted_ns: u64,
    /// Revision of the searches: 0 for self-play, incremented by each reanalysis.
    pub(super) revision: u64,
    /// Time of the latest revision, in nanoseconds of the caller's clock; 0 without a revision.
    revised_ns: u64,
    marks: Option<Box<Marks>>,
    /// Surprise of the trajectory in units of 1 / [`SURPRISE_STEPS`], plus one; 0 without a surprise.
    surprise: u16,
    /// True if the trajectory is quarantined by id.
    pub(super) quarantined: bool,
    /// True if the actor that played the trajectory is in quarantine.
    pub(super) actor_quarantined: bool,
}

/// Per-item state. Each slice has one element for each full ply of the trajectory, or is empty if never needed by the
/// settings.
#[derive(Debug, Default)]
struct Marks {
    priorities: Box<[f64]>,
    /// The ply of each item, to find items by ply quickly: one priority update may contain every item of long
    /// trajectories.
    plies: Box<[u32]>,
}

impl Entry {
    pub(super) fn new(trajectory: Trajectory, first: u64, now: Duration) -> Self {
        let inserted_ns = nanoseconds(now);
        let (quarantined, actor_quarantined) = (false, false);
        Self {
            last_weights_version: trajectory.last_weights_version(),
            surprise: surprise(&trajectory),
            trajectory,
            first,
            inserted_ns,
            revision: 0,
            revised_ns: 0,
            marks: None,
            quarantined,
            actor_quarantined,
        }
    }

    pub(super) fn inserted(&self) -> Duration {
        Duration::from_nanos(self.inserted_ns)
    }

    /// Returns the public view of the entry.
    pub(super) fn held(&self) -> Held<'_> {
        Held {
            trajectory: &self.trajectory,
            items: self.drawable(),
            quarantined: self.is_quarantined(),
            surprise: self.surprise.checked_sub(1).map(|steps| f32::from(steps) / SURPRISE_STEPS),
            inserted: self.inserted(),
            revision: self.revision,
            revised: self.revised(),
        }
    }

    /// Returns the time of the latest revision. `None` without a revision.
    pub(super) fn revised(&self) -> Option<Duration> {
        (self.revision > 0).then(|| Duration::from_nanos(self.revised_ns))
    }

    /// Replaces the trajectory by a revised trajectory with the same items, and stores the revision number and time.
    pub(super) fn revise(&mut self, trajectory: Trajectory, revision: u64, now: Duration) {
        debug_assert_eq!(trajectory.full_steps(), self.items(), "a revised trajectory has the same items");
        self.last_weights_version = trajectory.last_weights_version();
        self.surprise = surprise(&trajectory);
        self.trajectory = trajectory;
        (self.revision, self.revised_ns) = (revision, nanoseconds(now));
    }

    /// Returns the number of items in the trajectory, drawable or not.
    pub(super) fn items(&self) -> usize {
        self.trajectory.full_steps()
    }

    /// Returns true if the trajectory or the actor that played it is in quarantine.
    pub(super) fn is_quarantined(&self) -> bool {
        self.quarantined || self.actor_quarantined
    }

    /// Returns the number of drawable items: 0 in quarantine.
    pub(super) fn drawable(&self) -> u64 {
        if self.is_quarantined() { 0 } else { self.items() as u64 }
    }

    /// Returns the priority of an item; `None` if the entry stores no priorities.
    pub(super) fn priority(&self, item: usize) -> Option<f64> {
        self.marks.as_ref()?.priorities.get(item).copied()
    }

    /// Returns the index of the item at a ply. `None` if the ply has no item. O(log items) with priorities, O(plies)
    /// without.
    pub(super) fn item_at(&self, ply: usize) -> Option<usize> {
        match &self.marks {
            Some(marks) if !marks.plies.is_empty() => marks.plies.binary_search(&u32::try_from(ply).ok()?).ok(),
            _ => self.trajectory.full_plies().position(|full| full == ply),
        }
    }

    pub(super) fn set_priority(&mut self, item: usize, priority: f64) {
        let kept = self.marks.as_mut().and_then(|marks| marks.priorities.get_mut(item));
        // −0 is stored as +0.
        *kept.expect("a table with priorities stores a priority for each item") = priority.abs();
    }

    /// Allocates the priorities of all items with the initial value `priority`, unless already allocated.
    pub(super) fn assume_priority(&mut self, priority: f64) {
        let items = self.items();
        let marks = self.marks.get_or_insert_default();
        if marks.priorities.is_empty() {
            marks.priorities = vec![priority; items].into();
            let ply = |ply| u32::try_from(ply).expect("an episode has under 2^32 steps");
            marks.plies = self.trajectory.full_plies().map(ply).collect();
        }
    }

    /// Returns the size of the trajectory, in bytes.
    pub(super) fn trajectory_bytes(&self) -> u64 {
        self.trajectory.bytes() as u64
    }

    /// Returns the size of the per-item state, in bytes.
    pub(super) fn mark_bytes(&self) -> u64 {
        let bytes = |Marks { priorities, plies }: &Marks| {
            size_of::<Marks>() + size_of_val(&**priorities) + size_of_val(&**plies)
        };
        self.marks.as_deref().map_or(0, bytes) as u64
    }
}

/// Returns [`Entry::surprise`]. O(plies).
fn surprise(trajectory: &Trajectory) -> u16 {
    // At most 2 * 32767 + 1, the maximum of 16 bits.
    let steps = |surprise: f64| (surprise.min(2.0) * f64::from(SURPRISE_STEPS)).round() as u16 + 1;
    trajectory.surprise().map_or(0, steps)
}

/// Converts a time to nanoseconds, saturating at 64 bits (five centuries).
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Item weights.
impl Selector {
    /// Returns the size of the per-item state for `trajectories` trajectories with `items` items in total, in bytes.
    pub(super) fn mark_bytes(self, trajectories: u64, items: u64) -> u64 {
        if !self.uses_priorities() {
            return 0;
        }
        let priority = (size_of::<f64>() + size_of::<u32>()) as u64;
        trajectories.saturating_mul(size_of::<Marks>() as u64).saturating_add(items.saturating_mul(priority))
    }

    /// Returns the tree leaves for the `items` items of an entry.
    pub(super) fn leaves(self, entry: &Entry, items: usize) -> impl ExactSizeIterator<Item = Leaf> + '_ {
        (0..items).map(move |item| self.leaf(entry, item))
    }

    /// Returns the tree leaf for one item of an entry.
    pub(super) fn leaf(self, entry: &Entry, item: usize) -> Leaf {
        if entry.is_quarantined() {
            return Leaf::VACANT;
        }
        Leaf::new(self.weight(entry.priority(item).unwrap_or(PRIORITY_DEFAULT)))
    }

    /// Returns the weight of an item with priority `priority`.
    fn weight(self, priority: f64) -> f64 {
        match self {
            Self::Prioritised { exponent } if priority > 0.0 => {
                // The bounds are beyond any useful priority. The lower bound keeps items with a priority above zero
                // drawable.
                libm::pow(priority, exponent).clamp(f64::MIN_POSITIVE, WEIGHT_MAX)
            }
            Self::Prioritised { exponent } => libm::pow(priority, exponent),
            Self::MaxHeap => priority,
            Self::Uniform => 1.0,
        }
    }
}
