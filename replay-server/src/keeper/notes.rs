//! What becomes durable besides trajectories: notes wait for room in the log, and whoever asked hears when they are.

use replay::Quarantine;

use super::{IN_LOG_MAX, Keeper};
use crate::log::{Entry, Note};
use experience::TrajectoryId;

/// Notes that wait for the log. Beyond them, or where the log fails, a report holds until the next start only: what is
/// drawn again then is reported again.
const NOTES_WAITING_MAX: usize = 1024;

/// What follows once a note is durable, or is not and why.
pub(super) struct Then(Box<dyn FnOnce(Result<(), String>) + Send>);

impl Then {
    /// Nobody asked.
    pub(super) fn nothing() -> Self {
        Self(Box::new(|_| {}))
    }
}

impl std::fmt::Debug for Then {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Then").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Makes a note durable as soon as the log has room.
    pub(super) fn note(&mut self, note: Note, then: Then) {
        if self.notes.len() >= NOTES_WAITING_MAX {
            return then.0(Err(format!("{NOTES_WAITING_MAX} notes wait for the log already")));
        }
        self.notes.push_back((note, then));
    }

    pub(super) fn send_notes(&mut self) {
        while self.in_log_entries < IN_LOG_MAX {
            let Some((note, then)) = self.notes.pop_front() else { return };
            // The log answers in the order in which it was told.
            self.notes_in_log.push_back(then);
            self.append(Entry::Note(note));
        }
    }

    /// The oldest note on its way is durable, or is not.
    pub(super) fn noted(&mut self, durable: Result<(), String>) {
        if let Some(then) = self.notes_in_log.pop_front() {
            then.0(durable);
        }
    }

    /// Takes a trajectory out of sampling. Whether a table held it.
    pub(super) fn report(&mut self, id: TrajectoryId) -> bool {
        let (mut is_held, mut is_new) = (false, false);
        for table in &mut self.tables {
            let quarantine = table.quarantine(id);
            is_held |= quarantine != Quarantine::Unknown;
            is_new |= matches!(quarantine, Quarantine::Quarantined { .. });
        }
        if is_new {
            self.note(Note::Quarantine(id), Then::nothing());
        }
        is_held
    }
}
