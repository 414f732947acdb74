//! Decides which learners form a group, as a state machine without tasks, sockets or clocks.
//!
//! A learner without a group queries the status of all other learners. If one of them coordinates a group, the learner
//! asks this coordinator for a place. If all responding learners are without a group, the learner with the lowest index
//! calls the roll; it first waits some time for learners that are running but do not respond. A coordinator closes the
//! roll when all expected learners have asked, or after a timeout. All candidates are then members of the next group.
//!
//! The members of a group never change. If a member is lost or a learner asks for a place, the members form the next
//! group, under the same coordinator if it is alive. If two groups detect each other, the group with fewer steps
//! dissolves, and the members join the other group.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proto::learners::{Candidate, Gpu, Look, Meeting, NUMBER_MAX, PeerError, Phase, Refusal, Roster};
use run_file::learner::CollectiveKind;

use super::library::{self, Library};

/// State machine for a learner's group membership.
#[derive(Debug)]
pub(crate) struct Membership {
    own: usize,
    /// Number of learners configured in `learner.group`.
    learners: usize,
    /// Maximum duration of a roll call.
    roll: Duration,
    /// Maximum time to wait for a learner that is running but gives no usable response.
    patience: Duration,
    /// Time at which each other learner without a usable response stopped giving one, by index.
    silent_since: BTreeMap<usize, Instant>,
    kind: CollectiveKind,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Training has not started.
    Idle,
    /// The learner is looking for a coordinator.
    Seeking { candidate: Candidate },
    /// The learner has asked a coordinator for a place.
    Asking { candidate: Candidate, coordinator: usize },
    /// The learner is the coordinator of the next group, and collects candidates.
    Calling { candidates: BTreeMap<usize, Candidate>, expected: BTreeSet<usize>, until: Instant },
    /// The learner is a member of a group.
    Training {
        roster: Roster,
        fingerprint: weights::Digest,
        /// GPUs of the members, by index; empty unless this learner is the coordinator.
        gpus: BTreeMap<usize, Option<Gpu>>,
        waiting: BTreeMap<usize, Candidate>,
        yields: bool,
    },
}

/// The decision of a learner after a status query to all other learners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Ask the learner with this index for a place.
    Ask(usize),
    /// Call the roll for a new group.
    Call,
    /// Query again later: no learner can give a place yet.
    Wait,
}

/// The coordinator's reaction to a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The candidate waits; the response follows once the roll is closed.
    Waits,
    /// The candidate is refused immediately.
    Refused(Refusal),
}

impl Membership {
    /// Creates the membership of the learner with index `own` among `learners` learners. A roll call lasts at most
    /// `roll`. The learner waits up to `patience` for learners that are running but give no usable response.
    pub(crate) fn new(own: usize, learners: usize, roll: Duration, patience: Duration) -> Self {
        let (silent_since, kind) = (BTreeMap::new(), CollectiveKind::Auto);
        Self { own, learners, roll, patience, silent_since, kind, state: State::Idle }
    }

    /// Sets the library configured in `learner.collective`. Candidates that cannot use it are refused.
    pub(crate) fn with_kind(self, kind: CollectiveKind) -> Self {
        Self { kind, ..self }
    }

