use super::speeds::{FanOutSpeeds, InsertsSpeeds, LoadSpeeds, ScaleSpeeds};
use super::*;
use crate::latency::Latency;
use crate::tests::{args, parsed};
use crate::training_run::Window;
use crate::training_run::tests::{actor, learner, usage};
use fleet::Role;

fn fleet(actors: usize, inserts_per_second: f64) -> ScaleSpeeds {
    ScaleSpeeds {
        actors,
        inserts_per_second,
        share_of_linear: f64::NAN,
        samples_per_second: 40.0 * inserts_per_second,
        cpu: Some(0.5),
        actors_cpu: Some(0.3),
        replay_cpu: Some(0.01),
        learner_cpu: Some(0.19),
        held_up_share: Some(0.0),
        insert_wait_share: Some(0.0),
        learner_busy_share: None,
    }
}

fn fleets() -> Vec<ScaleSpeeds> {
    let mut fleets = vec![fleet(1, 20.0), fleet(2, 39.0), fleet(4, 72.0)];
    scaling::share_of_linear(&mut fleets);
    fleets
}

fn load_speeds() -> LoadSpeeds {
    LoadSpeeds {
        actors: 1_000,
        fetches: Some(2),
        steps: 30,
        trajectory_bytes: 1_500.0,
        seconds: 10.0,
        connected_seconds: 0.5,
        replay_memory_bytes: Some(10_000_000),
        replay_memory_bytes_connected: Some(60_000_000),
        subscribed_seconds: 0.25,
        publisher_memory_bytes: Some(110_000_000),
        publisher_memory_bytes_subscribed: None,
        inserts: vec![InsertsSpeeds {
            asked_per_actor: 1.0,
            inserts_per_second: 1_000.0,
            latency: Latency { p50_ms: 2.5, p99_ms: 52.0 },
            replay_cpu: Some(0.1),
            clients_cpu: Some(0.2),
            replay_memory_bytes: Some(80_000_000),
        }],
        fan_outs: vec![fan_out()],
    }
}

/// A report of made-up numbers.
fn report(line: &str) -> Report {
    let mut report = Report::new("fleet", "A fleet of actors");
    rows::add_fleets(&mut report, &args::<Args>(line).scaling, &fleets());
    rows::add_load(&mut report, &load_speeds());
    report
}

fn fan_out() -> FanOutSpeeds {
    FanOutSpeeds {
        network: "6x64".to_owned(),
        size_bytes: 2_000_000,
        bytes_sent: 2_000_000_000,
        held: vec![(1, 0.1), (250, 0.5), (500, 1.0), (1_000, 2.0)],
        publisher_cpu_seconds: Some(1.0),
        clients_cpu_seconds: Some(1.5),
        publisher_memory_bytes: Some(110_000_000),
        publisher_memory_bytes_max: Some(400_000_000),
    }
}

#[test]
fn a_fleet_is_held_against_the_smallest_one() {
    let shares: Vec<f64> = fleets().iter().map(|fleet| fleet.share_of_linear).collect();
    assert_eq!(shares, [1.0, 0.975, 0.9]);
    let mut fleets = [fleet(2, 40.0), fleet(8, 80.0)];
    scaling::share_of_linear(&mut fleets);
    assert!((fleets[1].share_of_linear - 0.5).abs() < 1e-12);
}

#[test]
fn a_fleet_is_what_its_processes_told_over_the_window() {
    let told = |inserted: u64, waited: f64, cpu: f64| {
        let mut actor = actor(&format!(
            "zerofleet_actor_inserted_total {inserted}\nzerofleet_actor_wait_seconds_total{{part=\"replay\"}} {waited}"
        ));
        actor.usage = Some(usage(&[(1, "selfplay-0", cpu)]));
        actor
    };
    let learner = |train: f64| {
        let mut learner = learner(&format!(
            "zerofleet_learner_seconds_total{{phase=\"train\"}} {train}\nzerofleet_learner_seconds_total{{phase=\"publish\"}} 0"
        ));
        learner.usage = Some(usage(&[(1, "learner", train)]));
        learner
    };
    let window = Window {
        seconds: 10.0,
        begin: vec![told(5, 0.0, 1.0), told(7, 1.0, 1.0), learner(1.0)],
        end: vec![told(25, 1.0, 2.0), told(37, 2.0, 2.0), learner(3.0)],
    };
    let scaled = scaling::scale(&window, 2);
    assert_eq!((scaled.actors, scaled.inserts_per_second), (2, 5.0));
    assert_eq!((scaled.actors_cpu, scaled.learner_cpu), (Some(0.2), Some(0.2)));
    assert_eq!((scaled.held_up_share, scaled.learner_busy_share), (Some(0.1), Some(0.2)));
    assert_eq!((scaled.replay_cpu, scaled.insert_wait_share), (None, None), "nobody told");
    assert!(window.end.iter().all(|reading| reading.role != Role::Replay));
}

