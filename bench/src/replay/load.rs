use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use proto::replay::{Inspector, MAIN_TABLE, Sampler, SamplerSettings, TableStats, Writer, WriterSettings};
use tokio::task::JoinSet;

use super::games::{Games, STEPS};

/// Duration of the warm-up as a share of the measured time. After it, connections are open and buffers have grown.
const WARM_UP: f64 = 0.25;
/// Samples per batch.
pub(super) const BATCH: usize = 256;
/// Batches that a sampler requests in advance.
const PREFETCH: usize = 4;
/// Maximum wait for the last acknowledgements, even from a thousand actors.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// Interval between two checks of a starting server.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Number of writers that fill a table, and maximum unacknowledged trajectories per writer.
const FILLERS: (usize, usize) = (4, 256);

/// Speed and latencies of writers or of a sampler.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    /// Acknowledged trajectories, or samples, per second.
    pub(crate) speed: f64,
    /// Latency of each insert or batch.
    pub(crate) took: Vec<Duration>,
}

/// Start times of a client's requests, at a fixed interval.
#[derive(Debug, Clone, Copy)]
struct Pace {
    next: Instant,
    interval: Duration,
}

impl Pace {
    /// Returns the pace of client `client` of `clients`. Together they start `rate` requests per second, with the first
    /// requests spread over the interval. An infinite rate sends requests as fast as possible.
    fn new(begin: Instant, rate: f64, (client, clients): (usize, usize)) -> Self {
        let interval = Duration::from_secs_f64(clients as f64 / rate);
        Self { next: begin + interval.mul_f64(client as f64 / clients as f64), interval }
    }

    /// Waits until the next request is due; returns false if that is not before `end`. After a late request, the next
    /// is due at once.
    async fn wait(&mut self, end: Instant) -> bool {
        if self.next >= end || Instant::now() >= end {
            return false;
        }
        if !self.interval.is_zero() {
            tokio::time::sleep_until(self.next.into()).await;
            self.next += self.interval;
        }
        true
    }
}

/// A writing client, acting as an actor of Connect Four.
pub(crate) struct Client {
    actor: u64,
    epoch: u64,
    sequence: u64,
    in_flight_max: usize,
    writer: Writer,
}

impl Client {
    /// Starts `clients` clients with different actors, in a new epoch, so that no trajectory id repeats. A client with
    /// a single trajectory in flight waits for each acknowledgement.
    ///
    /// # Errors
    /// The server does not respond.
    pub(crate) async fn start(endpoint: &str, clients: usize, in_flight_max: usize) -> anyhow::Result<Vec<Self>> {
        let epoch = stats(endpoint).await?.trajectories_inserted_total + 1;
        let client = |actor| {
            let (endpoint, game) = (endpoint.to_owned(), "connect_four".to_owned());
            let writer = Writer::start(WriterSettings { endpoint, actor, epoch, game, in_flight_max });
            Self { actor, epoch, sequence: 0, in_flight_max, writer }
        };
        Ok((0..clients as u64).map(client).collect())
    }

    /// Returns true while the stream is not open.
    pub(super) fn is_away(&self) -> bool {
        self.writer.away_for().is_some()
    }

    async fn insert(&mut self, games: &Games) -> anyhow::Result<()> {
        self.writer.insert(games.trajectory(self.actor, self.epoch, self.sequence)).await?;
        self.sequence += 1;
        if self.in_flight_max == 1 {
            self.writer.flushed().await;
        }
        Ok(())
    }

    /// Inserts until `end`, and returns the latency of each insert.
    async fn insert_until(&mut self, games: &Games, pace: &mut Pace, end: Instant) -> anyhow::Result<Vec<Duration>> {
        let mut took = Vec::new();
        while pace.wait(end).await {
            let begun = Instant::now();
            self.insert(games).await?;
            took.push(begun.elapsed());
        }
        Ok(took)
    }

    /// Waits until every trajectory is acknowledged, and closes the stream.
    ///
    /// # Errors
    /// Some trajectories were not acknowledged in time.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        let left = self.writer.close(PATIENCE).await;
        ensure!(left.is_empty(), "{} trajectories were not acknowledged", left.len());
        Ok(())
    }
}

