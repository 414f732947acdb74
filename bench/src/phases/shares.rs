use super::times::{Phase, PhaseTime, Process, Rates, Threads, ThreadsName};
use crate::training_run::{Window, cpu_seconds, of_threads};
use fleet::Role;
use fleet::bottleneck::Load;

/// The source of a phase: a series, and the value of its label `part` or `phase`.
struct Told {
    phase: Phase,
    series: &'static str,
    label: (&'static str, &'static str),
}

const fn told(phase: Phase, series: &'static str, label: (&'static str, &'static str)) -> Told {
    Told { phase, series, label }
}

const SEARCH: &str = "zerofleet_actor_search_seconds_total";
const ACTOR: &str = "zerofleet_actor_seconds_total";
const ACTOR_WAIT: &str = "zerofleet_actor_wait_seconds_total";
const PREPARE: &str = "zerofleet_learner_prepare_seconds_total";
const LEARNER: &str = "zerofleet_learner_seconds_total";
const TRAIN: &str = "zerofleet_learner_train_seconds_total";
const PUBLISH: &str = "zerofleet_learner_publish_seconds_total";

const SELF_PLAY: [Told; 9] = [
    told(Phase::Selection, SEARCH, ("part", "select")),
    told(Phase::Observation, SEARCH, ("part", "observe")),
    told(Phase::Evaluation, ACTOR, ("phase", "evaluate")),
    told(Phase::Expansion, SEARCH, ("part", "expand")),
    told(Phase::Upload, ACTOR, ("phase", "upload")),
    told(Phase::Loading, ACTOR, ("phase", "load")),
    told(Phase::WaitingForReplay, ACTOR_WAIT, ("part", "replay")),
    told(Phase::WaitingForWeights, ACTOR_WAIT, ("part", "weights")),
    // An evaluator that failed is tried again after a pause.
    told(Phase::Other, ACTOR_WAIT, ("part", "evaluator")),
];
const PREPARING: [Told; 3] = [
    told(Phase::WaitingForSamples, PREPARE, ("part", "wait")),
    told(Phase::Preparation, PREPARE, ("part", "prepare")),
    told(Phase::WaitingForTraining, PREPARE, ("part", "hand_over")),
];
const TRAINING: [Told; 7] = [
    told(Phase::Sampling, LEARNER, ("phase", "wait")),
    told(Phase::Staging, TRAIN, ("part", "stage")),
    told(Phase::Forward, TRAIN, ("part", "forward")),
    told(Phase::Backward, TRAIN, ("part", "backward")),
    told(Phase::Optimiser, TRAIN, ("part", "optimiser")),
    told(Phase::Publication, PUBLISH, ("part", "publish")),
    told(Phase::Checkpoint, PUBLISH, ("part", "checkpoint")),
];

/// Threads with phases: the role of their process, and the prefix of their names.
const KINDS: [(ThreadsName, Role, &str, &[Told]); 3] = [
    (ThreadsName::SelfPlay, Role::Actor, "selfplay-", &SELF_PLAY),
    (ThreadsName::Preparing, Role::Learner, "prepare", &PREPARING),
    (ThreadsName::Training, Role::Learner, "train", &TRAINING),
];

/// The device that a learner on the CPU reports.
const CPU: &str = "cpu";

/// The device that the learner trains on.
pub(crate) fn learner_device(window: &Window) -> Option<&str> {
    window.label(Role::Learner, "zerofleet_learner_device", "device")
}

/// Describes the copies between devices, and the phase that includes them.
pub(super) fn transfers(window: &Window) -> String {
    let text = match learner_device(window) {
        Some(CPU) => "none: the learner trains on the CPU, where tensors lie in the memory they are made in",
        Some(_) => "batches of the learner are counted as transfer; what self-play copies is part of evaluation",
        None => "unknown: the learner does not say what it trains on",
    };
    text.to_owned()
}

/// Divides the time of threads, `self_play_threads` of which play, among their phases.
pub(super) fn threads(window: &Window, self_play_threads: usize) -> Vec<Threads> {
    let stage = if learner_device(window) == Some(CPU) { Phase::Staging } else { Phase::Transfer };
    let all = KINDS.iter().map(|&(name, role, prefix, told)| {
        let mut phases: Vec<(Phase, f64)> = Vec::new();
        for Told { phase, series, label } in told {
            let phase = if *phase == Phase::Staging { stage } else { *phase };
            phases.push((phase, window.growth(role, series, &[*label]).unwrap_or(0.0)));
        }
        let count = if name == ThreadsName::SelfPlay { self_play_threads } else { 1 };
        let cpu_seconds = window.cpu_seconds_of_threads(role, prefix);
        Threads { name, count, cpu_seconds, phases: shares(phases, count as f64 * window.seconds, cpu_seconds, window) }
    });
    all.collect()
}

/// Shares of phases in the time of their threads; what is missing to that is other.
fn shares(mut phases: Vec<(Phase, f64)>, time: f64, cpu_seconds: Option<f64>, window: &Window) -> Vec<PhaseTime> {
    let told: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
    phases.retain(|(phase, _)| *phase != Phase::Other);
    let named: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
    // A round that began before the window may be counted within it.
    let whole = time.max(told);
    phases.push((Phase::Other, whole - named));
    let busy: f64 = phases.iter().filter(|(phase, _)| !phase.is_idle()).map(|(_, seconds)| seconds).sum();
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let of_all = cpu_seconds.zip(window.cpu_seconds()).map(|(cpu, all)| share(cpu, all));
    let times = phases.into_iter().map(|(phase, seconds)| PhaseTime {
        phase,
        seconds,
        wall_share: share(seconds, whole),
        cpu_share: of_all.map(|of_all| if phase.is_idle() { 0.0 } else { of_all * share(seconds, busy) }),
    });
    times.collect()
}

