//! A reference model of the table: every query scans lists, and weights are computed by definition.

use std::collections::HashSet;

use super::*;

pub(super) struct Model {
    pub(super) settings: TableSettings,
    held: Vec<HeldTrajectory>,
    quarantined: HashSet<TrajectoryId>,
    quarantined_actors: HashSet<u64>,
    totals: TableTotals,
    priority_max: f64,
    pub(super) newest_published: WeightsVersion,
}

struct HeldTrajectory {
    id: TrajectoryId,
    version: Option<WeightsVersion>,
    bytes: u64,
    inserted: Duration,
    items: Vec<ModelItem>,
}

#[derive(Clone, Copy)]
struct ModelItem {
    ply: usize,
    /// The latest priority, or the initial priority at the time when the table first used priorities.
    priority: Option<f64>,
}

/// An item in the window, with the probability of the next draw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) key: ItemKey,
    pub(super) probability: f64,
}

/// The observable state of a table, without draws.
#[derive(Debug, PartialEq)]
pub(super) struct State {
    held: Vec<(TrajectoryId, u64, bool, Duration)>,
    items: u64,
    held_items: u64,
    window_items: u64,
    trajectory_bytes: u64,
    totals: TableTotals,
    newest_version: Option<WeightsVersion>,
    priorities: Vec<(ItemKey, f64)>,
    priority_max: f64,
    quarantined_ids: Vec<TrajectoryId>,
}

impl State {
    pub(super) fn of(table: &Table) -> Self {
        let held = table.held().map(|held| (held.trajectory.id(), held.items, held.quarantined, held.inserted));
        Self {
            held: held.collect(),
            items: table.items(),
            held_items: table.held_items(),
            window_items: table.window_items(),
            trajectory_bytes: table.trajectory_bytes(),
            totals: table.totals(),
            newest_version: table.newest_weights_version(),
            priorities: table.priorities().collect(),
            priority_max: table.priority_max,
            quarantined_ids: table.quarantined_ids().collect(),
        }
    }
}

impl Model {
    pub(super) fn new(settings: TableSettings) -> Self {
        Self {
            settings,
            held: Vec::new(),
            quarantined: HashSet::new(),
            quarantined_actors: HashSet::new(),
            totals: TableTotals::default(),
            priority_max: 0.0,
            newest_published: WeightsVersion(0),
        }
    }

    pub(super) fn state(&self) -> State {
        let held = self.held.iter().rev();
        let row = |held: &HeldTrajectory| {
            let (id, quarantined) = (held.id, self.is_quarantined(held.id));
            (id, self.drawable_items(held), quarantined, held.inserted)
        };
        let sampled = self.held.iter().filter(|held| !self.is_quarantined(held.id));
        let kept = |held: &HeldTrajectory| {
            let (trajectory, items) = (held.id, held.items.clone());
            items.into_iter().filter_map(move |item| Some((ItemKey { trajectory, ply: item.ply }, item.priority?)))
        };
        State {
            held: held.map(row).collect(),
            items: self.drawable().len() as u64,
            held_items: self.held.iter().map(|held| held.items.len() as u64).sum(),
            window_items: self.window().len() as u64,
            trajectory_bytes: self.held.iter().map(|held| held.bytes).sum(),
            totals: self.totals,
            newest_version: sampled.filter_map(|held| held.version).max(),
            priorities: self.held.iter().flat_map(kept).collect(),
            priority_max: self.priority_max,
            quarantined_ids: self.held.iter().map(|held| held.id).filter(|id| self.quarantined.contains(id)).collect(),
        }
    }

    pub(super) fn insert(&mut self, trajectory: &Trajectory, now: Duration) -> Insertion {
        let item = |ply| ModelItem { ply, priority: None };
        self.held.push(HeldTrajectory {
            id: trajectory.id(),
            version: Some(trajectory.last_weights_version()),
            bytes: trajectory.bytes() as u64,
            inserted: now,
            items: trajectory.full_plies().map(item).collect(),
        });
        self.assume_priorities();
        let items = trajectory.full_plies().count() as u64;
        self.totals.trajectories += 1;
        self.totals.items += items;
        let quarantined_items = if self.is_quarantined(trajectory.id()) { items } else { 0 };
        Insertion { items, quarantined_items, removed: self.expire(now) }
    }

    fn assume_priorities(&mut self) {
        if !self.settings.selector.uses_priorities() {
            return;
        }
        let initial = if self.priority_max > 0.0 { self.priority_max } else { 1.0 };
        for item in self.held.iter_mut().flat_map(|held| &mut held.items) {
            item.priority = item.priority.or(Some(initial));
        }
    }

    pub(super) fn expire(&mut self, now: Duration) -> Vec<Removed> {
        let mut removed = Vec::new();
        while self.held.len() > 1 && self.must_leave(now) {
            let items = self.drawable_items(&self.held[0]);
            let id = self.held.remove(0).id;
            self.quarantined.remove(&id);
            removed.push(Removed { id, items });
        }
        removed
    }

