//! Clients of the replay servers and of the learner that record every operation in a [`History`].
//!
//! Two clients insert into both replay servers: one waits for each response and sends some trajectories again, as a
//! restarted actor does; the other has many in flight. Other clients draw samples, request statistics over new
//! connections, follow the weights, and subscribe to them anew.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use experience::TrajectoryId;
use proto::replay::{MAIN_TABLE, Sampler, SamplerSettings, Writer, WriterSettings, WriterStats};
use proto::weights::{Published, Subscriber, SubscriberSettings};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::checker::FIRST_WITNESS;
use super::growth::RECOVERY_DEADLINE;
use super::history::{Call, History, Inserted};
use crate::trajectories::{GAME, won};

/// Interval between inserts, short enough that inserts are in flight during every fault.
const INSERT_INTERVAL: Duration = Duration::from_millis(100);
/// Trajectories in flight from the second client, and interval between two groups of this size.
const GROUP: u64 = 8;
const GROUP_INTERVAL: Duration = Duration::from_millis(800);
/// Number of inserts after which the first client sends an earlier trajectory again.
const AGAIN_AFTER: u64 = 10;
/// Interval between batches of samples, and batch size: few, since they count for the rate limiter.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
const BATCH_SIZE: usize = 8;
/// Interval between requests over new connections, and time limit.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The clients, with tasks.
#[derive(Debug)]
pub struct Witnesses {
    history: Arc<History>,
    stop: Arc<AtomicBool>,
    /// Number of acknowledged trajectories, by replay server.
    acknowledged: Vec<Arc<AtomicU64>>,
    inserting: Vec<JoinHandle<()>>,
    reading: Vec<JoinHandle<()>>,
}

impl Witnesses {
    /// Starts the clients. Must be called on a runtime with threads that reach the servers; `published` is the
    /// directory of the learner's published weights.
    #[must_use]
    pub fn start(replay: &[String], learner: &str, published: PathBuf) -> Self {
        let (history, stop) = (Arc::new(History::default()), Arc::new(AtomicBool::new(false)));
        let (mut acknowledged, mut inserting, mut reading) = (Vec::new(), Vec::new(), Vec::new());
        for (server, endpoint) in (0..).zip(replay) {
            let count = Arc::new(AtomicU64::new(0));
            let inserter = |actor| Inserter {
                history: Arc::clone(&history),
                stop: Arc::clone(&stop),
                acknowledged: Arc::clone(&count),
                server,
                // An epoch belongs to one replay server.
                epoch: u64::from(server) + 1,
                actor,
                endpoint: endpoint.clone(),
            };
            inserting.push(tokio::spawn(inserter(FIRST_WITNESS).insert_one_by_one()));
            inserting.push(tokio::spawn(inserter(FIRST_WITNESS + 1).insert_groups()));
            reading.push(tokio::spawn(sample(Arc::clone(&history), server, endpoint.clone())));
            reading.push(tokio::spawn(request(Arc::clone(&history), server, endpoint.clone())));
            acknowledged.push(count);
        }
        let reader = Reader { history: Arc::clone(&history), endpoint: learner.to_owned(), published };
        reading.push(tokio::spawn(reader.clone().follow()));
        reading.push(tokio::spawn(reader.subscribe()));
        Self { history, stop, acknowledged, inserting, reading }
    }

    /// Returns the number of trajectories that a replay server has acknowledged.
    #[must_use]
    pub fn acknowledged(&self, server: u8) -> u64 {
        self.acknowledged[usize::from(server)].load(Ordering::SeqCst)
    }

    /// Returns the operations so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Stops all clients, after every insert has a response.
    ///
    /// # Errors
    /// An insert has no response by the deadline.
    pub async fn finish(&mut self) -> anyhow::Result<()> {
        self.reading.iter().for_each(JoinHandle::abort);
        self.stop.store(true, Ordering::SeqCst);
        let all = async {
            for task in self.inserting.drain(..) {
                task.await.context("a witness has panicked")?;
            }
            anyhow::Ok(())
        };
        timeout(RECOVERY_DEADLINE, all).await.context("wait until the witnesses have their answers")?
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        self.inserting.iter().chain(&self.reading).for_each(JoinHandle::abort);
    }
}

/// A client that inserts into one server.
struct Inserter {
    history: Arc<History>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    server: u8,
    actor: u64,
    epoch: u64,
    endpoint: String,
}

impl Inserter {
    /// Inserts one trajectory after the other, and some of them once more on a separate stream.
    async fn insert_one_by_one(self) {
        let writer = Writer::start_epoch(self.settings(1));
        for sequence in (0..).take_while(|_| !self.stop.load(Ordering::SeqCst)) {
            self.insert(&writer, &[sequence]).await;
            if sequence % AGAIN_AFTER == AGAIN_AFTER - 1 {
                let again = Writer::start(self.settings(1));
                self.insert(&again, &[sequence / 2]).await;
            }
            sleep(INSERT_INTERVAL).await;
        }
    }

