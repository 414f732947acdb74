//! `zerofleet bench fleet`: the load of a thousand actors on replay server and learner, without games.
//!
//! `load` opens the connections of all actors from this process: insert streams to a real replay server, and
//! subscriptions to a [`publisher`] of weights in a separate process. From the latter, `fan_out` computes the delivery
//! time of a version over slower links. `bench phases --actors 1,2,4,8` measures real fleets. Start with [`measure`].

mod fan_out;
mod load;
pub mod publisher;

use anyhow::Context;

use crate::output::temporary_folder;
use crate::report::Report;
pub use load::Args;

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, or a process dies or is not built.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.check()?;
    // Each actor has a connection to each server, and each connection takes a descriptor.
    let descriptors_max = service::descriptors::raise_limit();
    let mut report = Report::new("fleet", "A fleet of actors");
    let descriptors = descriptors_max.map_or("unknown".to_owned(), |limit| limit.to_string());
    report.note("all processes share the cores of this machine, over loopback");
    report.note(format!("seed {}; file descriptors that a process may have open: {descriptors}", args.seed));
    let folder = temporary_folder(args.folder.as_deref())?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(load::measure(args, folder.path(), &mut report))?;
    runtime.block_on(fan_out::measure(args, &mut report))?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::fan_out::FanOut;
    use super::load::per_connection;
    use super::*;
    use crate::report::Unit;
    use crate::tests::{args, parsed};

    /// Returns a report with made-up numbers.
    fn report(line: &str) -> Report {
        let args = args::<Args>(line);
        let mut report = Report::new("fleet", "A fleet of actors");
        load::describe(&mut report, &args, 1_500.0);
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
        let text = report("").markdown();
        for row in [
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
    fn loads_of_different_actors_are_not_compared() {
        let mut now = report("");
        now.compare("earlier.json".as_ref(), &report(""));
        assert!(now.rows.iter().filter(|row| row.value > Some(0.0)).all(|row| row.change.is_some()), "{now:?}");
        now.compare("earlier.json".as_ref(), &report("--actors 5"));
        assert!(now.rows.iter().all(|row| row.change.is_none()), "{now:?}");
    }

    #[test]
    fn options_that_make_no_sense_are_named_before_anything_starts() {
        let error = |line: &str| format!("{:#}", crate::tests::run("fleet", line, &mut Vec::new()).unwrap_err());
        assert!(error("--rates 0").contains("--rates"));
        assert!(error("--load-seconds 0").contains("--load-seconds"));
        assert!(error("--actors 0").contains("--actors"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        let network = parsed::<Args>(["--networks", "6-64"]).unwrap_err().to_string();
        assert!(network.contains("BLOCKSxCHANNELS"), "{network}");
    }
}
