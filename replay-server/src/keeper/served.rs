use std::collections::VecDeque;
use std::time::{Duration, Instant};

use experience::{Mass, Trajectory, WeightsVersion};
use proto::limits::CREDIT_BATCHES_MAX;
use proto::replay::{Suspect, TableEdge, TableStats};
use rand_chacha::ChaCha8Rng;
use replay::{
    Changed, Drawn, Insertion, InvalidPriority, ItemKey, PriorityUpdate, Quarantine, RateLimiter, RateLimiterCounts,
    Release, Removed, Retention, Table, TableTotals, Wait,
};
use tokio::sync::mpsc;

use super::handle::Sampled;
use super::stall::{Hold, Stall};
use crate::config::{NamedTable, TableSection};
use crate::metrics::TableMetrics;

/// A table with its limiter, which counts all that the table does, and with those that wait for it.
#[derive(Debug)]
pub struct Served {
    settings: NamedTable,
    /// As the run file has it.
    written: TableSection,
    table: Table,
    limiter: RateLimiter,
    waiting: VecDeque<Batch>,
    inserts: Stall,
    samples: Stall,
    /// The kind of the reason that was last sent to the samplers.
    told: Option<&'static str>,
    metrics: TableMetrics,
}

/// A batch that is drawn as far as it could be.
#[derive(Debug)]
struct Batch {
    items: u64,
    drawn: Vec<Drawn>,
    reply: mpsc::Sender<Sampled>,
    since: Instant,
}

impl Batch {
    fn missing(&self) -> u64 {
        self.items - self.drawn.len() as u64
    }
}

/// The state that all tables of a server share.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Common {
    pub(super) log_bytes: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
}

impl Served {
    /// An empty table.
    #[must_use]
    pub fn new(settings: NamedTable) -> Self {
        let table = Table::new(settings.table);
        let written = settings.section.clone();
        let limiter = RateLimiter::new(settings.rate_limiter).expect("settings are checked");
        let metrics = TableMetrics::new(&settings.name);
        Self {
            settings,
            written,
            table,
            limiter,
            waiting: VecDeque::new(),
            inserts: Stall::default(),
            samples: Stall::default(),
            told: None,
            metrics,
        }
    }

    /// Changes the settings. Items beyond a new bound leave with the next insert or tick; a request for a batch that
    /// has become too large is answered as such.
    pub fn hold_to(&mut self, settings: NamedTable) {
        self.limiter.change(settings.rate_limiter).expect("settings are checked");
        let Changed { deleted_items, restored_items } = self.table.change(settings.table);
        self.limiter.delete(deleted_items);
        self.limiter.restore(restored_items);
        self.settings = settings;
        let items_max = self.limiter.batch_items_max();
        self.waiting.retain(|batch| {
            let fits = batch.items <= items_max;
            if !fits {
                let _ = batch.reply.try_send(Sampled::TooLarge { items_max });
            }
            fits
        });
    }

    /// Returns the settings in force.
    #[must_use]
    pub fn settings(&self) -> &NamedTable {
        &self.settings
    }

    /// Returns the section of the run file.
    #[must_use]
    pub fn written(&self) -> &TableSection {
        &self.written
    }

    /// Returns the name that samplers use.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the rate limiter.
    #[must_use]
    pub fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    /// Ends the replay of the log, in which `sampled` items were drawn; without a count, the limiter begins in the
    /// middle of its band. Every insert ever counts, also those before the table existed.
    pub fn resume(&mut self, totals: TableTotals, sampled: Option<u64>) {
        self.table.remember(totals);
        let inserted = self.table.totals().items;
        let deleted = inserted - self.table.items();
        let replay::RateLimiterSettings { samples_per_insert, min_items, .. } = self.limiter.settings();
        // Saturates, at zero too.
        let middle = || (inserted.saturating_sub(min_items) as f64 * samples_per_insert) as u64;
        let sampled = sampled.unwrap_or_else(middle);
        self.limiter.resume(RateLimiterCounts { inserted, deleted, sampled });
    }

