//! Repeatedly kills the real process under load with SIGKILL.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use proto::replay::{Inspector, ListQuery, MAIN_TABLE, Sampler, SamplerSettings, TableStats, Writer, WriterSettings};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::WeightsVersion;

const GAME: &str = "connect_four";
const SEED: u64 = 5;
const ACTORS: u64 = 3;
const ITEMS: u64 = 12;
const SAMPLES_PER_INSERT: f64 = 2.0;
const ERROR_ITEMS: f64 = 5_000.0;
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Returns the number of kills: `ZEROFLEET_KILLS`, or 5.
fn kills() -> u64 {
    std::env::var("ZEROFLEET_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5)
}

/// The process; killed when the test stops.
struct Server {
    directory: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Server {
    fn new(ack: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "[run]\ngame = \"{GAME}\"\nseed = {SEED}\ndirectory = \"{}\"\n\n[replay]\nack = \"{ack}\"\nfsync_ms = 5\n\
             min_items = 100\nsamples_per_insert = {SAMPLES_PER_INSERT:?}\nerror_items = {ERROR_ITEMS:?}\n\
             segment_bytes = 20000\n",
            directory.path().display()
        );
        std::fs::write(directory.path().join("config.toml"), config).unwrap();
        // The port stays free for a while, since the system assigns other ports first.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        Self { directory, port, child: None }
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.path().join("server.log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_replay-server"))
            .args(["--config", self.path().join("config.toml").to_str().unwrap()])
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Polls `condition` until it holds, while the process runs.
    async fn wait_until(&mut self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let start = Instant::now();
        while !condition().await {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "the server has ended with {ended:?}");
            assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
            tokio::time::sleep(POLL).await;
        }
    }

    async fn stats(&self) -> Option<TableStats> {
        Inspector::new(&self.endpoint()).unwrap().stats().await.ok()
    }
}

impl Drop for Server {
    #[allow(clippy::print_stderr, reason = "a failed test shows the output of its process")]
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let text = std::fs::read_to_string(self.path().join("server.log")).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("seed {SEED}, the server's last lines:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

fn trajectory(id: TrajectoryId) -> Trajectory {
    let policy = (0..7).map(|action| ActionProbability { action: Action(action), probability: 1.0 / 7.0 }).collect();
    let kind = StepKind::Full { policy, value: 0.25 };
    let step = Step { action: Action(3), reward: 0.0, kind, weights_version: WeightsVersion(1) };
    Trajectory::of(id, GAME, &vec![step; ITEMS as usize], Outcome::Draw).unwrap()
}

/// Inserts until `stop` is set; returns the number of inserts, some of which may still be unanswered.
async fn insert(endpoint: String, actor: u64, stop: Arc<AtomicBool>, writer: Arc<Writer>) -> u64 {
    let mut sequence = 0;
    while !stop.load(Ordering::Relaxed) {
        let id = TrajectoryId { actor, epoch: 1, sequence };
        writer.insert(trajectory(id)).await.unwrap_or_else(|error| panic!("{endpoint}: {error}"));
        sequence += 1;
    }
    sequence
}

fn writer(endpoint: &str, actor: u64) -> Arc<Writer> {
    let endpoint = endpoint.to_owned();
    Arc::new(Writer::start(WriterSettings { endpoint, actor, epoch: 1, game: GAME.into(), in_flight_max: 32 }))
}

async fn sample(endpoint: String, stop: Arc<AtomicBool>) -> u64 {
    let game = GAME.to_owned();
    let settings =
        SamplerSettings { game, table: MAIN_TABLE.to_owned(), batch_size: 64, unroll_steps: 2, prefetch_batches: 4 };
    let (mut sampler, mut samples) = (Sampler::start(&endpoint, settings), 0);
    while !stop.load(Ordering::Relaxed) {
        if let Ok(batch) = tokio::time::timeout(POLL, sampler.next()).await {
            samples += batch.samples.len() as u64;
        }
    }
    sampler.close().await;
    samples
}

async fn killed_again_and_again(ack: &str) {
    let mut server = Server::new(ack);
    let endpoint = server.endpoint();
    server.start();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<Arc<Writer>> = (0..ACTORS).map(|actor| writer(&endpoint, actor)).collect();
    let inserting: Vec<_> = (0..ACTORS)
        .zip(&writers)
        .map(|(actor, writer)| tokio::spawn(insert(endpoint.clone(), actor, stop.clone(), writer.clone())))
        .collect();
    let stop_sampling = Arc::new(AtomicBool::new(false));
    let sampling = tokio::spawn(sample(endpoint.clone(), stop_sampling.clone()));
    let answered = || writers.iter().map(|writer| writer.stats().inserted + writer.stats().duplicates).sum::<u64>();
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    for _ in 0..kills() {
        // Sometimes the process is killed while it is still starting.
        let more = if rng.random_bool(0.1) { 0 } else { rng.random_range(1..200) };
        let enough = answered() + more;
        server.wait_until("enough is acknowledged", async || answered() >= enough).await;
        server.kill();
        server.start();
    }
    let enough = answered() + 100;
    server.wait_until("inserts go on after the last kill", async || answered() >= enough).await;

    stop.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for inserting in inserting {
        sent += tokio::time::timeout(DEADLINE, inserting).await.unwrap().unwrap();
    }
    let unanswered = || writers.iter().map(|writer| writer.unacknowledged()).sum::<usize>();
    server.wait_until("all are acknowledged", async || unanswered() == 0).await;
    // Up to here, the limiter may block inserts until more samples are drawn.
    stop_sampling.store(true, Ordering::Relaxed);
    let drawn = tokio::time::timeout(DEADLINE, sampling).await.unwrap().unwrap();
    assert!(drawn > 0, "nothing was sampled");
    assert!(writers.iter().all(|writer| writer.stats().refused == 0));
    assert_eq!(answered(), sent, "each was answered once");

    let held = Inspector::new(&endpoint).unwrap().list(ListQuery::default()).await.unwrap();
    let distinct: BTreeSet<TrajectoryId> = held.iter().copied().collect();
    assert_eq!((held.len() as u64, distinct.len() as u64), (sent, sent), "each is held once");
    let stats = server.stats().await.unwrap();
    assert_eq!(stats.trajectories_inserted_total, sent);
    assert_eq!((stats.items_inserted_total, stats.items), (ITEMS * sent, ITEMS * sent));
    let most = SAMPLES_PER_INSERT * stats.items_inserted_total as f64 + ERROR_ITEMS;
    assert!(stats.samples_total as f64 <= most, "{} samples", stats.samples_total);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trajectory_acknowledged_on_disk_survives_every_kill_and_counts_once() {
    killed_again_and_again("fsync").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trajectory_acknowledged_in_the_file_survives_every_kill_and_counts_once() {
    killed_again_and_again("flushed").await;
}