#[test]
fn a_fan_out_is_told_by_its_first_its_middle_and_its_last_subscriber() {
    let fan_out = fan_out();
    assert_eq!((fan_out.first_seconds(), fan_out.median_seconds(), fan_out.last_seconds()), (0.1, 1.0, 2.0));
    assert_eq!(fan_out.bytes_per_cpu_second(), Some(2e9));
}

#[test]
fn a_slow_link_is_the_limit_and_behind_a_fast_one_the_publishers_cpu() {
    let seconds = |bits_per_second| paper::Delivery::new(&fan_out(), bits_per_second);
    // 2 GB are 16 Gbit; two threads take half a second.
    assert_eq!((seconds(1e9).seconds(), seconds(1e9).limit), (16.0, paper::Limit::Link));
    assert_eq!((seconds(64e9).seconds(), seconds(64e9).limit), (0.5, paper::Limit::Cpu));
    let unknown = FanOutSpeeds { publisher_cpu_seconds: None, ..fan_out() };
    assert_eq!(paper::Delivery::new(&unknown, 64e9).limit, paper::Limit::Link);
}

#[test]
fn memory_and_traffic_are_reckoned_for_each_connection_and_second() {
    let load = load_speeds();
    let each = paper::per_connection(load.replay_memory_bytes, load.replay_memory_bytes_connected, load.actors);
    assert_eq!(each, Some(50_000.0));
    assert_eq!(paper::per_connection(Some(5), Some(3), 1), Some(0.0), "memory was given back");
    assert_eq!(paper::per_connection(Some(5), Some(6), 0), None);
    assert_eq!(paper::trajectory_bytes_per_second(&load, 1_000.0), 1.5e6);
    assert_eq!(paper::inserts_per_cpu_second(&load), Some(10_000.0));
}

#[test]
fn the_tables_tell_everything_and_what_is_unknown_is_a_dash() {
    let text = report("--set replay.fsync_ms=10").markdown();
    for row in [
        "| 4 | 72.0 | 90.0 % | 2880 | 0.50 | 0.30 | 0.01 | 0.19 | 0.0 % | 0.0 % | – |",
        "- settings: game connect_four, simulated evaluator 10.0 ms, games per actor 64, simulations 16, ",
        "the learner trains 1x8, replay.fsync_ms=10;",
        "| replay-server | 1000 | 500 ms | 10.0 MB | 60.0 MB | 50.0 kB |",
        "| publisher of weights | 1000 | 250 ms | 110 MB | – | – |",
        "| 1 | 1000 | 1000 | 2.50 ms | 52.0 ms | 0.10 | 0.20 | 80.0 MB | 1.50 MB/s |",
        "| 6x64 | 2.00 MB | 2.00 GB | 100 ms | 1.00 s | 2.00 s | 1.00 GB/s | 1.00 s | 1.50 s | 2.00 GB | 110 MB | 400 MB |",
        "| 6x64 | 1 Gbit/s | the publisher's link | 16.0 s |",
        "A CPU second of the replay server takes 10000 inserts.",
    ] {
        assert!(text.contains(row), "{row}\n{text}");
    }
}

#[test]
fn fleets_of_other_work_are_not_compared() {
    let mut now = report("");
    now.compare("earlier.json".as_ref(), &report(""));
    assert!(now.rows.iter().filter(|row| row.value > Some(0.0)).all(|row| row.change.is_some()), "{now:?}");
    now.compare("earlier.json".as_ref(), &report("--delay-us 1"));
    assert!(now.rows.iter().all(|row| row.change.is_none()), "{now:?}");
}

#[test]
fn the_plot_has_a_panel_for_each_measurement() {
    let drawn = report("").svg().unwrap();
    assert!(
        drawn.contains(">inserts by actors: inserts/s<") && drawn.contains(">subscribers that hold the version: time<")
    );
}

#[test]
fn options_that_make_no_sense_are_named_before_anything_starts() {
    let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
    assert!(error("--rates 0").contains("--rates"));
    assert!(error("--load-seconds 0").contains("--load-seconds"));
    assert!(error("--steps 50").contains("--steps"));
    assert!(error("--seconds 0").contains("--seconds"));
    assert!(error("--repeats 0").contains("--repeats"));
    assert!(error("--simulations 0").contains("--simulations"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    let network = parsed::<Args>(["--networks", "6-64"]).unwrap_err().to_string();
    assert!(network.contains("BLOCKSxCHANNELS"), "{network}");
}

#[test]
fn nothing_is_measured_where_nothing_is_asked_for() {
    let mut table = Vec::new();
    run(&args("--scale 0 --actors 0"), &mut table).unwrap();
    assert!(String::from_utf8(table).unwrap().contains("# A fleet of actors"));
}
