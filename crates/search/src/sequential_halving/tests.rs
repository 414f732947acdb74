use super::*;

/// Runs a schedule over actions whose score falls with their index; returns the visits of each.
fn visits(considered_max: usize, simulations: u32, actions: usize) -> Vec<u32> {
    run(considered_max, simulations, &vec![0; actions], |_, _| Standing::Open)
}

/// The same with visits that were kept, where `standing` says how an action with so many visits stands.
fn run(considered_max: usize, simulations: u32, kept: &[u32], standing: impl Fn(usize, u32) -> Standing) -> Vec<u32> {
    let scores: Vec<f32> = (0..kept.len()).map(|action| -(action as f32)).collect();
    let mut visits = kept.to_vec();
    let mut halving = SequentialHalving::default();
    let look = |visits: &[u32], action: usize| {
        let visits = visits[action];
        Candidate { visits, standing: standing(action, visits) }
    };
    halving.begin(considered_max, simulations, &scores, |action| look(&visits, action));
    loop {
        while let Some(action) = halving.next(|action| look(&visits, action)) {
            visits[action] += 1;
        }
        assert!(halving.is_phase_complete(|action| look(&visits, action)));
        if halving.is_last_phase() {
            return visits;
        }
        halving.halve(&scores, |action| look(&visits, action));
    }
}

/// The table of the published implementation (mctx, `seq_halving.get_sequence_of_considered_visits`), as visits by rank.
fn published(considered_max: usize, simulations: usize) -> Vec<u32> {
    let mut visits = vec![0; considered_max];
    if considered_max <= 1 {
        return vec![simulations as u32];
    }
    let rounds = (considered_max as f64).log2().ceil() as usize;
    let (mut left, mut considered) = (simulations, considered_max);
    while left > 0 {
        let extra = (simulations / (rounds * considered)).max(1);
        for _ in 0..extra {
            for count in &mut visits[..considered] {
                if left > 0 {
                    *count += 1;
                    left -= 1;
                }
            }
        }
        considered = (considered / 2).max(2);
    }
    visits
}

#[test]
fn the_schedule_is_the_published_one() {
    for simulations in 1..=260 {
        for actions in 1..=20 {
            let considered = actions.min(16).min(simulations);
            let mut expected = published(considered, simulations);
            expected.resize(actions, 0);
            assert_eq!(visits(16, simulations as u32, actions), expected, "n = {simulations}, {actions} actions");
        }
    }
}

#[test]
fn sixteen_simulations_look_once_at_each_of_sixteen_actions() {
    assert_eq!(visits(16, 16, 16), [1; 16]);
}

#[test]
fn thirty_two_simulations_halve_twice() {
    assert_eq!(visits(16, 32, 16), [4, 4, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn two_hundred_simulations_end_with_two_actions_and_the_rest_goes_to_them() {
    let expected = [49, 49, 21, 21, 9, 9, 9, 9, 3, 3, 3, 3, 3, 3, 3, 3];
    assert_eq!(visits(16, 200, 16), expected.map(|n: u32| n));
    assert_eq!(visits(16, 200, 16).iter().sum::<u32>(), 200);
}

#[test]
fn seven_legal_actions_are_halved_by_their_own_schedule() {
    assert_eq!(visits(16, 200, 7), [67, 66, 31, 9, 9, 9, 9]);
}

#[test]
fn one_legal_action_gets_everything() {
    assert_eq!(visits(16, 50, 1), [50]);
}

#[test]
fn no_simulations_ask_for_nothing() {
    assert_eq!(visits(16, 0, 5), [0; 5]);
}

#[test]
fn visits_an_action_has_already_are_not_asked_for_again() {
    let kept = [2, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(run(8, 24, &kept, |_, _| Standing::Open), visits(8, 24, 8));
}

#[test]
fn actions_that_lose_make_room_for_others() {
    let lost = |action, _| if action < 4 { Standing::Lost } else { Standing::Open };
    let visits = run(4, 16, &[0; 8], lost);
    assert_eq!(visits[..4], [0; 4]);
    assert_eq!(visits.iter().sum::<u32>(), 16);
}

#[test]
fn those_that_take_the_place_of_actions_found_lost_get_what_is_left_and_no_more() {
    let lost = |action, visits| if action < 4 && visits >= 2 { Standing::Lost } else { Standing::Open };
    assert_eq!(run(4, 16, &[0; 8], lost), [2, 2, 2, 2, 4, 4, 0, 0]);
}

#[test]
fn a_schedule_ends_when_everything_is_proven() {
    assert_eq!(run(4, 16, &[0; 4], |_, _| Standing::Lost), [0; 4]);
    assert_eq!(run(4, 16, &[0; 4], |_, _| Standing::Closed), [0; 4]);
}
