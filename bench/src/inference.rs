//! `zerofleet bench inference`: what an inference server delivers over loopback, as a share of what the same evaluator does in
//! a process with batches of the same size; how long single positions take; and what happens when too much is asked.
//!
//! Server and clients run in this process and share its cores; what goes between them goes over sockets, through the client
//! that actors use. Every position that is asked is another one. Start with [`run`].

mod load;
mod markdown;
mod report;
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

pub use markdown::markdown;
pub use report::{CallersReport, OverloadReport, Report, ShareReport};

use super::output::Destination;
use super::random_weights::random_weights;
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
    /// What a CPU computes with: `auto`, `libtorch`, or a path of the CPU kernel such as `avx512-bf16`.
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
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a server that cannot start, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    ensure!(args.destination.compare.is_none(), "--compare: this benchmark compares within one run only");
    let report = measure(args)?;
    args.destination.write_without_picture("inference", || markdown(&report), &report)?;
    args.destination.print(&report, || markdown(&report), out)
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
    let share = |turns| {
        let loaded = args.turns.turn.of(turns, speed).context("no turn was measured")?;
        Ok::<_, anyhow::Error>(ShareReport {
            evaluations_per_second: speed(&loaded),
            share_of_in_process: speed(&loaded) / in_process,
            latency: loaded.latency,
        })
    };
    let (fast, model_infer) = (share(fast)?, share(open)?);

    let mut callers = Vec::new();
    for &count in &args.callers {
        let one = Load { callers: count, positions: 1, timeout: None };
        let turns = (0..args.turns.repeats).map(|_| runtime.block_on(load::fast(&server, &manifest, one, time)));
        let loaded = args.turns.turn.of(turns.collect(), speed).context("no turn was measured")?;
        callers.push(CallersReport { callers: count, positions_per_second: speed(&loaded), latency: loaded.latency });
    }
    let deadline = Duration::from_millis(args.deadline_ms);
    // Four times what the server can have answered by then.
    let asks = 4.0 * in_process * deadline.as_secs_f64() / args.batch as f64;
    let overload =
        Load { callers: (asks.ceil() as usize).clamp(8, 1024), positions: args.batch, timeout: Some(deadline) };
    let overloaded = runtime.block_on(load::fast(&server, &manifest, overload, time));
    let evaluator = runtime.block_on(server.stop())?;
    Ok(Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores: machine::cores(),
        game: args.game.to_string(),
        blocks: args.blocks,
        channels: args.channels,
        evaluator,
        threads: thread_count,
        batch: args.batch,
        in_flight: args.in_flight,
        sets: args.sets.clone(),
        seconds: args.turns.seconds,
        repeats: args.turns.repeats,
        turn: args.turns.turn,
        seed: args.seed,
        in_process_evaluations_per_second: in_process,
        fast,
        model_infer,
        callers,
        overload: OverloadReport {
            callers: overload.callers,
            deadline_ms: args.deadline_ms,
            evaluations_per_second: overloaded.positions_per_second,
            latency: overloaded.latency,
            refused_share: overloaded.refused_share,
            expired_share: overloaded.expired_share,
        },
    })
}

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

    use super::{Args, markdown, measure};

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
        assert!(report.in_process_evaluations_per_second > 0.0 && report.fast.evaluations_per_second > 0.0);
        let share = report.fast.evaluations_per_second / report.in_process_evaluations_per_second;
        assert_eq!(report.fast.share_of_in_process, share);
        assert_eq!(report.callers.iter().map(|row| row.callers).collect::<Vec<_>>(), [1, 3]);
        let text = markdown(&report);
        assert!(text.contains("| fast path |") && text.contains("Too much asked"), "{text}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused_by_name() {
        for options in [["--batch", "0"], ["--in-flight", "0"], ["--callers", "0"]] {
            let error = measure(&args(&options)).unwrap_err().to_string();
            assert!(error.contains(options[0]), "{error}");
        }
    }
}