/// Inserts with these clients at a total `rate` per second, or as fast as possible if that is infinite, for `time`
/// after a warm-up; also returns the clients.
///
/// # Errors
/// The server does not respond.
pub(crate) async fn insert_with(
    clients: Vec<Client>,
    games: &Games,
    rate: f64,
    time: Duration,
) -> anyhow::Result<(Loaded, Vec<Client>)> {
    let (begin, count, mut tasks) = (Instant::now(), clients.len(), JoinSet::new());
    for (index, mut client) in clients.into_iter().enumerate() {
        let (games, mut pace) = (games.clone(), Pace::new(begin, rate, (index, count)));
        let start = begin + time.mul_f64(WARM_UP).max(pace.interval);
        tasks.spawn(async move {
            client.insert_until(&games, &mut pace, start).await?;
            let (before, begun) = (client.writer.stats().inserted, Instant::now());
            let took = client.insert_until(&games, &mut pace, begun.max(start) + time).await?;
            let inserted = client.writer.stats().inserted - before;
            // A client that waits for the next request has inserted for the whole time.
            anyhow::Ok((client, inserted as f64 / begun.elapsed().max(time).as_secs_f64(), took))
        });
    }
    let (mut all, mut back) = (Loaded::default(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (client, speed, took) = done.context("join a client")??;
        all.speed += speed;
        all.took.extend(took);
        back.push(client);
    }
    Ok((all, back))
}

/// Inserts as [`insert_with`] does, with new clients, as fast as possible.
///
/// # Errors
/// The server does not respond.
pub(crate) async fn insert(
    endpoint: &str,
    games: &Games,
    (clients, in_flight_max): (usize, usize),
    time: Duration,
) -> anyhow::Result<Loaded> {
    let clients = Client::start(endpoint, clients, in_flight_max).await?;
    let (loaded, clients) = insert_with(clients, games, f64::INFINITY, time).await?;
    for client in clients {
        client.close().await?;
    }
    Ok(loaded)
}

/// Draws batches with one sampler as fast as possible for `time`.
pub(super) async fn sample(endpoint: &str, time: Duration) -> Loaded {
    let settings = SamplerSettings {
        game: "connect_four".to_owned(),
        table: MAIN_TABLE.to_owned(),
        batch_size: BATCH,
        unroll_steps: 0,
        prefetch_batches: PREFETCH,
    };
    let mut sampler = Sampler::start(endpoint, settings);
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
    let speed = (took.len() * BATCH) as f64 / start.elapsed().as_secs_f64();
    sampler.close().await;
    Loaded { speed, took }
}

/// Returns the statistics of the table, once the server responds.
///
/// # Errors
/// The server does not respond.
pub(super) async fn stats(endpoint: &str) -> anyhow::Result<TableStats> {
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
/// The server does not respond.
pub(crate) async fn fill(endpoint: &str, games: &Games, positions: u64) -> anyhow::Result<()> {
    let missing = positions.saturating_sub(stats(endpoint).await?.items).div_ceil(STEPS as u64);
    let mut tasks = JoinSet::new();
    for mut client in Client::start(endpoint, FILLERS.0, FILLERS.1).await? {
        let (games, writers) = (games.clone(), FILLERS.0 as u64);
        let count = missing / writers + u64::from(client.actor < missing % writers);
        tasks.spawn(async move {
            for _ in 0..count {
                client.insert(&games).await?;
            }
            client.close().await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("join a writer")??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_paced_and_late_ones_are_caught_up() {
        let begin = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let count = async |rate, end| {
            let (mut pace, mut count) = (Pace::new(begin, rate, (1, 2)), 0);
            while count < 100 && pace.wait(end).await {
                count += 1;
            }
            count
        };
        let soon = begin + Duration::from_secs(3600);
        assert_eq!(count(f64::INFINITY, soon).await, 100, "as many as there is time for");
        assert_eq!(count(20.0, begin + Duration::from_secs(4)).await, 0, "the end is over");
        // Half of 20 per second, with a backlog of five seconds.
        let (mut pace, begun) = (Pace::new(begin, 20.0, (1, 2)), Instant::now());
        for _ in 0..50 {
            assert!(pace.wait(soon).await);
        }
        assert!(begun.elapsed() < Duration::from_secs(5) && pace.next > begin + Duration::from_secs(5));
    }
}
