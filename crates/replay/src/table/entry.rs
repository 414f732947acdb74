use std::time::Duration;

use experience::{Trajectory, WeightsVersion};

use super::weigh::Weigh;

/// A trajectory in the table. Kept small, since there is one for each: the trajectory itself holds its items. All that
/// a draw reads is here, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) trajectory: Trajectory,
    /// The number of its first item.
    pub(super) first: u64,
    /// The one that searched its last step.
    pub(super) last_weights_version: WeightsVersion,
    /// The time of the insert, in nanoseconds since the epoch of the caller's clock.
    inserted_ns: u64,
    marks: Option<Box<Marks>>,
    /// Its items that may be drawn.
    pub(super) drawable: u32,
    /// By its own id.
    pub(super) quarantined: bool,
    /// With everything of its actor.
    pub(super) actor_quarantined: bool,
}

/// The state of each item, in tables that keep it; in step with the trajectory's full plies, or empty.
#[derive(Debug, Default)]
struct Marks {
    priorities: Box<[Mark]>,
    times_sampled: Box<[u32]>,
}

/// A priority, and in its sign if it was set or assumed for a new item.
#[derive(Debug, Clone, Copy)]
struct Mark(f64);

impl Mark {
    fn assumed(priority: f64) -> Self {
        Self(-priority)
    }

    /// Zeros of both signs are one priority; only the sign of an assumed one is minus.
    fn set(priority: f64) -> Self {
        Self(priority.abs())
    }

    fn priority(self) -> f64 {
        self.0.abs()
    }

    fn is_set(self) -> bool {
        self.0.is_sign_positive()
    }
}

impl Entry {
    pub(super) fn new(trajectory: Trajectory, first: u64, now: Duration) -> Self {
        // 64 bits of nanoseconds last for five centuries.
        let inserted_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let (quarantined, actor_quarantined) = (false, false);
        Self {
            last_weights_version: trajectory.last_weights_version(),
            trajectory,
            first,
            inserted_ns,
            marks: None,
            drawable: 0,
            quarantined,
            actor_quarantined,
        }
    }

    pub(super) fn inserted(&self) -> Duration {
        Duration::from_nanos(self.inserted_ns)
    }

    /// Returns the number of its items, whether they may be drawn or not.
    pub(super) fn items(&self) -> usize {
        self.trajectory.full_steps()
    }

    /// Returns true if it is excluded from sampling, for any reason.
    pub(super) fn is_quarantined(&self) -> bool {
        self.quarantined || self.actor_quarantined
    }

    /// Returns true if each of its items had its last draw; false if it has none.
    pub(super) fn is_exhausted(&self, weigh: Weigh) -> bool {
        let items = self.items();
        items > 0 && (0..items).all(|item| self.is_exhausted_at(item, weigh))
    }

    /// Returns true if this item had its last draw.
    pub(super) fn is_exhausted_at(&self, item: usize, weigh: Weigh) -> bool {
        weigh.exhausts(self.times_sampled(item))
    }

    /// Recounts its items that may be drawn. O(items) where draws are counted.
    pub(super) fn count_drawable(&mut self, weigh: Weigh) {
        let items = if self.is_quarantined() { 0 } else { self.items() };
        let drawable = (0..items).filter(|&item| !self.is_exhausted_at(item, weigh)).count();
        self.drawable = u32::try_from(drawable).expect("an episode has under 2^32 steps");
    }

    /// The priority of an item; `None` as long as the entry keeps none.
    pub(super) fn priority(&self, item: usize) -> Option<f64> {
        Some(self.marks.as_ref()?.priorities.get(item)?.priority())
    }

    pub(super) fn set_priority(&mut self, item: usize, priority: f64) {
        let mark = self.marks.as_mut().and_then(|marks| marks.priorities.get_mut(item));
        *mark.expect("a table with priorities keeps one for each item") = Mark::set(priority);
    }

    /// Returns each item's ply and priority, of those that were set.
    pub(super) fn set_priorities(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let marks = self.marks.iter().flat_map(|marks| &marks.priorities);
        let set = self.trajectory.full_plies().zip(marks).filter(|(_, mark)| mark.is_set());
        set.map(|(ply, mark)| (ply, mark.priority()))
    }

    /// Keeps a priority for each item from now on, unless it does already.
    pub(super) fn assume_priority(&mut self, priority: f64) {
        let items = self.items();
        let marks = self.marks.get_or_insert_default();
        if marks.priorities.is_empty() {
            marks.priorities = vec![Mark::assumed(priority); items].into();
        }
    }

    fn times_sampled(&self, item: usize) -> u32 {
        self.marks.as_ref().and_then(|marks| marks.times_sampled.get(item)).copied().unwrap_or(0)
    }

    /// Counts the draws of each item from now on, unless it does already.
    pub(super) fn count_draws(&mut self) {
        let items = self.items();
        let marks = self.marks.get_or_insert_default();
        if marks.times_sampled.is_empty() {
            marks.times_sampled = vec![0; items].into();
        }
    }

    /// Counts a draw; how many it had now.
    pub(super) fn count_draw(&mut self, item: usize) -> u32 {
        let times = self.marks.as_mut().and_then(|marks| marks.times_sampled.get_mut(item));
        let times = times.expect("a table that counts draws counts them for each item");
        *times = times.saturating_add(1);
        *times
    }

    /// Bytes of the trajectory.
    pub(super) fn trajectory_bytes(&self) -> u64 {
        self.trajectory.bytes() as u64
    }

    /// Bytes of what is known of each item.
    pub(super) fn mark_bytes(&self) -> u64 {
        let bytes =
            |marks: &Marks| size_of::<Marks>() + size_of_val(&*marks.priorities) + size_of_val(&*marks.times_sampled);
        self.marks.as_deref().map_or(0, bytes) as u64
    }
}
