//! `zerofleet bench replay`: inserts and samples of a replay server over loopback, by number of writers and by table
//! size, and the time of a restart; or inserts at fixed rates. Every insert is on disk before the acknowledgement.
//!
//! Servers and clients are separate processes that share the cores. Messages go over sockets, through the clients that
//! actors and learner use. The rate limiter never blocks. Start with [`measure`].

pub(crate) mod games;
pub(crate) mod load;
pub(crate) mod rates;
mod stall;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::output::temporary_folder;
use crate::report::{Report, Unit};
use crate::server_process::ServerProcess;
use crate::{Turns, ascending};
use games::{Games, STEPS};
use load::Loaded;

/// Settings of a table that holds more than any measurement inserts.
const CAPACITY: [&str; 2] = ["replay.window_items_min=1000000000", "replay.capacity_items=1000000000"];
/// Unacknowledged trajectories of a writer at full speed.
const IN_FLIGHT: usize = 256;

/// Options of `zerofleet bench replay`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Numbers of concurrent writers to measure.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    pub writers: Vec<usize>,
    /// Measure only connections and inserts at these rates, in inserts per second and writer.
    ///
    /// Each writer waits for each acknowledgement, as many actors of a fleet do.
    #[arg(long, value_delimiter = ',')]
    pub rates: Vec<f64>,
    /// Table sizes, in positions, for measuring sampling and a restart.
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000")]
    pub positions: Vec<usize>,
    /// Duration of the part with a stalled sampler in seconds; 0 skips it.
    ///
    /// A stalled sampler is a client that has stopped reading.
    #[arg(long, default_value_t = 0.0)]
    pub stall_seconds: f64,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Directory for the server logs [default: the temporary directory].
    ///
    /// The directory must be on the disk to be measured.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Override one setting of the servers; may be repeated.
    ///
    /// For example `replay.fsync_ms=10`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, or a server cannot start.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(!args.writers.contains(&0), "every number in --writers must be at least 1");
    ensure!(!args.positions.contains(&0), "every number in --positions must be at least 1");
    ensure!(Duration::try_from_secs_f64(args.stall_seconds).is_ok(), "--stall-seconds must be at least 0");
    let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0 && Duration::try_from_secs_f64(1.0 / rate).is_ok();
    ensure!(args.rates.iter().all(is_rate), "every rate in --rates must be above 0");
    let time = args.turns.time()?;
    // Each writer has a connection, which takes a descriptor.
    service::descriptors::raise_limit();
    let games = Games::new(args.turns.seed);
    let folder = temporary_folder(args.folder.as_deref())?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let mut report = Report::new("replay", "The replay server");
    report.set("steps per trajectory", STEPS);
    report.set("samples per batch", load::BATCH);
    report.set("unacknowledged per writer", IN_FLIGHT);
    report.note("server and clients share the cores of this machine, over loopback; every insert is on disk before its acknowledgement");
    if !args.sets.is_empty() {
        report.note(format!("servers with {}", args.sets.join(", ")));
    }
    report.note_turns(args.turns);
    let bench = Bench { args, folder: folder.path(), games: &games, time };
    if !args.rates.is_empty() {
        for &count in &args.writers {
            runtime.block_on(rates::measure(bench, count, &mut report))?;
        }
        return Ok(report);
    }
    for &count in &args.writers {
        runtime.block_on(measure_writers(bench, count, &mut report))?;
    }
    runtime.block_on(measure_sizes(bench, &mut report))?;
    if args.stall_seconds > 0.0 {
        runtime.block_on(stall::measure(bench, &mut report))?;
    }
    report.plot(WRITERS, INSERTS, Some("writers"), None);
    report.plot(SIZES, SAMPLES, Some("positions held"), None);
    Ok(report)
}

/// Settings shared by all measurements.
#[derive(Debug, Clone, Copy)]
struct Bench<'a> {
    args: &'a Args,
    folder: &'a Path,
    games: &'a Games,
    /// Duration of a turn.
    time: Duration,
}

