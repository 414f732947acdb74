//! A fleet under constant load, watched for growth.
//!
//! Two actors, one of which evaluates on the inference server, run from start to finish; a third is killed or drained
//! every minute. Three clients measure latency: one inserts trajectories one after another, one requests moves, and one
//! fetches the latest weights over a new connection each time. Another client connects and leaves once a second.
//! Capacity, cache and segments are small, so that tables evict and files are removed within the first minutes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use experience::TrajectoryId;
use fleet::Role;
use game::Action;
use proto::inference::{AnalysisClient, Moves, SearchQuery};
use proto::replay::{Inspector, ListQuery};
use proto::weights::{Subscriber, SubscriberSettings};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::{Cluster, SMALL_TIC_TAC_TOE};
use crate::process::{Output, Process};
use crate::trajectories::{won, writer};
use crate::trend::{Quantity, Samples, Trend, percentile};
use crate::usage::{self, disk_bytes};

const MIB: f64 = (1 << 20) as f64;
const START_DEADLINE: Duration = Duration::from_secs(60);
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);
/// Time after which a client request has failed.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// Interval between two stops of the third actor.
const RESTART_INTERVAL: Duration = Duration::from_secs(60);
/// Pause of a client after each request.
const PAUSE: Duration = Duration::from_millis(100);
/// Actor id of the inserting client; no actor of the fleet has it.
const CLIENT: u64 = 1_000;

/// Settings in addition to the small run. A cache that holds fewer positions than the game has evicts.
const SETTINGS: [(Role, &str); 14] = [
    (Role::Replay, "replay.capacity_items=20000"),
    (Role::Replay, "replay.segment_bytes=1048576"),
    (Role::Replay, "replay.archive_seconds=10"),
    (Role::Replay, "replay.actor_inserts_per_second_max=20"),
    (Role::Replay, "replay.samples_per_insert=4"),
    (Role::Replay, "replay.error_items=100000"),
    (Role::Learner, "learner.schedule_minutes=1000"),
    (Role::Learner, "learner.publish_interval_seconds=5"),
    (Role::Learner, "learner.checkpoint_interval_seconds=10"),
    (Role::Actor, "actor.cache_positions=1000"),
    (Role::Inference, "inference.cache_positions=1000"),
    (Role::Inference, "inference.threads=1"),
    (Role::Arena, "arena.cpu_share=0.1"),
    (Role::Arena, "arena.positions=50"),
];

/// The processes with samples. Logs are printed if the test panics.
#[derive(Debug)]
pub struct Soak {
    cluster: Cluster,
    inference: Process,
    inference_endpoint: String,
    /// The second actor, which uses the inference server, and the third, which is restarted.
    actors: [Process; 2],
    samples: Samples,
    /// File of the samples, as CSV.
    csv: Option<File>,
}

/// Latencies that the clients have measured since the last row, in milliseconds, by server.
type Latencies = Arc<Mutex<BTreeMap<&'static str, Vec<f64>>>>;

