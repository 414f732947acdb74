use std::time::Duration;

use super::fan_out::FanOut;
use super::load::per_connection;
use super::scaling::INSERTS_PER_SECOND;
use super::*;
use crate::report::{Unit, Value, value_of};
use crate::tests::{args, parsed};
use crate::training_run::tests::{actor, learner, usage, window};
use fleet::Role;

fn fleet(actors: usize, inserts_per_second: f64) -> (usize, Vec<Value>) {
    let speeds = vec![
        (INSERTS_PER_SECOND, Unit::PerSecond, Some(inserts_per_second)),
        ("samples/s", Unit::PerSecond, Some(40.0 * inserts_per_second)),
        ("cores of all", Unit::Cores, Some(0.5)),
        ("learner busy", Unit::Share, None),
    ];
    (actors, speeds)
}

/// Returns a report with made-up numbers.
fn report(line: &str) -> Report {
    let args = args::<Args>(line);
    let mut report = Report::new("fleet", "A fleet of actors");
    scaling::add(&mut report, &args.scaling, &[fleet(1, 20.0), fleet(2, 39.0), fleet(4, 72.0)]);
    load::describe(&mut report, &args.load, 1_500.0);
    let memory = (Some(10_000_000), Some(60_000_000));
    load::add_connections(&mut report, "replay-server", 1_000, Duration::from_millis(500), memory);
    let inserts = vec![
        ("acknowledged/s", Unit::PerSecond, Some(1_000.0)),
        ("insert p50", Unit::Microseconds, Some(2_500.0)),
        ("cores of replay server", Unit::Cores, Some(0.1)),
    ];
    load::add_inserts(&mut report, &[(1.0, inserts)]);
    let memory = (Some(110_000_000), None);
    load::add_connections(&mut report, "publisher of weights", 1_000, Duration::from_millis(250), memory);
    fan_out::add(&mut report, "6x64", &fan_out());
    report
}

fn fan_out() -> FanOut {
    FanOut {
        size_bytes: 2_000_000,
        bytes_sent: 2_000_000_000,
        held_seconds: [0.1, 1.0, 2.0],
        publisher_cpu_seconds: Some(1.0),
        clients_cpu_seconds: Some(1.5),
        publisher_memory: (Some(110_000_000), Some(400_000_000)),
    }
}

#[test]
fn the_share_of_linear_scaling_is_relative_to_the_smallest_fleet() {
    let shares = |fleets: &[(usize, Vec<Value>)]| {
        let mut report = Report::new("fleet", "A fleet of actors");
        scaling::add(&mut report, &args::<Args>("").scaling, fleets);
        let rows = report.rows.into_iter().filter(|row| row.metric == "share of linear");
        rows.filter_map(|row| row.value).collect::<Vec<_>>()
    };
    assert_eq!(shares(&[fleet(1, 20.0), fleet(2, 39.0), fleet(4, 72.0)]), [1.0, 0.975, 0.9]);
    assert_eq!(shares(&[fleet(2, 40.0), fleet(8, 80.0)]), [1.0, 0.5]);
}

