//! The numbers of the weights that groups publish, none of which is ever given to two different weights.
//!
//! While the network between learners is cut, each side may train, and neither knows which numbers the other gives. So
//! a group gives numbers of its own [`Class`], and two groups that may exist at one time have classes without a common
//! number. Two groups one after the other have a common member or different classes: a member notes a number on its
//! disk before it takes part in the step whose weights may be published under it, and a group begins after all
//! numbers that its members have noted.

use proto::learners::{NUMBER_MAX, Roster};

/// What a learner knows of the numbers.
#[derive(Debug)]
pub(crate) struct Numbering {
    /// The number of learners in the configuration.
    learners: usize,
    class: Class,
    /// The newest number that the group has given, or that a member had noted before.
    given: u64,
    /// The newest number that this learner has noted on its disk.
    noted: u64,
}

/// Every `stride`-th number from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    first: u64,
    stride: u64,
}

impl Numbering {
    /// The numbers of one of so many learners, which has noted them up to `noted`.
    pub(crate) fn new(learners: usize, noted: u64) -> Self {
        Self { learners, class: Class::ALL, given: noted, noted }
    }

    /// Begins a group.
    pub(crate) fn joined(&mut self, roster: &Roster) {
        self.class = Class::of(roster, self.learners);
        self.given = roster.weights_version;
    }

    /// Returns the number under which the group publishes next; `None` if there is none left.
    pub(crate) fn next(&self) -> Option<u64> {
        self.class.after(self.given)
    }

    /// Notes that the group has given the next number.
    pub(crate) fn give(&mut self) -> Option<u64> {
        let next = self.next()?;
        self.given = next;
        Some(next)
    }

    /// Returns the newest number on this learner's disk.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }

    /// Remembers that a number is on this learner's disk.
    pub(crate) fn note(&mut self, number: u64) {
        self.noted = self.noted.max(number);
    }
}

impl Class {
    const ALL: Self = Self { first: 1, stride: 1 };
    /// The numbers of a group without some learners that has more members than any other group beside it.
    const ODD: Self = Self { first: 1, stride: 2 };

    /// The class of a group, among so many learners. Of the even numbers, those of a group depend on its coordinator,
    /// which is in no other group at the same time.
    fn of(roster: &Roster, learners: usize) -> Self {
        let members = roster.members.len();
        // Any two groups that are the larger part have a common member.
        let is_larger_part = 2 * members > learners || (2 * members == learners && roster.rank_of(0).is_some());
        match () {
            () if members >= learners => Self::ALL,
            () if is_larger_part => Self::ODD,
            () => Self { first: 2 * (roster.coordinator() as u64 + 1), stride: 2 * learners as u64 },
        }
    }

    /// Returns the first number of this class after `number`.
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
                    // Any member may be the coordinator.
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
