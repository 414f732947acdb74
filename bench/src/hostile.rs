//! `zerofleet bench hostile`: the rate of an honest client next to hostile clients, and the memory of the server.
//!
//! The honest client first reaches the maximum rate alone. During each attack it then offers a share of that rate, over
//! a connection opened after the start of the attack. Server, honest client and hostile clients are separate processes
//! on the cores of this machine. The attack therefore also takes processor time, unlike an attack from other machines.
//! Honest and hostile clients have different tokens; both may insert and evaluate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum as _;
use games::ConnectFour;
use proto::weights::Published;
use serde_json::json;

use crate::attack::{self, Kind};
use crate::inference::{Load, fast};
use crate::network::random_weights;
use crate::output::temporary_folder;
use crate::replay::games::Games;
use crate::replay::load;
use crate::report::{Report, Unit};
use crate::script::Count;
use crate::server_process::ServerProcess;
use crate::{Turns, output, usage};

/// Load of the honest client, as a share of the rate without attack.
const OFFERED: f64 = 0.25;
/// Memory limit of the replay server, in MiB.
const MEMORY_MIB: u64 = 512;
/// Unacknowledged trajectories of the honest writer, and requests in flight of the honest evaluation client.
const IN_FLIGHT: usize = 256;
/// Positions per evaluation request.
const POSITIONS: usize = 8;
/// Tokens with SHA-256 digests.
const HONEST: [&str; 2] = ["honest", "bf5b6382c2ea46ede3117c0250a9abf431ddf38fca4d50462e5834d09b1b33ef"];
const HOSTILE: [&str; 2] = ["hostile", "8f383ccddc6f17eb57a96c711523e4a8072d8e791b4a773ea0153e0d993d03e1"];

/// Options of `zerofleet bench hostile`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of concurrent streams with forged ids.
    #[arg(long, default_value_t = 64)]
    pub forged_streams: u64,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
}

const INSERTS: &str = "inserts beside an attack";
const EVALUATIONS: &str = "evaluations beside an attack";

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, or a server is not built or cannot start.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    let time = args.turns.time()?;
    let folder = temporary_folder(None)?;
    let tokens = Tokens::write(folder.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut report = Report::new("hostile", "An honest client beside hostile ones");
    report.set("offered, as a share of the rate alone", OFFERED);
    report.set("streams of forged ids", args.forged_streams);
    report.set("memory limit of the replay server, MiB", MEMORY_MIB);
    report.note("server, honest client and hostile clients share the cores of this machine, over loopback");
    report.note_turns(args.turns);
    let bench = Bench { args, time, folder: folder.path(), tokens };
    runtime.block_on(measure_inserts(&bench, &mut report))?;
    runtime.block_on(measure_evaluations(&bench, &mut report))?;
    Ok(report)
}

/// Settings shared by both measurements.
struct Bench<'a> {
    args: &'a Args,
    /// Duration of a turn.
    time: Duration,
    folder: &'a Path,
    tokens: Tokens,
}

/// Files with the tokens of the server and the token of the hostile clients.
struct Tokens {
    /// Setting that makes a server require the tokens.
    set: String,
    hostile: PathBuf,
}

impl Tokens {
    /// Writes the files, and uses the honest token in this process.
    ///
    /// # Errors
    /// The directory cannot be written to.
    fn write(folder: &Path) -> anyhow::Result<Self> {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            output::write(&path, text).map(|()| path)
        };
        let line = |[name, digest]: [&str; 2]| format!("{name} act,infer {digest}\n");
        let accepted = write("tokens", &(line(HONEST) + &line(HOSTILE)))?;
        let (token_file, hostile) = (write("honest.token", HONEST[0])?, write("hostile.token", HOSTILE[0])?);
        let section = service::SecuritySection { token_file, ..service::SecuritySection::default() };
        transport::security::use_credentials(&section)?;
        Ok(Self { set: format!("security.tokens={}", accepted.display()), hostile })
    }
}