#[test]
fn rates_of_a_fleet_come_from_the_metrics_of_its_processes_over_the_window() {
    let scrape = |inserted: u64, waited: f64, cpu: f64| {
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
    let begin = vec![scrape(5, 0.0, 1.0), scrape(7, 1.0, 1.0), learner(1.0)];
    let end = vec![scrape(25, 1.0, 2.0), scrape(37, 2.0, 2.0), learner(3.0)];
    let window = window(10.0, begin, end);
    let scaled = scaling::scale(&window, 2);
    let of = |metric| value_of(&scaled, metric);
    assert_eq!(of(INSERTS_PER_SECOND), Some(5.0));
    assert_eq!((of("cores of actors"), of("cores of learner")), (Some(0.2), Some(0.2)));
    assert_eq!((of("self-play waits for replay"), of("learner busy")), (Some(0.1), Some(0.2)));
    assert_eq!((of("cores of replay"), of("limiter delays inserts")), (None, None), "not reported");
    assert!(window.processes.iter().all(|process| process.role != Role::Replay));
}

#[test]
fn delivery_is_limited_by_a_slow_link_or_else_by_the_publishers_cpu() {
    // 2 GB are 16 Gbit; two threads take half a second.
    assert_eq!(fan_out().delivery(1e9), (16.0, "the publisher's link"));
    assert_eq!(fan_out().delivery(64e9), (0.5, "the publisher's CPU (two threads for sockets)"));
    let unknown = FanOut { publisher_cpu_seconds: None, ..fan_out() };
    assert_eq!(unknown.delivery(64e9).1, "the publisher's link");
}

#[test]
fn memory_is_computed_per_connection() {
    assert_eq!(per_connection(Some(10_000_000), Some(60_000_000), 1_000), Some(50_000.0));
    assert_eq!(per_connection(Some(5), Some(3), 1), Some(0.0), "memory was given back");
    assert_eq!(per_connection(Some(5), Some(6), 0), None);
}

#[test]
fn the_tables_list_every_measurement_and_show_unknown_values_as_a_dash() {
    let text = report("--set replay.fsync_ms=10").markdown();
    for row in [
        "| 4 | 72.0 | 90.0 % | 2880 | 0.50 | – |",
        "- settings: game connect_four, simulated evaluator 10.0 ms, games per actor 64, simulations 16, ",
        "the learner trains 1x8, replay.fsync_ms=10;",
        "trajectories of Connect Four with 30 steps, 1.50 kB each; 10 s for each rate",
        "| replay-server | 1000 | 500 ms | 10.0 MB | 60.0 MB | 50.0 kB |",
        "| publisher of weights | 1000 | 250 ms | 110 MB | – | – |",
        "| 1 | 1000 | 2.50 ms | 0.10 |",
        "| 6x64 | 2.00 MB | 2.00 GB | 100 ms | 1.00 s | 2.00 s | 1.00 s | 1.50 s | 110 MB | 400 MB |",
        "| 6x64 | 1 Gbit/s | the publisher's link | 16.0 s |",
        "A CPU second of the replay server takes 10000 inserts.",
    ] {
        assert!(text.contains(row), "{row}\n{text}");
    }
}

#[test]
fn fleets_with_different_settings_are_not_compared() {
    let mut now = report("");
    now.compare("earlier.json".as_ref(), &report(""));
    assert!(now.rows.iter().filter(|row| row.value > Some(0.0)).all(|row| row.change.is_some()), "{now:?}");
    now.compare("earlier.json".as_ref(), &report("--delay-us 1"));
    assert!(now.rows.iter().all(|row| row.change.is_none()), "{now:?}");
}

#[test]
fn the_plot_has_the_inserts_by_actors() {
    assert!(report("").svg().unwrap().contains("inserts by actors: inserts/s\n"));
}

#[test]
fn options_that_make_no_sense_are_named_before_anything_starts() {
    let error = |line: &str| format!("{:#}", crate::tests::run("fleet", line, &mut Vec::new()).unwrap_err());
    assert!(error("--rates 0").contains("--rates"));
    assert!(error("--load-seconds 0").contains("--load-seconds"));
    assert!(error("--seconds 0").contains("--seconds"));
    assert!(error("--repeats 0").contains("--repeats"));
    assert!(error("--simulations 0").contains("--simulations"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    let network = parsed::<Args>(["--networks", "6-64"]).unwrap_err().to_string();
    assert!(network.contains("BLOCKSxCHANNELS"), "{network}");
}

#[test]
fn zero_scale_and_zero_actors_still_produce_a_report() {
    let mut table = Vec::new();
    crate::tests::run("fleet", "--scale 0 --actors 0", &mut table).unwrap();
    assert!(String::from_utf8(table).unwrap().contains("# A fleet of actors"));
}