    fn must_leave(&self, now: Duration) -> bool {
        let State { trajectory_bytes, held_items, .. } = self.state();
        let Retention { age_max, trajectory_bytes_max, lag_versions_max } = self.settings.retention;
        let front = &self.held[0];
        let newer = held_items - front.items.len() as u64;
        let lag = front.version.map_or(0, |version| self.newest_published.0.saturating_sub(version.0));
        newer >= self.settings.window.capacity_items
            || age_max.is_some_and(|max| front.inserted + max < now)
            || trajectory_bytes_max.is_some_and(|max| max < trajectory_bytes)
            || lag_versions_max.is_some_and(|max| max < lag)
    }

    fn is_quarantined(&self, id: TrajectoryId) -> bool {
        self.quarantined.contains(&id) || self.quarantined_actors.contains(&id.actor)
    }

    fn drawable_items(&self, held: &HeldTrajectory) -> u64 {
        if self.is_quarantined(held.id) { 0 } else { held.items.len() as u64 }
    }

    fn drawable(&self) -> Vec<(ItemKey, ModelItem)> {
        let sampled = self.held.iter().filter(|held| !self.is_quarantined(held.id));
        let drawable = sampled.flat_map(|held| held.items.iter().map(move |item| (held, *item)));
        drawable.map(|(held, item)| (ItemKey { trajectory: held.id, ply: item.ply }, item)).collect()
    }

    fn window(&self) -> Vec<(ItemKey, ModelItem)> {
        let mut items = self.drawable();
        let window = self.settings.window.items(self.totals.items).min(items.len() as u64);
        items.drain(..items.len() - window as usize);
        items
    }

    /// Returns all items in the window with the probabilities of the next draw, oldest first.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let window = self.window();
        // Only the oldest item with the highest key has a probability above zero.
        let only = |key: &dyn Fn(usize) -> f64| {
            let greatest = (0..window.len()).map(key).max_by(f64::total_cmp);
            let first = (0..window.len()).find(|&at| Some(key(at)) == greatest);
            (0..window.len()).map(|at| f64::from(u8::from(Some(at) == first))).collect::<Vec<_>>()
        };
        let priority = |at: usize| window[at].1.priority.unwrap();
        let weights: Vec<f64> = match self.settings.selector {
            Selector::Uniform => vec![1.0; window.len()],
            Selector::MaxHeap => only(&priority),
            Selector::Prioritised { exponent } => {
                let weight = |at| {
                    let weight = f64::powf(priority(at), exponent);
                    if priority(at) > 0.0 { weight.clamp(f64::MIN_POSITIVE, 1e296) } else { weight }
                };
                (0..window.len()).map(weight).collect()
            }
        };
        let sum: f64 = weights.iter().sum();
        let candidates = window.iter().zip(weights);
        candidates.map(|((key, _), weight)| Candidate { key: *key, probability: weight / sum }).collect()
    }

    fn item(&mut self, key: ItemKey) -> Option<&mut ModelItem> {
        let held = self.held.iter_mut().find(|held| held.id == key.trajectory)?;
        held.items.iter_mut().find(|item| item.ply == key.ply)
    }

    pub(super) fn update_priorities(&mut self, priorities: &[(ItemKey, f64)]) -> Option<PriorityUpdate> {
        if priorities.iter().any(|(_, priority)| !(priority.is_finite() && *priority >= 0.0)) {
            return None;
        }
        if !self.settings.selector.uses_priorities() {
            return Some(PriorityUpdate { unused: priorities.len() as u64, ..PriorityUpdate::default() });
        }
        let mut update = PriorityUpdate::default();
        for &(key, priority) in priorities {
            let Some(item) = self.item(key) else {
                update.unknown += 1;
                continue;
            };
            item.priority = Some(priority);
            self.priority_max = self.priority_max.max(priority);
            update.updated += 1;
        }
        Some(update)
    }

    pub(super) fn quarantine(&mut self, id: TrajectoryId) -> QuarantineChange {
        if !self.held.iter().any(|held| held.id == id) {
            return QuarantineChange::Unknown;
        }
        let before = self.drawable().len();
        if !self.quarantined.insert(id) {
            return QuarantineChange::Unchanged;
        }
        QuarantineChange::Changed { items: (before - self.drawable().len()) as u64 }
    }

    pub(super) fn release(&mut self, id: TrajectoryId) -> QuarantineChange {
        if !self.held.iter().any(|held| held.id == id) {
            return QuarantineChange::Unknown;
        }
        let before = self.drawable().len();
        if !self.quarantined.remove(&id) {
            return QuarantineChange::Unchanged;
        }
        QuarantineChange::Changed { items: (self.drawable().len() - before) as u64 }
    }

    pub(super) fn quarantine_actor(&mut self, actor: u64) -> QuarantineChange {
        let before = self.drawable().len();
        if !self.quarantined_actors.insert(actor) {
            return QuarantineChange::Unchanged;
        }
        QuarantineChange::Changed { items: (before - self.drawable().len()) as u64 }
    }

    pub(super) fn release_actor(&mut self, actor: u64) -> QuarantineChange {
        let before = self.drawable().len();
        if !self.quarantined_actors.remove(&actor) {
            return QuarantineChange::Unchanged;
        }
        QuarantineChange::Changed { items: (self.drawable().len() - before) as u64 }
    }

    pub(super) fn change(&mut self, settings: TableSettings) {
        self.settings = settings;
        self.assume_priorities();
    }
}
