use super::*;
use crate::bench::training_run::Reading;
use crate::bench::training_run::tests::{actor, learner, usage};

const DEVICE: &str = "zerofleet_learner_device{device=\"cpu\",precision=\"f32\"} 1\n";

/// Ten seconds in which self-play threads evaluated for eight seconds and the learner went forward for five.
fn window(learner_before: &str) -> Window {
    let played = "zerofleet_actor_seconds_total{phase=\"evaluate\"} 8\n\
                  zerofleet_actor_search_seconds_total{part=\"select\"} 4\n\
                  zerofleet_actor_wait_seconds_total{part=\"replay\"} 6";
    let trained = "zerofleet_learner_seconds_total{phase=\"wait\"} 3\n\
                   zerofleet_learner_train_seconds_total{part=\"stage\"} 1\n\
                   zerofleet_learner_train_seconds_total{part=\"forward\"} 5";
    let with = |reading: Reading, threads| Reading { usage: Some(usage(threads)), ..reading };
    Window {
        seconds: 10.0,
        begin: vec![with(actor(""), &[(1, "selfplay-0", 1.0)]), with(learner(learner_before), &[(7, "train", 2.0)])],
        end: vec![
            with(actor(played), &[(1, "selfplay-0", 10.0), (2, "tokio-rt-worker", 1.0)]),
            with(learner(&format!("{learner_before}{trained}")), &[(7, "train", 12.0)]),
        ],
    }
}

fn find(threads: &[Threads], name: ThreadsName, phase: Phase) -> PhaseTime {
    let threads = threads.iter().find(|threads| threads.name == name).unwrap();
    threads.phases.iter().find(|time| time.phase == phase).unwrap().clone()
}

#[test]
fn wall_time_is_shared_over_all_threads_and_what_is_missing_is_other() {
    let threads = threads(&window(DEVICE), 2);
    let share = |phase| find(&threads, ThreadsName::SelfPlay, phase).wall_share;
    assert_eq!([Phase::Evaluation, Phase::Selection, Phase::WaitingForReplay].map(share), [0.4, 0.2, 0.3]);
    assert!((share(Phase::Other) - 0.1).abs() < 1e-9);
    assert_eq!(share(Phase::Upload), 0.0);
    assert_eq!(find(&threads, ThreadsName::Training, Phase::Forward).wall_share, 0.5);
}

#[test]
fn cpu_time_is_divided_among_the_phases_that_work() {
    let threads = threads(&window(DEVICE), 2);
    let share = |phase| find(&threads, ThreadsName::SelfPlay, phase).cpu_share.unwrap();
    // Nine of twenty seconds, at eight to four.
    assert!((share(Phase::Evaluation) - 0.45 * 8.0 / 12.0).abs() < 1e-9);
    assert!((share(Phase::Selection) - 0.45 * 4.0 / 12.0).abs() < 1e-9);
    assert_eq!((share(Phase::WaitingForReplay), share(Phase::Other)), (0.0, 0.0));
}

#[test]
fn shares_never_exceed_the_whole_if_a_round_from_before_is_told_within() {
    // Ten seconds of one thread cannot hold eighteen.
    let threads = threads(&window(DEVICE), 1);
    let sum: f64 = threads[0].phases.iter().map(|time| time.wall_share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert_eq!(find(&threads, ThreadsName::SelfPlay, Phase::Other).wall_share, 0.0);
}

#[test]
fn on_a_cpu_nothing_is_transferred_and_that_is_said() {
    let cpu = window(DEVICE);
    assert!(transfers(&cpu).starts_with("none"));
    let found = threads(&cpu, 2);
    assert!(found.iter().flat_map(|threads| &threads.phases).all(|time| time.phase != Phase::Transfer));
    assert_eq!(find(&found, ThreadsName::Training, Phase::Staging).seconds, 1.0);

    let cuda = window(&DEVICE.replace("cpu", "cuda:1"));
    assert!(transfers(&cuda).contains("counted as transfer"));
    assert_eq!(find(&threads(&cuda, 2), ThreadsName::Training, Phase::Transfer).seconds, 1.0);
}

#[test]
fn where_the_system_tells_no_cpu_time_there_is_none() {
    let mut window = window(DEVICE);
    window.begin.iter_mut().chain(&mut window.end).for_each(|reading| reading.usage = None);
    let threads = threads(&window, 2);
    assert!(threads.iter().flat_map(|threads| &threads.phases).all(|time| time.cpu_share.is_none()));
    assert!(processes(&window).iter().all(|process| process.cpu_seconds.is_none() && process.memory_bytes.is_none()));
}

#[test]
fn what_a_process_takes_beside_its_phases_is_sockets_and_timers() {
    let processes = processes(&window(DEVICE));
    let took: Vec<_> = processes.iter().map(|process| (process.cpu_seconds, process.sockets_cpu_seconds)).collect();
    assert_eq!(took, [(Some(10.0), Some(1.0)), (Some(10.0), Some(0.0))]);
    assert_eq!(processes[0].cpu_share, Some(0.5));
}

#[test]
fn a_mean_batch_needs_batches() {
    let with = |text: &str| Window { seconds: 2.0, begin: vec![actor("")], end: vec![actor(text)] };
    let some = with("zerofleet_actor_evaluations_total 60\nzerofleet_actor_batches_total 2");
    assert_eq!((rates(&some).mean_batch, rates(&some).evaluations_per_second), (Some(30.0), Some(30.0)));
    assert_eq!(rates(&with("zerofleet_actor_batches_total 0\nzerofleet_actor_evaluations_total 0")).mean_batch, None);
}
