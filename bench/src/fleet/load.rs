use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use proto::replay::{Writer, WriterSettings};
use tokio::task::JoinSet;

use super::NetworkSize;
use super::fan_out;
use super::publisher::Publisher;
use super::replay_server::ReplayServer;
use super::speeds::{InsertsSpeeds, LoadSpeeds};
use crate::latency::Latency;
use crate::replay::games::Games;
use crate::usage;

/// The deadline of every wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// The interval between two checks of the connections.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Trajectories that an actor has unacknowledged at most, as in a run.
const IN_FLIGHT: usize = 64;
/// Share of the measured time that is spent before it.
const WARM_UP: f64 = 0.25;

/// The load of one process in the name of many actors.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadArgs {
    /// Actors that this process is, each with a connection to the replay server and one to the publisher; 0 for none.
    #[arg(long, default_value_t = 1_000)]
    pub actors: usize,
    /// Steps of a trajectory.
    #[arg(long, default_value_t = 30)]
    pub steps: usize,
    /// Trajectories that each actor hands in per second.
    #[arg(long, value_delimiter = ',', default_value = "1,10,20")]
    pub rates: Vec<f64>,
    /// The time that each rate is measured.
    #[arg(long, default_value_t = 10.0)]
    pub load_seconds: f64,
    /// Networks whose weights go to all of them, BLOCKSxCHANNELS of Connect Four.
    #[arg(long, value_delimiter = ',', default_value = "6x64,20x256")]
    pub networks: Vec<NetworkSize>,
    /// Subscribers that the publisher sends to at once [default: as many as a learner does].
    #[arg(long)]
    pub fetches: Option<usize>,
}

impl LoadArgs {
    /// Sees that the numbers make sense, before minutes are spent.
    ///
    /// # Errors
    /// Names the option.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0 && Duration::try_from_secs_f64(1.0 / rate).is_ok();
        ensure!(self.rates.iter().all(is_rate), "--rates must be above 0");
        Duration::try_from_secs_f64(self.load_seconds).context("read --load-seconds")?;
        ensure!(self.load_seconds > 0.0, "--load-seconds must be above 0");
        Games::new(self.steps, 0).map(drop)
    }
}

/// Connects, inserts at every rate, and publishes every network.
///
/// # Errors
/// A process that is not built or dies, a server that does not answer.
pub(super) fn measure(args: &LoadArgs, folder: &Path, seed: u64) -> anyhow::Result<LoadSpeeds> {
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(async {
        let games = Games::new(args.steps, seed)?;
        let mut report = LoadSpeeds {
            actors: args.actors,
            fetches: args.fetches,
            steps: args.steps,
            trajectory_bytes: games.mean_wire_bytes(),
            seconds: args.load_seconds,
            connected_seconds: f64::NAN,
            replay_memory_bytes: None,
            replay_memory_bytes_connected: None,
            subscribed_seconds: f64::NAN,
            publisher_memory_bytes: None,
            publisher_memory_bytes_subscribed: None,
            inserts: Vec::new(),
            fan_outs: Vec::new(),
        };
        insert(args, folder, &games, &mut report).await?;
        if !args.networks.is_empty() {
            let publisher = Publisher::start(&args.networks, args.fetches, seed)?;
            fan_out::measure(args, publisher, &mut report).await?;
        }
        Ok(report)
    })
}

/// Resident memory of a process.
pub(super) fn memory(id: Option<u32>) -> Option<u64> {
    usage::of(id?)?.memory_bytes
}

/// CPU time of a process so far.
pub(super) fn cpu_seconds(id: Option<u32>) -> Option<f64> {
    Some(usage::of(id?)?.cpu_seconds)
}

/// The CPU time of a process since it had used `before`.
pub(super) fn cpu_since(id: Option<u32>, before: Option<f64>) -> Option<f64> {
    Some((cpu_seconds(id)? - before?).max(0.0))
}

