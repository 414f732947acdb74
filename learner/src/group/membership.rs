//! The rules by which learners form groups, as a state machine without tasks, sockets or clocks.
//!
//! A learner without a group looks at all others. If one of them coordinates a group, it asks that one for a place; if
//! all that answer are without a group, the one with the lowest index calls the roll, after it has waited some time for
//! those that are there and do not answer. A coordinator closes the roll
//! when everyone it expects has come, or after a time, and everyone who came is a member of the next group. Groups
//! never change: when a member is lost or a learner asks for a place, the members form the next group, under the same
//! coordinator if it lives. Two groups that see each other become one: the one with fewer steps ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use learner::config::CollectiveKind;
use proto::learners::{Candidate, Gpu, Look, Meeting, NUMBER_MAX, PeerError, Phase, Refusal, Roster};

use super::library::{self, Library};

/// A learner's membership.
#[derive(Debug)]
pub(crate) struct Membership {
    own: usize,
    /// The number of learners in the configuration.
    learners: usize,
    /// The longest time for which a roll is called.
    roll: Duration,
    /// The time for which a learner without a usable answer is waited for.
    patience: Duration,
    /// Since when the others have given none, by index.
    silent_since: BTreeMap<usize, Instant>,
    kind: CollectiveKind,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Training has not begun.
    Idle,
    /// It looks for a coordinator.
    Seeking { candidate: Candidate },
    /// It has asked a coordinator.
    Asking { candidate: Candidate, coordinator: usize },
    /// It calls the roll.
    Calling { candidates: BTreeMap<usize, Candidate>, expected: BTreeSet<usize>, until: Instant },
    /// It is a member.
    Training {
        roster: Roster,
        fingerprint: weights::Digest,
        /// The GPUs of the members, by index; only of a coordinator.
        gpus: BTreeMap<usize, Option<Gpu>>,
        waiting: BTreeMap<usize, Candidate>,
        yields: bool,
    },
}

/// What a learner that looked at the others does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It asks this learner for a place.
    Ask(usize),
    /// It calls the roll itself.
    Call,
    /// No learner can give it a place yet: it looks again.
    Wait,
}

/// What becomes of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is answered when the roll is closed.
    Waits,
    /// It is answered at once.
    Refused(Refusal),
}

impl Membership {
    /// A learner of this index among so many, which calls a roll for at most `roll`, and waits for others that are
    /// there but give no usable answer for `patience`.
    pub(crate) fn new(own: usize, learners: usize, roll: Duration, patience: Duration) -> Self {
        let (silent_since, kind) = (BTreeMap::new(), CollectiveKind::Auto);
        Self { own, learners, roll, patience, silent_since, kind, state: State::Idle }
    }

    /// Sets the library that is configured: a candidate that it cannot take is refused.
    pub(crate) fn with_kind(self, kind: CollectiveKind) -> Self {
        Self { kind, ..self }
    }

    /// Begins to seek a group. The coordinator of the last one calls the roll at once, since the others come to it.
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

    /// Decides after a look at the others, by index. Those that are away are left out. One that answers late, or with
    /// an error, is there: it may be a member of a group, so that this learner forms none before its patience ends.
    pub(crate) fn choose(&mut self, now: Instant, looks: &[(usize, Result<Look, PeerError>)]) -> Choice {
        let State::Seeking { candidate } = self.state else { return Choice::Wait };
        let is_awaited = self.awaits(now, looks);
        let others = || looks.iter().filter_map(|(_, look)| look.as_ref().ok()).filter(|look| look.index != self.own);
        let most = |look: &&Look| (look.steps, Reverse(look.index));
        if let Some(coordinator) = others().filter(|look| look.coordinates()).max_by_key(most) {
            self.state = State::Asking { candidate, coordinator: coordinator.index };
            return Choice::Ask(coordinator.index);
        }
        // A member of a group whose coordinator cannot be reached notices it soon, or is its only way to others.
        let is_settled = others().all(|look| look.phase == Phase::Seeking);
        if !is_awaited && is_settled && others().all(|look| look.index > self.own) {
            let expected = (0..self.learners).collect();
            self.state = self.calling(now, candidate, BTreeMap::new(), expected);
            return Choice::Call;
        }
        Choice::Wait
    }

