use proto::learners::Secret;
use weights::Digest;

use super::*;

const ROLL: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(8);

fn now() -> Instant {
    Instant::now()
}

fn candidate(index: usize, steps: u64) -> Candidate {
    Candidate { index, steps, generation: 0, weights_version: 0, fingerprint: Digest::of(b"network"), gpu: None }
}

fn exchange(number: u8) -> Meeting {
    Meeting::Exchange { secret: Secret([number; 32]) }
}

/// Wraps status responses as received in time.
fn answered(looks: &[Look]) -> Vec<(usize, Result<Look, PeerError>)> {
    looks.iter().map(|look| (look.index, Ok(*look))).collect()
}

fn nccl() -> Meeting {
    Meeting::Nccl { id: Box::new([1; 128]) }
}

/// Returns a candidate on a GPU.
fn on_gpu(index: usize, gpu: u8) -> Candidate {
    Candidate { gpu: Some([gpu; 16]), ..candidate(index, 0) }
}

fn seeking(own: usize, learners: usize) -> Membership {
    let mut membership = Membership::new(own, learners, ROLL, PATIENCE);
    membership.seek(now(), candidate(own, 0));
    membership
}

fn look(index: usize, phase: Phase, steps: u64) -> Look {
    Look { phase, index, steps }
}

/// Returns the membership of a coordinator in a group with these other members.
fn coordinator(own: usize, learners: usize, others: &[usize]) -> Membership {
    let mut membership = Membership::new(own, learners, ROLL, PATIENCE);
    let start = now();
    membership.state = membership.calling(start, candidate(own, 0), BTreeMap::new(), BTreeSet::new());
    for &other in others {
        assert_eq!(membership.asked(candidate(other, 0)), Asked::Waits);
    }
    membership.close(exchange(1)).unwrap();
    membership
}

fn roster(members: &[usize]) -> Roster {
    Roster { generation: 1, members: members.to_vec(), source: 0, weights_version: 0, meeting: exchange(1) }
}

#[test]
fn the_lowest_of_those_without_a_group_calls_the_roll_and_the_others_wait_for_it() {
    let phase = Phase::Seeking;
    let choose = |own, looks: &[Look]| seeking(own, 3).choose(now(), &answered(looks));
    assert_eq!(choose(0, &[look(1, phase, 9), look(2, phase, 0)]), Choice::Call);
    assert_eq!(choose(1, &[look(0, phase, 0), look(2, phase, 0)]), Choice::Wait);
    assert_eq!(choose(1, &[look(2, phase, 9)]), Choice::Call, "learner 0 cannot be reached");
    assert_eq!(choose(2, &[]), Choice::Call, "it is alone");
}

#[test]
fn one_that_answers_late_or_with_an_error_is_waited_for_a_time_and_one_that_is_away_is_not() {
    let start = now();
    let refused = || PeerError::Refused { reason: "an error of the connection".to_owned() };
    for silent in [PeerError::Late, refused()] {
        for (own, other) in [(0, 1), (1, 0)] {
            let mut membership = seeking(own, 2);
            let mut choose =
                |after: Duration, look: Result<Look, PeerError>| membership.choose(start + after, &[(other, look)]);
            assert_eq!(choose(Duration::ZERO, Err(silent.clone())), Choice::Wait);
            assert_eq!(choose(PATIENCE / 2, Err(silent.clone())), Choice::Wait);
            assert_eq!(choose(PATIENCE, Err(silent.clone())), Choice::Call, "its patience has ended");
        }
    }
    let mut membership = seeking(0, 2);
    let mut choose = |after: Duration, look: Result<Look, PeerError>| membership.choose(start + after, &[(1, look)]);
    assert_eq!(choose(Duration::ZERO, Err(PeerError::Late)), Choice::Wait);
    let of_another = look(1, Phase::Training { coordinator: 3 }, 5);
    assert_eq!(choose(PATIENCE / 2, Ok(of_another)), Choice::Wait);
    assert_eq!(choose(PATIENCE, Err(PeerError::Late)), Choice::Wait, "it has answered since");
    assert_eq!(choose(PATIENCE, Err(PeerError::Away { reason: "refused".to_owned() })), Choice::Call);
    let mut beside_a_late_one = seeking(0, 3);
    let looks = [(1, Err(PeerError::Late)), (2, Ok(look(2, Phase::Calling, 0)))];
    assert_eq!(beside_a_late_one.choose(start, &looks), Choice::Ask(2));
}

