use fleet::Role;
use run_metrics::{Processes, RunMetrics};
use service::devices::CPU;

use super::{FLEETS, INSERTS, PHASES, SHARE};
use crate::report::{Report, Unit, Value};
use crate::training_run::{Measured, Process, Window};

/// A phase of a thread: a name, and the metric that counts the time, without the prefix of the role.
struct Phase {
    name: &'static str,
    /// True if the thread waits in this phase.
    is_idle: bool,
    series: &'static str,
    /// Label `part`, `phase` or `what` with a value.
    label: (&'static str, &'static str),
}

const fn works(name: &'static str, series: &'static str, label: (&'static str, &'static str)) -> Phase {
    Phase { name, is_idle: false, series, label }
}

const fn waits(name: &'static str, series: &'static str, label: (&'static str, &'static str)) -> Phase {
    Phase { name, is_idle: true, series, label }
}

const SEARCH: &str = "search_seconds_total";
const ALL_PHASES: &str = "seconds_total";
const ACTOR_WAIT: &str = "wait_seconds_total";
const INSERT_WAIT: &str = "insert_wait_seconds_total";
const PREPARE: &str = "prepare_seconds_total";
const TRAIN: &str = "train_seconds_total";
const PUBLISH: &str = "publish_seconds_total";
const WRITE: &str = "write_seconds_total";

/// The phase that stages a batch. On an accelerator it includes the copy to the device, and is reported as
/// [`TRANSFER`].
const STAGING: &str = "staging";
const TRANSFER: &str = "transfer";
/// The remaining time, including rounds that were unfinished at the end of the window.
const OTHER: &str = "other";

/// Threads that do the same work.
struct Threads {
    name: &'static str,
    role: Role,
    /// Prefix of the thread names.
    prefix: &'static str,
    phases: &'static [Phase],
}

const SELF_PLAY: Threads = Threads {
    name: "self-play",
    role: Role::Actor,
    prefix: "selfplay-",
    phases: &[
        // Descents to leaves, with the rules, the cache and the moves played.
        works("selection", SEARCH, ("part", "select")),
        works("observation", SEARCH, ("part", "observe")),
        works("evaluation", ALL_PHASES, ("phase", "evaluate")),
        works("expansion", SEARCH, ("part", "expand")),
        works("experience upload", ALL_PHASES, ("phase", "upload")),
        works("taking new weights", ALL_PHASES, ("phase", "load")),
        // The replay server delays inserts because the learner lags.
        waits("waiting for the learner", ACTOR_WAIT, ("part", "replay")),
        waits("waiting for weights", ACTOR_WAIT, ("part", "weights")),
        // A failed evaluator is retried after a pause.
        waits(OTHER, ACTOR_WAIT, ("part", "evaluator")),
    ],
};
/// Threads of the learner that make batches of samples.
const PREPARING: Threads = Threads {
    name: "preparing",
    role: Role::Learner,
    prefix: "prepare",
    phases: &[
        waits("waiting for samples", PREPARE, ("part", "wait")),
        // Replays positions and computes targets.
        works("preparation", PREPARE, ("part", "prepare")),
        waits("waiting for training", PREPARE, ("part", "hand_over")),
    ],
};
/// Thread of the learner that trains.
const TRAINING: Threads = Threads {
    name: "training",
    role: Role::Learner,
    prefix: "train",
    phases: &[
        waits("sampling (waiting for a batch)", ALL_PHASES, ("phase", "wait")),
        works(STAGING, TRAIN, ("part", "stage")),
        works("forward", TRAIN, ("part", "forward")),
        works("backward", TRAIN, ("part", "backward")),
        works("optimiser", TRAIN, ("part", "optimiser")),
        works("publication", PUBLISH, ("part", "publish")),
        works("checkpoint", PUBLISH, ("part", "checkpoint")),
    ],
};
/// Thread of the learner that writes files and publishes weights.
const WRITING: Threads = Threads {
    name: "writing",
    role: Role::Learner,
    prefix: "write",
    phases: &[works("weights", WRITE, ("what", "weights")), works("checkpoint", WRITE, ("what", "checkpoint"))],
};
const ALL: [Threads; 4] = [SELF_PLAY, PREPARING, TRAINING, WRITING];

