use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use experience::{Trajectory, TrajectoryId, WeightsVersion};
use proto::convert;
use proto::limits::CREDIT_BATCHES_MAX;
use proto::replay::{Suspect, TableEdge, TableStats, v1};
use rand_chacha::ChaCha8Rng;
use replay::{
    Held, Insertion, InvalidPriority, ItemKey, PriorityUpdate, QuarantineChange, RateLimiter, RateLimiterCounts,
    Removed, Retention, SeenIds, Table, TableTotals, Wait,
};
use run_file::replay::{NamedTable, TableSection};
use tokio::sync::mpsc;

use super::commands::Sampled;
use crate::defect::Planted;
use crate::log::SegmentNumber;
use crate::metrics::TableMetrics;

/// Maximum number of draws to find a trajectory to revise. The draws cost less than a hundredth of the searches in a
/// revision, and often suffice even if only one trajectory in a hundred qualifies.
const CHOICES_MAX: usize = 64;

/// A table with waiting requests and with the rate limiter, which counts inserts, removals and samples.
#[derive(Debug)]
pub struct TableState {
    settings: NamedTable,
    /// Section of the run file.
    written: TableSection,
    table: Table,
    limiter: RateLimiter,
    waiting: VecDeque<Batch>,
    inserts: Stall,
    samples: Stall,
    /// Kind of the wait reason last sent to the samplers.
    reported: Option<&'static str>,
    metrics: TableMetrics,
}

/// A requested batch.
#[derive(Debug)]
struct Batch {
    items: u64,
    reply: mpsc::Sender<Sampled>,
    since: Instant,
}

/// State shared by all tables of a server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Common {
    pub(super) log_bytes: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
}

impl TableState {
    /// Creates an empty table.
    pub fn new(settings: NamedTable) -> Self {
        let table = Table::new(settings.table);
        let written = settings.section.clone();
        let limiter = RateLimiter::new(settings.rate_limiter);
        let metrics = TableMetrics::new(&settings.name);
        Self {
            settings,
            written,
            table,
            limiter,
            waiting: VecDeque::new(),
            inserts: Stall::default(),
            samples: Stall::default(),
            reported: None,
            metrics,
        }
    }

    /// Changes the settings. Items beyond a new bound are removed at the next insert or tick. A pending request for a
    /// batch that is now too large receives [`Sampled::TooLarge`].
    pub fn hold_to(&mut self, settings: NamedTable) {
        self.limiter.change(settings.rate_limiter);
        self.table.change(settings.table);
        self.settings = settings;
        let items_max = self.limiter.settings().batch_items_max();
        self.waiting.retain(|batch| {
            let fits = batch.items <= items_max;
            if !fits {
                let _ = batch.reply.try_send(Sampled::TooLarge { items_max });
            }
            fits
        });
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &NamedTable {
        &self.settings
    }

    /// Returns the section of the run file.
    pub fn written(&self) -> &TableSection {
        &self.written
    }

    /// Returns the name for samplers.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the stored trajectories and items.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the rate limiter, with the counts so far.
    pub fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    /// Sets the counters after the log has been read. `sampled` is the number of drawn items in the log; without it,
    /// the limiter starts in the middle of the band. All inserts since the start of the run count, including inserts
    /// before the table existed.
    pub fn resume(&mut self, totals: TableTotals, sampled: Option<u64>) {
        self.table.remember(totals);
        let inserted = self.table.totals().items;
        let deleted = inserted - self.table.items();
        let replay::RateLimiterSettings { samples_per_insert, min_items, .. } = self.limiter.settings();
        // The conversion saturates, and negative values become 0.
        let middle = || (inserted.saturating_sub(min_items) as f64 * samples_per_insert) as u64;
        let sampled = sampled.unwrap_or_else(middle);
        self.limiter.resume(RateLimiterCounts { inserted, deleted, sampled });
    }

    /// Inserts a durable trajectory.
    pub fn insert(&mut self, trajectory: Trajectory, inserted: Duration) {
        let Insertion { items, quarantined_items, removed } = self.table.insert(trajectory, inserted);
        self.limiter.insert(items);
        self.limiter.delete(quarantined_items);
        self.count_removed(&removed);
    }

    /// Sets the latest weights version, the reference for policy lag.
    pub(super) fn hold_to_newest(&mut self, version: WeightsVersion) {
        self.table.hold_to_newest(version);
    }

    /// Removes the trajectories beyond a retention bound.
    pub fn expire(&mut self, unix: Duration) {
        let removed = self.table.expire(unix);
        self.count_removed(&removed);
    }

    fn count_removed(&mut self, removed: &[Removed]) {
        removed.iter().for_each(|removed| self.limiter.delete(removed.items));
    }

    /// Quarantines a trajectory or an actor.
    pub fn quarantine(&mut self, suspect: Suspect) -> QuarantineChange {
        let change = match suspect {
            Suspect::Trajectory(id) => self.table.quarantine(id),
            Suspect::Actor(actor) => self.table.quarantine_actor(actor),
        };
        if let QuarantineChange::Changed { items } = change {
            self.limiter.delete(items);
        }
        change
    }

    /// Releases a trajectory or an actor from quarantine.
    pub fn release(&mut self, suspect: Suspect) -> QuarantineChange {
        let change = match suspect {
            Suspect::Trajectory(id) => self.table.release(id),
            Suspect::Actor(actor) => self.table.release_actor(actor),
        };
        if let QuarantineChange::Changed { items } = change {
            self.limiter.restore(items);
        }
        change
    }

    /// Returns a trajectory with searches to revise; it does not count as a sample.
    pub(super) fn choose(&self, older_than: WeightsVersion, rng: &mut ChaCha8Rng) -> Option<Held<'_>> {
        self.table.choose(older_than, CHOICES_MAX, rng)
    }

