//! Checks after each command, each commit and each start.

use std::collections::BTreeMap;

use experience::{Trajectory, TrajectoryId};
use prost::Message as _;
use proto::replay::ServerStats;
use replay_server::log::committer::LogCommand;
use replay_server::log::{Entry, OperatorRecord, Record};
use replay_server::table_service::Command;
use run_file::replay::TableIndex;

use crate::bus::{Client, Packet, StreamId};
use crate::insert_call::{Answered, Promise as Answer};
use crate::oracle::{Checked, Promise, TABLES, broken};
use crate::sample_stream::Answered as Sampled;
use crate::settings::{GREATEST, SEEN, SEGMENT_BYTES};
use crate::world::World;

/// Index of the main table.
const MAIN: TableIndex = TableIndex::MAIN;

/// Largest capacity ever configured for a table.
const CAPACITY_ITEMS_MAX: u64 = 90;

/// Last event before a check of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// An event that removes everything beyond a bound.
    Expiry,
    Other,
}

/// Returns the index of a table.
pub(crate) fn table_of(name: &str) -> usize {
    usize::from(name == GREATEST)
}

/// Bytes of a frame, and of the counters before a commit, in addition to a record.
const FRAME_BYTES: u64 = 128;

impl World {
    /// Checks everything that a command has sent to the log, and forwards the responses.
    pub(crate) fn check_apply(&mut self) -> Checked {
        let Some(stats) = self.stats() else { return Ok(()) };
        self.check_admitted(&stats)?;
        self.check_ratio(&stats)?;
        self.check_memory(&stats)?;
        self.poll_streams()?;
        self.poll_calls()
    }

    pub(crate) fn stats(&mut self) -> Option<ServerStats> {
        self.ask(|reply| Command::Stats(MAIN, reply))
    }

    /// Checks that the rate limiter of the main table admitted each trajectory on the way to the log.
    fn check_admitted(&mut self, stats: &ServerStats) -> Checked {
        let sent = self.server.as_mut().map(super::server::Server::sent).unwrap_or_default();
        if sent.iter().any(|command| matches!(command, LogCommand::Append(Entry::Trajectory { .. }))) {
            let min_items = self.setting(MAIN, "min_items");
            let error = self.setting(MAIN, "error_items");
            let table = &stats.table;
            let ratio = table.samples_per_insert_target;
            let mut in_flight = self.server.as_ref().map_or(0, |server| server.in_log_items);
            for command in &sent {
                let LogCommand::Append(Entry::Trajectory { id, items, .. }) = command else { continue };
                let cursor = (table.items_inserted_total + in_flight + 1) as f64 * ratio - table.samples_total as f64;
                let is_small = (table.items + in_flight + 1) as f64 <= min_items;
                if !is_small && cursor > min_items * ratio + error {
                    return broken(Promise::Ratio, format!("{id} was admitted at {cursor}"));
                }
                in_flight += u64::from(*items);
            }
        }
        let events = self.trace.events();
        let Some(server) = &mut self.server else { return Ok(()) };
        for command in sent {
            match &command {
                LogCommand::Append(Entry::Trajectory { items, .. }) => server.in_log_items += u64::from(*items),
                LogCommand::Append(Entry::Operator(OperatorRecord::Priorities { updates, .. })) => {
                    let updated = server.updated.pop_front().unwrap_or(0);
                    if updates.len() as u64 > updated {
                        let what = format!("{} priorities are logged for {updated} updated items", updates.len());
                        return broken(Promise::LogBytes, what);
                    }
                }
                LogCommand::Append(Entry::Operator(record)) => match record {
                    OperatorRecord::Quarantine(suspect) | OperatorRecord::Release(suspect) => {
                        self.oracle.quarantine.entry(*suspect).or_default().sent(events);
                    }
                    OperatorRecord::Table { name, .. } => self.oracle.settings[table_of(name)].sent(events),
                    _ => {}
                },
                _ => {}
            }
            server.queue.push_back(command);
        }
        Ok(())
    }

