use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::publisher::tower;
use crate::replay::games::{Games, STEPS};
use crate::replay::load::{self, Client};
use crate::report::{Report, Unit, Value, bytes, number, percentiles_us, value_of};
use crate::server_process::ServerProcess;
use crate::usage;

/// Deadline of every wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// Interval between two checks of the connections.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Options of `zerofleet bench fleet`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of simulated actors in one process.
    ///
    /// Each actor has a connection to the replay server and one to the publisher.
    #[arg(long, default_value_t = 1_000)]
    pub actors: usize,
    /// Insert rates to measure, in inserts per second and actor.
    #[arg(long, value_delimiter = ',', default_value = "1,10,20")]
    pub rates: Vec<f64>,
    /// Duration of the measurement at each rate, in seconds.
    #[arg(long, default_value_t = 10.0)]
    pub load_seconds: f64,
    /// Networks for Connect Four to send to all actors, each BLOCKSxCHANNELS.
    #[arg(long, value_delimiter = ',', value_parser = tower, default_value = "6x64,20x256")]
    pub networks: Vec<[usize; 2]>,
    /// Concurrent fetches from the publisher [default: as in a learner].
    #[arg(long)]
    pub fetches: Option<usize>,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for runs and logs [default: the temporary directory].
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

impl Args {
    /// Checks the values before minutes are spent on measuring.
    ///
    /// # Errors
    /// An option is invalid; the error names it.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.actors > 0, "--actors must be at least 1");
        let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0 && Duration::try_from_secs_f64(1.0 / rate).is_ok();
        ensure!(self.rates.iter().all(is_rate), "every rate in --rates must be above 0");
        Duration::try_from_secs_f64(self.load_seconds).context("parse --load-seconds")?;
        ensure!(self.load_seconds > 0.0, "--load-seconds must be above 0");
        Ok(())
    }
}

const CONNECTIONS: &str = "connections";
const INSERTS: &str = "inserts of all actors from one process";
const ACKNOWLEDGED: &str = "acknowledged/s";
const REPLAY_CORES: &str = "cores of replay server";

/// Connects all actors, then inserts at every rate.
///
/// # Errors
/// A process is not built or dies, or a server does not respond.
pub(super) async fn measure(args: &Args, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
    let games = &Games::new(args.seed);
    describe(report, args, games.mean_wire_bytes());
    let server = ServerProcess::replay(folder, &[]).await?;
    let before = usage::memory(server.id());
    let begun = Instant::now();
    // One in flight: each actor waits for the acknowledgement.
    let mut clients = Client::start(&server.endpoint, args.actors, 1).await?;
    while clients.iter().any(Client::is_away) {
        ensure!(begun.elapsed() < PATIENCE, "not all insert streams opened within {PATIENCE:?}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let memory = (before, usage::memory(server.id()));
    add_connections(report, "replay-server", args.actors, begun.elapsed(), memory);
    let mut by_rate = Vec::new();
    for &rate in &args.rates {
        let (values, back) = insert_at(args, &server, games, clients, rate).await?;
        clients = back;
        by_rate.push((rate, values));
    }
    add_inserts(report, &by_rate);
    for client in clients {
        client.close().await?;
    }
    Ok(())
}

/// Adds the settings and conditions of the measurement.
pub(super) fn describe(report: &mut Report, args: &Args, trajectory_bytes: f64) {
    let Args { actors, load_seconds, fetches, .. } = args;
    report.set("actors of one process", actors);
    let fetches = fetches.map_or("as many subscribers at once as a learner".to_owned(), |n| format!("{n} at once"));
    report.note(format!(
        "{actors} actors from one process: each has a connection and an insert stream to a replay server, and a connection and a \
         subscription to a publisher of weights, both processes of their own; trajectories of Connect Four with {STEPS} steps, \
         {} each; {load_seconds} s for each rate, every insert durable before its acknowledgement; the publisher sends to {fetches}",
        bytes(trajectory_bytes)
    ));
}

/// Adds the time until all connections to a server were open, and the server memory before and after.
pub(super) fn add_connections(
    report: &mut Report,
    to: &str,
    count: usize,
    time: Duration,
    (before, after): (Option<u64>, Option<u64>),
) {
    report
        .at(CONNECTIONS, &[("to", &to), ("connections", &count)])
        .value("all open after", Unit::Microseconds, 1e6 * time.as_secs_f64())
        .value("memory without", Unit::Bytes, known(before))
        .value("memory with all", Unit::Bytes, known(after))
        .value("per connection", Unit::Bytes, per_connection(before, after, count));
}

/// Computes the memory per connection, in bytes.
pub(super) fn per_connection(before: Option<u64>, after: Option<u64>, connections: usize) -> Option<f64> {
    let grown = after?.saturating_sub(before?);
    (connections > 0).then(|| grown as f64 / connections as f64)
}

pub(super) fn known(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}

/// Adds the inserts by rate, and the inserts per CPU second of the replay server at the highest throughput.
pub(super) fn add_inserts(report: &mut Report, by_rate: &[(f64, Vec<Value>)]) {
    for (rate, values) in by_rate {
        report.at(INSERTS, &[("wanted per actor and second", rate)]).values(values);
    }
    let speeds = by_rate.iter().filter_map(|(_, values)| Some((values, value_of(values, ACKNOWLEDGED)?)));
    let Some((values, acknowledged)) = speeds.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    if let Some(cpu) = value_of(values, REPLAY_CORES).filter(|&cpu| cpu > 0.0) {
        report.finding(format!("A CPU second of the replay server takes {} inserts.", number(acknowledged / cpu)));
    }
}

/// Inserts with all actors at one rate.
async fn insert_at(
    args: &Args,
    server: &ServerProcess,
    games: &Games,
    clients: Vec<Client>,
    rate: f64,
) -> anyhow::Result<(Vec<Value>, Vec<Client>)> {
    let ids = [server.id(), Some(std::process::id())];
    let (begun, before) = (Instant::now(), ids.map(|id| (id, usage::cpu_seconds(id))));
    let (wanted, time) = (rate * args.actors as f64, Duration::from_secs_f64(args.load_seconds));
    let (mut loaded, back) = load::insert_with(clients, games, wanted, time).await?;
    // The warm-up has the same load.
    let seconds = begun.elapsed().as_secs_f64();
    let cores = before.map(|(id, before)| usage::cpu_since(id, before).map(|cpu| cpu / seconds));
    let [p50, p99] = percentiles_us(&mut loaded.took);
    let values = vec![
        ("wanted/s", Unit::PerSecond, Some(wanted)),
        (ACKNOWLEDGED, Unit::PerSecond, Some(loaded.speed)),
        ("insert p50", Unit::Microseconds, Some(p50)),
        ("insert p99", Unit::Microseconds, Some(p99)),
        (REPLAY_CORES, Unit::Cores, cores[0]),
        ("cores of all actors", Unit::Cores, cores[1]),
        ("memory of replay server", Unit::Bytes, known(usage::memory(server.id()))),
        ("trajectories", Unit::BytesPerSecond, Some(games.mean_wire_bytes() * loaded.speed)),
    ];
    Ok((values, back))
}
