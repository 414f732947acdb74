//! `zerofleet bench hostile`: the rate of an honest client beside hostile ones, and the memory of the server.
//!
//! The honest client first reaches its greatest rate alone. Beside each attack it then offers a share of that rate,
//! over a connection that it opens after the attack has begun. Server, honest client and hostile clients are processes
//! of their own on the cores of this machine, so the attack also takes processor time, as one from other machines would
//! not. Honest and hostile clients have different tokens; both may insert and evaluate.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum as _;
use games::ConnectFour;
use inference::Batch;
use proto::inference::{Evaluations, EvaluationsSettings};
use proto::weights::Published;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::attack::{self, Attackers, Kind};
use crate::inference::{hello, write_weights};
use crate::network::{random_positions, random_weights};
use crate::output::Destination;
use crate::replay::games::Games;
use crate::replay::load::{close, writer};
use crate::report::{Report, Unit};
use crate::server_process::ServerProcess;
use crate::training_run::TemporaryFolder;
use crate::{Turns, usage};

/// Unacknowledged trajectories of the honest writer, and requests of the honest evaluation client in flight.
const IN_FLIGHT: usize = 256;
/// Positions of a request for evaluation.
const POSITIONS: usize = 8;
/// The interval between two looks at the server's memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The interval in which due requests are sent.
const TICK: Duration = Duration::from_millis(2);
/// Duration of the warm-up as a share of the measured time.
const WARM_UP: f64 = 0.25;
/// The tokens and their SHA-256.
const HONEST: [&str; 2] = ["honest", "bf5b6382c2ea46ede3117c0250a9abf431ddf38fca4d50462e5834d09b1b33ef"];
const HOSTILE: [&str; 2] = ["hostile", "8f383ccddc6f17eb57a96c711523e4a8072d8e791b4a773ea0153e0d993d03e1"];

/// Options of `zerofleet bench hostile`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The rate that the honest client offers beside an attack, as a share of its rate alone.
    #[arg(long, default_value_t = 0.25)]
    pub offered: f64,
    /// The concurrent streams of forged ids.
    #[arg(long, default_value_t = 64)]
    pub forged_streams: u64,
    /// The memory limit of the replay server, in MiB (`replay.memory_bytes_max`).
    #[arg(long, default_value_t = 512)]
    pub memory_mib: u64,
    /// Overrides a setting of the replay server; may be given many times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, then prints and writes the report.
///
/// # Errors
/// Invalid options, a server that is not built or cannot start.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("hostile", out, |_| measure(args))
}

const INSERTS: &str = "inserts beside an attack";
const EVALUATIONS: &str = "evaluations beside an attack";

fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(args.offered > 0.0 && args.offered <= 1.0, "--offered must be above 0 and at most 1");
    let time = args.turns.time()?;
    let folder = TemporaryFolder::new(None)?;
    let tokens = Tokens::write(folder.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut report = Report::new("hostile", "An honest client beside hostile ones");
    report.set("offered, as a share of the rate alone", args.offered);
    report.set("streams of forged ids", args.forged_streams);
    report.set("memory limit of the replay server, MiB", args.memory_mib);
    report.note("server, honest client and hostile clients share the cores of this machine, over loopback");
    report.note_turns(args.turns);
    runtime.block_on(measure_inserts(args, time, folder.path(), &tokens, &mut report))?;
    runtime.block_on(measure_evaluations(args, time, folder.path(), &tokens, &mut report))?;
    Ok(report)
}

/// The files of the server's tokens and of the hostile clients' token.
struct Tokens {
    accepted: PathBuf,
    hostile: PathBuf,
}

