//! Records changes other than trajectories durably: a record waits until the log has capacity, and the caller gets a
//! reply once the record is durable.

use std::collections::BTreeMap;

use experience::TrajectoryId;
use proto::limits::PRIORITIES_MAX;
use proto::replay::Suspect;
use replay::{ItemKey, PriorityUpdate, QuarantineChange, RateLimiterCounts};
use run_file::replay::{LiveTable, TableIndex};

use super::commands::{Refusal, Reply};
use super::{IN_LOG_MAX, TableService, TableState};
use crate::defect::Defect;
use crate::log::{Entry, OperatorRecord, TableCounters};

/// Maximum number of records that wait for the log. If the queue is full or the log fails, a reported trajectory is
/// out of sampling only until the next start: if it is drawn again, it is reported again.
const RECORDS_WAITING_MAX: usize = 1024;

/// Maximum number of priorities that wait for the log or are in flight to it: a few of the largest requests.
const PRIORITIES_IN_FLIGHT_MAX: usize = 4 * PRIORITIES_MAX;

/// A callback that runs when a record becomes durable, or with the reason if it does not.
pub(super) struct Continuation(Box<dyn FnOnce(Result<(), String>) + Send>);

impl Continuation {
    /// Returns a continuation that does nothing.
    fn nothing() -> Self {
        Self(Box::new(|_| {}))
    }

    /// Returns a continuation that replies to a caller.
    fn answer<T: Send + 'static>(reply: Reply<Result<T, Refusal>>, answer: T) -> Self {
        Self(Box::new(move |durable| {
            // A disconnected caller will retry.
            let _ = reply.send(durable.map(|()| answer).map_err(Refusal::NotDurable));
        }))
    }
}

impl std::fmt::Debug for Continuation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Continuation").finish_non_exhaustive()
    }
}

impl TableService {
    /// Queues a record, which is made durable as soon as the log has capacity.
    fn record(&mut self, record: OperatorRecord, then: Continuation) {
        if self.records.len() >= RECORDS_WAITING_MAX {
            return then.0(Err(format!("too many records waiting for the log (limit {RECORDS_WAITING_MAX})")));
        }
        self.priorities_in_flight += priorities(&record);
        self.records.push_back((record, then));
    }

    pub(super) fn send_records(&mut self) {
        while self.in_log_entries < IN_LOG_MAX {
            let Some((record, then)) = self.records.pop_front() else { return };
            // The log replies in the order of the commands.
            self.records_in_log.push_back(then);
            self.append(Entry::Operator(record));
        }
    }

    /// Handles the result of the oldest record in flight.
    pub(super) fn recorded(&mut self, record: &OperatorRecord, durable: Result<(), String>) {
        self.priorities_in_flight -= priorities(record);
        if let Some(then) = self.records_in_log.pop_front() {
            then.0(durable);
        }
    }

    /// Records the removal of tables: a later table of the same name is a new table.
    pub(super) fn record_removed_tables(&mut self, names: Vec<String>) {
        for name in names {
            self.record(OperatorRecord::Table { name, settings: None }, Continuation::nothing());
        }
    }

    /// Records the counters of every table except the main table, whose samples the log counts.
    pub(super) fn record_samples(&mut self) {
        for index in TableIndex::MAIN.0 + 1..self.tables.len() {
            let RateLimiterCounts { inserted: items, sampled: samples, .. } = self.tables[index].limiter().counts();
            // The next tick retries this.
            if samples == self.samples_recorded[index] || self.records.len() >= RECORDS_WAITING_MAX {
                continue;
            }
            self.samples_recorded[index] = samples;
            let table = self.tables[index].name().to_owned();
            self.record(
                OperatorRecord::TableCounters { table, counters: TableCounters { items, samples } },
                Continuation::nothing(),
            );
        }
    }