/// The resources that processes used.
pub(super) fn processes(window: &Window) -> Vec<Process> {
    let all = window.cpu_seconds();
    let processes = window.processes().map(|(begin, end)| {
        let cpu_seconds = cpu_seconds(begin, end);
        let of_role = KINDS.iter().filter(|(_, role, ..)| *role == end.role);
        let in_phases: f64 =
            begin.usage.as_ref().zip(end.usage.as_ref()).map_or(0.0, |(begin, end)| {
                of_role.filter_map(|(_, _, prefix, _)| of_threads(begin, end, prefix)).sum()
            });
        let has_phases = KINDS.iter().any(|(_, role, ..)| *role == end.role);
        Process {
            name: end.name.clone(),
            cpu_seconds,
            cpu_share: cpu_seconds.zip(all).map(|(cpu, all)| if all > 0.0 { cpu / all } else { 0.0 }),
            sockets_cpu_seconds: cpu_seconds.filter(|_| has_phases).map(|cpu| (cpu - in_phases).max(0.0)),
            memory_bytes: end.usage.as_ref().and_then(|usage| usage.memory_bytes),
        }
    });
    processes.collect()
}

/// Computes the work done per second.
pub(crate) fn rates(window: &Window) -> Rates {
    let actors = |name: &str| window.rate(Role::Actor, &format!("zerofleet_actor_{name}_total"));
    let learner = |name: &str| window.rate(Role::Learner, &format!("zerofleet_learner_{name}_total"));
    let limiter = |name: &str| window.rate(Role::Replay, &format!("zerofleet_replay_{name}_wait_seconds_total"));
    Rates {
        games_per_second: actors("games"),
        positions_per_second: actors("moves"),
        evaluations_per_second: actors("evaluations"),
        simulations_per_second: actors("simulations"),
        mean_batch: actors("evaluations").zip(actors("batches")).filter(|(_, of)| *of > 0.0).map(|(n, of)| n / of),
        steps_per_second: learner("steps"),
        training_positions_per_second: learner("positions"),
        window_items: window.last(Role::Replay, "zerofleet_replay_window_items"),
        insert_wait_share: limiter("insert").map(|share| share.min(1.0)),
        sample_wait_share: limiter("sample").map(|share| share.min(1.0)),
    }
}

/// The shares of time that the rules for the bottleneck read.
pub(super) fn load(threads: &[Threads], cores_used: Option<f64>) -> Load {
    let of = |name: ThreadsName, phases: &[Phase]| {
        let named = threads.iter().filter(|threads| threads.name == name);
        named.flat_map(|threads| phases.iter().map(|phase| threads.wall_share(*phase))).sum::<f64>()
    };
    let step = [Phase::Staging, Phase::Transfer, Phase::Forward, Phase::Backward, Phase::Optimiser];
    let search = [Phase::Selection, Phase::Observation, Phase::Expansion];
    Load {
        sampling: of(ThreadsName::Training, &[Phase::Sampling]),
        training: of(ThreadsName::Training, &step),
        publishing: of(ThreadsName::Training, &[Phase::Publication, Phase::Checkpoint]),
        preparing: of(ThreadsName::Preparing, &[Phase::Preparation]),
        held_up: of(ThreadsName::SelfPlay, &[Phase::WaitingForReplay]),
        without_weights: of(ThreadsName::SelfPlay, &[Phase::WaitingForWeights]),
        evaluating: of(ThreadsName::SelfPlay, &[Phase::Evaluation]),
        searching: of(ThreadsName::SelfPlay, &search),
        cores_used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training_run::Reading;
    use crate::training_run::tests::{actor, learner, usage};

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
            begin: vec![
                with(actor(""), &[(1, "selfplay-0", 1.0)]),
                with(learner(learner_before), &[(7, "train", 2.0)]),
            ],
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
        assert!(
            processes(&window).iter().all(|process| process.cpu_seconds.is_none() && process.memory_bytes.is_none())
        );
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
        assert_eq!(
            rates(&with("zerofleet_actor_batches_total 0\nzerofleet_actor_evaluations_total 0")).mean_batch,
            None
        );
    }

    #[test]
    fn the_rules_go_by_shares_of_the_threads_that_they_name() {
        let time = |phase, wall_share| PhaseTime { phase, seconds: 1.0, wall_share, cpu_share: None };
        let threads = |name, phases| Threads { name, count: 1, cpu_seconds: None, phases };
        let shares = load(
            &[
                threads(ThreadsName::SelfPlay, vec![time(Phase::Selection, 0.1), time(Phase::Observation, 0.2)]),
                threads(ThreadsName::Training, vec![time(Phase::Sampling, 0.4), time(Phase::Forward, 0.5)]),
            ],
            None,
        );
        assert!((shares.searching - 0.3).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares, Load { searching: shares.searching, sampling: 0.4, training: 0.5, ..Load::default() });
    }
}