impl Tokens {
    /// Writes the files, and uses the honest token in this process.
    ///
    /// # Errors
    /// The folder cannot be written to.
    fn write(folder: &Path) -> anyhow::Result<Self> {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            anyhow::Ok(path)
        };
        let line = |[name, digest]: [&str; 2]| format!("{name} act,infer {digest}\n");
        let accepted = write("tokens", &(line(HONEST) + &line(HOSTILE)))?;
        let (token_file, hostile) = (write("honest.token", HONEST[0])?, write("hostile.token", HOSTILE[0])?);
        let section = service::SecuritySection { token_file, ..service::SecuritySection::default() };
        proto::security::use_credentials(&section)?;
        Ok(Self { accepted, hostile })
    }

    /// Returns the setting that makes a server require the tokens.
    fn set(&self) -> String {
        format!("security.tokens={}", self.accepted.display())
    }
}

async fn measure_inserts(
    args: &Args,
    time: Duration,
    folder: &Path,
    tokens: &Tokens,
    report: &mut Report,
) -> anyhow::Result<()> {
    let games = Games::new(30, args.turns.seed)?;
    // Forged trajectories fill the table, which then evicts.
    let own = ["replay.capacity_items=200000".to_owned(), "replay.window_items_min=200000".to_owned()];
    let limit = format!("replay.memory_bytes_max={}", args.memory_mib << 20);
    let sets: Vec<String> = own.into_iter().chain([limit, tokens.set()]).chain(args.sets.iter().cloned()).collect();
    let server = ServerProcess::replay(folder, &sets).await?;
    let mut epoch = 0;
    let mut insert = async |rate: f64| {
        epoch += 1;
        let writer = writer(&server.endpoint, 0, epoch, IN_FLIGHT);
        let mut sequence = 0;
        let inserted = paced(
            rate,
            time,
            || writer.stats().inserted,
            async || {
                writer.insert(games.trajectory(0, epoch, sequence)).await?;
                sequence += 1;
                anyhow::Ok(())
            },
        );
        let inserted = inserted.await?;
        close(writer).await?;
        anyhow::Ok(inserted)
    };
    let kinds = [Kind::Silent, Kind::HalfSent, Kind::ForgedIds, Kind::NoItems];
    beside(args, &kinds, &server, tokens, INSERTS, report, &mut insert).await
}

async fn measure_evaluations(
    args: &Args,
    time: Duration,
    folder: &Path,
    tokens: &Tokens,
    report: &mut Report,
) -> anyhow::Result<()> {
    let weights = weights()?;
    let path = write_weights(folder, &weights)?;
    let run = format!("run.directory={}", folder.join("inference").display());
    let weights_set = format!("inference.weights={}", path.display());
    let own = ["run.game=connect_four", "inference.cache_positions=0"].map(str::to_owned);
    let sets: Vec<String> = own.into_iter().chain([run, weights_set, tokens.set()]).collect();
    let server = ServerProcess::inference(folder, &sets).await?;
    let architecture = weights.manifest.architecture;
    let batch = Arc::new(random_positions(&architecture, args.turns.seed, POSITIONS));
    let mut evaluate = async |rate: f64| {
        let settings = EvaluationsSettings { endpoint: server.endpoint.clone(), hello: hello(&architecture) };
        let client = Evaluations::start(settings)?;
        client.up().await;
        let (answered, mut requests) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        let count = Arc::clone(&answered);
        paced(
            rate,
            time,
            || answered.load(Ordering::Relaxed),
            async || {
                while requests.len() >= IN_FLIGHT {
                    requests.join_next().await.context("there are requests")?.context("join a request")?;
                }
                requests.spawn(evaluate_once(client.clone(), Arc::clone(&batch), Arc::clone(&count)));
                anyhow::Ok(())
            },
        )
        .await
    };
    beside(args, &[Kind::FutureVersions], &server, tokens, EVALUATIONS, report, &mut evaluate).await
}

