//! The promises of the server, and the trajectories that it may hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use experience::{Trajectory, TrajectoryId};
use proto::replay::Suspect;
use replay::ItemKey;

use crate::content::items;

/// Id of the first hostile actor.
pub(crate) const HOSTILE: u64 = 900;

/// Number of tables of the simulated server.
pub(crate) const TABLES: usize = 2;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{promise}: {what}")]
pub struct Violation {
    /// Kind of the broken promise.
    pub promise: Promise,
    /// The contradicting observation.
    pub what: String,
}

/// Promises to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Acknowledged trajectories are held until a rule of the table removes them.
    Held,
    /// Each id is stored once, with the content that was acknowledged first.
    Once,
    /// No game of an honest actor is mistaken for another.
    Own,
    /// Revisions are durable and in order.
    Revisions,
    /// Quarantines are durable.
    Quarantine,
    /// Priorities are durable.
    Priorities,
    /// Table settings are durable.
    Settings,
    /// Rate limiter counts are durable.
    Counts,
    /// Samples per insert stay inside the band.
    Ratio,
    /// Memory stays within the limit.
    Memory,
    /// A table holds no more than its capacity.
    Capacity,
    /// The log takes entries on a disk without faults.
    Writable,
    /// The content of the tables bounds the size of the log.
    LogBytes,
    /// A server starts from every log that it has written.
    Start,
    /// An honest actor's new games become samples once faults stop.
    Liveness,
    /// Passes of the owner copy the log, passes of other logs change nothing, and a lost log is restored.
    Archive,
    /// Nothing panics.
    Panic,
}

impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Result of a check.
pub(crate) type Checked = Result<(), Violation>;

/// Fails a check.
pub(crate) fn broken(promise: Promise, what: String) -> Checked {
    Err(Violation { promise, what })
}

/// A trajectory that the server has stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// Content without revisions.
    pub(crate) content: Trajectory,
    /// One flag per table, true once the table has removed it.
    pub(crate) gone: [bool; TABLES],
    /// True if the record was damaged, so that a restart may lose it.
    pub(crate) damaged: bool,
}

/// A state that the log keeps, as far as it is known for certain.
#[derive(Debug, Clone)]
pub(crate) struct Durable<T> {
    /// State that a restart must restore; `None` if the last change is unresolved.
    pub(crate) known: Option<T>,
    /// Number of changes on the way to the log.
    in_flight: u32,
    /// Number of events in the run before the last change was sent to the log or damaged there.
    sent_at: u64,
    /// Number of requested changes.
    pub(crate) requests: u64,
}

impl<T> Default for Durable<T> {
    fn default() -> Self {
        Self { known: None, in_flight: 0, sent_at: 0, requests: 0 }
    }
}

impl<T> Durable<T> {
    /// Records that a change is on the way to the log, after this number of events in the run.
    pub(crate) fn sent(&mut self, events: u64) {
        (self.known, self.in_flight, self.sent_at) = (None, self.in_flight + 1, events);
    }

    /// Records that a record of the state was damaged, after this number of events in the run.
    pub(crate) fn damaged(&mut self, events: u64) {
        (self.known, self.sent_at) = (None, events);
    }

    /// Forgets the state unless it is known and unchanged in `later`.
    fn between(&mut self, later: &Self) {
        if self.sent_at != later.sent_at || later.known.is_none() {
            (self.known, self.sent_at) = (None, later.sent_at);
        }
        self.requests = self.requests.max(later.requests);
    }

    /// Records that the oldest pending change is durable.
    pub(crate) fn committed(&mut self, state: T) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.known = (self.in_flight == 0).then_some(state);
    }

    /// Records that the oldest pending change has failed, and may survive or not.
    pub(crate) fn failed(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.known = None;
    }

    /// Records that the process has stopped, with all pending changes.
    fn crashed(&mut self) {
        self.in_flight = 0;
    }
}

