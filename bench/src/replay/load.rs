use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use proto::replay::{MAIN_TABLE, Sampler, SamplerSettings, Writer, WriterSettings};
use tokio::task::JoinSet;

use super::Args;
use super::games::Games;
use super::server::Server;

/// Share of the measured time that is spent before it, so that connections stand and buffers have grown.
const WARM_UP: f64 = 0.25;
/// Batches that a sampler has asked for ahead.
const PREFETCH: usize = 4;
/// The longest wait for the last acknowledgements: also those of a thousand actors.
const PATIENCE: Duration = Duration::from_secs(300);
/// Writers that fill a table, and what each has unacknowledged.
const FILLERS: (usize, usize) = (4, 256);

/// What writers or a sampler did.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded {
    /// Trajectories acknowledged, or samples, each second.
    pub(super) speed: f64,
    /// From one trajectory that was taken, or one batch, to the next.
    pub(super) took: Vec<Duration>,
}

/// As many writers as asked for hand in as fast as they can for `time`.
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
    // Every call is another start of the same actors: no id comes twice.
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

/// One sampler draws as fast as it can for `time`.
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

/// Hands in until the table holds at least so many positions.
///
/// # Errors
/// A server that does not answer.
pub(super) async fn fill(server: &Server, games: &Games, positions: u64) -> anyhow::Result<()> {
    let (writers, in_flight) = FILLERS;
    let stats = server.stats().await?;
    let missing = positions.saturating_sub(stats.items).div_ceil(games.steps() as u64);
    let epoch = stats.trajectories_inserted_total + 1;
    let mut tasks = JoinSet::new();
    for actor in 0..writers as u64 {
        let (writer, games) = (writer(&server.endpoint, actor, epoch, in_flight), games.clone());
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

/// Waits until everything is acknowledged.
///
/// # Errors
/// Trajectories that were not acknowledged in time.
pub(crate) async fn close(writer: Writer) -> anyhow::Result<()> {
    let left = writer.close(PATIENCE).await;
    ensure!(left.is_empty(), "{} trajectories were not acknowledged", left.len());
    Ok(())
}