async fn evaluate_once(client: Evaluations, batch: Arc<Batch>, answered: Arc<AtomicU64>) {
    // A rejected request counts as not served; it is not repeated.
    if client.evaluate(&batch, None, None).await.is_ok() {
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Measures `work`, which takes the rate to offer and returns the rate that was served, alone and beside each attack.
async fn beside(
    args: &Args,
    kinds: &[Kind],
    server: &ServerProcess,
    tokens: &Tokens,
    section: &str,
    report: &mut Report,
    work: &mut impl AsyncFnMut(f64) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let mut alone = Vec::new();
    for _ in 0..args.turns.repeats {
        alone.push(work(f64::INFINITY).await?);
    }
    let alone = args.turns.turn.speed(&alone).context("no turn was measured")?;
    let offered = alone * args.offered;
    let memory = usage::memory(server.id()).map(|bytes| bytes as f64);
    report.at(section, &[("beside", &"nothing, at full speed")]).value("served/s", Unit::PerSecond, alone).value(
        "server memory",
        Unit::Bytes,
        memory,
    );
    for &kind in kinds {
        let name = kind.to_possible_value().context("a kind without a name")?.get_name().to_owned();
        let (mut served, mut hostile, mut peak) = (Vec::new(), 0, 0);
        for _ in 0..args.turns.repeats {
            let attackers = Attackers::start(&attack::Args {
                kind,
                endpoint: server.endpoint.clone(),
                token: tokens.hostile.clone(),
                forged_streams: args.forged_streams,
                seed: args.turns.seed,
            })?;
            let memory = Peak::watch(server.id());
            served.push(work(offered).await?);
            peak = peak.max(memory.stop());
            hostile += attackers.stop()?;
        }
        let served = args.turns.turn.speed(&served).context("no turn was measured")?;
        report
            .at(section, &[("beside", &name)])
            .value("offered/s", Unit::PerSecond, offered)
            .value("served/s", Unit::PerSecond, served)
            .value("served share", Unit::Share, served / offered)
            .value("hostile requests", Unit::Count, hostile as f64)
            .value("server memory", Unit::Bytes, (peak > 0).then_some(peak as f64));
    }
    Ok(())
}

/// Sends with `send` at `rate` per second, or as fast as it can if that is infinite; returns how much `served` counts
/// per second once it is warm.
async fn paced(
    rate: f64,
    time: Duration,
    served: impl Fn() -> u64,
    mut send: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let warm_up = time.mul_f64(WARM_UP);
    let (mut sent, mut warm) = (0.0, None);
    loop {
        let elapsed = begun.elapsed();
        if elapsed >= warm_up {
            let &mut (at, before) = warm.get_or_insert_with(|| (Instant::now(), served()));
            if elapsed >= warm_up + time {
                return Ok((served() - before) as f64 / at.elapsed().as_secs_f64());
            }
        }
        if sent < elapsed.as_secs_f64() * rate {
            sent += 1.0;
            send().await?;
        } else {
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Watches the greatest memory of a process, on a thread.
struct Peak {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Peak {
    fn watch(process: Option<u32>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut peak = 0;
            while !ends.load(Ordering::Relaxed) {
                peak = peak.max(usage::memory(process).unwrap_or(0));
                std::thread::sleep(LOOK_INTERVAL);
            }
            peak
        });
        Self { stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

/// Returns the weights of the inference server.
///
/// # Errors
/// The network cannot be built.
pub(crate) fn weights() -> anyhow::Result<Published> {
    random_weights(game::Game::spec(&ConnectFour::new()), 2, 32, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_and_without_one_the_server_decides() {
        let count = AtomicU64::new(0);
        let served = || count.load(Ordering::Relaxed);
        let send = async || {
            count.fetch_add(1, Ordering::Relaxed);
            anyhow::Ok(())
        };
        let rate = paced(100.0, Duration::from_secs(10), served, send).await.unwrap();
        assert!((rate - 100.0).abs() < 1.0, "{rate}");
        let slow = async || {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            anyhow::Ok(())
        };
        let rate = paced(f64::INFINITY, Duration::from_secs(10), served, slow).await.unwrap();
        assert!((rate - 50.0).abs() < 1.0, "{rate}");
    }

    #[test]
    fn an_offered_share_outside_of_its_range_is_rejected() {
        for share in ["--offered=0", "--offered=1.5"] {
            let error = measure(&crate::tests::args(share)).unwrap_err().to_string();
            assert!(error.contains("--offered"), "{error}");
        }
    }
}