    /// Checks that samples were drawn only inside the band.
    fn check_ratio(&mut self, stats: &ServerStats) -> Checked {
        let table = &stats.table;
        if table.samples_total > self.oracle.counts.sampled {
            let (min_items, error) = (self.setting(MAIN, "min_items"), self.setting(MAIN, "error_items"));
            let ratio = table.samples_per_insert_target;
            let cursor = table.items_inserted_total as f64 * ratio - table.samples_total as f64;
            if cursor < min_items * ratio - error {
                return broken(Promise::Ratio, format!("{} samples are ahead: {cursor}", table.samples_total));
            }
        }
        self.oracle.counts.sampled = table.samples_total;
        self.oracle.counts.sampled_ever = self.oracle.counts.sampled_ever.max(table.samples_total);
        Ok(())
    }

    /// Checks that memory stays within the limit, and that no more is evicted than needed.
    fn check_memory(&mut self, stats: &ServerStats) -> Checked {
        let bytes_max = self.settings.memory_bytes_max.unwrap_or(u64::MAX);
        if stats.memory_bytes > bytes_max {
            return broken(Promise::Memory, format!("{} bytes of {bytes_max}", stats.memory_bytes));
        }
        let Some(server) = self.server.as_ref().filter(|server| server.tables.evicted_for_memory() > server.evicted)
        else {
            return Ok(());
        };
        let evicted = server.tables.evicted_for_memory() - server.evicted;
        self.note("evicted for memory", format!("{evicted} trajectories make room"));
        if stats.memory_bytes < bytes_max / 2 {
            return broken(
                Promise::Held,
                format!("{evicted} are evicted at {} of {bytes_max} bytes", stats.memory_bytes),
            );
        }
        self.check_tables(After::Other)
    }

