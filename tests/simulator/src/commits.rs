//! The thread of the log: it takes some entries, commits them, and reports the result to the table service.

use std::time::Duration;

use experience::Trajectory;
use rand::RngExt;
use replay_server::log::committer::{LogCommand, LogEvent};
use replay_server::log::power_disk::Faults;
use replay_server::log::{EncodedTrajectory, Entry, OperatorRecord, Record};
use replay_server::table_service::Command;
use run_file::replay::TableIndex;

use crate::checks::{After, table_of};
use crate::content::LIMITS;
use crate::oracle::{Checked, Promise, broken};
use crate::world::World;

impl World {
    /// Commits at most `most` entries and reports them.
    pub(crate) fn commit(&mut self, most: usize) -> Checked {
        let failures = self.disk.failures();
        let events = self.write(most);
        let healthy = self.disk.failures() == failures;
        for event in events {
            self.report(event, healthy)?;
        }
        self.turn_second()
    }

    /// Commits some entries on a disk that stops in the middle, and stops the process before it reports them.
    pub(crate) fn commit_and_crash(&mut self) -> Checked {
        let left = self.rng.random_range(0..8);
        self.disk.set_faults(Faults { operations_left: Some(left), ..self.faults });
        let most = self.rng.random_range(1..40);
        self.write(most);
        self.disk.set_faults(self.faults);
        if self.rng.random_bool(0.5) {
            return self.crash("the process of the server ends inside a commit");
        }
        self.lose_power()
    }

    /// Lets the log take and commit entries.
    fn write(&mut self, most: usize) -> Vec<LogEvent> {
        if self.is_slow {
            self.pass(Duration::from_secs(2));
        }
        let Some(server) = &mut self.server else { return Vec::new() };
        let most = most.min(server.queue.len());
        let taken: Vec<LogCommand> = server.queue.drain(..most).collect();
        for command in taken {
            server.committer.take(command);
        }
        let mut events = Vec::new();
        server.committer.commit(&mut |event| events.push(event));
        self.oracle.counts.sampled_durable =
            self.oracle.counts.sampled_durable.max(server.committer.log().synced().samples);
        events
    }

    /// Reports the result of a commit to the table service.
    fn report(&mut self, event: LogEvent, healthy: bool) -> Checked {
        match &event {
            LogEvent::Failed { error, .. } if healthy => {
                return broken(Promise::Writable, format!("a disk without faults, and the log fails: {error}"));
            }
            LogEvent::Failed { entries, .. } => {
                self.note("commit failed", format!("a commit of {} entries fails", entries.len()));
                self.land(entries);
                self.forget(entries);
            }
            LogEvent::Committed { entries, .. } => {
                self.note("commit", format!("{} entries are durable", entries.len()));
                self.land(entries);
                self.remember(entries)?;
            }
            LogEvent::Panicked => return broken(Promise::Panic, "the thread of the log has ended".to_owned()),
        }
        let inserts = |entry: &Entry| matches!(entry, Entry::Trajectory { .. });
        let after = match &event {
            LogEvent::Committed { entries, .. } if entries.iter().any(inserts) => After::Expiry,
            _ => After::Other,
        };
        self.apply(Command::Log(event))?;
        self.check_tables(after)
    }

    /// Records changes that have failed.
    fn forget(&mut self, entries: &[Entry]) {
        for entry in entries {
            match entry {
                Entry::Operator(OperatorRecord::Quarantine(suspect) | OperatorRecord::Release(suspect)) => {
                    self.oracle.quarantine.entry(*suspect).or_default().failed();
                }
                Entry::Operator(OperatorRecord::Table { name, .. }) => self.oracle.settings[table_of(name)].failed(),
                _ => {}
            }
        }
    }

    fn land(&mut self, entries: &[Entry]) {
        let items = |entry: &Entry| if let Entry::Trajectory { items, .. } = entry { u64::from(*items) } else { 0 };
        if let Some(server) = &mut self.server {
            server.in_log_items -= entries.iter().map(items).sum::<u64>();
        }
    }

    /// Records entries that are now durable.
    fn remember(&mut self, entries: &[Entry]) -> Checked {
        for entry in entries {
            let (id, bytes) = match entry {
                Entry::Trajectory { id, content, items } => {
                    let counts = &mut self.oracle.counts;
                    counts.inserted += u64::from(*items);
                    counts.inserted_ever = counts.inserted_ever.max(counts.inserted);
                    if let Some(trajectory) = decoded(content) {
                        self.oracle.enter(&trajectory)?;
                    }
                    (Some(*id), content.payload().len())
                }
                Entry::Revision { content, .. } => (None, content.payload().len()),
                Entry::Operator(record) => {
                    self.remember_record(record);
                    (None, record.encode().map_or(0, |record| record.len()))
                }
            };
            if let Some(server) = &mut self.server {
                server.sizes.push_back((id, bytes as u64));
            }
        }
        Ok(())
    }

    fn remember_record(&mut self, record: &OperatorRecord) {
        match record {
            OperatorRecord::Quarantine(suspect) => {
                self.oracle.quarantine.entry(*suspect).or_default().committed(true);
            }
            OperatorRecord::Release(suspect) => {
                self.oracle.quarantine.entry(*suspect).or_default().committed(false);
            }
            OperatorRecord::Table { name, .. } => {
                let table = table_of(name);
                let settings = self.settings_in_force(TableIndex(table)).unwrap_or_default();
                self.oracle.settings[table].committed(settings);
            }
            OperatorRecord::Priorities { updates, .. } => {
                // An earlier record of the same item has a lower priority, at which another item may come first.
                if let Some(top) = &mut self.oracle.top
                    && updates.contains(&(top.key, top.priority))
                {
                    top.durable = true;
                }
            }
            OperatorRecord::TableCounters { .. } => {}
        }
    }
}

/// Decodes the record of a trajectory.
fn decoded(content: &EncodedTrajectory) -> Option<Trajectory> {
    match Record::decode(content.payload()) {
        Ok(Record::Trajectory { id, content, .. }) => Trajectory::parse(id, &content, LIMITS).ok(),
        _ => None,
    }
}