/// All promises of the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    /// Trajectories that were seen in a table, in order of entry.
    pub(crate) sequence: VecDeque<TrajectoryId>,
    pub(crate) stored: BTreeMap<TrajectoryId, Stored>,
    /// Content that was sent for each id and is not stored for certain.
    pub(crate) offered: BTreeMap<TrajectoryId, Vec<Trajectory>>,
    /// Trajectories acknowledged as new since the last check of the tables.
    pub(crate) fresh: Vec<TrajectoryId>,
    /// Quarantine state of each suspect.
    pub(crate) quarantine: BTreeMap<Suspect, Durable<bool>>,
    /// Last acknowledged revision of each trajectory.
    pub(crate) revisions: BTreeMap<TrajectoryId, Revised>,
    /// Settings of each table.
    pub(crate) settings: [Durable<BTreeMap<String, String>>; TABLES],
    /// The item with the highest priority, and whether the record is durable.
    pub(crate) top: Option<Top>,
    /// Counts of the main table.
    pub(crate) counts: Counts,
    /// True if a rule without an exact model may have removed trajectories.
    pub(crate) may_remove: bool,
}

/// Revisions of one trajectory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Revised {
    /// Last acknowledged revision.
    pub(crate) certain: u64,
    /// Searches of each sent revision.
    pub(crate) sent: BTreeMap<u64, Vec<Trajectory>>,
}

/// The item with the highest priority.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Top {
    pub(crate) key: ItemKey,
    pub(crate) priority: f64,
    pub(crate) durable: bool,
}

/// Counts of the main table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Items of all trajectories that entered the table.
    pub(crate) inserted: u64,
    /// Number of drawn samples.
    pub(crate) sampled: u64,
    /// Samples that survive a crash.
    pub(crate) sampled_durable: u64,
    /// Highest counts so far: a damaged record may be read again.
    pub(crate) inserted_ever: u64,
    pub(crate) sampled_ever: u64,
    /// True if a record with counts may have been damaged.
    pub(crate) damaged: bool,
}

impl Oracle {
    /// Records content that was sent for an id.
    pub(crate) fn offer(&mut self, trajectory: &Trajectory) {
        if self.stored.get(&trajectory.id()).is_some_and(|stored| !stored.damaged) {
            return;
        }
        let offered = self.offered.entry(trajectory.id()).or_default();
        if !offered.contains(trajectory) {
            offered.push(trajectory.clone());
        }
    }

    /// Records that a trajectory was acknowledged as new.
    pub(crate) fn acknowledged(&mut self, id: TrajectoryId, content: &Trajectory) -> Checked {
        if items(content) == 0 && !self.stored.contains_key(&id) {
            // It may be acknowledged without being stored, since it has nothing to sample.
            return Ok(());
        }
        match self.stored.get(&id) {
            // A client that sends two games with one id may get the response for either.
            Some(stored) if !stored.damaged && id.actor < HOSTILE && !same_episode(&stored.content, content) => {
                broken(Promise::Once, format!("{id} was acknowledged as new, and is stored with another content"))
            }
            _ => {
                self.fresh.push(id);
                Ok(())
            }
        }
    }

    /// Records that an honest actor's trajectory was acknowledged as a duplicate.
    pub(crate) fn repeated(&self, id: TrajectoryId, content: &Trajectory) -> Checked {
        match self.stored.get(&id) {
            Some(stored) if !stored.damaged && !same_episode(&stored.content, content) => {
                broken(Promise::Own, format!("{id} was answered as a duplicate of another game"))
            }
            _ => Ok(()),
        }
    }

    /// Exempts a trajectory with a damaged record: a restart may lose the record, or read it again.
    pub(crate) fn damage(&mut self, id: TrajectoryId) {
        if let Some(stored) = self.stored.get_mut(&id) {
            stored.damaged = true;
            let content = stored.content.clone();
            self.offer(&content);
        }
    }

