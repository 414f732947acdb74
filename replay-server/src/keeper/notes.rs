//! Durable records besides trajectories: notes wait for room in the log, and the caller is answered once they are
//! durable.

use std::collections::BTreeMap;

use experience::TrajectoryId;
use proto::limits::PRIORITIES_MAX;
use proto::replay::Suspect;
use replay::{ItemKey, PriorityUpdate, Quarantine, RateLimiterCounts, Release};
use tokio::sync::oneshot;

use super::handle::Refusal;
use super::{IN_LOG_MAX, Keeper};
use crate::config::{LiveTable, TableIndex};
use crate::log::{self, Entry, Note, TableCounters};

/// Notes that wait for the log. Beyond them, or where the log fails, a report holds until the next start only: what is
/// drawn again then is reported again.
const NOTES_WAITING_MAX: usize = 1024;

/// Priorities that wait for the log or are in its hands: a few of the largest requests.
const PRIORITIES_UNDER_WAY_MAX: usize = 4 * PRIORITIES_MAX;

/// The continuation of a note: called with success once the note is durable, or with the reason of the failure.
pub(super) struct Then(Box<dyn FnOnce(Result<(), String>) + Send>);

impl Then {
    /// Returns a continuation without a caller.
    fn nothing() -> Self {
        Self(Box::new(|_| {}))
    }
}

impl Then {
    /// Returns a continuation that answers a caller.
    fn answer<T: Send + 'static>(reply: oneshot::Sender<Result<T, Refusal>>, answer: T) -> Self {
        Self(Box::new(move |durable| {
            // A caller that has gone retries.
            let _ = reply.send(durable.map(|()| answer).map_err(Refusal::NotDurable));
        }))
    }
}

impl std::fmt::Debug for Then {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Then").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Makes a note durable as soon as the log has room.
    fn note(&mut self, note: Note, then: Then) {
        if self.notes.len() >= NOTES_WAITING_MAX {
            return then.0(Err(format!("{NOTES_WAITING_MAX} notes wait for it already")));
        }
        self.priorities_under_way += priorities(&note);
        self.notes.push_back((note, then));
    }

    pub(super) fn send_notes(&mut self) {
        while self.in_log_entries < IN_LOG_MAX {
            let Some((note, then)) = self.notes.pop_front() else { return };
            // The log answers in the order of its commands.
            self.notes_in_log.push_back(then);
            self.append(Entry::Note(note));
        }
    }

    /// Handles the result of the oldest note in flight.
    pub(super) fn noted(&mut self, note: &Note, durable: Result<(), String>) {
        self.priorities_under_way -= priorities(note);
        if let Some(then) = self.notes_in_log.pop_front() {
            then.0(durable);
        }
    }

    /// Should a table of such a name come back, it is another one.
    pub(super) fn forget_tables(&mut self, names: Vec<String>) {
        for name in names {
            self.note(Note::Table { name, settings: None }, Then::nothing());
        }
    }

    /// Writes down how much was drawn from each table; the log counts the main one's itself.
    pub(super) fn note_samples(&mut self) {
        for index in TableIndex::MAIN.0 + 1..self.tables.len() {
            let RateLimiterCounts { inserted: items, sampled: samples, .. } = self.tables[index].limiter().counts();
            // It comes again with the next tick.
            if samples == self.samples_noted[index] || self.notes.len() >= NOTES_WAITING_MAX {
                continue;
            }
            self.samples_noted[index] = samples;
            let table = self.tables[index].name().to_owned();
            self.note(Note::TableCounters { table, counters: TableCounters { items, samples } }, Then::nothing());
        }
    }

    /// Takes a trajectory out of sampling. Whether a table held it.
    pub(super) fn report(&mut self, id: TrajectoryId) -> bool {
        let mut is_new = false;
        let mut is_held = false;
        for table in &mut self.tables {
            let quarantine = table.quarantine(Suspect::Trajectory(id));
            is_held |= quarantine != Quarantine::Unknown;
            is_new |= matches!(quarantine, Quarantine::Quarantined { .. });
        }
        if is_new {
            self.note(Note::Quarantine(id), Then::nothing());
        }
        is_held
    }

    /// Takes something out of sampling. Written again where it had been out already: that may not have become durable.
    pub(super) fn quarantine(&mut self, suspect: Suspect, reply: oneshot::Sender<Result<u64, Refusal>>) {
        let done: Vec<Quarantine> = self.tables.iter_mut().map(|table| table.quarantine(suspect)).collect();
        if let Suspect::Trajectory(id) = suspect
            && done.iter().all(|done| *done == Quarantine::Unknown)
        {
            let _ = reply.send(Err(Refusal::NotHeld(id)));
            return;
        }
        let items = if let Quarantine::Quarantined { items } = done[TableIndex::MAIN.0] { items } else { 0 };
        let note = match suspect {
            Suspect::Trajectory(id) => Note::Quarantine(id),
            Suspect::Actor(actor) => Note::QuarantineActor(actor),
        };
        self.note(note, Then::answer(reply, items));
    }

    /// Puts something back into sampling. Written even if it had not been out, for the same reason.
    pub(super) fn release(&mut self, suspect: Suspect, reply: oneshot::Sender<Result<u64, Refusal>>) {
        let done: Vec<Release> = self.tables.iter_mut().map(|table| table.release(suspect)).collect();
        if let Suspect::Trajectory(id) = suspect
            && done.iter().all(|done| *done == Release::Unknown)
        {
            let _ = reply.send(Err(Refusal::NotHeld(id)));
            return;
        }
        let items = if let Release::Released { items } = done[TableIndex::MAIN.0] { items } else { 0 };
        let note = match suspect {
            Suspect::Trajectory(id) => Note::Release(id),
            Suspect::Actor(actor) => Note::ReleaseActor(actor),
        };
        self.note(note, Then::answer(reply, items));
    }

    /// Holds a table to other settings.
    pub(super) fn configure(
        &mut self,
        table: TableIndex,
        change: &BTreeMap<String, String>,
        reply: oneshot::Sender<Result<BTreeMap<String, String>, Refusal>>,
    ) {
        let served = &mut self.tables[table.0];
        let before = served.settings().section.clone();
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
        tracing::info!(table = served.name(), ?change, "a table is changed");
        served.hold_to(settings);
        let settings = Some(LiveTable::encode(served.written(), live));
        let note = Note::Table { name: served.name().to_owned(), settings };
        self.note(note, Then::answer(reply, in_force));
    }

    /// Gives items of a table new priorities, which hold at once: they are advice, and their loss costs little.
    pub(super) fn update_priorities(
        &mut self,
        table: TableIndex,
        priorities: &[(ItemKey, f64)],
    ) -> Result<PriorityUpdate, Refusal> {
        let waiting = self.priorities_under_way;
        if waiting + priorities.len() > PRIORITIES_UNDER_WAY_MAX || self.notes.len() >= NOTES_WAITING_MAX {
            return Err(Refusal::TooMany { waiting });
        }
        let served = &mut self.tables[table.0];
        let update = served.update_priorities(priorities)?;
        if update.updated > 0 {
            let saved = |&(ItemKey { trajectory: id, ply }, priority): &(ItemKey, f64)| log::PriorityUpdate {
                id,
                ply: u32::try_from(ply).expect("a ply of a trajectory"),
                priority,
            };
            let updates = priorities.iter().map(saved).collect();
            let note = Note::Priorities { table: served.name().to_owned(), updates };
            self.note(note, Then::nothing());
        }
        Ok(update)
    }
}

fn priorities(note: &Note) -> usize {
    if let Note::Priorities { updates, .. } = note { updates.len() } else { 0 }
}