#[test]
fn a_group_that_begins_below_a_number_that_the_learner_has_noted_is_not_joined() {
    let join = |noted: u64, weights_version: u64| {
        let mut membership = Membership::new(0, 3, ROLL, PATIENCE);
        membership.seek(now(), Candidate { weights_version: noted, ..candidate(0, 0) });
        membership.choose(now(), &answered(&[look(2, Phase::Calling, 0)]));
        membership.answered(Some(Roster { weights_version, ..roster(&[2, 0]) }))
    };
    assert!(join(5, 5) && join(5, 6) && !join(5, 4));
}

#[test]
fn the_numbers_of_groups_do_not_wrap() {
    let mut membership = Membership::new(0, 2, ROLL, PATIENCE);
    membership.seek(now(), Candidate { generation: u64::MAX, ..candidate(0, 0) });
    membership.choose(now(), &[]);
    assert_eq!(membership.close(exchange(1)).unwrap().generation, proto::learners::NUMBER_MAX);
}

#[test]
fn a_coordinator_is_asked_whatever_its_index_and_the_one_with_the_most_steps_of_two() {
    let training = |coordinator| Phase::Training { coordinator };
    let choose = |own, looks: &[Look]| seeking(own, 4).choose(now(), &answered(looks));
    assert_eq!(
        choose(0, &[look(1, training(2), 5), look(2, training(2), 5), look(3, Phase::Seeking, 5)]),
        Choice::Ask(2)
    );
    assert_eq!(choose(0, &[look(1, Phase::Calling, 5), look(2, training(2), 6)]), Choice::Ask(2));
    assert_eq!(choose(0, &[look(1, Phase::Calling, 5), look(2, training(2), 5)]), Choice::Ask(1));
    assert_eq!(choose(0, &[look(1, training(3), 5)]), Choice::Wait, "the coordinator of learner 1 does not answer");
}

#[test]
fn a_learner_that_is_refused_seeks_again_and_one_with_a_place_is_a_member() {
    let asking = || {
        let mut membership = seeking(0, 3);
        assert_eq!(membership.choose(now(), &answered(&[look(2, Phase::Calling, 0)])), Choice::Ask(2));
        assert_eq!(membership.look(4), Some(look(0, Phase::Seeking, 4)));
        membership
    };
    for refused in [None, Some(roster(&[2, 1])), Some(roster(&[1, 0]))] {
        let mut membership = asking();
        assert!(!membership.answered(refused.clone()) && membership.is_seeking(), "{refused:?}");
    }
    let mut membership = asking();
    assert!(membership.answered(Some(roster(&[2, 0]))));
    assert_eq!(membership.look(4), Some(look(0, Phase::Training { coordinator: 2 }, 4)));
    assert!(!membership.answered(Some(roster(&[2, 0]))), "it has asked no learner");
}

#[test]
fn a_roll_is_closed_when_all_have_come_or_after_its_time_with_those_that_came() {
    let start = now();
    let mut membership = Membership::new(0, 3, ROLL, PATIENCE);
    membership.seek(start, candidate(0, 0));
    assert_eq!(membership.choose(start, &answered(&[])), Choice::Call);
    assert_eq!(membership.asked(Candidate { generation: 7, ..candidate(2, 4) }), Asked::Waits);
    assert!(!membership.is_complete(start) && membership.is_complete(start + ROLL));
    assert_eq!(membership.asked(Candidate { weights_version: 3, ..candidate(1, 4) }), Asked::Waits);
    assert!(membership.is_complete(start));
    let closed = membership.close(exchange(5)).unwrap();
    // The source is the member with the most steps; in a tie, the lowest rank.
    let expected =
        Roster { generation: 8, members: vec![0, 1, 2], source: 1, weights_version: 3, meeting: exchange(5) };
    assert_eq!(closed, expected);
    assert!(!membership.is_complete(start + ROLL) && membership.close(exchange(5)).is_none());
}