    /// Compares the trajectories that a table holds, oldest first, with the expected trajectories.
    pub(crate) fn check_held(&mut self, table: usize, held: &[Trajectory], capacity_items: u64) -> Checked {
        let unique: BTreeSet<TrajectoryId> = held.iter().map(Trajectory::id).collect();
        if unique.len() < held.len() {
            return broken(Promise::Once, format!("table {table} holds one trajectory twice"));
        }
        let (loose, placed): (Vec<&Trajectory>, Vec<&Trajectory>) =
            held.iter().partition(|held| self.stored.get(&held.id()).is_some_and(|stored| stored.damaged));
        self.check_damaged(table, &loose)?;
        self.enter_at_the_front(&placed)?;
        // Trajectories that were removed but read back by a restart are at the front.
        let is_back =
            |trajectory: &&&Trajectory| self.stored.get(&trajectory.id()).is_some_and(|stored| stored.gone[table]);
        let back = placed.iter().take_while(is_back).count();
        let mut rest = placed[back..].iter().copied().peekable();
        // Items of all trajectories that entered after the current one. A damaged trajectory may have entered again.
        let mut later: u64 =
            self.sequence.iter().filter_map(|id| self.stored.get(id)).map(|stored| items(&stored.content)).sum();
        let is_later = |held: &&Trajectory| self.stored.get(&held.id()).is_none_or(|stored| stored.damaged);
        later += held.iter().filter(is_later).map(items).sum::<u64>();
        let mut found = false;
        for id in &self.sequence {
            let Some(stored) = self.stored.get_mut(id) else { continue };
            later -= items(&stored.content);
            if rest.peek().is_some_and(|next| next.id() == *id) {
                rest.next();
                found = true;
                stored.gone[table] = false;
                continue;
            }
            if stored.gone[table] || stored.damaged {
                continue;
            }
            if found {
                return broken(Promise::Held, format!("{id} is missing between others in table {table}"));
            }
            if later < capacity_items && !self.may_remove {
                let what = format!("{id} left table {table}, and only {later} items entered after it");
                return broken(Promise::Held, what);
            }
            stored.gone[table] = true;
        }
        for trajectory in rest {
            self.enter(trajectory)?;
        }
        self.check_contents(held)
    }

    /// Checks the trajectories with damaged records. Such a record may be lost, read again once the bit has flipped
    /// back, or replaced by another record with the same id. Only the content is known.
    fn check_damaged(&mut self, table: usize, loose: &[&Trajectory]) -> Checked {
        let Self { stored, offered, .. } = self;
        for (id, stored) in stored.iter_mut().filter(|(_, stored)| stored.damaged) {
            let held = loose.iter().find(|held| held.id() == *id);
            stored.gone[table] = held.is_none();
            let Some(held) = held.filter(|held| !same_episode(&stored.content, held)) else { continue };
            let offered = offered.entry(*id).or_default();
            let Some(content) = offered.iter_mut().find(|offered| same_episode(offered, held)) else {
                return broken(Promise::Once, format!("{id} is held, and this content was never sent"));
            };
            std::mem::swap(&mut stored.content, content);
        }
        Ok(())
    }

    /// Records the trajectories before the first known one. They were never seen: no table had room for them when a
    /// start after a crash first read the records. Damage to a later record makes room.
    fn enter_at_the_front(&mut self, placed: &[&Trajectory]) -> Checked {
        let known = placed.iter().position(|held| self.stored.contains_key(&held.id()));
        for &trajectory in placed[..known.unwrap_or(0)].iter().rev() {
            self.enter(trajectory)?;
            self.sequence.rotate_right(1);
            let entered = self.stored.get_mut(&trajectory.id());
            entered.expect("the trajectory has entered").gone = [true; TABLES];
        }
        Ok(())
    }

