//! `zerofleet bench replay`: inserts and samples of a replay server over loopback, every insert on disk before it is
//! acknowledged, by number of writers and by size of the table; and how long a restart takes.
//!
//! Server and clients run in this process and share its cores; what goes between them goes over sockets, through the clients
//! that actors and learner use. The limiter holds nothing up. Start with [`run`].

mod compare;
pub(crate) mod games;
mod load;
mod markdown;
mod plot;
mod report;
mod server;
mod stall;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

pub use markdown::markdown;
pub use plot::draw;
pub use report::{Compared, Report, SizeReport, StallReport, WritersReport};

use super::output::Destination;
use super::training_run::TemporaryFolder;
use super::{Turns, machine};
use games::Games;
use load::Sampling;
use server::Server;

/// Options of `zerofleet bench replay`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Numbers of writers.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    pub writers: Vec<usize>,
    /// Trajectories that each writer has unacknowledged.
    #[arg(long, default_value_t = 256)]
    pub in_flight: usize,
    /// Steps of a trajectory.
    #[arg(long, default_value_t = 30)]
    pub steps: usize,
    /// Samples in a batch.
    #[arg(long, default_value_t = 256)]
    pub batch: usize,
    /// Steps that a sample unrolls; 0 for a position and its targets.
    #[arg(long, default_value_t = 0)]
    pub unroll: usize,
    /// Positions in the table at which sampling and a restart are measured.
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000")]
    pub positions: Vec<u64>,
    /// How long others are measured beside a sampler that has stopped reading; 0: not at all.
    #[arg(long, default_value_t = 0.0)]
    pub stall_seconds: f64,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Where the servers keep their logs: on the disk that is to be measured [default: the system's folder of temporary files].
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Settings of the servers beside the defaults: `replay.fsync_ms=10`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Every game descends from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a server that cannot start, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    // Before minutes are spent on measuring.
    let earlier = args.destination.earlier("replay")?;
    let mut report = measure(args)?;
    if let Some((path, earlier)) = &earlier {
        compare::compare(&mut report, path, earlier);
    }
    args.destination.write("replay", || markdown(&report), &report, |path| draw(path, &report))?;
    args.destination.print(&report, || markdown(&report), out)
}

/// Measures.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(!args.writers.contains(&0), "--writers needs numbers of at least 1");
    ensure!(args.in_flight > 0, "--in-flight must be at least 1");
    ensure!(args.batch > 0, "--batch must be at least 1");
    ensure!(!args.positions.contains(&0), "--positions needs numbers of at least 1");
    ensure!(Duration::try_from_secs_f64(args.stall_seconds).is_ok(), "--stall-seconds must be at least 0");
    let time = args.turns.time()?;
    let games = Games::new(args.steps, args.seed)?;
    let folder = TemporaryFolder::new(args.folder.as_deref())?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let mut writers = Vec::new();
    for &count in &args.writers {
        writers.push(runtime.block_on(measure_writers(args, folder.path(), &games, count, time))?);
    }
    let sizes = runtime.block_on(measure_sizes(args, folder.path(), &games, time))?;
    let stalling = (args.stall_seconds > 0.0).then(|| stall::measure(args, folder.path(), &games, args.stall_seconds));
    let stall = stalling.map(|stalling| runtime.block_on(stalling)).transpose()?;
    Ok(Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores: machine::cores(),
        steps: args.steps,
        batch: args.batch,
        unroll: args.unroll,
        in_flight: args.in_flight,
        sets: args.sets.clone(),
        seconds: args.turns.seconds,
        repeats: args.turns.repeats,
        turn: args.turns.turn,
        seed: args.seed,
        compared: None,
        writers,
        sizes,
        stall,
    })
}

/// Everything with so many writers, on a server of their own.
async fn measure_writers(
    args: &Args,
    folder: &Path,
    games: &Games,
    writers: usize,
    time: Duration,
) -> anyhow::Result<WritersReport> {
    let server = Server::start(args, &folder.join(format!("writers-{writers}"))).await?;
    let (mut inserts, mut latencies) = (Vec::new(), Vec::new());
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..args.turns.repeats {
        inserts.push(load::insert(&server, games, writers, args.in_flight, time).await?.speed);
        latencies.push(load::insert(&server, games, writers, 1, time).await?);
        alone.push(load::sample(&server, args, time).await);
        let sampling = load::sample(&server, args, time);
        let (inserted, sampled) = tokio::join!(load::insert(&server, games, writers, args.in_flight, time), sampling);
        inserted?;
        beside.push(sampled);
    }
    drop(server.stop().await?);
    let turn = args.turns.turn;
    let sampling = |all| turn.of(all, |sampling: &Sampling| sampling.speed).unwrap_or_default();
    let (alone, beside) = (sampling(alone), sampling(beside));
    let one_in_flight = turn.of(latencies, |inserting| inserting.speed).unwrap_or_default();
    Ok(WritersReport {
        writers,
        inserts_per_second: turn.speed(&inserts).unwrap_or(f64::NAN),
        insert_latency: one_in_flight.latency,
        samples_per_second: alone.speed,
        sample_latency: alone.latency,
        samples_per_second_beside_writers: beside.speed,
        sample_latency_beside_writers: beside.latency,
        inserts_ratio: None,
        samples_ratio: None,
    })
}