    /// Takes a reported trajectory out of sampling; returns true if a table held it.
    pub(super) fn report(&mut self, id: TrajectoryId) -> bool {
        let suspect = Suspect::Trajectory(id);
        let changes: Vec<_> = self.tables.iter_mut().map(|table| table.quarantine(suspect)).collect();
        if changes.iter().any(|change| matches!(change, QuarantineChange::Changed { .. })) {
            self.record(OperatorRecord::Quarantine(suspect), Continuation::nothing());
        }
        changes.iter().any(|change| *change != QuarantineChange::Unknown)
    }

    /// Quarantines a trajectory or an actor.
    pub(super) fn quarantine(&mut self, suspect: Suspect, reply: Reply<Result<u64, Refusal>>) {
        self.change_quarantine(OperatorRecord::Quarantine(suspect), suspect, TableState::quarantine, reply);
    }

    /// Releases a trajectory or an actor from quarantine.
    pub(super) fn release(&mut self, suspect: Suspect, reply: Reply<Result<u64, Refusal>>) {
        self.change_quarantine(OperatorRecord::Release(suspect), suspect, TableState::release, reply);
    }

    /// Applies `change` to every table, and records it even without an effect: an earlier identical change may not
    /// have become durable.
    fn change_quarantine(
        &mut self,
        record: OperatorRecord,
        suspect: Suspect,
        change: fn(&mut TableState, Suspect) -> QuarantineChange,
        reply: Reply<Result<u64, Refusal>>,
    ) {
        let changes: Vec<_> = self.tables.iter_mut().map(|table| change(table, suspect)).collect();
        if let Suspect::Trajectory(id) = suspect
            && changes.iter().all(|change| *change == QuarantineChange::Unknown)
        {
            let _ = reply.send(Err(Refusal::NotHeld(id)));
            return;
        }
        let items = if let QuarantineChange::Changed { items } = changes[TableIndex::MAIN.0] { items } else { 0 };
        self.record(record, Continuation::answer(reply, items));
    }

    /// Changes settings of a table.
    pub(super) fn configure(
        &mut self,
        table: TableIndex,
        change: &BTreeMap<String, String>,
        reply: Reply<Result<BTreeMap<String, String>, Refusal>>,
    ) {
        let state = &mut self.tables[table.0];
        let before = state.settings().section.clone();
        let settings = match before.changed(change).and_then(|section| section.settings()) {
            Ok(settings) => settings,
            Err(invalid) => {
                let _ = reply.send(Err(Refusal::Setting(invalid)));
                return;
            }
        };
        let (in_force, live) = (settings.section.live_settings(), settings.section.clone());
        if live == before {
            let _ = reply.send(Ok(in_force));
            return;
        }
        tracing::info!(table = state.name(), ?change, "table changed");
        state.hold_to(settings);
        let settings = Some(LiveTable::encode(state.written(), live));
        let record = OperatorRecord::Table { name: state.name().to_owned(), settings };
        self.record(record, Continuation::answer(reply, in_force));
    }

    /// Updates priorities of a table. They take effect before they are durable: priorities are hints, and a loss
    /// costs little.
    pub(super) fn update_priorities(
        &mut self,
        table: TableIndex,
        priorities: Vec<(ItemKey, f64)>,
    ) -> Result<PriorityUpdate, Refusal> {
        let waiting = self.priorities_in_flight;
        if waiting + priorities.len() > PRIORITIES_IN_FLIGHT_MAX || self.records.len() >= RECORDS_WAITING_MAX {
            return Err(Refusal::TooMany { waiting });
        }
        let state = &mut self.tables[table.0];
        let update = state.update_priorities(&priorities)?;
        if update.updated > 0 {
            // A request writes no more to the log than it changes.
            let is_all_logged = self.planted.is(Defect::UnknownPrioritiesLogged);
            let updates = if is_all_logged { priorities } else { state.retain_held(priorities) };
            let record = OperatorRecord::Priorities { table: state.name().to_owned(), updates };
            self.record(record, Continuation::nothing());
        }
        Ok(update)
    }
}

fn priorities(record: &OperatorRecord) -> usize {
    if let OperatorRecord::Priorities { updates, .. } = record { updates.len() } else { 0 }
}