    /// Finds a trajectory by id.
    pub fn lookup(&mut self, id: TrajectoryId) -> Option<Held<'_>> {
        self.table.lookup(id)
    }

    /// Replaces the searches of a trajectory, without effect on the limiter counts; returns false if the table does
    /// not hold the trajectory.
    pub fn revise(&mut self, trajectory: &Trajectory, revision: u64, revised: Duration) -> bool {
        self.table.revise(trajectory, revision, revised)
    }

    /// Updates the priorities of items: all of them or none.
    ///
    /// # Errors
    /// The first invalid priority.
    pub fn update_priorities(&mut self, priorities: &[(ItemKey, f64)]) -> Result<PriorityUpdate, InvalidPriority> {
        self.table.update_priorities(priorities)
    }

    /// Keeps the updates of items in the table, and the last update per item.
    pub(super) fn retain_held(&mut self, priorities: Vec<(ItemKey, f64)>) -> Vec<(ItemKey, f64)> {
        let latest: BTreeMap<ItemKey, f64> = priorities.into_iter().collect();
        latest.into_iter().filter(|(key, _)| self.table.holds_item(*key)).collect()
    }

    /// Checks that this table would admit one more item after the `items_before` items in flight. Always succeeds if
    /// inserts do not wait for this table.
    pub(super) fn can_insert(&self, items_before: u64) -> Result<(), Wait> {
        if self.settings.blocks_inserts { self.limiter.can_insert(items_before + 1) } else { Ok(()) }
    }

    /// Returns true if the inserts since the start of the run reach the capacity, or if `bytes` more would remove
    /// older trajectories. Trajectories no longer held were then removed by the table's rules, or for memory.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        let Retention { trajectory_bytes_max, .. } = self.settings.table.retention;
        self.table.totals().items >= self.settings.table.window.capacity_items
            || trajectory_bytes_max.is_some_and(|most| self.table.trajectory_bytes() + bytes >= most)
    }

    /// Removes the oldest trajectory because of the memory limit.
    pub(super) fn evict_oldest(&mut self) {
        let evicted = self.table.evict_oldest();
        self.count_removed(evicted.as_slice());
    }

    /// Queues a batch request, or rejects a batch larger than the limiter ever allows.
    pub(super) fn request(&mut self, items: u64, reply: mpsc::Sender<Sampled>, now: Instant) {
        let items_max = self.limiter.settings().batch_items_max();
        if items > items_max {
            // The channel has capacity for a reply to every request.
            let _ = reply.try_send(Sampled::TooLarge { items_max });
            return;
        }
        self.waiting.push_back(Batch { items, reply, since: now });
        // The new sampler has not received the reason yet.
        self.reported = None;
    }

    /// Draws every batch that the limiter allows, the oldest request first, and sends samplers the reason why the
    /// rest wait.
    pub(super) fn sample(&mut self, rng: &mut ChaCha8Rng, common: Common, now: Instant, unix: Duration) {
        let hold = self.draw(rng, common, now, unix);
        self.samples.update(hold, now);
        self.report_waiting(hold);
    }

    /// Draws batches; returns the reason why the next batch waits, if one does.
    fn draw(&mut self, rng: &mut ChaCha8Rng, common: Common, now: Instant, unix: Duration) -> Option<Hold> {
        while let Some(batch) = self.waiting.front() {
            if batch.reply.is_closed() {
                self.waiting.pop_front();
                continue;
            }
            if let Err(wait) = self.limiter.can_sample(batch.items) {
                return Some(wait.into());
            }
            let mut drawn = Vec::new();
            self.table.draw(usize::try_from(batch.items).unwrap_or(usize::MAX), rng, &mut drawn);
            if drawn.is_empty() {
                return Some(Hold::NothingToDraw);
            }
            self.limiter.sample(drawn.len() as u64);
            let newest = self.table.newest_weights_version();
            for drawn in &drawn {
                let lag = newest.map_or(0, |newest| newest.0.saturating_sub(drawn.weights_version.0));
                self.metrics.age.record(unix.saturating_sub(drawn.inserted));
                self.metrics.lag.record(lag as f64);
            }
            self.samples.update(None, now);
            let table = Box::new(self.stats(common));
            if let Some(Batch { reply, since, .. }) = self.waiting.pop_front() {
                self.metrics.latency.record(now.saturating_duration_since(since));
                // The channel has capacity for every batch with credit; the batch of a disconnected sampler is lost.
                let _ = reply.try_send(Sampled::Batch { drawn, table });
            }
        }
        None
    }

    /// Records the reason why inserts are blocked now; `None` if they are not.
    pub(super) fn hold_inserts(&mut self, wait: Option<Wait>, now: Instant) {
        self.inserts.update(wait.map(Hold::from), now);
    }

    /// Sends samplers the wait reason: to all, when the kind of reason changes, when a new sampler waits, and at
    /// every tick.
    fn report_waiting(&mut self, hold: Option<Hold>) {
        let kind = hold.map(Hold::kind);
        if kind == self.reported {
            return;
        }
        self.reported = kind;
        let Some(hold) = hold else { return };
        let reason = hold.to_string();
        for batch in &self.waiting {
            // A slow sampler may miss reasons, but never batches.
            if batch.reply.capacity() > CREDIT_BATCHES_MAX as usize {
                let _ = batch.reply.try_send(Sampled::Waiting(reason.clone()));
            }
        }
    }

    /// Lets the next draw resend the wait reason, and removes batches of disconnected samplers.
    pub(super) fn tick(&mut self) {
        self.reported = None;
        self.waiting.retain(|batch| !batch.reply.is_closed());
    }

    /// Stops drawing: drops all requested batches.
    pub(super) fn drain(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn stats(&self, common: Common) -> TableStats {
        let Common { log_bytes, duplicates, refused } = common;
        let counts = self.limiter.counts();
        let edge = |trajectory: &Trajectory| TableEdge {
            id: Some(trajectory.id().into()),
            weights_version: trajectory.last_weights_version().0,
        };
        let hold = self.samples.hold.or(self.inserts.hold);
        TableStats {
            trajectories: self.table.trajectories() as u64,
            items: self.table.items(),
            window_items: self.table.window_items(),
            trajectories_inserted_total: self.table.totals().trajectories,
            items_inserted_total: counts.inserted,
            samples_total: counts.sampled,
            duplicates_total: duplicates,
            refused_total: refused,
            quarantined_total: self.table.quarantined() as u64,
            samples_per_insert_target: self.limiter.settings().samples_per_insert,
            samples_per_insert: counts.sampled as f64 / counts.inserted.max(1) as f64,
            waiting_reason: hold.map_or_else(String::new, |hold| convert::cut(hold.to_string())),
            bytes: log_bytes,
            oldest: self.table.oldest().map(edge),
            newest: self.table.newest().map(edge),
            name: self.settings.name.clone(),
            total_weight: Some(v1::TotalWeight { weight: self.total_weight() }),
        }
    }

    /// Returns the total weight; 0 while the table holds less than the minimum. A limiter that blocks
    /// samples for any other reason does not affect the weight: such a block is temporary.
    fn total_weight(&self) -> f64 {
        if self.limiter.can_sample(0).is_err_and(|wait| matches!(wait, Wait::MinItems { .. })) {
            return 0.0;
        }
        self.table.total_weight()
    }

    /// Returns the total blocked time of inserts and of samples.
    pub(super) fn waits(&self) -> [Duration; 2] {
        [self.inserts.total(), self.samples.total()]
    }

    /// Returns the total blocked time by side and kind of reason: `inserts` or `samples`, the kind, the time.
    pub(super) fn waits_by_reason(&self) -> impl Iterator<Item = (&'static str, &'static str, Duration)> + '_ {
        let inserts = self.inserts.totals().map(|(kind, total)| ("inserts", kind, total));
        inserts.chain(self.samples.totals().map(|(kind, total)| ("samples", kind, total)))
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// The reason why a request waits for a table.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Hold {
    /// The limiter blocks the request.
    #[error(transparent)]
    Limiter(#[from] Wait),
    /// The limiter does not block, but the table has no item that may be drawn.
    #[error("no item in the window can be drawn: all have priority 0")]
    NothingToDraw,
}

impl Hold {
    /// Returns the kind of the reason, as in metric labels.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Limiter(Wait::MinItems { .. }) => "min_items",
            Self::Limiter(Wait::Inserts { .. }) => "inserts",
            Self::Limiter(Wait::Samples { .. }) => "samples",
            Self::NothingToDraw => "nothing_to_draw",
        }
    }
}