/// One server that grows from size to size.
async fn measure_sizes(args: &Args, folder: &Path, games: &Games, time: Duration) -> anyhow::Result<Vec<SizeReport>> {
    let mut positions = args.positions.clone();
    positions.sort_unstable();
    positions.dedup();
    let mut reports = Vec::new();
    if positions.is_empty() {
        return Ok(reports);
    }
    let mut server = Server::start(args, &folder.join("sizes")).await?;
    for positions in positions {
        load::fill(&server, games, positions).await?;
        let mut sampled = Vec::new();
        for _ in 0..args.turns.repeats {
            sampled.push(load::sample(&server, args, time).await);
        }
        let sampled = args.turns.turn.of(sampled, |sampling| sampling.speed).unwrap_or_default();
        let stats = server.stats().await?;
        let begun = Instant::now();
        let stopped = server.stop().await?;
        let drain_seconds = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        server = stopped.start_again().await?;
        let after = server.stats().await?;
        let restart_seconds = begun.elapsed().as_secs_f64();
        ensure!(after.items == stats.items, "{} of {} positions came back", after.items, stats.items);
        reports.push(SizeReport {
            positions: stats.items,
            log_bytes: stats.bytes,
            samples_per_second: sampled.speed,
            sample_latency: sampled.latency,
            drain_seconds,
            restart_seconds,
            samples_ratio: None,
        });
    }
    drop(server.stop().await?);
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Turn;
    use crate::latency::Latency;
    use crate::tests::args;

    /// A report of made-up numbers.
    pub(super) fn report() -> Report {
        let latency = |p50_ms, p99_ms| Latency { p50_ms, p99_ms };
        Report {
            cpu: "Some CPU".to_owned(),
            target: "x86_64 linux".to_owned(),
            cores: 2,
            steps: 30,
            batch: 256,
            unroll: 0,
            in_flight: 64,
            sets: Vec::new(),
            seconds: 1.0,
            repeats: 3,
            turn: Turn::Median,
            seed: 7,
            compared: None,
            writers: vec![WritersReport {
                writers: 4,
                inserts_per_second: 20_000.0,
                insert_latency: latency(3.2, 9.8),
                samples_per_second: 400_000.0,
                sample_latency: latency(0.6, 1.1),
                samples_per_second_beside_writers: 90_000.0,
                sample_latency_beside_writers: latency(2.0, 5.0),
                inserts_ratio: None,
                samples_ratio: None,
            }],
            sizes: vec![SizeReport {
                positions: 1_000_020,
                log_bytes: 25_000_000,
                samples_per_second: 390_000.0,
                sample_latency: latency(0.6, 1.2),
                drain_seconds: 0.01,
                restart_seconds: 0.9,
                samples_ratio: None,
            }],
            stall: Some(StallReport {
                seconds: 60.0,
                inserts_per_second: 8_000.0,
                inserts_per_second_beside: 7_900.0,
                samples_per_second: 300_000.0,
                samples_per_second_beside: 299_000.0,
                memory_bytes: Some(120_000_000),
                memory_bytes_beside: None,
            }),
        }
    }

    #[test]
    fn a_tiny_run_measures_everything_and_is_written_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let tiny = format!(
            "--writers 1,2 --steps 5 --batch 8 --in-flight 4 --positions 60,200 --stall-seconds 0.02 --seconds 0.02 --repeats 1 --folder {}",
            folder.path().display()
        );
        let mut table = Vec::new();
        run(&args(&format!("{tiny} --out {}", out.display())), &mut table).unwrap();
        assert_eq!(std::fs::read(out.join("replay.md")).unwrap(), table);
        assert!(std::fs::read_to_string(out.join("replay.svg")).unwrap().contains("positions held"));

        let (earlier, mut json) = (out.join("replay.json"), Vec::new());
        run(&args(&format!("{tiny} --json --compare {}", earlier.display())), &mut json).unwrap();
        let report: Report = serde_json::from_slice(&json).unwrap();
        let writers: Vec<usize> = report.writers.iter().map(|report| report.writers).collect();
        assert_eq!(writers, [1, 2]);
        for report in &report.writers {
            assert!(report.inserts_per_second > 0.0 && report.samples_per_second > 0.0, "{report:?}");
            assert!(
                report.insert_latency.p50_ms > 0.0 && report.sample_latency_beside_writers.p99_ms > 0.0,
                "{report:?}"
            );
            assert!(report.inserts_ratio.is_some() && report.samples_ratio.is_some(), "{report:?}");
        }
        let positions: Vec<u64> = report.sizes.iter().map(|size| size.positions).collect();
        assert_eq!(positions, [60, 200]);
        assert!(report.sizes.iter().all(|size| size.restart_seconds > 0.0 && size.log_bytes > 0), "{report:?}");
        let stall = report.stall.unwrap();
        assert!(stall.inserts_per_second_beside > 0.0 && stall.samples_per_second_beside > 0.0, "{stall:?}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["out"], "the folders of the servers are removed");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
        assert!(error("--writers 0").contains("--writers"));
        assert!(error("--batch 0").contains("--batch"));
        assert!(error("--steps 50").contains("--steps"));
        assert!(error("--in-flight 0").contains("--in-flight"));
        assert!(error("--stall-seconds=-1").contains("--stall-seconds"));
        assert!(error("--repeats 0").contains("--repeats"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        let folder = tempfile::tempdir().unwrap();
        let error = error(&format!("--folder {} --set replay.fsync=1 --seconds 0", folder.path().display()));
        assert!(error.contains("replay.fsync"), "{error}");
    }
}
