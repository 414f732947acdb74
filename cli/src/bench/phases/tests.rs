use super::*;
use crate::bench::tests::{args, parsed};
use crate::bench::training_run::Window;
use crate::bench::training_run::tests::{actor, learner};
use crate::config::Fleet as Config;

fn time(phase: Phase, seconds: f64, wall_share: f64, cpu_share: f64) -> PhaseTime {
    PhaseTime { phase, seconds, wall_share, cpu_share: Some(cpu_share), wall_share_change: None }
}

/// A report of made-up numbers.
pub(super) fn report() -> Report {
    let threads = vec![
        Threads {
            name: ThreadsName::SelfPlay,
            count: 2,
            cpu_seconds: Some(8.0),
            phases: vec![
                time(Phase::Selection, 2.0, 0.1, 0.125),
                time(Phase::Evaluation, 8.0, 0.4, 0.5),
                time(Phase::WaitingForReplay, 8.0, 0.4, 0.0),
                time(Phase::Other, 2.0, 0.1, 0.0),
            ],
        },
        Threads {
            name: ThreadsName::Preparing,
            count: 1,
            cpu_seconds: Some(1.0),
            phases: vec![time(Phase::Preparation, 1.0, 0.1, 0.05), time(Phase::WaitingForTraining, 9.0, 0.9, 0.0)],
        },
        Threads {
            name: ThreadsName::Training,
            count: 1,
            cpu_seconds: Some(6.0),
            phases: vec![
                time(Phase::Sampling, 0.2, 0.02, 0.0),
                time(Phase::Forward, 3.0, 0.3, 0.15),
                time(Phase::Backward, 5.0, 0.5, 0.25),
                time(Phase::Optimiser, 1.0, 0.1, 0.05),
                time(Phase::Checkpoint, 0.0, 0.0, 0.0),
                time(Phase::Other, 0.8, 0.08, 0.0),
            ],
        },
    ];
    let process = |name: &str, cpu_seconds: f64, sockets_cpu_seconds| Process {
        name: name.to_owned(),
        cpu_seconds: Some(cpu_seconds),
        cpu_share: Some(cpu_seconds / 16.0),
        sockets_cpu_seconds,
        memory_bytes: Some(64 << 20),
    };
    let speed = Speed { training_positions_per_second: Some(2000.0), positions_per_second: Some(500.0) };
    Report {
        cpu: "Some CPU".to_owned(),
        target: "x86_64 linux".to_owned(),
        cores: 2,
        game: "connect_four".to_owned(),
        network: "4x64".to_owned(),
        sets: Vec::new(),
        actors: 1,
        actor_threads: 2,
        evaluator: Some("CPU kernel".to_owned()),
        learner_device: Some("cpu".to_owned()),
        learner_precision: Some("f32".to_owned()),
        seconds: 10.0,
        warm_up_seconds: 5.0,
        compared: None,
        bottleneck: bottleneck(&Load::new(&threads, Some(0.8))),
        threads,
        transfers: "none".to_owned(),
        accelerators: Vec::new(),
        processes: vec![process("actor-0", 9.0, Some(1.0)), process("learner", 7.0, Some(0.5))],
        rates: Rates {
            positions_per_second: speed.positions_per_second,
            training_positions_per_second: speed.training_positions_per_second,
            ..Rates::default()
        },
        cost: cost(10.0, 100_000.0, Some(3.0), speed),
    }
}

#[test]
fn a_run_becomes_a_report() {
    let told = |seconds: f64, positions: f64| {
        let actor = actor(&format!(
            "zerofleet_actor_seconds_total{{phase=\"evaluate\"}} {seconds}\nzerofleet_actor_positions_total {positions}\n\
             zerofleet_actor_evaluator{{evaluator=\"CPU kernel\"}} 3"
        ));
        let learner = learner(&format!(
            "zerofleet_learner_positions_total {}\n\
             zerofleet_learner_device{{device=\"cpu\",precision=\"bf16\"}} 1\n\
             zerofleet_learner_seconds_total{{phase=\"wait\"}} {seconds}",
            positions * 4.0
        ));
        vec![actor, learner]
    };
    let mut config = Config::default();
    (config.actor.threads, config.replay.window_items_min) = (2, 72_000);
    let window = Window { seconds: 10.0, begin: told(1.0, 100.0), end: told(9.0, 1100.0) };
    let args = args("--epochs 2 --price-per-hour 5 --game tic_tac_toe --set learner.threads=1");
    let report = super::report(&args, &Measured { config, actors: 1, window, accelerators: Vec::new() });
    assert_eq!((report.threads[0].count, report.game.as_str()), (2, "tic_tac_toe"));
    assert_eq!(report.bottleneck.part, Part::SelfPlay, "{:?}", report.bottleneck);
    assert_eq!((report.evaluator.as_deref(), report.learner_precision.as_deref()), (Some("CPU kernel"), Some("bf16")));
    assert_eq!(report.rates.training_positions_per_second, Some(400.0));
    assert_eq!((report.cost.hours, report.cost.price), (Some(0.1), Some(0.5)));
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
    assert!(error("--seconds 0").contains("--seconds"));
    assert!(error("--seconds=-1").contains("--seconds"));
    assert!(error("--warm-up-seconds=-1").contains("--warm-up-seconds"));
    assert!(error("--epochs=-1").contains("--epochs"));
    assert!(error("--price-per-hour NaN").contains("--price-per-hour"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    assert!(parsed::<Args>(["--game", "chess"]).is_err());
}
