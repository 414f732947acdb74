//! `zerofleet bench inference`: what an inference server delivers over loopback, as a share of what the same evaluator
//! does in a process with batches of the same size; how long single positions take; and what happens when too much is
//! asked.
//!
//! Server and clients run in this process and share its cores; what goes between them goes over sockets, through the
//! client that actors use. Every position that is asked is another one. Start with [`run`].

mod load;
mod server;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use game::Game as _;
use games::{GameKind, with_game};
use inference::{Batch, Evaluator, Predictions};
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};
use weights::Manifest;

use super::output::Destination;
use super::random_weights::random_weights;
use super::report::{Report, Unit};
use super::training_run::TemporaryFolder;
use super::{Turns, machine, positions, threads};
use crate::evaluators::Evaluators;
use load::{Load, Loaded};
use server::Server;

/// Options of `zerofleet bench inference`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The game.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// Residual blocks of the network, whose weights are random.
    #[arg(long, default_value_t = 6)]
    pub blocks: usize,
    /// Its channels.
    #[arg(long, default_value_t = 64)]
    pub channels: usize,
    /// Threads that evaluate, in a process and in the server; 0 is one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Positions in an ask, and in a batch of the evaluator in a process.
    #[arg(long, default_value_t = 64)]
    pub batch: usize,
    /// Asks that the client has unanswered.
    #[arg(long, default_value_t = 6)]
    pub in_flight: usize,
    /// Numbers of callers that ask for one position, wait for the answer, and ask again.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    pub callers: Vec<usize>,
    /// Within how many milliseconds answers are wanted while too much is asked.
    #[arg(long, default_value_t = 20)]
    pub deadline_ms: u64,
    /// The engine on a CPU: `auto`, `libtorch`, or a path of the CPU kernel such as `avx512-bf16`.
    #[arg(long, default_value = "auto")]
    pub kernel: String,
    /// Settings of the server beside the defaults: `inference.queue_delay_us=200`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Weights and positions descend from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a server that cannot start, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("inference", out, |_| measure(args))
}

