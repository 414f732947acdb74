use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use proto::replay::{Inspector, MAIN_TABLE, Sampler, SamplerSettings, TableStats, Writer, WriterSettings};
use tokio::task::JoinSet;

use super::Args;
use super::games::Games;
use super::server::Server;

/// Duration of the warm-up as a share of the measured time, so that connections are open and buffers have grown.
const WARM_UP: f64 = 0.25;
/// Batches that a sampler requests in advance.
const PREFETCH: usize = 4;
/// The longest wait for the last acknowledgements, also for those of a thousand actors.
const PATIENCE: Duration = Duration::from_secs(300);
/// The interval between two looks at a server that starts.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Number of writers that fill a table, and the maximum number of unacknowledged trajectories of each.
const FILLERS: (usize, usize) = (4, 256);

/// The speed and the latencies of writers or of a sampler.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded {
    /// Acknowledged trajectories, or samples, per second.
    pub(super) speed: f64,
    /// The times from one accepted trajectory, or one batch, to the next.
    pub(super) took: Vec<Duration>,
}

/// Inserts with `writers` writers as fast as possible for `time`.
///
/// # Errors
/// A server that does not answer.
pub(super) async fn insert(
    server: &Server,
    games: &Games,
    writers: usize,
    in_flight: usize,
    time: Duration,
) -> anyhow::Result<Loaded> {
    let mut tasks = JoinSet::new();
    // Every call uses a new epoch of the same actors, so that no trajectory id repeats.
    let epoch = server.stats().await?.trajectories_inserted_total + 1;
    for actor in 0..writers as u64 {
        let (writer, games) = (writer(&server.endpoint, actor, epoch, in_flight), games.clone());
        tasks.spawn(async move {
            let mut sequence = 0;
            let mut write = async |until: Instant| -> anyhow::Result<Vec<Duration>> {
                let (mut took, mut last) = (Vec::new(), Instant::now());
                while last < until {
                    writer.insert(games.trajectory(actor, epoch, sequence)).await?;
                    sequence += 1;
                    let now = Instant::now();
                    took.push(now - last);
                    last = now;
                }
                Ok(took)
            };
            write(Instant::now() + time.mul_f64(WARM_UP)).await?;
            let (before, start) = (writer.stats().inserted, Instant::now());
            let took = write(start + time).await?;
            let (inserted, seconds) = (writer.stats().inserted - before, start.elapsed().as_secs_f64());
            close(writer).await?;
            anyhow::Ok((inserted as f64 / seconds, took))
        });
    }
    let (mut speed, mut all) = (0.0, Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (inserts_per_second, took) = done.context("join a writer")??;
        speed += inserts_per_second;
        all.extend(took);
    }
    Ok(Loaded { speed, took: all })
}

/// Draws batches with one sampler as fast as possible for `time`.
pub(super) async fn sample(server: &Server, args: &Args, time: Duration) -> Loaded {
    let settings = SamplerSettings {
        game: "connect_four".to_owned(),
        table: MAIN_TABLE.to_owned(),
        batch_size: args.batch,
        unroll_steps: args.unroll,
        prefetch_batches: PREFETCH,
    };
    let mut sampler = Sampler::start(&server.endpoint, settings);
    let mut draw = async |until: Instant| {
        let (mut took, mut last) = (Vec::new(), Instant::now());
        while last < until {
            drop(sampler.next().await);
            let now = Instant::now();
            took.push(now - last);
            last = now;
        }
        took
    };
    draw(Instant::now() + time.mul_f64(WARM_UP)).await;
    let start = Instant::now();
    let took = draw(start + time).await;
    let seconds = start.elapsed().as_secs_f64();
    let speed = (took.len() * args.batch) as f64 / seconds;
    sampler.close().await;
    Loaded { speed, took }
}

/// Returns the statistics of the table, once the server answers.
async fn stats(endpoint: &str) -> anyhow::Result<TableStats> {
    let (inspector, deadline) = (Inspector::new(endpoint)?, Instant::now() + PATIENCE);
    loop {
        match inspector.stats().await {
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(LOOK_INTERVAL).await,
            Ok(stats) => return Ok(stats),
        }
    }
}

/// Inserts until the table holds at least `positions` positions.
///
/// # Errors
/// A server that does not answer.
pub(crate) async fn fill(endpoint: &str, games: &Games, positions: u64) -> anyhow::Result<()> {
    let (writers, in_flight) = FILLERS;
    let stats = stats(endpoint).await?;
    let missing = positions.saturating_sub(stats.items).div_ceil(games.steps() as u64);
    let epoch = stats.trajectories_inserted_total + 1;
    let mut tasks = JoinSet::new();
    for actor in 0..writers as u64 {
        let (writer, games) = (writer(endpoint, actor, epoch, in_flight), games.clone());
        let count = missing / writers as u64 + u64::from(actor < missing % writers as u64);
        tasks.spawn(async move {
            for sequence in 0..count {
                writer.insert(games.trajectory(actor, epoch, sequence)).await?;
            }
            close(writer).await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("join a writer")??;
    }
    Ok(())
}

/// Starts the client of an actor of Connect Four.
pub(crate) fn writer(endpoint: &str, actor: u64, epoch: u64, in_flight_max: usize) -> Writer {
    let (endpoint, game) = (endpoint.to_owned(), "connect_four".to_owned());
    Writer::start(WriterSettings { endpoint, actor, epoch, game, in_flight_max })
}

/// Waits until every trajectory is acknowledged, and closes the writer.
///
/// # Errors
/// Trajectories that were not acknowledged in time.
pub(crate) async fn close(writer: Writer) -> anyhow::Result<()> {
    let left = writer.close(PATIENCE).await;
    ensure!(left.is_empty(), "{} trajectories were not acknowledged", left.len());
    Ok(())
}