    /// Records that a trajectory has entered the tables.
    pub(crate) fn enter(&mut self, trajectory: &Trajectory) -> Checked {
        let id = trajectory.id();
        if self.stored.get(&id).is_some_and(|stored| !stored.damaged) {
            return broken(Promise::Once, format!("{id} entered twice, or out of its order"));
        }
        let offered = self.offered.remove(&id).unwrap_or_default();
        let Some(content) = offered.iter().find(|offered| same_episode(offered, trajectory)).cloned() else {
            return broken(Promise::Once, format!("{id} is held, and this content was never sent"));
        };
        self.sequence.retain(|other| *other != id);
        self.sequence.push_back(id);
        let before = self.stored.insert(id, Stored { content, gone: [false; TABLES], damaged: false });
        if before.is_some() {
            // The damaged record is read again if the bit flips back.
            self.offered.insert(id, offered);
        }
        Ok(())
    }

    fn check_contents(&mut self, held: &[Trajectory]) -> Checked {
        for trajectory in held {
            let id = trajectory.id();
            let Some(stored) = self.stored.get(&id) else { continue };
            if !same_episode(&stored.content, trajectory) {
                return broken(Promise::Once, format!("{id} is held with another content"));
            }
        }
        Ok(())
    }

    /// Checks that everything acknowledged since the last check has entered the tables. Forgets trajectories that all
    /// tables have removed.
    pub(crate) fn check_fresh(&mut self) -> Checked {
        for id in std::mem::take(&mut self.fresh) {
            if !self.stored.contains_key(&id) {
                return broken(Promise::Held, format!("{id} was acknowledged and is in no table"));
            }
        }
        let is_gone = |id: &TrajectoryId| self.stored.get(id).is_none_or(|stored| stored.gone == [true; TABLES]);
        while self.sequence.front().is_some_and(is_gone) {
            self.sequence.pop_front();
        }
        Ok(())
    }

    /// Forgets state that the process only held in memory.
    pub(crate) fn crashed(&mut self) {
        self.fresh.clear();
        self.quarantine.values_mut().for_each(Durable::crashed);
        self.settings.iter_mut().for_each(Durable::crashed);
        self.top = self.top.filter(|top| top.durable);
    }

    /// Returns the oracle of a disk restored from a copy. `self` holds the promises of the copy; content that was sent
    /// later may be sent again.
    pub(crate) fn restored(mut self, later: &Self) -> Self {
        self.crashed();
        for content in later.offered.values().flatten().chain(later.stored.values().map(|stored| &stored.content)) {
            self.offer(content);
        }
        self
    }

    /// Returns the oracle of a log that ends between two states with the promises `self` and `later`: the content of
    /// the first, and possibly additions and changes of the second.
    pub(crate) fn between(mut self, later: &Self) -> Self {
        self = self.restored(later);
        for (suspect, state) in &later.quarantine {
            // A suspect without an entry is known not to be in quarantine.
            let unchanged = || Durable { known: Some(false), ..Durable::default() };
            self.quarantine.entry(*suspect).or_insert_with(unchanged).between(state);
        }
        self.settings.iter_mut().zip(&later.settings).for_each(|(state, later)| state.between(later));
        for (id, later) in &later.revisions {
            let revised = self.revisions.entry(*id).or_default();
            later.sent.iter().for_each(|(revision, sent)| {
                revised.sent.entry(*revision).or_default().extend(sent.iter().cloned());
            });
        }
        let same = |top: &Top| later.top.is_some_and(|later| (later.key, later.priority) == (top.key, top.priority));
        self.top = self.top.filter(same);
        let (counts, later) = (&mut self.counts, later.counts);
        counts.sampled = counts.sampled.max(later.sampled);
        counts.inserted_ever = counts.inserted_ever.max(later.inserted_ever);
        counts.sampled_ever = counts.sampled_ever.max(later.sampled_ever);
        counts.damaged |= later.damaged;
        self
    }

    /// Returns the ids that some table holds, oldest first.
    pub(crate) fn held(&self) -> Vec<TrajectoryId> {
        let is_held = |id: &&TrajectoryId| self.is_held(**id);
        self.sequence.iter().filter(is_held).copied().collect()
    }