impl Soak {
    /// Creates the fleet and starts it. Samples are appended to `soak.csv` in the directory `report` as they are taken.
    ///
    /// # Errors
    /// A binary is missing, a process does not start, or the directory cannot be written to.
    pub fn start(report: Option<&Path>) -> anyhow::Result<Self> {
        let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE)?;
        let (mut inference, inference_endpoint) = cluster.inference_server()?;
        let mut actors = [cluster.another_actor("actor-1", 1)?, cluster.another_actor("actor-2", 2)?];
        let archive = format!("replay.archive=file://{}", cluster.directory().join("archive").display());
        cluster.process(Role::Replay).argue(&["--set", &archive]);
        actors[0].argue(&["--set", &format!("actor.inference={inference_endpoint}")]);
        for (role, setting) in SETTINGS {
            let setting = ["--set", setting];
            match role {
                Role::Inference => inference.argue(&setting),
                role => cluster.process(role).argue(&setting),
            }
            if role == Role::Actor {
                actors.iter_mut().for_each(|actor| actor.argue(&setting));
            }
        }
        cluster.start(&Cluster::ROLES)?;
        inference.start()?;
        inference.ready(START_DEADLINE)?;
        actors.iter_mut().try_for_each(Process::start)?;
        let csv = report.map(|folder| -> anyhow::Result<File> {
            std::fs::create_dir_all(folder).context("create the folder of the report")?;
            let mut csv = File::create(folder.join("soak.csv")).context("create the file of the samples")?;
            writeln!(csv, "seconds,of,quantity,value")?;
            Ok(csv)
        });
        let (samples, csv) = (Samples::default(), csv.transpose()?);
        Ok(Self { cluster, inference, inference_endpoint, actors, samples, csv })
    }

    /// Runs the load for this time and takes a sample of everything once per interval.
    ///
    /// # Errors
    /// A process has exited or reports that it is unhealthy, or a client request has failed.
    pub async fn run(&mut self, length: Duration, interval: Duration) -> anyhow::Result<()> {
        let latencies = Latencies::default();
        let mut clients = self.clients(&latencies)?;
        let start = Instant::now();
        let mut restarts = 0;
        while start.elapsed() < length {
            tokio::time::sleep(interval).await;
            if let Some(ended) = clients.try_join_next() {
                ended.context("a client has panicked")?.context("a client's request has failed")?;
            }
            self.sample(start.elapsed(), &latencies)?;
            if start.elapsed() > RESTART_INTERVAL * (restarts + 1) {
                restarts += 1;
                let actor = &mut self.actors[1];
                if restarts % 2 == 0 {
                    actor.kill()?;
                } else {
                    actor.terminate();
                    let Output { status, .. } = actor.ended(DRAIN_DEADLINE)?;
                    ensure!(status.success(), "{} ended with {status}", actor.name());
                }
                actor.start()?;
                // A process that has not installed the handler yet would be stopped by the signal.
                actor.ready(START_DEADLINE)?;
            }
        }
        Ok(())
    }

    /// Returns the trend of every quantity.
    #[must_use]
    pub fn trends(&self) -> Vec<Trend> {
        self.samples.trends()
    }

    /// Drains all processes.
    ///
    /// # Errors
    /// A process fails, or has panicked or logged an error.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let mut all = processes(&mut self.cluster, &mut self.inference, &mut self.actors);
        // Actors drain into a replay server that still runs, and clients stop before servers.
        all.reverse();
        for process in all {
            process.terminate();
            let Output { status, text } = process.ended(DRAIN_DEADLINE)?;
            ensure!(status.success(), "{} ended with {status}", process.name());
            let wrong = text.lines().find(|line| line.contains("panicked at") || line.contains("ERROR"));
            ensure!(wrong.is_none(), "{}: {}", process.name(), wrong.unwrap_or_default());
        }
        Ok(())
    }

    fn sample(&mut self, at: Duration, latencies: &Latencies) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for process in processes(&mut self.cluster, &mut self.inference, &mut self.actors) {
            ensure!(process.is_running(), "{} has ended by itself", process.name());
            let name = process.name().to_owned();
            // The third actor is restarted, so that its usage shows nothing, and it may not serve requests yet.
            if name == "actor-2" {
                continue;
            }
            let asked = Instant::now();
            process.healthy().with_context(|| format!("{name} is not healthy"))?;
            rows.push((format!("{name}, /healthz"), Quantity::Latency, asked.elapsed().as_secs_f64() * 1e3));
            let used = usage::of(process.id().context("a running process has an id")?)?;
            rows.push((name.clone(), Quantity::Memory, used.memory_bytes as f64 / MIB));
            rows.push((name.clone(), Quantity::Descriptors, used.descriptors as f64));
            rows.push((name, Quantity::Threads, used.threads as f64));
        }
        for folder in ["replay", "archive", "weights", "checkpoints", "actors", ""] {
            let bytes = disk_bytes(&self.cluster.directory().join(folder));
            let name = if folder.is_empty() { "the whole run, with logs" } else { folder };
            rows.push((name.to_owned(), Quantity::Disk, bytes as f64 / MIB));
        }
        for (server, measured) in std::mem::take(&mut *latencies.lock().unwrap_or_else(PoisonError::into_inner)) {
            let latency = percentile(&measured, 0.9).context("a server has answered")?;
            rows.push((server.to_owned(), Quantity::Latency, latency));
        }
        for (name, quantity, value) in rows {
            if let Some(csv) = &mut self.csv {
                writeln!(csv, "{:.0},\"{name}\",\"{quantity}\",{value:.3}", at.as_secs_f64())?;
            }
            self.samples.add(&name, quantity, value);
        }
        Ok(())
    }

    /// Starts the clients; each stops with the first failed request.
    fn clients(&self, latencies: &Latencies) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let (replay, learner) = (self.cluster.replay_endpoint(), self.cluster.learner_endpoint());
        let measured = |server: &'static str| {
            let latencies = Arc::clone(latencies);
            move |since: Instant| {
                let latency = since.elapsed().as_secs_f64() * 1e3;
                latencies.lock().unwrap_or_else(PoisonError::into_inner).entry(server).or_default().push(latency);
            }
        };
        let mut clients = JoinSet::new();
        clients.spawn(insert(replay.clone(), measured("insert until it is durable")));
        clients.spawn(request_moves(AnalysisClient::new(&self.inference_endpoint)?, measured("move of 8 simulations")));
        clients.spawn(fetch(learner, measured("newest weights, new connection")));
        clients.spawn(visit(replay, measured("list, new connection")));
        Ok(clients)
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.actors.iter().chain([&self.inference]).for_each(crate::cluster::print_log);
        }
    }
}