/// Measures.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(args.batch > 0, "--batch must be at least 1");
    ensure!(args.in_flight > 0, "--in-flight must be at least 1");
    ensure!(!args.callers.contains(&0), "--callers needs numbers of at least 1");
    let time = args.turns.time()?;
    let thread_count = machine::threads(args.threads);
    let spec = with_game!(args.game, |game| game.spec().clone());
    let (manifest, bytes) = random_weights(&spec, args.blocks, args.channels, args.seed)?;
    let folder = TemporaryFolder::new(None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = runtime.block_on(Server::start(args, thread_count, folder.path(), (&manifest, &bytes)))?;
    let mut local = in_process(args, thread_count, &manifest, &bytes)?;

    let (mut alone, mut fast, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let full = Load { callers: args.in_flight, positions: args.batch, timeout: None };
    for _ in 0..args.turns.repeats {
        alone.push(threads::rate(&mut local, time, Alone::evaluate)?);
        fast.push(runtime.block_on(load::fast(&server, &manifest, full, time)));
        open.push(runtime.block_on(load::model_infer(&server, &manifest, full, time))?);
    }
    let in_process = args.turns.turn.speed(&alone).unwrap_or(f64::NAN);
    let speed = |loaded: &Loaded| loaded.positions_per_second;
    let mut report = Report::new("inference", "The inference server beside its evaluator in a process");
    report.set("game", args.game);
    report.set("network", format!("{}x{}", args.blocks, args.channels));
    report.set("threads", thread_count);
    report.set("positions per request", args.batch);
    report.set("requests in flight", args.in_flight);
    report.at(FULL, &[("path", &"in process")]).value(EVALUATIONS, Unit::PerSecond, in_process);
    for (path, turns) in [("fast path", fast), ("ModelInfer", open)] {
        let loaded = args.turns.turn.of(turns, speed).context("no turn was measured")?;
        report
            .at(FULL, &[("path", &path)])
            .value(EVALUATIONS, Unit::PerSecond, speed(&loaded))
            .value(SHARE, Unit::Share, speed(&loaded) / in_process)
            .latency("request", loaded.latency);
    }
    for &count in &args.callers {
        let one = Load { callers: count, positions: 1, timeout: None };
        let turns = (0..args.turns.repeats).map(|_| runtime.block_on(load::fast(&server, &manifest, one, time)));
        let loaded = args.turns.turn.of(turns.collect(), speed).context("no turn was measured")?;
        report
            .at(CALLERS, &[("callers", &count)])
            .value(EVALUATIONS, Unit::PerSecond, speed(&loaded))
            .latency("request", loaded.latency);
    }
    let deadline = Duration::from_millis(args.deadline_ms);
    // Four times what the server can have answered by then.
    let asks = 4.0 * in_process * deadline.as_secs_f64() / args.batch as f64;
    let overload =
        Load { callers: (asks.ceil() as usize).clamp(8, 1024), positions: args.batch, timeout: Some(deadline) };
    let overloaded = runtime.block_on(load::fast(&server, &manifest, overload, time));
    let evaluator = runtime.block_on(server.stop())?;
    report
        .at(OVERLOAD, &[("deadline ms", &args.deadline_ms)])
        .value("callers", Unit::Count, overload.callers as f64)
        .value(EVALUATIONS, Unit::PerSecond, speed(&overloaded))
        .latency("answered request", overloaded.latency)
        .value("rejected at once", Unit::Share, overloaded.refused_share)
        .value("expired in the queue", Unit::Share, overloaded.expired_share);
    report.note(format!("evaluator: {evaluator}, random weights, no position cache"));
    report.note("server and clients share the cores of this machine, over loopback");
    if !args.sets.is_empty() {
        report.note(format!("server with {}", args.sets.join(", ")));
    }
    report.note_turns(args.turns, args.seed);
    report.plot(CALLERS, EVALUATIONS, Some("callers"), None);
    Ok(report)
}

/// One client that keeps as many requests in flight as it may.
const FULL: &str = "full batches";
/// Callers that each wait for the answer to one position before they request the next.
const CALLERS: &str = "one position per request";
/// Four times the requests that can be answered in time.
const OVERLOAD: &str = "overload";
const EVALUATIONS: &str = "evaluations/s";
const SHARE: &str = "share of in process";

/// The same evaluator in this process, for as many threads as in the server.
fn in_process(args: &Args, threads: usize, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<Vec<Alone>> {
    let kernel: KernelPreference = args.kernel.parse().map_err(anyhow::Error::msg).context("read --kernel")?;
    let evaluators = Evaluators::new(DevicePreference::Auto, PrecisionPreference::Auto, kernel)?;
    let alone = |thread| {
        let batch = positions::random(&manifest.architecture, args.seed + thread as u64, args.batch);
        Ok(Alone { evaluator: evaluators.evaluator(manifest, bytes)?, batch, predictions: Predictions::new() })
    };
    (0..threads).map(alone).collect()
}

/// The evaluator of a thread, and what it is asked.
struct Alone {
    evaluator: Box<dyn Evaluator>,
    batch: Batch,
    predictions: Predictions,
}

impl Alone {
    fn evaluate(&mut self) -> anyhow::Result<usize> {
        self.evaluator.evaluate(&self.batch, &mut self.predictions)?;
        Ok(self.batch.len())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(options: &[&str]) -> Args {
        let small = ["bench", "--game", "tic_tac_toe", "--blocks", "1", "--channels", "16", "--seconds", "0.05"];
        Line::parse_from(small.iter().chain(options)).args
    }

    #[test]
    fn a_server_is_measured_beside_its_evaluator_in_a_process() {
        let report = measure(&args(&["--threads", "1", "--callers", "1,3", "--repeats", "1", "--batch", "8"])).unwrap();
        let of = |path, metric| report.value(FULL, &[("path", path)], metric);
        let (alone, fast) = (of("in process", EVALUATIONS).unwrap(), of("fast path", EVALUATIONS).unwrap());
        assert!(alone > 0.0 && fast > 0.0 && of("fast path", SHARE) == Some(fast / alone), "{report:?}");
        for callers in ["1", "3"] {
            assert!(report.value(CALLERS, &[("callers", callers)], "request p99") > Some(0.0), "{report:?}");
        }
        let text = report.markdown();
        assert!(text.contains("\n| fast path | ") && text.contains("\n## overload\n"), "{text}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused_by_name() {
        for options in [["--batch", "0"], ["--in-flight", "0"], ["--callers", "0"]] {
            let error = measure(&args(&options)).unwrap_err().to_string();
            assert!(error.contains(options[0]), "{error}");
        }
    }
}