/// The reason why one side of a table is blocked, and the total blocked time so far.
#[derive(Debug, Default)]
struct Stall {
    hold: Option<Hold>,
    since: Option<Instant>,
    totals: BTreeMap<&'static str, Duration>,
}

impl Stall {
    fn update(&mut self, hold: Option<Hold>, now: Instant) {
        if let (Some(since), Some(hold)) = (self.since, self.hold) {
            *self.totals.entry(hold.kind()).or_default() += now.saturating_duration_since(since);
        }
        (self.since, self.hold) = (hold.map(|_| now), hold);
    }

    /// Returns the total time per kind of reason.
    fn totals(&self) -> impl Iterator<Item = (&'static str, Duration)> + '_ {
        self.totals.iter().map(|(&kind, &total)| (kind, total))
    }

    fn total(&self) -> Duration {
        self.totals.values().sum()
    }
}

/// The state restored from the log: see [`crate::storage::restore`].
#[derive(Debug)]
pub struct Restored {
    /// Tables with contents and limiter counts, the main table first.
    pub tables: Vec<TableState>,
    /// Names of tables that are in the log but not in the run file.
    pub tables_gone: Vec<String>,
    /// Ids of all trajectories ever inserted.
    pub seen: SeenIds,
    /// Segments with held trajectories.
    pub segments: Segments,
    /// Size of the log, in bytes.
    pub log_bytes: u64,
    /// A defect planted by a simulation.
    pub planted: Planted,
}

/// The log segments that still hold trajectories of a table.
///
/// Every trajectory enters every table, and the oldest leave first. The content of a table is therefore a suffix of
/// the log, and all tables together hold the longest suffix.
#[derive(Debug, Default)]
pub struct Segments {
    /// Segments, oldest first, with the number of held trajectories in each.
    counts: VecDeque<(SegmentNumber, u64)>,
    trajectories: u64,
}

impl Segments {
    /// Records one more trajectory in `segment`; segments grow only at the end.
    pub fn push(&mut self, segment: SegmentNumber) {
        self.trajectories += 1;
        match self.counts.back_mut() {
            Some((last, count)) if *last == segment => *count += 1,
            _ => self.counts.push_back((segment, 1)),
        }
    }

    /// Keeps the newest `trajectories` and removes the rest.
    pub fn keep(&mut self, trajectories: usize) {
        let mut gone = self.trajectories.saturating_sub(trajectories as u64);
        self.trajectories -= gone;
        for (_, count) in &mut self.counts {
            let from_here = gone.min(*count);
            *count -= from_here;
            gone -= from_here;
            if gone == 0 {
                break;
            }
        }
        // The newest segment may still grow, even if it holds no trajectory.
        while self.counts.len() > 1 && self.counts[0].1 == 0 {
            self.counts.pop_front();
        }
    }

    /// Returns the oldest segment with trajectories; the newest segment if no segment holds any.
    pub fn oldest(&self) -> Option<SegmentNumber> {
        self.counts.front().map(|&(segment, _)| segment)
    }

    /// Returns the number of held trajectories in all segments.
    pub fn trajectories(&self) -> u64 {
        self.trajectories
    }
}
