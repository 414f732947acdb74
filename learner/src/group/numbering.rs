//! Numbers the weights versions that groups publish, such that no number is ever assigned to two different sets of
//! weights.
//!
//! If the network between learners is partitioned, each side may continue to train, without knowing the numbers
//! assigned by the other side. Each group therefore assigns numbers from one [`Class`]. Two groups that may exist at
//! the same time have disjoint classes. Two consecutive groups have a common member or different classes. A member
//! stores a number on disk before it takes part in a step that may be published under this number. A new group assigns
//! only numbers above all numbers stored by the members.

use proto::learners::{NUMBER_MAX, Roster};

/// The version numbers known to a learner.
#[derive(Debug)]
pub(crate) struct Numbering {
    /// Number of learners configured in `learner.group`.
    learners: usize,
    class: Class,
    /// The latest number assigned by the group, or stored by a member before the group formed.
    given: u64,
    /// The latest number stored on this learner's disk.
    pub(crate) noted: u64,
}

/// A class of version numbers: `first`, `first + stride`, `first + 2 stride`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    first: u64,
    stride: u64,
}

impl Numbering {
    /// Creates the numbering for one of `learners` learners. Numbers up to `noted` are already stored on disk.
    pub(crate) fn new(learners: usize, noted: u64) -> Self {
        Self { learners, class: Class::ALL, given: noted, noted }
    }

    /// Switches to the numbers of a new group.
    pub(crate) fn joined(&mut self, roster: &Roster) {
        self.class = Class::of(roster, self.learners);
        self.given = roster.weights_version;
    }

    /// Returns the next version number of the group, without assigning it; `None` if no number is left.
    pub(crate) fn next(&self) -> Option<u64> {
        self.class.after(self.given)
    }

    /// Assigns and returns the next version number; `None` if no number is left.
    pub(crate) fn give(&mut self) -> Option<u64> {
        let next = self.next()?;
        self.given = next;
        Some(next)
    }

    /// Records that a number is now stored on this learner's disk.
    pub(crate) fn note(&mut self, number: u64) {
        self.noted = self.noted.max(number);
    }
}

impl Class {
    const ALL: Self = Self { first: 1, stride: 1 };
    /// The odd numbers, for an incomplete group with a majority of the learners, or with exactly half including learner
    /// 0.
    const ODD: Self = Self { first: 1, stride: 2 };

    /// Returns the class of a group among `learners` configured learners. Each coordinator has separate even numbers,
    /// because a learner coordinates at most one group at a time.
    fn of(roster: &Roster, learners: usize) -> Self {
        let members = roster.members.len();
        // Any two majorities of the learners have a common member.
        let is_larger_part = 2 * members > learners || (2 * members == learners && roster.rank_of(0).is_some());
        match () {
            () if members >= learners => Self::ALL,
            () if is_larger_part => Self::ODD,
            () => Self { first: 2 * (roster.coordinator() as u64 + 1), stride: 2 * learners as u64 },
        }
    }

    /// Returns the smallest number of this class above `number`; `None` if there is none.
    fn after(self, number: u64) -> Option<u64> {
        let Self { first, stride } = self;
        let steps = number.checked_sub(first).map_or(0, |beyond| beyond / stride + 1);
        steps.checked_mul(stride)?.checked_add(first).filter(|&next| next <= NUMBER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proto::learners::{Meeting, Secret};

    use super::*;

    fn roster(members: &[usize], weights_version: u64) -> Roster {
        let meeting = Meeting::Exchange { secret: Secret([0; 32]) };
        Roster { generation: 1, members: members.to_vec(), source: 0, weights_version, meeting }
    }

    fn numbers(members: &[usize], learners: usize, noted: u64) -> Vec<u64> {
        let mut numbering = Numbering::new(learners, 0);
        numbering.joined(&roster(members, noted));
        (0..4).map(|_| numbering.give().unwrap()).collect()
    }

    #[test]
    fn a_complete_group_gives_every_number_and_others_leave_room() {
        assert_eq!(numbers(&[1, 0], 2, 0), [1, 2, 3, 4]);
        assert_eq!(numbers(&[0], 2, 4), [5, 7, 9, 11]);
        assert_eq!(numbers(&[1], 2, 4), [8, 12, 16, 20]);
        assert_eq!(numbers(&[2, 1], 3, 10), [11, 13, 15, 17]);
        assert_eq!(numbers(&[0], 3, 10), [14, 20, 26, 32]);
    }

    #[test]
    fn two_groups_without_a_common_member_give_no_common_number() {
        for learners in 2..=6_usize {
            let members = |set: u32| (0..learners).filter(move |member| set >> member & 1 == 1).collect::<Vec<_>>();
            let sets = 1..1_u32 << learners;
            for (one, other) in sets.clone().flat_map(|one| sets.clone().map(move |other| (one, other))) {
                if one & other != 0 {
                    continue;
                }
                let of = |set: u32, noted| {
                    // Every member may be the coordinator.
                    let mut members = members(set);
                    let count = members.len();
                    let each = (0..count).flat_map(move |_| {
                        members.rotate_left(1);
                        numbers(&members, learners, noted)
                    });
                    each.collect::<BTreeSet<_>>()
                };
                for noted in 0..7 {
                    assert!(of(one, 3).is_disjoint(&of(other, noted)), "{one:b} and {other:b} of {learners}");
                }
            }
        }
    }

    #[test]
    fn numbers_end_before_they_wrap() {
        for (members, noted) in [(&[0, 1][..], NUMBER_MAX), (&[0], NUMBER_MAX), (&[1], NUMBER_MAX)] {
            let mut numbering = Numbering::new(2, 0);
            numbering.joined(&roster(members, noted));
            assert_eq!((numbering.next(), numbering.give()), (None, None));
        }
    }
}