    /// Puts a durable trajectory in.
    pub fn insert(&mut self, trajectory: Trajectory, inserted: Duration) {
        let Insertion { items, quarantined_items, removed } = self.table.insert(trajectory, inserted);
        self.limiter.insert(items);
        self.limiter.delete(quarantined_items);
        self.count_removed(&removed);
    }

    /// Judges by this weights version from now on what is too far behind.
    pub(super) fn hold_to_newest(&mut self, version: WeightsVersion) {
        self.table.hold_to_newest(version);
    }

    /// Lets go of what is beyond a bound.
    pub fn expire(&mut self, unix: Duration) {
        let removed = self.table.expire(unix);
        self.count_removed(&removed);
    }

    fn count_removed(&mut self, removed: &[Removed]) {
        removed.iter().for_each(|removed| self.limiter.delete(removed.items));
    }

    /// Takes something out of sampling.
    pub fn quarantine(&mut self, suspect: Suspect) -> Quarantine {
        let quarantine = match suspect {
            Suspect::Trajectory(id) => self.table.quarantine(id),
            Suspect::Actor(actor) => self.table.quarantine_actor(actor),
        };
        if let Quarantine::Quarantined { items } = quarantine {
            self.limiter.delete(items);
        }
        quarantine
    }

    /// Puts something back into sampling.
    pub fn release(&mut self, suspect: Suspect) -> Release {
        let release = match suspect {
            Suspect::Trajectory(id) => self.table.release(id),
            Suspect::Actor(actor) => self.table.release_actor(actor),
        };
        if let Release::Released { items } = release {
            self.limiter.restore(items);
        }
        release
    }

    /// Gives items new priorities: all of them or none.
    ///
    /// # Errors
    /// The first that is no priority.
    pub fn update_priorities(&mut self, priorities: &[(ItemKey, f64)]) -> Result<PriorityUpdate, InvalidPriority> {
        self.table.update_priorities(priorities)
    }

    /// Returns success if inserts may come now, where they wait for this table: one item after `items_before`, which
    /// are in flight.
    pub(super) fn can_insert(&self, items_before: u64) -> Result<(), Wait> {
        if self.settings.blocks_inserts { self.limiter.can_insert(items_before + 1) } else { Ok(()) }
    }

    /// Returns true if an insert removes older trajectories.
    pub(super) fn is_full(&self) -> bool {
        let Retention { trajectory_bytes_max, .. } = self.settings.table.retention;
        self.table.held_items() >= self.settings.table.window.capacity_items
            || trajectory_bytes_max.is_some_and(|bytes| self.table.trajectory_bytes() >= bytes)
    }

    /// A batch is wanted, if it ever can be had.
    pub(super) fn request(&mut self, items: u64, reply: mpsc::Sender<Sampled>, now: Instant) {
        let items_max = self.limiter.batch_items_max();
        if items > items_max {
            // There is room for an answer to every request.
            let _ = reply.try_send(Sampled::TooLarge { items_max });
            return;
        }
        self.waiting.push_back(Batch { items, drawn: Vec::new(), reply, since: now });
        // The new sampler has not received the reason yet.
        self.told = None;
    }

    /// Draws every batch that the limiter allows, the oldest request first, and sends samplers the reason for which the
    /// others wait.
    pub(super) fn sample(&mut self, rng: &mut ChaCha8Rng, common: Common, now: Instant, unix: Duration) {
        let hold = self.draw(rng, common, now, unix);
        self.samples.update(hold, now);
        self.tell(hold);
    }

