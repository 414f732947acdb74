use super::report::{Phase, PhaseTime, Process, Rates, Threads, ThreadsName};
use crate::bench::training_run::{Window, cpu_seconds, of_threads};
use crate::readings::Role;

/// Where a phase is told: a series, and the value of its label `part` or `phase`.
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

/// Threads whose phases are told, with the process they are of and how their names begin.
const KINDS: [(ThreadsName, Role, &str, &[Told]); 3] = [
    (ThreadsName::SelfPlay, Role::Actor, "selfplay-", &SELF_PLAY),
    (ThreadsName::Preparing, Role::Learner, "prepare", &PREPARING),
    (ThreadsName::Training, Role::Learner, "train", &TRAINING),
];

/// What a learner on the CPU says it trains on.
const CPU: &str = "cpu";

/// What the learner trains on.
pub(in crate::bench) fn learner_device(window: &Window) -> Option<&str> {
    window.label(Role::Learner, "zerofleet_learner_device", "device")
}

/// Whether anything is copied between devices, and where that is counted.
pub(super) fn transfers(window: &Window) -> String {
    let text = match learner_device(window) {
        Some(CPU) => "none: the learner trains on the CPU, where tensors lie in the memory they are made in",
        Some(_) => "batches of the learner are counted as transfer; what self-play copies is part of evaluation",
        None => "unknown: the learner does not say what it trains on",
    };
    text.to_owned()
}

/// Where the time of threads went, `self_play_threads` of which play.
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
    // A round that began before the window may be told within it.
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
        wall_share_change: None,
    });
    times.collect()
}

/// What processes took.
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

/// How much was done.
pub(in crate::bench) fn rates(window: &Window) -> Rates {
    let actors = |name: &str| window.rate(Role::Actor, &format!("zerofleet_actor_{name}_total"));
    let learner = |name: &str| window.rate(Role::Learner, &format!("zerofleet_learner_{name}_total"));
    let limiter = |name: &str| window.rate(Role::Replay, &format!("zerofleet_replay_{name}_wait_seconds_total"));
    Rates {
        games_per_second: actors("games"),
        positions_per_second: actors("positions"),
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

#[cfg(test)]
mod tests;