async fn insert(args: &LoadArgs, folder: &Path, games: &Games, report: &mut LoadSpeeds) -> anyhow::Result<()> {
    let server = ReplayServer::start(folder).await?;
    report.replay_memory_bytes = memory(server.id());
    let begun = Instant::now();
    let writers: Vec<Writer> = (0..args.actors as u64).map(|actor| writer(&server, actor)).collect();
    while writers.iter().any(|writer| writer.away_for().is_some()) {
        ensure!(begun.elapsed() < PATIENCE, "not every insert stream is open after {PATIENCE:?}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    report.connected_seconds = begun.elapsed().as_secs_f64();
    report.replay_memory_bytes_connected = memory(server.id());
    let mut actors: Vec<Actor> = (0..).zip(writers).map(|(id, writer)| Actor { id, writer, sequence: 0 }).collect();
    for &rate in &args.rates {
        let (took, back) = insert_at(args, &server, games, actors, rate).await?;
        actors = back;
        report.inserts.push(took);
    }
    for actor in actors {
        let left = actor.writer.close(PATIENCE).await;
        ensure!(left.is_empty(), "{} trajectories were not acknowledged", left.len());
    }
    Ok(())
}

fn writer(server: &ReplayServer, actor: u64) -> Writer {
    let (endpoint, game) = (server.endpoint.clone(), "connect_four".to_owned());
    Writer::start(WriterSettings { endpoint, actor, epoch: EPOCH, game, in_flight_max: IN_FLIGHT })
}

/// The only life of these actors.
const EPOCH: u64 = 1;

/// One actor as the replay server sees it.
struct Actor {
    id: u64,
    writer: Writer,
    sequence: u64,
}

impl Actor {
    /// Hands in one trajectory each `interval` until `end`, and returns the latencies of those that began from `start`
    /// on. A late one is followed at once.
    async fn insert(
        &mut self,
        games: &Games,
        mut next: Instant,
        interval: Duration,
        (start, end): (Instant, Instant),
    ) -> anyhow::Result<Vec<Duration>> {
        let mut took = Vec::new();
        while next < end && Instant::now() < end {
            tokio::time::sleep_until(next.into()).await;
            let begun = Instant::now();
            self.writer.insert(games.trajectory(self.id, EPOCH, self.sequence)).await?;
            self.sequence += 1;
            self.writer.flushed().await;
            if begun >= start {
                took.push(begun.elapsed());
            }
            next += interval;
        }
        Ok(took)
    }
}

/// All actors at one rate, spread over its interval.
async fn insert_at(
    args: &LoadArgs,
    server: &ReplayServer,
    games: &Games,
    actors: Vec<Actor>,
    rate: f64,
) -> anyhow::Result<(InsertsSpeeds, Vec<Actor>)> {
    let (interval, time) = (Duration::from_secs_f64(1.0 / rate), Duration::from_secs_f64(args.load_seconds));
    let begin = Instant::now();
    let start = begin + time.mul_f64(WARM_UP).max(interval);
    let end = start + time;
    let mut tasks = JoinSet::new();
    for mut actor in actors {
        let games = games.clone();
        let first = begin + interval.mul_f64(actor.id as f64 / args.actors as f64);
        tasks.spawn(async move {
            let took = actor.insert(&games, first, interval, (start, end)).await?;
            anyhow::Ok((actor, took))
        });
    }
    tokio::time::sleep_until(start.into()).await;
    let us = Some(std::process::id());
    let (replay_before, clients_before) = (cpu_seconds(server.id()), cpu_seconds(us));
    tokio::time::sleep_until(end.into()).await;
    let seconds = start.elapsed().as_secs_f64();
    let per_second = |cpu: Option<f64>| cpu.map(|cpu| cpu / seconds);
    let (replay, clients) = (cpu_since(server.id(), replay_before), cpu_since(us, clients_before));
    let replay_memory_bytes = memory(server.id());
    let (mut back, mut all) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (actor, took) = done.context("join an actor")??;
        back.push(actor);
        all.extend(took);
    }
    back.sort_by_key(|actor| actor.id);
    // Every one of them was acknowledged, in the time or at most one answer later.
    let inserts_per_second = all.len() as f64 / seconds;
    let report = InsertsSpeeds {
        asked_per_actor: rate,
        inserts_per_second,
        latency: Latency::of(&mut all),
        replay_cpu: per_second(replay),
        clients_cpu: per_second(clients),
        replay_memory_bytes,
    };
    Ok((report, back))
}
