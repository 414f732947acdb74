use super::super::tests::{actor, learner, usage};
use super::*;

#[test]
fn growth_is_summed_over_the_processes_of_a_role() {
    let window = Window {
        seconds: 10.0,
        begin: vec![actor("zerofleet_actor_games_total 5"), actor(""), learner("zerofleet_actor_games_total 7")],
        end: vec![
            actor("zerofleet_actor_games_total 25"),
            actor("zerofleet_actor_games_total 30"),
            learner("zerofleet_actor_games_total 900"),
        ],
    };
    assert_eq!(window.growth(Role::Actor, "zerofleet_actor_games_total", &[]), Some(50.0));
    assert_eq!(window.rate(Role::Actor, "zerofleet_actor_games_total"), Some(5.0));
    assert_eq!(window.growth(Role::Actor, "zerofleet_actor_plies_total", &[]), None);
}

#[test]
fn the_label_in_use_is_that_of_the_greatest_value() {
    let end = vec![actor("evaluator{evaluator=\"old\"} 3\nevaluator{evaluator=\"new (f32)\"} 7")];
    let window = Window { seconds: 1.0, begin: vec![actor("")], end };
    assert_eq!(window.label(Role::Actor, "evaluator", "evaluator"), Some("new (f32)"));
    assert_eq!(window.label(Role::Learner, "evaluator", "evaluator"), None);
}

#[test]
fn cpu_time_of_threads_is_theirs_by_id_and_a_new_thread_began_at_zero() {
    let begin = usage(&[(1, "selfplay-0", 2.0), (2, "tokio", 1.0)]);
    let end = usage(&[(1, "selfplay-0", 5.0), (2, "tokio", 9.0), (3, "selfplay-1", 4.0)]);
    assert_eq!(of_threads(&begin, &end, "selfplay-"), Some(7.0));
    assert_eq!(of_threads(&begin, &end, "train"), None);
}

#[test]
fn what_no_system_tells_is_not_known() {
    let window = Window { seconds: 1.0, begin: vec![actor("")], end: vec![actor("")] };
    assert_eq!((window.cpu_seconds(), window.cpu_seconds_of_threads(Role::Actor, "selfplay-")), (None, None));
}