#[test]
fn a_candidate_that_left_has_no_place() {
    let start = now();
    let mut membership = Membership::new(1, 3, ROLL, PATIENCE);
    membership.seek(start, candidate(1, 0));
    membership.choose(start, &answered(&[]));
    membership.asked(candidate(2, 9));
    membership.withdrew(2);
    membership.withdrew(1);
    assert_eq!(membership.close(exchange(1)).unwrap().members, [1]);
}

#[test]
fn another_network_an_impossible_index_and_learners_without_a_group_are_refused() {
    let mut membership = coordinator(0, 2, &[]);
    let other = Candidate { fingerprint: Digest::of(b"another"), ..candidate(1, 0) };
    for (bad, expected) in [(other, "network"), (candidate(2, 0), "learner.index"), (candidate(0, 0), "learner.index")]
    {
        let Asked::Refused(Refusal::Different(reason)) = membership.asked(bad) else { panic!("{bad:?} has a place") };
        assert!(reason.contains(expected), "{reason}");
    }
    assert!(!membership.wants_reform());
    let elsewhere = Asked::Refused(Refusal::Elsewhere);
    assert_eq!(seeking(0, 2).asked(candidate(1, 0)), elsewhere);
    assert_eq!(Membership::new(0, 2, ROLL, PATIENCE).asked(candidate(1, 0)), elsewhere);
    let mut member = seeking(1, 2);
    member.choose(now(), &answered(&[look(0, Phase::Calling, 0)]));
    member.answered(Some(roster(&[0, 1])));
    assert_eq!(member.asked(candidate(0, 0)), elsewhere, "a member is no coordinator");
}

#[test]
fn a_newcomer_makes_the_coordinator_call_the_next_roll_which_all_members_and_it_complete() {
    let start = now();
    let mut membership = coordinator(1, 3, &[2]);
    assert_eq!(membership.asked(candidate(0, 0)), Asked::Waits);
    assert!(membership.wants_reform());
    membership.seek(start, Candidate { generation: 1, ..candidate(1, 8) });
    assert_eq!(membership.look(8), Some(look(1, Phase::Calling, 8)));
    assert!(!membership.is_complete(start), "a member is missing");
    membership.asked(candidate(2, 8));
    assert!(membership.is_complete(start));
    let next = membership.close(exchange(1)).unwrap();
    assert_eq!((next.members, next.source, next.generation), (vec![1, 0, 2], 0, 2));
}

#[test]
fn after_the_loss_of_a_member_the_coordinator_waits_for_it_until_the_roll_ends() {
    let start = now();
    let mut membership = coordinator(0, 3, &[1, 2]);
    membership.seek(start, candidate(0, 5));
    membership.asked(candidate(2, 5));
    assert!(!membership.is_complete(start) && membership.is_complete(start + ROLL));
    assert_eq!(membership.close(exchange(1)).unwrap().members, [0, 2]);
}

#[test]
fn a_member_that_lost_its_group_seeks_and_takes_over_when_the_coordinator_is_gone() {
    let mut member = seeking(1, 3);
    member.choose(now(), &answered(&[look(0, Phase::Calling, 0)]));
    member.answered(Some(roster(&[0, 1, 2])));
    member.seek(now(), candidate(1, 5));
    assert!(member.is_seeking());
    // Learner 2 has not yet noticed the lost coordinator.
    assert_eq!(member.choose(now(), &answered(&[look(2, Phase::Training { coordinator: 0 }, 5)])), Choice::Wait);
    assert_eq!(member.choose(now(), &answered(&[look(2, Phase::Seeking, 5)])), Choice::Call);
}