async fn measure_inserts(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let Bench { args, time, folder, tokens } = bench;
    let games = Games::new(args.turns.seed);
    // Forged trajectories fill the table, which then evicts.
    let own = ["replay.capacity_items=200000".to_owned(), "replay.window_items_min=200000".to_owned()];
    let limit = format!("replay.memory_bytes_max={}", MEMORY_MIB << 20);
    let sets: Vec<String> = own.into_iter().chain([limit, tokens.set.clone()]).collect();
    let server = ServerProcess::replay(folder, &sets).await?;
    let mut insert =
        async |rate: f64| Ok(load::insert(&server.endpoint, &games, (1, IN_FLIGHT), rate, *time).await?.speed);
    let kinds = [Kind::Silent, Kind::HalfSent, Kind::ForgedIds, Kind::NoItems];
    beside(bench, &kinds, &server, INSERTS, report, &mut insert).await
}

async fn measure_evaluations(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let Bench { time, folder, tokens, .. } = bench;
    let weights = weights()?;
    let server = ServerProcess::inference(folder, &weights, std::slice::from_ref(&tokens.set)).await?;
    let architecture = weights.manifest.architecture;
    let mut evaluate = async |rate: f64| {
        let load = Load { callers: IN_FLIGHT, positions: POSITIONS, timeout: None, rate };
        Ok(fast(&server.endpoint, &architecture, load, *time).await.positions_per_second / POSITIONS as f64)
    };
    beside(bench, &[Kind::FutureVersions], &server, EVALUATIONS, report, &mut evaluate).await
}

/// Measures `work` alone and during each attack; `work` takes the rate to offer and returns the served rate.
async fn beside(
    Bench { args, tokens, .. }: &Bench<'_>,
    kinds: &[Kind],
    server: &ServerProcess,
    section: &str,
    report: &mut Report,
    work: &mut impl AsyncFnMut(f64) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let mut alone = Vec::new();
    for _ in 0..args.turns.repeats {
        alone.push(work(f64::INFINITY).await?);
    }
    let alone = args.turns.turn.speed(&alone).context("no turn was measured")?;
    let offered = alone * OFFERED;
    let memory = usage::memory(server.id()).map(|bytes| bytes as f64);
    let cell = report.at(section, &[("beside", &"nothing, at full speed")]);
    cell.value("served/s", Unit::PerSecond, alone).value("server memory", Unit::Bytes, memory);
    for &kind in kinds {
        let name = kind.to_possible_value().context("a kind without a name")?.get_name().to_owned();
        let (mut served, mut hostile, mut peak) = (Vec::new(), 0, None);
        for _ in 0..args.turns.repeats {
            let mut attackers = attack::start(&attack::Args {
                kind,
                endpoint: server.endpoint.clone(),
                token: tokens.hostile.clone(),
                forged_streams: args.forged_streams,
                seed: args.turns.seed,
            })?;
            let (done, memory) = usage::with_peak(server.id(), work(offered)).await;
            served.push(done?);
            peak = peak.max(memory);
            let Count { count } = attackers.ask(json!({}), attack::PATIENCE)?;
            hostile += count;
        }
        let served = args.turns.turn.speed(&served).context("no turn was measured")?;
        report
            .at(section, &[("beside", &name)])
            .value("offered/s", Unit::PerSecond, offered)
            .value("served/s", Unit::PerSecond, served)
            .value("served share", Unit::Share, served / offered)
            .value("hostile requests", Unit::Count, hostile as f64)
            .value("server memory", Unit::Bytes, peak.map(|bytes| bytes as f64));
    }
    Ok(())
}

/// Returns the weights of the inference server.
///
/// # Errors
/// The network cannot be built.
pub(crate) fn weights() -> anyhow::Result<Published> {
    random_weights(game::Game::spec(&ConnectFour::new()), 2, 32, 1)
}