    pub(crate) fn is_held(&self, id: TrajectoryId) -> bool {
        self.stored.get(&id).is_some_and(|stored| stored.gone != [true; TABLES])
    }

    /// Returns true if a suspect is known to be in quarantine, false if it is known not to be.
    pub(crate) fn is_quarantined(&self, id: TrajectoryId) -> Option<bool> {
        let known = |suspect| self.quarantine.get(&suspect).map_or(Some(false), |state| state.known);
        match (known(Suspect::Trajectory(id)), known(Suspect::Actor(id.actor))) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        }
    }
}

/// Returns true if two trajectories are the same episode, even with different searches.
pub(crate) fn same_episode(a: &Trajectory, b: &Trajectory) -> bool {
    a == b || a.revised_by(b).is_ok()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use weights::WeightsVersion;

    use super::*;
    use crate::content::{Items, game};

    const CAPACITY_ITEMS: u64 = 60;

    /// Returns the first game of an epoch, with this content.
    fn first_of(epoch: u64, serial: u32) -> Trajectory {
        let id = TrajectoryId { actor: HOSTILE, epoch, sequence: 0 };
        game(id, serial, WeightsVersion(1), Items::Some, &mut ChaCha8Rng::seed_from_u64(1))
    }

    /// Returns an oracle with two games in the tables; the record of the first was damaged and lost.
    fn of_two_games(first: &Trajectory, second: &Trajectory) -> Oracle {
        let mut oracle = Oracle::default();
        for game in [first, second] {
            oracle.offer(game);
            oracle.enter(game).unwrap();
        }
        oracle.stored.get_mut(&first.id()).unwrap().damaged = true;
        oracle.offer(first);
        assert_eq!(held(&mut oracle, std::slice::from_ref(second)), Ok(()));
        oracle
    }

    fn held(oracle: &mut Oracle, held: &[Trajectory]) -> Checked {
        (0..TABLES).try_for_each(|table| oracle.check_held(table, held, CAPACITY_ITEMS))?;
        oracle.check_fresh()
    }

    #[test]
    fn a_damaged_record_may_be_read_again_and_no_other_may_leave_for_it() {
        let [first, second] = [1, 2].map(|epoch| first_of(epoch, 1));
        let mut oracle = of_two_games(&first, &second);
        assert_eq!(held(&mut oracle, &[first.clone(), second]), Ok(()));
        assert_eq!(held(&mut oracle, &[first]).unwrap_err().promise, Promise::Held);
    }

    #[test]
    fn a_record_for_which_there_was_no_room_may_be_read_once_another_is_damaged_and_only_if_it_was_sent() {
        let [unseen, first, second] = [1, 2, 3].map(|epoch| first_of(epoch, 1));
        let mut oracle = of_two_games(&first, &second);
        oracle.offer(&unseen);
        assert_eq!(held(&mut oracle, &[unseen.clone(), second.clone()]), Ok(()));
        assert_eq!(held(&mut oracle, &[unseen, second.clone()]), Ok(()));
        assert_eq!(held(&mut oracle, &[first_of(4, 1), second]).unwrap_err().promise, Promise::Once);
    }

    #[test]
    fn another_content_may_replace_a_damaged_record_if_it_was_sent() {
        let ([first, second], [sent, unsent]) =
            ([1, 2].map(|epoch| first_of(epoch, 1)), [2, 3].map(|s| first_of(1, s)));
        let mut oracle = of_two_games(&first, &second);
        oracle.offer(&sent);
        assert_eq!(held(&mut oracle, &[second.clone(), sent]), Ok(()));
        assert_eq!(held(&mut oracle, &[first, second.clone()]), Ok(()));
        assert_eq!(held(&mut oracle, &[second, unsent]).unwrap_err().promise, Promise::Once);
    }
}