    /// Returns whether a learner without a usable answer is still waited for.
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

    /// Takes the answer of the coordinator that was asked; `None` if it gave no place. Returns whether this learner is
    /// a member now, else it seeks again.
    pub(crate) fn answered(&mut self, roster: Option<Roster>) -> bool {
        let State::Asking { candidate, coordinator } = self.state else { return false };
        // A group that began below a number that this learner has noted could give it again.
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

    /// A learner asks for a place.
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
            let reason =
                format!("learner.index: {} is not one of the other {} learners", candidate.index, self.learners);
            return Asked::Refused(Refusal::Different(reason));
        }
        if fingerprint != Some(candidate.fingerprint) {
            let reason = "the network, the settings of training or the number of learners differ from those of the \
                          group: learners of a group have one run file";
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

    /// A candidate no longer waits for its answer.
    pub(crate) fn withdrew(&mut self, index: usize) {
        if let State::Calling { candidates: waiting, .. } | State::Training { waiting, .. } = &mut self.state
            && index != self.own
        {
            waiting.remove(&index);
        }
    }

    /// Returns whether the roll can be closed.
    pub(crate) fn is_complete(&self, now: Instant) -> bool {
        match &self.state {
            State::Calling { candidates, expected, until } => {
                now >= *until || expected.iter().all(|index| candidates.contains_key(index))
            }
            _ => false,
        }
    }

    /// Returns the library of those that have come, and why it is not NCCL.
    pub(crate) fn library(&self) -> (Library, Option<String>) {
        match &self.state {
            State::Calling { candidates, .. } => {
                library::choose(candidates.values().map(|candidate| (candidate.index, candidate.gpu)))
            }
            _ => (Library::Gloo, None),
        }
    }

    /// Closes the roll; the members connect by `meeting`. `None` if no roll is called, or if those that have come since
    /// need another library.
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

    /// Compares this group with what the others do. Its coordinator notices another group here.
    pub(crate) fn compare(&mut self, looks: &[Look], own_steps: u64) {
        let State::Training { roster, yields, .. } = &mut self.state else { return };
        if roster.coordinator() != self.own {
            return;
        }
        let is_ahead = |look: &Look| (look.steps, Reverse(look.index)) > (own_steps, Reverse(self.own));
        let is_other = |look: &&Look| look.index != self.own && matches!(look.phase, Phase::Training { .. });
        *yields |= looks.iter().filter(is_other).any(|look| look.coordinates() && is_ahead(look));
    }

    /// Returns whether the members should form the next group: a learner waits for a place, or another group is ahead.
    pub(crate) fn wants_reform(&self) -> bool {
        matches!(&self.state, State::Training { waiting, yields, .. } if *yields || !waiting.is_empty())
    }

    /// Returns whether a member of its group must be looked for, since its end ends no connection of NCCL.
    pub(crate) fn must_watch(&self) -> bool {
        matches!(&self.state, State::Training { roster, .. }
            if roster.members.len() > 1 && matches!(roster.meeting, Meeting::Nccl { .. }))
    }

    /// Returns whether a look at the others, by index, shows that a member has left the group. One that answers late
    /// may be busy.
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

    /// Returns whether it looks for a coordinator and has been in no group.
    pub(crate) fn is_new(&self) -> bool {
        matches!(&self.state, State::Seeking { candidate } if candidate.generation == 0)
    }

    /// Returns whether it looks for a coordinator.
    pub(crate) fn is_seeking(&self) -> bool {
        matches!(self.state, State::Seeking { .. })
    }

    /// Returns whether it coordinates a group that lacks learners.
    pub(crate) fn may_find_another(&self) -> bool {
        matches!(&self.state, State::Training { roster, .. }
            if roster.coordinator() == self.own && roster.members.len() < self.learners)
    }

    /// Returns the candidate that this learner is.
    pub(crate) fn candidate(&self) -> Option<Candidate> {
        match &self.state {
            State::Seeking { candidate } | State::Asking { candidate, .. } => Some(*candidate),
            _ => None,
        }
    }

    /// Returns what others see of it; `None` before training has begun.
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