    async fn insert_groups(self) {
        let writer = Writer::start_epoch(self.settings(GROUP as usize));
        for group in (0..).take_while(|_| !self.stop.load(Ordering::SeqCst)) {
            let sequences: Vec<u64> = (group * GROUP..).take(GROUP as usize).collect();
            self.insert(&writer, &sequences).await;
            sleep(GROUP_INTERVAL).await;
        }
    }

    fn settings(&self, in_flight_max: usize) -> WriterSettings {
        let Self { actor, epoch, .. } = *self;
        WriterSettings { endpoint: self.endpoint.clone(), actor, epoch, game: GAME.to_owned(), in_flight_max }
    }

    /// Inserts trajectories and waits until all have a response.
    async fn insert(&self, writer: &Writer, sequences: &[u64]) {
        let before = writer.stats();
        let client = format!("inserter {}", self.actor);
        let mut calls = Vec::new();
        for &sequence in sequences {
            let id = TrajectoryId { actor: self.actor, epoch: self.epoch, sequence };
            calls.push((id, self.history.begin(&client, self.call(id, None))));
            writer.insert(won(id)).await.expect("the writer takes what is its own");
        }
        writer.flushed().await;
        let answer = answer(before, writer.stats(), sequences.len() as u64);
        for (id, call) in calls {
            self.history.end(call, self.call(id, Some(answer)));
        }
        self.acknowledged.fetch_add(sequences.len() as u64, Ordering::SeqCst);
    }

    fn call(&self, id: TrajectoryId, answer: Option<Inserted>) -> Call {
        Call::Insert { server: self.server, id, answer }
    }
}

/// Returns the result of `count` inserts, from the counters before and after. The result is the same for all.
fn answer(before: WriterStats, after: WriterStats, count: u64) -> Inserted {
    let new = after.inserted - before.inserted;
    if after.refused + after.stale > before.refused + before.stale {
        Inserted::Refused
    } else if after.collisions > before.collisions {
        Inserted::Collision
    } else if new == count {
        Inserted::New
    } else if new == 0 {
        Inserted::Duplicate
    } else {
        Inserted::Stored
    }
}

async fn sample(history: Arc<History>, server: u8, endpoint: String) {
    let (game, table) = (GAME.to_owned(), MAIN_TABLE.to_owned());
    let settings = SamplerSettings { game, table, batch_size: BATCH_SIZE, unroll_steps: 0, prefetch_batches: 1 };
    let mut sampler = Sampler::start(&endpoint, settings);
    loop {
        let call = history.begin("sampler", Call::Sample { server, ids: Vec::new() });
        let batch = sampler.next().await;
        let ids = batch.samples.iter().map(|sample| sample.segment.trajectory()).collect();
        history.end(call, Call::Sample { server, ids });
        sleep(SAMPLE_INTERVAL).await;
    }
}

/// Requests statistics; each request opens a connection.
async fn request(history: Arc<History>, server: u8, endpoint: String) {
    loop {
        let call = history.begin("requester", Call::Stats { server, error: None });
        let error = match timeout(REQUEST_TIMEOUT, proto::replay::stats(&endpoint)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer".to_owned()),
        };
        history.end(call, Call::Stats { server, error });
        sleep(REQUEST_INTERVAL).await;
    }
}

/// A client of the learner's weights.
#[derive(Debug, Clone)]
struct Reader {
    history: Arc<History>,
    endpoint: String,
    published: PathBuf,
}

impl Reader {
    /// Receives every version over one subscription, which reconnects.
    async fn follow(self) {
        let mut subscriber = self.subscriber("follower");
        loop {
            self.read("follower", async { Some(subscriber.changed().await) }).await;
        }
    }

    /// Receives the latest version over a new subscription each time.
    async fn subscribe(self) {
        loop {
            let newest = async { timeout(REQUEST_TIMEOUT, self.subscriber("subscriber").changed()).await.ok() };
            self.read("subscriber", newest).await;
            sleep(REQUEST_INTERVAL).await;
        }
    }

    fn subscriber(&self, name: &str) -> Subscriber {
        // No version of this small network is larger.
        let size_limit_bytes = 1 << 24;
        Subscriber::start(SubscriberSettings {
            endpoint: self.endpoint.clone(),
            name: name.to_owned(),
            size_limit_bytes,
        })
    }

    async fn read(&self, client: &str, newest: impl Future<Output = Option<Arc<Published>>>) {
        let subscribes = client == "subscriber";
        let nothing = Call::Weights { subscribes, version: None, digest: String::new(), published: 0 };
        let call = self.history.begin(client, nothing.clone());
        let Some(newest) = newest.await else { return self.history.end(call, nothing) };
        let manifest = &newest.manifest;
        let (version, digest) = (Some(manifest.version.0), manifest.digest.to_string());
        let published = newest_in(&self.published);
        self.history.end(call, Call::Weights { subscribes, version, digest, published });
    }
}

/// Returns the latest version that the learner has written into the directory.
fn newest_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let version = |name: &str| name.strip_prefix('v')?.strip_suffix(".json")?.parse().ok();
    entries.filter_map(|entry| version(entry.file_name().to_str()?)).max().unwrap_or(0)
}
