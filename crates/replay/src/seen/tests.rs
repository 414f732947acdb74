use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn id(actor: u64, sequence: u64) -> TrajectoryId {
    TrajectoryId { actor, epoch: 1, sequence }
}

#[test]
fn an_id_is_new_once() {
    let mut seen = SeenIds::new();
    assert!(seen.insert(id(1, 0)));
    assert!(!seen.insert(id(1, 0)));
    assert!(seen.insert(id(2, 0)));
}

#[test]
fn sequences_in_any_order_close_up_to_one_interval() {
    let mut seen = SeenIds::new();
    for sequence in [5, 3, 4, 0, 2, 1, u64::MAX] {
        assert!(seen.insert(id(7, sequence)));
    }
    let intervals: Vec<_> = seen.intervals().collect();
    assert_eq!(intervals, [(7, 1, 0..=5), (7, 1, u64::MAX..=u64::MAX)]);
}

proptest! {
    #[test]
    fn the_intervals_agree_with_a_set_of_ids(sequences in prop::collection::vec((0_u64..3, 0_u64..40), 0..200)) {
        let mut seen = SeenIds::new();
        let mut naive = HashSet::new();
        for (actor, sequence) in sequences {
            prop_assert_eq!(seen.contains(id(actor, sequence)), naive.contains(&(actor, sequence)));
            prop_assert_eq!(seen.insert(id(actor, sequence)), naive.insert((actor, sequence)));
        }
        for (actor, sequence) in (0..3).flat_map(|actor| (0..41).map(move |sequence| (actor, sequence))) {
            prop_assert_eq!(seen.contains(id(actor, sequence)), naive.contains(&(actor, sequence)));
        }
        let again = seen.intervals().fold(SeenIds::new(), |mut again, (actor, epoch, sequences)| {
            again.insert_interval(actor, epoch, sequences);
            again
        });
        prop_assert_eq!(again, seen);
    }

    #[test]
    fn whole_intervals_agree_with_their_members(spans in prop::collection::vec((0_u64..60, 0_u64..10), 0..30)) {
        let mut seen = SeenIds::new();
        let mut one_by_one = SeenIds::new();
        for (first, more) in spans {
            seen.insert_interval(3, 1, first..=first + more);
            for sequence in first..=first + more {
                one_by_one.insert(id(3, sequence));
            }
        }
        prop_assert_eq!(seen, one_by_one);
    }
}