    /// Draws batches; returns the reason for which the next one waits, if one does.
    fn draw(&mut self, rng: &mut ChaCha8Rng, common: Common, now: Instant, unix: Duration) -> Option<Hold> {
        while let Some(batch) = self.waiting.front_mut() {
            if batch.reply.is_closed() {
                self.waiting.pop_front();
                continue;
            }
            if let Err(wait) = self.limiter.can_sample(batch.missing()) {
                return Some(wait.into());
            }
            let earlier = batch.drawn.len();
            self.table.draw(usize::try_from(batch.missing()).unwrap_or(usize::MAX), rng, &mut batch.drawn);
            let drawn = &batch.drawn[earlier..];
            self.limiter.sample(drawn.len() as u64);
            self.limiter.delete(drawn.iter().filter(|drawn| drawn.exhausted).count() as u64);
            let newest = self.table.newest_weights_version();
            for drawn in drawn {
                let lag = newest.map_or(0, |newest| newest.0.saturating_sub(drawn.weights_version.0));
                self.metrics.drawn(unix.saturating_sub(drawn.inserted), lag);
            }
            if batch.missing() > 0 {
                // What is drawn is counted: it stays with its batch until the rest can be drawn.
                return Some(Hold::NothingToDraw);
            }
            self.samples.update(None, now);
            let table = Box::new(self.stats(common));
            if let Some(Batch { drawn, reply, since, .. }) = self.waiting.pop_front() {
                self.metrics.batch_after(now.saturating_duration_since(since));
                // There is room for every batch with credit; the batch of a sampler that has gone is lost.
                let _ = reply.try_send(Sampled::Batch { drawn, table });
            }
        }
        None
    }

    /// Takes in what holds inserts up now.
    pub(super) fn hold_inserts(&mut self, wait: Option<Wait>, now: Instant) {
        self.inserts.update(wait.map(Hold::from), now);
    }

    /// Sends samplers the reason for which they wait: to all, when the kind of reason changes, when a new sampler
    /// waits, and at every tick.
    fn tell(&mut self, hold: Option<Hold>) {
        let kind = hold.map(Hold::kind);
        if kind == self.told {
            return;
        }
        self.told = kind;
        let Some(hold) = hold else { return };
        let reason = hold.to_string();
        for batch in &self.waiting {
            // A sampler that does not keep up misses reasons, never batches.
            if batch.reply.capacity() > CREDIT_BATCHES_MAX as usize {
                let _ = batch.reply.try_send(Sampled::Waiting(reason.clone()));
            }
        }
    }

    /// Sends the reason of waiting batches once more, and forgets those of samplers that have gone.
    pub(super) fn tick(&mut self) {
        self.told = None;
        self.waiting.retain(|batch| !batch.reply.is_closed());
    }

    /// Draws nothing more.
    pub(super) fn drain(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn stats(&self, common: Common) -> TableStats {
        let Common { log_bytes, duplicates, refused } = common;
        let counts = self.limiter.counts();
        let edge = |trajectory: &Trajectory| TableEdge {
            id: trajectory.id(),
            weights_version: trajectory.last_weights_version(),
        };
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
            waiting_reason: self.samples.hold().or(self.inserts.hold()).map(|hold| hold.to_string()),
            bytes: log_bytes,
            oldest: self.table.oldest().map(edge),
            newest: self.table.newest().map(edge),
            name: self.settings.name.clone(),
            mass: Some(self.mass()),
        }
    }

    /// Nothing while the table holds less than its minimum. That the learner is ahead changes nothing: it passes.
    fn mass(&self) -> Mass {
        if self.limiter.can_sample(0).is_err_and(|wait| matches!(wait, Wait::MinItems { .. })) {
            return Mass::default();
        }
        self.table.mass()
    }

    /// Returns the total time for which inserts, and samples, were blocked.
    pub(super) fn waits(&self) -> [Duration; 2] {
        [self.inserts.total(), self.samples.total()]
    }

    /// Returns the total time for which either side was blocked, by the kind of reason: `inserts` or `samples`, the
    /// kind, the time.
    pub(super) fn waits_by_reason(&self) -> impl Iterator<Item = (&'static str, &'static str, Duration)> + '_ {
        let inserts = self.inserts.totals().map(|(kind, total)| ("inserts", kind, total));
        inserts.chain(self.samples.totals().map(|(kind, total)| ("samples", kind, total)))
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