/// Returns all processes in start order.
fn processes<'a>(
    cluster: &'a mut Cluster,
    inference: &'a mut Process,
    actors: &'a mut [Process; 2],
) -> Vec<&'a mut Process> {
    cluster.processes().iter_mut().chain([inference]).chain(actors).collect()
}

async fn insert(endpoint: String, measured: impl Fn(Instant)) -> anyhow::Result<()> {
    let writer = writer(&endpoint, CLIENT, 1);
    for sequence in 0.. {
        let start = Instant::now();
        writer.insert(won(TrajectoryId { actor: CLIENT, epoch: 1, sequence })).await?;
        timeout(REQUEST_DEADLINE, writer.flushed()).await.context("wait until an insert is acknowledged")?;
        measured(start);
        ensure!(writer.stats().refused == 0, "the replay server has refused a trajectory");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn request_moves(client: AnalysisClient, measured: impl Fn(Instant)) -> anyhow::Result<()> {
    for opening in (0..9).cycle() {
        let moves = Moves::Actions(vec![Action(opening)]);
        let start = Instant::now();
        let query = SearchQuery { game: None, moves, simulations: Some(8), time: None };
        timeout(REQUEST_DEADLINE, client.select_move(query)).await.context("wait for a move")??;
        measured(start);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn fetch(endpoint: String, measured: impl Fn(Instant)) -> anyhow::Result<()> {
    loop {
        let start = Instant::now();
        let settings =
            SubscriberSettings { endpoint: endpoint.clone(), name: "soak".to_owned(), size_limit_bytes: 1 << 30 };
        let mut subscriber = Subscriber::start(settings);
        timeout(REQUEST_DEADLINE, subscriber.changed()).await.context("wait for the newest weights")?;
        measured(start);
        subscriber.close().await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lists trajectories over a new connection. Every second visit also leaves a connection without a request.
async fn visit(endpoint: String, measured: impl Fn(Instant)) -> anyhow::Result<()> {
    let address = endpoint.trim_start_matches("http://").to_owned();
    for visit in 0_u64.. {
        let start = Instant::now();
        let query = ListQuery { limit: NonZeroU64::new(10), ..ListQuery::default() };
        let listed = Inspector::new(&endpoint)?;
        timeout(REQUEST_DEADLINE, listed.list(query)).await.context("wait for a list")??;
        measured(start);
        if visit % 2 == 0 {
            drop(tokio::net::TcpStream::connect(&address).await.context("connect")?);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
