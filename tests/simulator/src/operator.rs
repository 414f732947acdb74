//! Operators and reanalysis: calls with one request and one response.

use std::collections::BTreeMap;

use experience::{Trajectory, TrajectoryId};
use prost::Message as _;
use proto::replay::{
    PriorityUpdate, Quarantine, Revisable, Suspect, TableChange, change_from_wire, revision_from_wire, v1,
};
use rand::RngExt;
use rand::seq::IndexedRandom as _;
use replay::ItemKey;
use replay_server::log::UnixMillis;
use replay_server::storage;
use replay_server::table_service::{Command, Refusal, Sampled};
use run_file::replay::TableIndex;
use tokio::sync::{mpsc, oneshot};
use weights::WeightsVersion;

use crate::content::{LIMITS, searched_again};
use crate::oracle::{Checked, Promise, Revised, Top, broken};
use crate::settings::{GREATEST, WINDOW_ITEMS};
use crate::world::World;

/// A call with a pending response.
pub(crate) enum Call {
    Quarantine { suspect: Suspect, quarantined: bool, request: u64, answer: oneshot::Receiver<Result<u64, Refusal>> },
    Configure { answer: oneshot::Receiver<Result<BTreeMap<String, String>, Refusal>> },
    Revise { id: TrajectoryId, from: u64, answer: oneshot::Receiver<Result<u64, Refusal>> },
}

/// Settings that an operator changes, with values to choose from.
const CHANGES: [(&str, &[&str]); 5] = [
    ("samples_per_insert", &["1", "2", "3"]),
    ("min_items", &["4", "8"]),
    ("error_items", &["40", "60"]),
    ("capacity_items", &["40", "60"]),
    ("age_max_hours", &["0", "5"]),
];

impl World {
    /// Quarantines, releases or configures, or repeats an earlier call.
    pub(crate) fn operate(&mut self) -> Checked {
        if self.server.is_none() {
            return Ok(());
        }
        match self.rng.random_range(0..5) {
            0 | 1 => self.change_quarantine(true),
            2 => self.change_quarantine(false),
            3 => self.report_one(),
            _ => {
                let (key, values) = CHANGES[self.rng.random_range(0..CHANGES.len())];
                let value = values[self.rng.random_range(0..values.len())];
                self.configure(&[(key, value)])
            }
        }
    }

    fn any_held(&mut self) -> Option<TrajectoryId> {
        self.oracle.held().choose(&mut self.rng).copied()
    }

    fn change_quarantine(&mut self, quarantined: bool) -> Checked {
        let suspect = if self.rng.random_bool(0.3) {
            Suspect::Actor(self.rng.random_range(1..=4))
        } else {
            let Some(id) = self.any_held() else { return Ok(()) };
            Suspect::Trajectory(id)
        };
        self.request_quarantine(suspect, quarantined)
    }

    pub(crate) fn request_quarantine(&mut self, suspect: Suspect, quarantined: bool) -> Checked {
        let state = self.oracle.quarantine.entry(suspect).or_default();
        if state.requests == 0 && state.known.is_none() {
            state.known = Some(false);
        }
        state.requests += 1;
        let request = state.requests;
        let (reply, answer) = oneshot::channel();
        let command = if quarantined {
            let message: v1::QuarantineRequest = Quarantine { suspect, reason: "suspect".to_owned() }.into();
            let message = v1::QuarantineRequest::decode(message.encode_to_vec().as_slice()).expect("it was encoded");
            Command::Quarantine(Quarantine::try_from(message).expect("it is valid").suspect, reply)
        } else {
            let message: v1::ReleaseRequest = suspect.into();
            let message = v1::ReleaseRequest::decode(message.encode_to_vec().as_slice()).expect("it was encoded");
            Command::Release(Suspect::try_from(message).expect("it is valid"), reply)
        };
        self.note("quarantine", format!("an operator sets quarantine of {suspect:?} to {quarantined}"));
        if let Some(server) = &mut self.server {
            server.calls.push(Call::Quarantine { suspect, quarantined, request, answer });
        }
        self.apply(command)
    }