    /// Forwards the responses of all streams to the clients.
    fn poll_streams(&mut self) -> Checked {
        let Some(server) = &self.server else { return Ok(()) };
        let (inserts, samples): (Vec<StreamId>, Vec<StreamId>) =
            (server.inserts.keys().copied().collect(), server.samples.keys().copied().collect());
        for id in inserts {
            while let Some(answered) =
                self.server.as_mut().and_then(|server| server.inserts.get_mut(&id)).and_then(|stream| stream.poll())
            {
                self.answer_insert(id, answered)?;
            }
            self.end_if_done(id);
        }
        for id in samples {
            while let Some(answered) =
                self.server.as_mut().and_then(|server| server.samples.get_mut(&id)).and_then(|stream| stream.poll())
            {
                match answered {
                    Sampled::End(reason) => self.end_stream(id, reason),
                    Sampled::Waiting(response) => {
                        self.bus.send_to_client(id, Packet::Message(response.encode_to_vec()));
                    }
                    Sampled::Batch(drawn, parts) => {
                        self.note("batch", format!("{} samples are drawn for stream {id}", drawn.len()));
                        self.check_drawn(&drawn)?;
                        for part in parts {
                            self.bus.send_to_client(id, Packet::Message(part.encode_to_vec()));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn answer_insert(&mut self, id: StreamId, answered: Answered) -> Checked {
        let (promise, trajectory, received, response) = match answered {
            Answered::End(reason) => {
                self.trace.fired("not stored");
                self.end_stream(id, reason);
                return Ok(());
            }
            Answered::Promise(promise, trajectory, received, response) => (promise, trajectory, received, response),
        };
        let honest = matches!(self.bus.client_of(id), Some(Client::Actor { .. }));
        match promise {
            Answer::Inserted => {
                self.note("acknowledged", format!("{trajectory} is acknowledged as new"));
                if let Some(received) = &received {
                    self.oracle.acknowledged(trajectory, received)?;
                }
            }
            Answer::Duplicate => {
                self.note("duplicate", format!("{trajectory} is acknowledged as stored before"));
                if let Some(received) = received.as_ref().filter(|_| honest) {
                    self.oracle.repeated(trajectory, received)?;
                }
            }
            Answer::Stale => self.note("stale", format!("{trajectory} is too stale")),
        }
        self.bus.send_to_client(id, Packet::Message(response.encode_to_vec()));
        Ok(())
    }

    /// Checks that the content of drawn trajectories equals the content that was sent.
    fn check_drawn(&mut self, drawn: &[replay::Drawn]) -> Checked {
        for drawn in drawn {
            let id = drawn.trajectory.id();
            let Some(stored) = self.oracle.stored.get(&id) else {
                return broken(Promise::Once, format!("{id} was drawn and never entered"));
            };
            if !crate::oracle::same_episode(&stored.content, &drawn.trajectory) {
                return broken(Promise::Once, format!("{id} was drawn with another content"));
            }
        }
        Ok(())
    }

    /// Compares the content of all tables with the oracle.
    pub(crate) fn check_tables(&mut self, after: After) -> Checked {
        let evicts = self.server.as_mut().is_some_and(|server| {
            let evicted = server.tables.evicted_for_memory();
            std::mem::replace(&mut server.evicted, evicted) < evicted
        });
        let mut tables = Vec::new();
        for table in 0..TABLES {
            let Some(mut held) = self.held(TableIndex(table)) else { return Ok(()) };
            held.reverse();
            tables.push((table, held));
        }
        // A table holds the tail of any longer table, so longer tables come first.
        tables.sort_by_key(|(_, held)| std::cmp::Reverse(held.len()));
        for (table, held) in tables {
            let capacity_items = self.setting(TableIndex(table), "capacity_items") as u64;
            let known = self.settings_in_force(TableIndex(table)).unwrap_or_default();
            let is_exact = |key: &str| known.get(key).is_none_or(|value| value == "0" || value == "0.0");
            self.oracle.may_remove = evicts || !is_exact("age_max_hours") || !is_exact("bytes_max");
            self.oracle.check_held(table, &held, capacity_items)?;
            let behind_first: u64 = held.iter().skip(1).map(|held| held.full_steps() as u64).sum();
            let is_over = after == After::Expiry && behind_first >= capacity_items;
            if held.len() > 1 && (is_over || held.len() as u64 > CAPACITY_ITEMS_MAX + 1) {
                let what = format!(
                    "table {table} holds {} trajectories with {behind_first} items behind the first one, the capacity \
                     is {capacity_items}",
                    held.len()
                );
                return broken(Promise::Capacity, what);
            }
        }
        self.oracle.check_fresh()?;
        self.check_seen()?;
        self.check_log_bytes()
    }

    pub(crate) fn held(&mut self, table: TableIndex) -> Option<Vec<Trajectory>> {
        self.ask(|reply| Command::Held(table, reply))
    }

    /// Checks that no client fills the heads of segments with gaps between ids.
    fn check_seen(&self) -> Checked {
        let Some(server) = &self.server else { return Ok(()) };
        let mut intervals = BTreeMap::<u64, usize>::new();
        let seen = server.committer.log().state().seen.intervals();
        seen.for_each(|(actor, ..)| *intervals.entry(actor).or_default() += 1);
        // The highest epoch is kept in addition to the retired epochs.
        let share = SEEN.intervals / intervals.len().next_power_of_two() + 1;
        match intervals.iter().find(|(_, count)| **count > share) {
            Some((actor, count)) => {
                broken(Promise::LogBytes, format!("{count} intervals of ids of actor {actor} are kept"))
            }
            None => Ok(()),
        }
    }

    /// Checks that the log holds little more than the tables.
    fn check_log_bytes(&mut self) -> Checked {
        let Some(server) = &mut self.server else { return Ok(()) };
        let is_gone = |id: &Option<TrajectoryId>| id.is_none_or(|id| !self.oracle.is_held(id));
        let any_held = server.sizes.iter().any(|(id, _)| !is_gone(id));
        while any_held && server.sizes.front().is_some_and(|(id, _)| is_gone(id)) {
            server.sizes.pop_front();
        }
        let records: u64 = server.sizes.iter().map(|(_, bytes)| bytes + FRAME_BYTES).sum();
        let log = server.committer.log();
        let head_bytes = Record::encode_head(log.state()).map_or(0, |head| head.len() as u64) + FRAME_BYTES;
        let bytes_max = records + 6 * SEGMENT_BYTES + 2 * head_bytes * log.segments() as u64;
        if log.bytes() > 2 * bytes_max {
            let what = format!("{} bytes are in the log for {records} bytes of records", log.bytes());
            return broken(Promise::LogBytes, what);
        }
        Ok(())
    }

    /// Checks the state after a start against all earlier promises.
    pub(crate) fn check_start(&mut self, log_bytes: u64) -> Checked {
        let anchor = self.oracle.sequence.back().copied();
        if let Some(server) = &mut self.server {
            server.sizes.push_back((anchor, log_bytes));
        }
        self.check_settings()?;
        self.check_counts()?;
        self.check_ids()?;
        self.check_tables(After::Expiry)?;
        self.check_quarantine()?;
        self.check_revisions()?;
        self.check_apply()
    }

    /// Checks that acknowledged settings are in force.
    fn check_settings(&mut self) -> Checked {
        for table in 0..TABLES {
            let Some(found) = self.settings_in_force(TableIndex(table)) else { return Ok(()) };
            if let Some(known) = &self.oracle.settings[table].known
                && *known != found
            {
                let what = format!("table {table} has {found:?} after a start, {known:?} was acknowledged");
                return broken(Promise::Settings, what);
            }
            self.oracle.settings[table].known = Some(found);
        }
        Ok(())
    }

    /// Checks that every id that was ever stored is known, so that it is not stored again.
    fn check_ids(&self) -> Checked {
        let Some(server) = &self.server else { return Ok(()) };
        let seen = &server.committer.log().state().seen;
        match self.oracle.stored.iter().find(|(id, stored)| !stored.damaged && !seen.contains(**id)) {
            Some((id, _)) => broken(Promise::Once, format!("{id} would be stored again: its id is forgotten")),
            None => Ok(()),
        }
    }

    /// Checks that the limiter of the main table continues with the same counts.
    fn check_counts(&mut self) -> Checked {
        let Some(stats) = self.stats() else { return Ok(()) };
        let (counts, table) = (self.oracle.counts, stats.table);
        let offered: u64 =
            self.oracle.offered.values().flatten().map(|trajectory| trajectory.full_steps() as u64).sum();
        let inserted = counts.inserted..=counts.inserted + offered;
        let sampled = counts.sampled_durable..=counts.sampled;
        let is_right = inserted.contains(&table.items_inserted_total) && sampled.contains(&table.samples_total);
        // A damaged record may lose counts, but must not invent them.
        let is_less = table.items_inserted_total <= (counts.inserted_ever + offered).max(*inserted.end())
            && table.samples_total <= counts.sampled_ever.max(*sampled.end());
        if !(is_right || counts.damaged && is_less) {
            let what = format!(
                "{} inserted items and {} samples after a start, not {inserted:?} and {sampled:?}",
                table.items_inserted_total, table.samples_total
            );
            return broken(Promise::Counts, what);
        }
        self.oracle.counts = crate::oracle::Counts {
            inserted: table.items_inserted_total,
            sampled: table.samples_total,
            sampled_durable: table.samples_total,
            inserted_ever: counts.inserted_ever.max(table.items_inserted_total),
            sampled_ever: counts.sampled_ever.max(table.samples_total),
            damaged: false,
        };
        Ok(())
    }

    /// Checks that everything known about quarantines still holds.
    fn check_quarantine(&mut self) -> Checked {
        for id in self.oracle.held() {
            let Some(Some(located)) = self.ask(|reply| Command::Get(id, reply)) else { continue };
            if let Some(known) = self.oracle.is_quarantined(id)
                && known != located.quarantined
            {
                let what = format!("{id} is in quarantine: {}, {known} was acknowledged", located.quarantined);
                return broken(Promise::Quarantine, what);
            }
        }
        Ok(())
    }

    /// Checks that acknowledged revisions are present, and that no revision is skipped.
    fn check_revisions(&mut self) -> Checked {
        for id in self.oracle.revisions.keys().copied().collect::<Vec<_>>() {
            let damaged = self.oracle.stored.get(&id).is_none_or(|stored| stored.damaged);
            let Some(Some(located)) = self.ask(|reply| Command::Get(id, reply)) else { continue };
            let Some(revised) = self.oracle.revisions.get_mut(&id) else { continue };
            if damaged {
                revised.certain = located.revision;
                continue;
            }
            let sent = revised.sent.get(&located.revision);
            let is_sent = located.revision == 0 || sent.is_some_and(|sent| sent.contains(&located.trajectory));
            if located.revision < revised.certain || !is_sent {
                let what = format!("{id} is of revision {}, {} was acknowledged", located.revision, revised.certain);
                return broken(Promise::Revisions, what);
            }
            revised.certain = located.revision;
        }
        Ok(())
    }
}
