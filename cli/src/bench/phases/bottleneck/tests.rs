use super::super::report::PhaseTime;
use super::*;

/// A run in which everybody works and nobody waits.
fn balanced() -> Load {
    Load {
        training: 0.9,
        preparing: 0.1,
        sampling: 0.05,
        held_up: 0.05,
        evaluating: 0.7,
        searching: 0.2,
        ..Load::default()
    }
}

fn part(load: Load) -> Part {
    bottleneck(&load).part
}

#[test]
fn a_learner_that_actors_wait_for_is_the_bottleneck() {
    let load = Load { training: 0.97, sampling: 0.0, held_up: 0.4, ..balanced() };
    let Bottleneck { part, sentence, remedy } = bottleneck(&load);
    assert_eq!(part, Part::Learner);
    assert_eq!(
        sentence,
        "The learner is the bottleneck: it trains 97 % of its time, and the self-play threads wait 40 % of theirs for it."
    );
    assert!(remedy.contains("replay.samples_per_insert"), "{remedy}");
}

#[test]
fn self_play_that_the_learner_waits_for_is_the_bottleneck_and_its_larger_part_is_named() {
    let waits = Load { training: 0.3, sampling: 0.7, held_up: 0.0, ..balanced() };
    let evaluation = bottleneck(&waits);
    assert_eq!(evaluation.part, Part::SelfPlay);
    assert!(evaluation.sentence.contains("evaluation takes 70 %"), "{evaluation:?}");
    assert!(evaluation.remedy.contains("actor.device"), "{evaluation:?}");
    let search = bottleneck(&Load { evaluating: 0.2, searching: 0.75, ..waits });
    assert_eq!(search.part, Part::SelfPlay);
    assert!(search.sentence.contains("search takes 75 %"), "{search:?}");
    assert!(!search.remedy.contains("actor.device"), "a faster evaluator does not help: {search:?}");
}

#[test]
fn actors_without_weights_are_told_apart_from_slow_ones() {
    let load =
        Load { sampling: 1.0, training: 0.0, evaluating: 0.0, searching: 0.0, without_weights: 1.0, ..balanced() };
    assert!(bottleneck(&load).sentence.contains("waiting for weights takes 100 %"));
}

#[test]
fn where_nobody_waits_run_and_machine_are_balanced() {
    let load = Load { cores_used: Some(0.98), ..balanced() };
    let Bottleneck { part, sentence, .. } = bottleneck(&load);
    assert_eq!(part, Part::Nothing);
    assert!(sentence.contains("with 98 % of the cores in use"), "{sentence}");
    assert!(!bottleneck(&balanced()).sentence.contains("cores"), "what is not measured is not said");
}

#[test]
fn where_both_wait_the_replay_server_between_them_is_the_bottleneck() {
    assert_eq!(part(Load { sampling: 0.4, held_up: 0.4, ..balanced() }), Part::Replay);
}

#[test]
fn a_busy_preparing_thread_is_the_bottleneck_only_if_training_waits() {
    assert_eq!(part(Load { preparing: 0.95, sampling: 0.5, ..balanced() }), Part::Preparing);
    assert_eq!(part(Load { preparing: 0.95, sampling: 0.5, held_up: 0.5, ..balanced() }), Part::Preparing);
    assert_eq!(part(Load { preparing: 0.95, ..balanced() }), Part::Nothing);
}

#[test]
fn weights_and_checkpoints_that_hold_up_training_are_the_bottleneck() {
    assert_eq!(part(Load { publishing: 0.2, held_up: 0.5, ..balanced() }), Part::Publication);
}

#[test]
fn waiting_counts_from_fifteen_percent_on() {
    assert_eq!(part(Load { held_up: 0.149, ..balanced() }), Part::Nothing);
    assert_eq!(part(Load { held_up: 0.15, ..balanced() }), Part::Learner);
    assert_eq!(part(Load { sampling: 0.149, ..balanced() }), Part::Nothing);
    assert_eq!(part(Load { sampling: 0.15, ..balanced() }), Part::SelfPlay);
}

#[test]
fn the_rules_go_by_shares_of_the_threads_that_they_name() {
    let time =
        |phase, wall_share| PhaseTime { phase, seconds: 1.0, wall_share, cpu_share: None, wall_share_change: None };
    let threads = |name, phases| Threads { name, count: 1, cpu_seconds: None, phases };
    let load = Load::new(
        &[
            threads(ThreadsName::SelfPlay, vec![time(Phase::Selection, 0.1), time(Phase::Observation, 0.2)]),
            threads(ThreadsName::Training, vec![time(Phase::Sampling, 0.4), time(Phase::Forward, 0.5)]),
        ],
        None,
    );
    assert!((load.searching - 0.3).abs() < 1e-9, "{load:?}");
    assert_eq!(load, Load { searching: load.searching, sampling: 0.4, training: 0.5, ..Load::default() });
}