    fn report_one(&mut self) -> Checked {
        let Some(id) = self.any_held() else { return Ok(()) };
        let state = self.oracle.quarantine.entry(Suspect::Trajectory(id)).or_default();
        if state.requests == 0 && state.known.is_none() {
            state.known = Some(false);
        }
        state.requests += 1;
        self.note("report", format!("the learner reports {id}"));
        self.ask(|reply| Command::Report(id, reply));
        self.check_apply()
    }

    /// Changes settings of the main table.
    pub(crate) fn configure(&mut self, settings: &[(&str, &str)]) -> Checked {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let change = TableChange { table: "main".to_owned(), settings };
        let change = change_from_wire(change).expect("it is valid");
        self.note("configure", format!("an operator sets {:?}", change.settings));
        let (reply, answer) = oneshot::channel();
        if let Some(server) = &mut self.server {
            server.calls.push(Call::Configure { answer });
        }
        self.apply(Command::Configure(TableIndex::MAIN, change.settings, reply))
    }

    /// Handles the responses that have arrived.
    pub(crate) fn poll_calls(&mut self) -> Checked {
        let Some(server) = &mut self.server else { return Ok(()) };
        let mut events = Vec::new();
        server.calls.retain_mut(|call| match call {
            Call::Quarantine { suspect, quarantined, request, answer } => match answer.try_recv() {
                Ok(Ok(_)) => {
                    let state = self.oracle.quarantine.entry(*suspect).or_default();
                    // A promise, unless a later request has overtaken it.
                    if state.requests == *request {
                        state.known = Some(*quarantined);
                    }
                    events.push(("quarantine durable", format!("quarantine of {suspect:?} is {quarantined}")));
                    false
                }
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => false,
                Err(oneshot::error::TryRecvError::Empty) => true,
            },
            Call::Configure { answer } => match answer.try_recv() {
                Ok(answer) => {
                    events.push(("configured", format!("a change of settings is durable: {}", answer.is_ok())));
                    false
                }
                Err(oneshot::error::TryRecvError::Closed) => false,
                Err(oneshot::error::TryRecvError::Empty) => true,
            },
            Call::Revise { id, from, answer } => match answer.try_recv() {
                Ok(Ok(revision)) => {
                    events.push(("revised", format!("{id} is of revision {revision}, searched from {from}")));
                    if let Some(revised) = self.oracle.revisions.get_mut(id) {
                        revised.certain = revised.certain.max(revision);
                    }
                    false
                }
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => false,
                Err(oneshot::error::TryRecvError::Empty) => true,
            },
        });
        for (branch, sentence) in events {
            self.note(branch, sentence);
        }
        Ok(())
    }

    /// Chooses a trajectory and sends new searches for it, sometimes computed from an earlier revision.
    pub(crate) fn revise(&mut self) -> Checked {
        let newest = WeightsVersion(self.newest.0 + 1);
        let Some(Some(chosen)) = self.ask(|reply| Command::Choose(TableIndex::MAIN, newest, reply)) else {
            return self.check_apply();
        };
        let id = chosen.trajectory.id();
        let from = chosen.revision - u64::from(chosen.revision > 0 && self.rng.random_bool(0.2));
        let searched = searched_again(&chosen.trajectory, newest);
        let message: v1::ReviseRequest = Revisable { trajectory: searched, revision: from }.into();
        let message = v1::ReviseRequest::decode(message.encode_to_vec().as_slice()).expect("it was encoded");
        let revised = revision_from_wire(message, LIMITS).expect("it is valid");
        let at = UnixMillis(self.wall_ms());
        let content = storage::encode_revision(&revised.trajectory, from + 1, at).expect("it is within the limits");
        let known = self.oracle.revisions.entry(id).or_insert_with(|| Revised { certain: 0, sent: BTreeMap::new() });
        known.sent.entry(from + 1).or_default().push(revised.trajectory.clone());
        self.note("revise", format!("reanalysis sends new searches of {id}, from revision {from}"));
        let (reply, answer) = oneshot::channel();
        if let Some(server) = &mut self.server {
            server.calls.push(Call::Revise { id, from, answer });
        }
        self.apply(Command::Revise { revised, content, at, reply })
    }