    /// Starts looking for a group. The coordinator of the last group calls the roll immediately, because the other
    /// members will ask it for a place.
    pub(crate) fn seek(&mut self, now: Instant, candidate: Candidate) {
        self.silent_since.clear();
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Training { roster, waiting, yields: false, .. } if roster.coordinator() == self.own => {
                let expected = roster.members.iter().chain(waiting.keys()).copied().collect();
                self.calling(now, candidate, waiting, expected)
            }
            _ => State::Seeking { candidate },
        };
    }

    /// Decides after a status query to the other learners. Learners that are away are ignored. A learner with a late
    /// response or an error is running and may be a member of a group, so no roll is called until `patience` has
    /// elapsed.
    pub(crate) fn choose(&mut self, now: Instant, looks: &[(usize, Result<Look, PeerError>)]) -> Choice {
        let State::Seeking { candidate } = self.state else { return Choice::Wait };
        let is_awaited = self.awaits(now, looks);
        let others = || looks.iter().filter_map(|(_, look)| look.as_ref().ok()).filter(|look| look.index != self.own);
        let most = |look: &&Look| (look.steps, Reverse(look.index));
        if let Some(coordinator) = others().filter(|look| look.coordinates()).max_by_key(most) {
            self.state = State::Asking { candidate, coordinator: coordinator.index };
            return Choice::Ask(coordinator.index);
        }
        // A learner that still counts itself as a member has not yet noticed an unreachable coordinator, or is
        // connected to members that this learner cannot reach.
        let is_settled = others().all(|look| look.phase == Phase::Seeking);
        if !is_awaited && is_settled && others().all(|look| look.index > self.own) {
            let expected = (0..self.learners).collect();
            self.state = self.calling(now, candidate, BTreeMap::new(), expected);
            return Choice::Call;
        }
        Choice::Wait
    }

    /// Returns true if this learner still waits for a learner without a usable response.
    fn awaits(&mut self, now: Instant, looks: &[(usize, Result<Look, PeerError>)]) -> bool {
        let mut is_awaited = false;
        for (index, look) in looks {
            match look {
                Ok(_) | Err(PeerError::Away { .. }) => drop(self.silent_since.remove(index)),
                Err(PeerError::Late | PeerError::Refused { .. }) => {
                    let since = *self.silent_since.entry(*index).or_insert(now);
                    is_awaited |= now.saturating_duration_since(since) < self.patience;
                }
            }
        }
        is_awaited
    }

    /// Handles the coordinator's response to a request for a place in a group; `None` if there was no place. Returns
    /// true if this learner is now a member. Otherwise the learner looks for a group again.
    pub(crate) fn answered(&mut self, roster: Option<Roster>) -> bool {
        let State::Asking { candidate, coordinator } = self.state else { return false };
        // A group that starts below a version number stored by this learner could assign that number again.
        let is_of = |roster: &Roster| {
            let is_place = roster.coordinator() == coordinator && roster.rank_of(self.own).is_some();
            is_place && roster.weights_version >= candidate.weights_version
        };
        match roster.filter(is_of) {
            Some(roster) => {
                let fingerprint = candidate.fingerprint;
                let (gpus, waiting) = (BTreeMap::new(), BTreeMap::new());
                self.state = State::Training { roster, fingerprint, gpus, waiting, yields: false };
                true
            }
            None => {
                self.state = State::Seeking { candidate };
                false
            }
        }
    }

    /// Handles a candidate's request for a place.
    pub(crate) fn asked(&mut self, candidate: Candidate) -> Asked {
        let none = BTreeMap::new();
        let (fingerprint, gpus, waiting) = match &mut self.state {
            State::Calling { candidates, .. } => {
                (candidates.get(&self.own).map(|own| own.fingerprint), &none, candidates)
            }
            State::Training { roster, fingerprint, gpus, waiting, yields: false }
                if roster.coordinator() == self.own =>
            {
                (Some(*fingerprint), &*gpus, waiting)
            }
            _ => return Asked::Refused(Refusal::Elsewhere),
        };
        if candidate.index >= self.learners || candidate.index == self.own {
            let reason = format!(
                "learner.index: {} names no other learner of the {} in the group",
                candidate.index, self.learners
            );
            return Asked::Refused(Refusal::Different(reason));
        }
        if fingerprint != Some(candidate.fingerprint) {
            let reason = "the network, the training settings or the number of learners differ from the group; use the \
                          same run file for all learners of a group";
            return Asked::Refused(Refusal::Different(reason.to_owned()));
        }
        if self.kind == CollectiveKind::Nccl {
            let known = waiting.iter().map(|(&index, other)| (index, other.gpu));
            let others = gpus.iter().map(|(&index, &gpu)| (index, gpu)).chain(known);
            let others: BTreeMap<_, _> = others.filter(|&(index, _)| index != candidate.index).collect();
            let (_, reason) = library::choose(others.into_iter().chain([(candidate.index, candidate.gpu)]));
            if let Some(reason) = reason {
                return Asked::Refused(Refusal::Different(format!("learner.collective: {reason}")));
            }
        }
        waiting.insert(candidate.index, candidate);
        Asked::Waits
    }

    /// Removes a candidate that no longer waits for a response.
    pub(crate) fn withdrew(&mut self, index: usize) {
        if let State::Calling { candidates: waiting, .. } | State::Training { waiting, .. } = &mut self.state
            && index != self.own
        {
            waiting.remove(&index);
        }
    }

    /// Returns true if the roll can be closed: all expected candidates have asked, or the time is over.
    pub(crate) fn is_complete(&self, now: Instant) -> bool {
        match &self.state {
            State::Calling { candidates, expected, until } => {
                now >= *until || expected.iter().all(|index| candidates.contains_key(index))
            }
            _ => false,
        }
    }

    /// Returns the library for the current candidates, and the reason if the library is not NCCL.
    pub(crate) fn library(&self) -> (Library, Option<String>) {
        match &self.state {
            State::Calling { candidates, .. } => {
                library::choose(candidates.values().map(|candidate| (candidate.index, candidate.gpu)))
            }
            _ => (Library::Gloo, None),
        }
    }

    /// Closes the roll and returns the roster. The members use the data in `meeting` to connect. Returns `None` if no
    /// roll call is in progress, or if later candidates require another library than `meeting`.
    pub(crate) fn close(&mut self, meeting: Meeting) -> Option<Roster> {
        let library = match meeting {
            Meeting::Exchange { .. } => Library::Gloo,
            Meeting::Nccl { .. } => Library::Nccl,
        };
        if self.library().0 != library {
            return None;
        }
        let State::Calling { candidates, .. } = &self.state else { return None };
        let of_own = candidates.get(&self.own)?;
        let others = candidates.values().filter(|candidate| candidate.index != self.own);
        let ranked: Vec<Candidate> = std::iter::once(of_own).chain(others).copied().collect();
        let most = |of: fn(&Candidate) -> u64| ranked.iter().map(of).max().unwrap_or(0);
        let by_steps = |rank: &usize| (ranked[*rank].steps, Reverse(*rank));
        let roster = Roster {
            generation: most(|candidate| candidate.generation).saturating_add(1).min(NUMBER_MAX),
            members: ranked.iter().map(|candidate| candidate.index).collect(),
            source: (0..ranked.len()).max_by_key(by_steps)?,
            weights_version: most(|candidate| candidate.weights_version),
            meeting,
        };
        let fingerprint = of_own.fingerprint;
        let gpus = candidates.values().map(|candidate| (candidate.index, candidate.gpu)).collect();
        let waiting = BTreeMap::new();
        self.state = State::Training { roster: roster.clone(), fingerprint, gpus, waiting, yields: false };
        Some(roster)
    }

    /// Compares this group with the status of other learners. If this learner is the coordinator and another group has
    /// more steps, this group will dissolve.
    pub(crate) fn compare(&mut self, looks: &[Look], own_steps: u64) {
        let State::Training { roster, yields, .. } = &mut self.state else { return };
        if roster.coordinator() != self.own {
            return;
        }
        let is_ahead = |look: &Look| (look.steps, Reverse(look.index)) > (own_steps, Reverse(self.own));
        let is_other = |look: &&Look| look.index != self.own && matches!(look.phase, Phase::Training { .. });
        *yields |= looks.iter().filter(is_other).any(|look| look.coordinates() && is_ahead(look));
    }

    /// Returns true if the members should form the next group: a learner waits for a place, or another group has more
    /// steps.
    pub(crate) fn wants_reform(&self) -> bool {
        matches!(&self.state, State::Training { waiting, yields, .. } if *yields || !waiting.is_empty())
    }

    /// Returns true if group members must be polled: NCCL connections do not close when a member is lost.
    pub(crate) fn must_watch(&self) -> bool {
        matches!(&self.state, State::Training { roster, .. }
            if roster.members.len() > 1 && matches!(roster.meeting, Meeting::Nccl { .. }))
    }

    /// Returns true if a status query shows that a member has left the group. A late response does not count, because
    /// the member may be busy.
    pub(crate) fn misses_member(&self, looks: &[(usize, Result<Look, PeerError>)]) -> bool {
        let State::Training { roster, .. } = &self.state else { return false };
        let phase = Phase::Training { coordinator: roster.coordinator() };
        let has_left = |look: &Result<Look, PeerError>| match look {
            Ok(look) => look.phase != phase,
            Err(PeerError::Late) => false,
            Err(PeerError::Away { .. } | PeerError::Refused { .. }) => true,
        };
        looks.iter().any(|(index, look)| roster.rank_of(*index).is_some() && has_left(look))
    }

    /// Returns true if the learner is looking for a coordinator and has never been in a group.
    pub(crate) fn is_new(&self) -> bool {
        matches!(&self.state, State::Seeking { candidate } if candidate.generation == 0)
    }

    /// Returns true if the learner is looking for a coordinator.
    pub(crate) fn is_seeking(&self) -> bool {
        matches!(self.state, State::Seeking { .. })
    }

    /// Returns true if the learner coordinates a group without all configured learners.
    pub(crate) fn may_find_another(&self) -> bool {
        matches!(&self.state, State::Training { roster, .. }
            if roster.coordinator() == self.own && roster.members.len() < self.learners)
    }

    /// Returns this learner as a candidate; `None` unless it is looking for a group.
    pub(crate) fn candidate(&self) -> Option<Candidate> {
        match &self.state {
            State::Seeking { candidate } | State::Asking { candidate, .. } => Some(*candidate),
            _ => None,
        }
    }

    /// Returns the status reported to other learners; `None` before training starts. `steps` is the number of training
    /// steps.
    pub(crate) fn look(&self, steps: u64) -> Option<Look> {
        let phase = match &self.state {
            State::Idle => return None,
            State::Seeking { .. } | State::Asking { .. } => Phase::Seeking,
            State::Calling { .. } => Phase::Calling,
            State::Training { roster, .. } => Phase::Training { coordinator: roster.coordinator() },
        };
        Some(Look { phase, index: self.own, steps })
    }

    fn calling(
        &self,
        now: Instant,
        own: Candidate,
        mut candidates: BTreeMap<usize, Candidate>,
        expected: BTreeSet<usize>,
    ) -> State {
        candidates.insert(self.own, own);
        State::Calling { candidates, expected, until: now + self.roll }
    }
}

#[cfg(test)]
mod tests;