/// Starts a server with the settings of the options, and with the log in `folder`.
async fn start(args: &Args, folder: &Path) -> anyhow::Result<ServerProcess> {
    let sets: Vec<String> = CAPACITY.into_iter().map(str::to_owned).chain(args.sets.iter().cloned()).collect();
    ServerProcess::replay(folder, &sets).await
}

const WRITERS: &str = "by number of writers";
const SIZES: &str = "by size of the table";
const INSERTS: &str = "inserts/s";
const SAMPLES: &str = "samples/s";

/// Measures inserts and samples with `writers` writers, on a separate server.
async fn measure_writers(bench: Bench<'_>, writers: usize, report: &mut Report) -> anyhow::Result<()> {
    let Bench { args, folder, games, time } = bench;
    let server = start(args, &folder.join(format!("writers-{writers}"))).await?;
    let insert = |in_flight| load::insert(&server.endpoint, games, (writers, in_flight), time);
    let (mut inserts, mut latencies) = (Vec::new(), Vec::new());
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..args.turns.repeats {
        inserts.push(insert(IN_FLIGHT).await?.speed);
        latencies.push(insert(1).await?);
        alone.push(load::sample(&server.endpoint, time).await);
        let (inserted, sampled) = tokio::join!(insert(IN_FLIGHT), load::sample(&server.endpoint, time));
        inserted?;
        beside.push(sampled);
    }
    server.stop().await?;
    let of_turn = |all| args.turns.turn.of(all, |loaded: &Loaded| loaded.speed).unwrap_or_default();
    let (mut alone, mut beside, mut one_in_flight) = (of_turn(alone), of_turn(beside), of_turn(latencies));
    report
        .at(WRITERS, &[("writers", &writers)])
        .value(INSERTS, Unit::PerSecond, args.turns.turn.speed(&inserts))
        .latency("insert", &mut one_in_flight.took)
        .value("samples/s alone", Unit::PerSecond, alone.speed)
        .latency("batch alone", &mut alone.took)
        .value("samples/s beside writers", Unit::PerSecond, beside.speed)
        .latency("batch beside writers", &mut beside.took);
    Ok(())
}

/// Measures samples, drain and restart of one server; the table is filled from size to size.
async fn measure_sizes(bench: Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let Bench { args, folder, games, time } = bench;
    let folder = folder.join("sizes");
    let mut server = start(args, &folder).await?;
    for positions in ascending("--positions", &args.positions)? {
        load::fill(&server.endpoint, games, positions as u64).await?;
        let mut sampled = Vec::new();
        for _ in 0..args.turns.repeats {
            sampled.push(load::sample(&server.endpoint, time).await);
        }
        let mut sampled = args.turns.turn.of(sampled, |loaded| loaded.speed).unwrap_or_default();
        let stats = load::stats(&server.endpoint).await?;
        let begun = Instant::now();
        server.stop().await?;
        let drain_seconds = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        server = start(args, &folder).await?;
        let after = load::stats(&server.endpoint).await?;
        let restart_seconds = begun.elapsed().as_secs_f64();
        ensure!(after.items == stats.items, "only {} of {} positions were restored", after.items, stats.items);
        report
            .at(SIZES, &[("positions held", &stats.items)])
            .value("log", Unit::Bytes, stats.bytes as f64)
            .value(SAMPLES, Unit::PerSecond, sampled.speed)
            .latency("batch", &mut sampled.took)
            .value("drain", Unit::Microseconds, 1e6 * drain_seconds)
            .value("restart", Unit::Microseconds, 1e6 * restart_seconds);
    }
    server.stop().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", crate::tests::run("replay", line, &mut Vec::new()).unwrap_err());
        assert!(error("--writers 0").contains("--writers"));
        assert!(error("--rates 0").contains("--rates"));
        assert!(error("--stall-seconds=-1").contains("--stall-seconds"));
        assert!(error("--repeats 0").contains("--repeats"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    }
}