/// Returns the device that the learner trains on.
fn learner_device(window: &Window) -> Option<&str> {
    window.metrics().label(Role::Learner, "device", "device")
}

/// Describes the copies between devices, and the phase that includes them.
pub(super) fn transfers(window: &Window) -> &'static str {
    match learner_device(window) {
        Some(CPU) => "none: the learner trains on the CPU, where tensors lie in the memory they are made in",
        Some(_) => "batches of the learner are counted as transfer; what self-play copies is part of evaluation",
        None => "unknown: the learner does not report its device",
    }
}

/// Adds the time of the threads by phase; `self_play_threads` is the number of threads that play.
pub(super) fn add_phases(report: &mut Report, window: &Window, self_play_threads: usize) {
    let stage = if learner_device(window) == Some(CPU) { STAGING } else { TRANSFER };
    for Threads { name, role, prefix, phases } in ALL {
        let threads = if name == SELF_PLAY.name { self_play_threads } else { 1 };
        let phase_seconds = phases.iter().map(|phase| {
            let seconds = window.increase(role, phase.series, &[phase.label]).unwrap_or(0.0);
            (if phase.name == STAGING { stage } else { phase.name }, phase.is_idle, seconds)
        });
        let mut phase_seconds: Vec<(&str, bool, f64)> = phase_seconds.collect();
        // The window may count a round that started earlier.
        let whole = (threads as f64 * window.seconds).max(phase_seconds.iter().map(|(.., seconds)| seconds).sum());
        phase_seconds.retain(|(phase, ..)| *phase != OTHER);
        phase_seconds.push((OTHER, true, whole - phase_seconds.iter().map(|(.., seconds)| seconds).sum::<f64>()));
        let busy: f64 = phase_seconds.iter().filter(|(_, is_idle, _)| !is_idle).map(|(.., seconds)| seconds).sum();
        let of_all = window.sum(role, |process| process.cpu_seconds_of_threads(prefix)).zip(window.cpu_seconds());
        for (phase, is_idle, seconds) in phase_seconds {
            // CPU time is divided among the phases in proportion to time; waiting takes none.
            let of_busy = if is_idle { 0.0 } else { share(seconds, busy) };
            report
                .at(PHASES, &[("threads", &name), ("phase", &phase)])
                .value(SHARE, Unit::Share, share(seconds, whole))
                .value("wall time", Unit::Microseconds, 1e6 * seconds)
                .value("share of all CPU time", Unit::Share, of_all.map(|(cpu, all)| share(cpu, all) * of_busy));
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Adds the resources that processes used. Threads without phases serve sockets and timers: in actors the upload, in
/// the learner the sample stream and weights.
pub(super) fn add_processes(report: &mut Report, window: &Window) {
    let all = window.cpu_seconds();
    for process in &window.processes {
        let cpu = process.cpu_seconds();
        let of_role: Vec<Threads> = ALL.into_iter().filter(|threads| threads.role == process.role).collect();
        let in_phases = of_role.iter().filter_map(|threads| process.cpu_seconds_of_threads(threads.prefix));
        let sockets = cpu.filter(|_| !of_role.is_empty()).map(|cpu| (cpu - in_phases.sum::<f64>()).max(0.0));
        report
            .at("processes", &[("process", &process.name)])
            .value("CPU time", Unit::Microseconds, cpu.map(|seconds| 1e6 * seconds))
            .value("share of all CPU time", Unit::Share, cpu.zip(all).map(|(cpu, all)| share(cpu, all)))
            .value("sockets and timers", Unit::Microseconds, sockets.map(|seconds| 1e6 * seconds))
            .value("memory", Unit::Bytes, process.memory_bytes());
    }
}

/// Computes the work done per second.
pub(super) fn rates(metrics: &Processes<'_>) -> [Value; 13] {
    let run = RunMetrics::of(metrics);
    let bytes_per_item = run.replay_memory_bytes.zip(run.replay_items).map(|(bytes, items)| bytes / items);
    let limiter = |name| metrics.rate(Role::Replay, name, &[]).map(|share| share.min(1.0));
    [
        ("games/s", Unit::PerSecond, run.games_per_second),
        ("moves/s", Unit::PerSecond, run.positions_per_second),
        ("evaluations/s", Unit::PerSecond, run.evaluations_per_second),
        ("mean batch", Unit::Count, run.batch_mean),
        ("simulations/s", Unit::PerSecond, metrics.rate(Role::Actor, "simulations_total", &[])),
        ("training steps/s", Unit::PerSecond, run.steps_per_second),
        ("positions trained on/s", Unit::PerSecond, metrics.rate(Role::Learner, "positions_total", &[])),
        (INSERTS, Unit::PerSecond, run.inserts_per_second),
        ("samples/s", Unit::PerSecond, run.samples_per_second),
        ("window items", Unit::Count, run.window_items),
        ("replay memory per position", Unit::Bytes, bytes_per_item),
        ("limiter delays inserts", Unit::Share, limiter(INSERT_WAIT)),
        ("limiter delays samples", Unit::Share, limiter("sample_wait_seconds_total")),
    ]
}

/// Adds inserts by actor count, relative to the first run, and the CPU time and waits of each run.
pub(super) fn add_fleets(report: &mut Report, fleets: &[Measured]) {
    let inserts = |fleet: &Measured| {
        fleet.window.metrics().rate(Role::Replay, "inserts_total", &[]).unwrap_or(0.0) / fleet.actors as f64
    };
    for fleet in fleets {
        let (Measured { actors, window, .. }, metrics) = (fleet, fleet.window.metrics());
        let cores = |role| window.sum(role, Process::cpu_seconds).map(|cpu| cpu / window.seconds);
        let learner = |phase| metrics.rate(Role::Learner, "seconds_total", &[("phase", phase)]);
        // A share of the time of all self-play threads.
        let held_up = window.increase(Role::Actor, ACTOR_WAIT, &[("part", "replay")]);
        let threads = (actors * fleet.config.actor.threads.max(1)) as f64;
        report
            .at(FLEETS, &[("actors", actors)])
            .value(INSERTS, Unit::PerSecond, inserts(fleet) * *actors as f64)
            .value("share of linear", Unit::Share, inserts(fleet) / inserts(&fleets[0]))
            .value("samples/s", Unit::PerSecond, metrics.rate(Role::Replay, "samples_total", &[]))
            .value("cores of all", Unit::Cores, window.cpu_seconds().map(|cpu| cpu / window.seconds))
            .value("cores of actors", Unit::Cores, cores(Role::Actor))
            .value("cores of replay", Unit::Cores, cores(Role::Replay))
            .value("cores of learner", Unit::Cores, cores(Role::Learner))
            .value("self-play waits for replay", Unit::Share, held_up.map(|wait| wait / (window.seconds * threads)))
            .value("limiter delays inserts", Unit::Share, metrics.rate(Role::Replay, INSERT_WAIT, &[]))
            .value("learner busy", Unit::Share, learner("train").zip(learner("publish")).map(|(a, b)| a + b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::value_of;
    use crate::training_run::Reading;
    use crate::training_run::tests::{self, actor, learner, usage};

    const DEVICE: &str = "zerofleet_learner_device{device=\"cpu\",precision=\"f32\"} 1\n";

    /// Returns ten seconds in which self-play threads evaluated for eight seconds and the learner spent five in forward
    /// passes.
    fn window(learner_before: &str) -> Window {
        let played = "zerofleet_actor_seconds_total{phase=\"evaluate\"} 8\n\
                  zerofleet_actor_search_seconds_total{part=\"select\"} 4\n\
                  zerofleet_actor_wait_seconds_total{part=\"replay\"} 6";
        let trained = "zerofleet_learner_seconds_total{phase=\"wait\"} 3\n\
                   zerofleet_learner_train_seconds_total{part=\"stage\"} 1\n\
                   zerofleet_learner_train_seconds_total{part=\"forward\"} 5";
        let with = |reading: Reading, threads| Reading { usage: Some(usage(threads)), ..reading };
        let begin =
            vec![with(actor(""), &[(1, "selfplay-0", 1.0)]), with(learner(learner_before), &[(7, "train", 2.0)])];
        let end = vec![
            with(actor(played), &[(1, "selfplay-0", 10.0), (2, "tokio-rt-worker", 1.0)]),
            with(learner(&format!("{learner_before}{trained}")), &[(7, "train", 12.0)]),
        ];
        tests::window(10.0, begin, end)
    }

    /// Computes the report of a window with `self_play_threads` playing threads.
    fn report(window: &Window, self_play_threads: usize) -> Report {
        let mut report = Report::new("phases", "A run");
        add_phases(&mut report, window, self_play_threads);
        add_processes(&mut report, window);
        report
    }

    fn find(report: &Report, threads: &str, phase: &str, metric: &str) -> f64 {
        let value = report.value(PHASES, &[("threads", threads), ("phase", phase)], metric);
        value.unwrap_or_else(|| panic!("{threads}, {phase}, {metric}: {report:?}"))
    }

    #[test]
    fn wall_time_is_divided_over_all_threads_and_the_remainder_is_other() {
        let report = report(&window(DEVICE), 2);
        let share = |phase| find(&report, "self-play", phase, SHARE);
        assert_eq!(["evaluation", "selection", "waiting for the learner"].map(share), [0.4, 0.2, 0.3]);
        assert!((share("other") - 0.1).abs() < 1e-9);
        assert_eq!(share("experience upload"), 0.0);
        assert_eq!(find(&report, "training", "forward", SHARE), 0.5);
    }

    #[test]
    fn cpu_time_is_divided_among_the_phases_that_work() {
        let report = report(&window(DEVICE), 2);
        let share = |phase| find(&report, "self-play", phase, "share of all CPU time");
        // Nine of twenty seconds, at eight to four.
        assert!((share("evaluation") - 0.45 * 8.0 / 12.0).abs() < 1e-9);
        assert!((share("selection") - 0.45 * 4.0 / 12.0).abs() < 1e-9);
        assert_eq!((share("waiting for the learner"), share("other")), (0.0, 0.0));
    }

    #[test]
    fn shares_sum_to_one_if_phases_take_longer_than_the_window() {
        // Ten seconds of one thread cannot hold eighteen.
        let report = report(&window(DEVICE), 1);
        let rows = report.rows.iter().filter(|row| row.metric == SHARE);
        let sum: f64 =
            rows.filter(|row| row.dimensions.get("threads") == Some("self-play")).filter_map(|row| row.value).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert_eq!(find(&report, "self-play", "other", SHARE), 0.0);
    }

    #[test]
    fn staging_counts_as_transfer_on_an_accelerator_only() {
        let cpu = window(DEVICE);
        assert!(transfers(&cpu).starts_with("none"));
        let found = report(&cpu, 2);
        assert!(found.rows.iter().all(|row| row.dimensions.get("phase") != Some("transfer")));
        assert_eq!(find(&found, "training", "staging", "wall time"), 1e6);

        let cuda = window(&DEVICE.replace("cpu", "cuda:1"));
        assert!(transfers(&cuda).contains("counted as transfer"));
        assert_eq!(find(&report(&cuda, 2), "training", "transfer", "wall time"), 1e6);
    }

    #[test]
    fn without_process_usage_cpu_time_and_memory_are_unknown() {
        let mut window = window(DEVICE);
        window.processes.iter_mut().for_each(|process| process.usage = None);
        let report = report(&window, 2);
        let phase_seconds = ["share of all CPU time", "CPU time", "memory"];
        let mut rows = report.rows.iter().filter(|row| phase_seconds.contains(&row.metric.as_str()));
        assert!(rows.all(|row| row.value.is_none()), "{report:?}");
    }

    #[test]
    fn cpu_time_of_threads_without_phases_counts_as_sockets_and_timers() {
        let report = report(&window(DEVICE), 2);
        let of = |process, metric| report.value("processes", &[("process", process)], metric);
        let took = ["actor-0", "learner"].map(|name| (of(name, "CPU time"), of(name, "sockets and timers")));
        assert_eq!(took, [(Some(10e6), Some(1e6)), (Some(10e6), Some(0.0))]);
        assert_eq!(of("actor-0", "share of all CPU time"), Some(0.5));
    }

    /// Returns a run with these actors, which a replay server and a learner serve for ten seconds.
    fn fleet(actors: usize, inserts: u64) -> Measured {
        let reading = |inserts: u64, seconds: f64| {
            let of_actors = format!("zerofleet_actor_wait_seconds_total{{part=\"replay\"}} {seconds}");
            let actor = Reading { usage: Some(usage(&[(1, "selfplay-0", seconds)])), ..actor(&of_actors) };
            let of_replay = format!("zerofleet_replay_inserts_total {inserts}");
            let replay = Reading { role: Role::Replay, ..tests::actor(&of_replay) };
            let learner = learner(&format!(
                "zerofleet_learner_seconds_total{{phase=\"train\"}} {seconds}\n\
                 zerofleet_learner_seconds_total{{phase=\"publish\"}} 0"
            ));
            vec![actor, replay, learner]
        };
        let window = tests::window(10.0, reading(5, 1.0), reading(5 + inserts, 3.0));
        let mut config = run_file::RunFile::default();
        config.actor.threads = 1;
        Measured { config, actors, window, accelerators: Vec::new() }
    }

    #[test]
    fn the_share_of_linear_scaling_is_relative_to_the_first_run() {
        let shares = |fleets: &[Measured]| {
            let mut report = Report::new("phases", "A run");
            add_fleets(&mut report, fleets);
            let rows = report.rows.into_iter().filter(|row| row.metric == "share of linear");
            rows.filter_map(|row| row.value).collect::<Vec<_>>()
        };
        assert_eq!(shares(&[fleet(1, 200), fleet(2, 390), fleet(4, 720)]), [1.0, 0.975, 0.9]);
        assert_eq!(shares(&[fleet(2, 400), fleet(8, 800)]), [1.0, 0.5]);
    }

    #[test]
    fn the_rates_of_a_fleet_come_from_the_metrics_of_its_processes() {
        let mut report = Report::new("phases", "A run");
        add_fleets(&mut report, &[fleet(2, 400)]);
        let of = |metric| report.value(FLEETS, &[("actors", "2")], metric);
        assert_eq!((of(INSERTS), of("cores of actors"), of("learner busy")), (Some(40.0), Some(0.2), Some(0.2)));
        assert_eq!(of("self-play waits for replay"), Some(0.1));
        assert_eq!((of("cores of replay"), of("limiter delays inserts")), (None, None), "not reported");
    }

    #[test]
    fn replay_memory_is_divided_among_the_positions_held() {
        let replay = |text: &str| Reading { role: Role::Replay, ..actor(text) };
        let text = "zerofleet_replay_memory_bytes 4000\nzerofleet_replay_items 100";
        let window = tests::window(1.0, vec![replay("")], vec![replay(text)]);
        assert_eq!(value_of(&rates(&window.metrics()), "replay memory per position"), Some(40.0));
    }

    #[test]
    fn a_mean_batch_needs_batches() {
        let with = |text: &str| tests::window(2.0, vec![actor("")], vec![actor(text)]);
        let some = with("zerofleet_actor_evaluations_total 60\nzerofleet_actor_batches_total 2");
        let of = |window: &Window, metric| value_of(&rates(&window.metrics()), metric);
        assert_eq!((of(&some, "mean batch"), of(&some, "evaluations/s")), (Some(30.0), Some(30.0)));
        let none = with("zerofleet_actor_batches_total 0\nzerofleet_actor_evaluations_total 0");
        assert_eq!(of(&none, "mean batch"), None);
    }
}