#[test]
fn of_two_groups_the_one_with_fewer_steps_ends_and_joins_the_other() {
    let other = |index, steps| look(index, Phase::Training { coordinator: index }, steps);
    let yields = |own, own_steps, looks: &[Look]| {
        let mut membership = coordinator(own, 4, &[]);
        assert!(membership.may_find_another());
        membership.compare(looks, own_steps);
        membership.wants_reform()
    };
    assert!(yields(0, 5, &[other(2, 6)]) && !yields(2, 6, &[other(0, 5)]));
    assert!(!yields(0, 5, &[other(2, 5)]) && yields(2, 5, &[other(0, 5)]));
    assert!(!yields(0, 5, &[look(2, Phase::Seeking, 9), look(3, Phase::Training { coordinator: 2 }, 9)]));
    let mut membership = coordinator(0, 4, &[]);
    membership.compare(&[other(2, 6)], 5);
    assert_eq!(membership.asked(candidate(1, 0)), Asked::Refused(Refusal::Elsewhere));
    membership.seek(now(), candidate(0, 5));
    assert_eq!(membership.choose(now(), &answered(&[other(2, 6)])), Choice::Ask(2));
}

#[test]
fn a_roll_is_closed_with_the_library_of_those_that_have_come_by_then() {
    let called = || {
        let mut membership = Membership::new(0, 3, ROLL, PATIENCE);
        membership.seek(now(), on_gpu(0, 1));
        assert_eq!(membership.choose(now(), &answered(&[])), Choice::Call);
        membership
    };
    let mut distinct = called();
    assert_eq!(distinct.asked(on_gpu(1, 2)), Asked::Waits);
    assert_eq!(distinct.library(), (Library::Nccl, None));
    assert_eq!(distinct.close(exchange(1)), None, "its members need no store");
    // A candidate that shares a GPU asks after the unique id was created.
    assert_eq!(distinct.asked(on_gpu(2, 2)), Asked::Waits);
    assert_eq!(distinct.close(nccl()), None);
    let (library, reason) = distinct.library();
    assert!(library == Library::Gloo && reason.unwrap().contains("learners 1 and 2 share a GPU"));
    assert_eq!(distinct.close(exchange(1)).unwrap().members, [0, 1, 2]);
    let mut alone = called();
    assert_eq!(alone.close(nccl()).unwrap().meeting, nccl());
}

#[test]
fn where_nccl_is_configured_a_candidate_without_a_gpu_of_its_own_is_refused_and_the_members_stay() {
    let mut membership = Membership::new(0, 4, ROLL, PATIENCE).with_kind(CollectiveKind::Nccl);
    membership.seek(now(), on_gpu(0, 1));
    membership.choose(now(), &answered(&[]));
    assert_eq!(membership.asked(on_gpu(1, 2)), Asked::Waits);
    for in_training in [false, true] {
        for (bad, expected) in [(on_gpu(2, 2), "learners 1 and 2 share"), (candidate(2, 0), "learner 2 has no GPU")] {
            let Asked::Refused(Refusal::Different(reason)) = membership.asked(bad) else { panic!("it has a place") };
            assert!(reason.starts_with("learner.collective: ") && reason.contains(expected), "{reason}");
        }
        // A restarted member asks again with the same GPU.
        assert_eq!(membership.asked(on_gpu(1, 2)), Asked::Waits);
        if !in_training {
            membership.close(nccl()).unwrap();
        }
    }
    assert_eq!(membership.asked(on_gpu(3, 4)), Asked::Waits);
}

#[test]
fn a_member_of_a_group_of_nccl_is_lost_when_it_does_something_else_or_is_gone_but_not_when_it_is_late() {
    let training = Phase::Training { coordinator: 1 };
    let in_group = |meeting| {
        let mut member = seeking(0, 4);
        member.choose(now(), &answered(&[look(1, Phase::Calling, 0)]));
        member.answered(Some(Roster { meeting, ..roster(&[1, 0, 2]) }));
        member
    };
    assert!(!in_group(exchange(1)).must_watch());
    let member = in_group(nccl());
    assert!(member.must_watch());
    let away = || Err(PeerError::Away { reason: "refused".to_owned() });
    let misses =
        |of_2: Result<Look, PeerError>| member.misses_member(&[(1, Ok(look(1, training, 5))), (2, of_2), (3, away())]);
    assert!(!misses(Ok(look(2, training, 4))) && !misses(Err(PeerError::Late)));
    assert!(misses(Ok(look(2, Phase::Seeking, 4))) && misses(away()));
    assert!(misses(Ok(look(2, Phase::Training { coordinator: 2 }, 4))));
}