    /// Gives one item a higher priority than any other.
    pub(crate) fn prioritise(&mut self) -> Checked {
        let Some(held) = self.held(TableIndex(1)) else { return Ok(()) };
        let with_items: Vec<&Trajectory> = held.iter().filter(|trajectory| trajectory.full_steps() > 0).collect();
        let Some(trajectory) = with_items.choose(&mut self.rng) else { return self.check_apply() };
        let plies: Vec<usize> = trajectory.full_plies().collect();
        let ply = plies[self.rng.random_range(0..plies.len())];
        let key = ItemKey { trajectory: trajectory.id(), ply };
        self.next_priority += 1.0;
        let updated = self.update_priorities(vec![(key, self.next_priority)])?;
        if updated == Some(1) {
            self.oracle.top = Some(Top { key, priority: self.next_priority, durable: false });
        }
        self.note("prioritise", format!("item {key} has the highest priority, {}", self.next_priority));
        self.check_apply()
    }

    /// Updates priorities in the table of priorities; returns the number of changed items.
    pub(crate) fn update_priorities(
        &mut self,
        priorities: Vec<(ItemKey, f64)>,
    ) -> Result<Option<u64>, crate::oracle::Violation> {
        let item = |(ItemKey { trajectory, ply }, priority): (ItemKey, f64)| proto::replay::ItemPriority {
            trajectory,
            ply,
            priority,
        };
        let priorities = priorities.into_iter().map(item).collect();
        let message: v1::UpdatePrioritiesRequest = PriorityUpdate { table: GREATEST.to_owned(), priorities }.into();
        let message = v1::UpdatePrioritiesRequest::decode(message.encode_to_vec().as_slice()).expect("it was encoded");
        let Ok(update) = PriorityUpdate::try_from(message) else { return Ok(None) };
        let priorities = update.priorities.into_iter();
        let priorities =
            priorities.map(|item| (ItemKey { trajectory: item.trajectory, ply: item.ply }, item.priority)).collect();
        let answer = self.ask(|reply| Command::UpdatePriorities(TableIndex(1), priorities, reply));
        let Some(Ok(update)) = answer else { return Ok(None) };
        if let Some(server) = self.server.as_mut().filter(|_| update.updated > 0) {
            server.updated.push_back(update.updated);
        }
        Ok(Some(update.updated))
    }

    /// Draws the item with the highest priority.
    pub(crate) fn probe(&mut self) -> Checked {
        let (reply, mut batches) = mpsc::channel(100);
        self.apply(Command::Sample { table: TableIndex(1), items: 1, reply })?;
        let Some(top) = self.oracle.top else { return Ok(()) };
        let id = top.key.trajectory;
        let Some(Some(located)) = self.ask(|reply| Command::Get(id, reply)) else { return Ok(()) };
        let held = self.held(TableIndex(1)).unwrap_or_default();
        let newer: usize = held.iter().take_while(|held| held.id() != id).map(Trajectory::full_steps).sum();
        let behind = located.trajectory.full_plies().filter(|ply| *ply > top.key.ply).count();
        let is_in_window = newer + behind < WINDOW_ITEMS;
        let is_drawn = is_in_window && !located.quarantined && located.tables.iter().any(|table| table == GREATEST);
        while let Ok(sampled) = batches.try_recv() {
            let Sampled::Batch { drawn, .. } = sampled else { continue };
            let key = |drawn: &replay::Drawn| ItemKey { trajectory: drawn.trajectory.id(), ply: drawn.ply() };
            let first = drawn.first().map(key);
            self.note("probe", format!("item {first:?} is drawn first"));
            if is_drawn && first != Some(top.key) {
                let what = format!("{first:?} is drawn, and {} has the highest priority", top.key);
                return broken(Promise::Priorities, what);
            }
        }
        Ok(())
    }
}
