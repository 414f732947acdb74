use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use experience::Sample;
use futures::future::select_all;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use transport::reconnect::until;
use transport::servers::{Server, Servers};

use super::sampler::State;
use super::{Inspector, NewestWeights, SampleBatch, Sampler, SamplerSettings, TableStats};

/// The settings of a [`ShardedSampler`].
#[derive(Debug, Clone, PartialEq)]
pub struct ShardedSettings {
    /// Settings of the stream from each server.
    pub shard: SamplerSettings,
    /// Seed for the random choice of the server of each sample.
    pub seed: u64,
    /// Maximum time that a batch waits for a chosen server while other servers have samples; [`SHARD_TIMEOUT`] except
    /// in tests.
    pub shard_timeout: Duration,
}

/// Maximum time that a draw waits for a server that has items but sends none, most often because the rate limiter waits
/// for inserts. It is long enough that the limiters of equally loaded servers do not bias the draws, and short enough
/// that a server without actors does not block the other servers for long.
pub const SHARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Samples drawn from all servers together.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardedBatch {
    /// The requested number of samples. Probabilities and item counts refer to all tables together.
    pub samples: Vec<Sample>,
    /// The source server of each sample.
    pub servers: Vec<Server>,
}

/// Draws from the tables of several replay servers as from a single table.
///
/// For each sample in a batch, a server is drawn in proportion to the total weight of the table. The number of samples
/// per server is multinomial, and an item has the same probability as in one table of all items. The sample states this
/// probability: the probability in the server's table times the probability of the server.
///
/// The set of servers may change at any time. A server that currently has nothing to draw has a total weight of zero. A
/// server that is unreachable, or delays the draw for longer than [`ShardedSettings::shard_timeout`], is left out until
/// the next batch from it. The batches of a single server are returned unchanged.
#[derive(Debug)]
pub struct ShardedSampler {
    servers: Servers,
    newest: NewestWeights,
    settings: ShardedSettings,
    rng: ChaCha8Rng,
    /// One stream for each server, ascending by id.
    streams: Vec<ShardStream>,
    /// The drawn samples of the next batch.
    drawn: Vec<(Sample, Server)>,
    /// The server of the next sample.
    choice: Option<Choice>,
}

/// The drawn server of the next sample; the draw waits if the server has no buffered sample.
#[derive(Debug, Clone)]
struct Choice {
    id: Arc<str>,
    share: f64,
    /// Items in all tables together; `None` for a single server, since the samples already carry this number.
    all_items: Option<u64>,
    since: Instant,
}

impl ShardedSampler {
    /// Starts to draw, and sends `newest` to every server with each request. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(newest: NewestWeights, servers: Servers, settings: ShardedSettings) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(settings.seed);
        let mut sampler = Self { servers, newest, settings, rng, streams: Vec::new(), drawn: Vec::new(), choice: None };
        sampler.follow();
        sampler
    }

    /// Returns the next batch; waits while no server has samples. Cancel-safe.
    pub async fn next(&mut self) -> ShardedBatch {
        if self.servers.has_changed() {
            self.follow();
        }
        self.streams.iter_mut().for_each(ShardStream::take_in);
        while self.drawn.len() < self.settings.shard.batch_size {
            if !self.draw() {
                self.wait().await;
            }
        }
        let (samples, servers) = std::mem::take(&mut self.drawn).into_iter().unzip();
        ShardedBatch { samples, servers }
    }

    /// Returns the number of servers, and the number of servers that batches are currently drawn from.
    #[must_use]
    pub fn servers(&self) -> (usize, usize) {
        (self.streams.len(), self.total_weights().iter().filter(|&&weight| weight > 0.0).count())
    }

    /// Stops all streams and joins the tasks.
    pub async fn close(self) {
        for stream in self.streams {
            stream.sampler.close().await;
        }
    }

    /// Draws one more sample; returns false if none is available without waiting.
    fn draw(&mut self) -> bool {
        while let Some(choice) = self.choice.clone().or_else(|| self.choose()) {
            let Some(at) = self.streams.iter().position(|stream| stream.server.id == choice.id) else {
                // The server was removed.
                self.choice = None;
                continue;
            };
            let stream = &mut self.streams[at];
            if let Some(mut sample) = stream.take() {
                reweigh(&mut sample, &choice);
                self.drawn.push((sample, stream.server.clone()));
                self.choice = None;
                return true;
            }
            let is_late = stream.is_unreachable() || choice.since.elapsed() >= self.settings.shard_timeout;
            let mut others = self.streams.iter().filter(|other| other.server.id != choice.id);
            if !(is_late && others.any(|other| other.total_weight().is_some())) {
                self.choice = Some(choice);
                return false;
            }
            self.streams[at].exclude();
            self.choice = None;
        }
        false
    }

    /// Draws the server of the next sample; `None` while there is nothing to draw, or a server has yet to report the
    /// total weight.
    fn choose(&mut self) -> Option<Choice> {
        let shard_timeout = self.settings.shard_timeout;
        if self.streams.iter().any(|stream| stream.awaits_weight(shard_timeout)) {
            return None;
        }
        if let [only] = self.streams.as_slice() {
            // The case of most runs, for every sample: no random draw and no allocation.
            only.total_weight().filter(|&weight| weight > 0.0)?;
            return Some(Choice {
                id: Arc::clone(&only.server.id),
                share: 1.0,
                all_items: None,
                since: Instant::now(),
            });
        }
        let shares = shares(&self.total_weights());
        let at = pick(&shares, self.rng.random())?;
        let sharing = self.streams.iter().zip(&shares).filter(|(_, share)| **share > 0.0);
        let all_items = sharing.clone().map(|(stream, _)| stream.items()).fold(0_u64, u64::saturating_add);
        let all_items = (sharing.count() > 1).then_some(all_items.max(1));
        let id = Arc::clone(&self.streams[at].server.id);
        Some(Choice { id, share: shares[at], all_items, since: Instant::now() })
    }

    /// Returns the current weight of each server.
    fn total_weights(&self) -> Vec<f64> {
        self.streams.iter().map(|stream| stream.total_weight().unwrap_or_default()).collect()
    }

    /// Waits for an event after which a draw may succeed.
    async fn wait(&mut self) {
        let shard_timeout = self.settings.shard_timeout;
        let due = self.choice.iter().map(|choice| choice.since + shard_timeout);
        let due = due.chain(self.streams.iter().filter_map(|stream| stream.weight_deadline(shard_timeout)));
        let due = due.filter(|due| *due > Instant::now()).min();
        let is_new_set = {
            let events = self.streams.iter_mut().map(|stream| {
                let event: Pin<Box<dyn Future<Output = ()> + Send + '_>> = Box::pin(stream.event());
                event
            });
            let events: Vec<_> = events.collect();
            tokio::select! {
                () = self.servers.changed() => true,
                () = any(events) => false,
                () = until(due) => false,
            }
        };
        if is_new_set {
            self.follow();
        }
    }

    /// Updates the streams to the current servers.
    fn follow(&mut self) {
        let set = self.servers.current();
        self.streams.retain(|stream| {
            let stays = set.iter().any(|server| stream.is_of(server));
            if !stays {
                tracing::info!(server = &*stream.server.endpoint, "no longer sampling from this server");
            }
            stays
        });
        for server in set.iter() {
            if !self.streams.iter().any(|stream| stream.is_of(server)) {
                self.streams.push(ShardStream::start(server.clone(), self.newest.clone(), &self.settings.shard));
            }
        }
        self.streams.sort_by(|a, b| a.server.cmp(&b.server));
        let is_one_of_several = self.streams.len() > 1;
        for stream in &mut self.streams {
            if is_one_of_several {
                stream.poll_total_weight(&self.settings.shard.table);
            } else {
                stream.stop_poll();
            }
        }
    }
}

/// Interval between requests for a server's total weight: buffered batches only carry the weight at draw time.
const WEIGHT_INTERVAL: Duration = Duration::from_secs(1);

/// One server: the stream of batches, the rest of the last batch, and the table weight.
#[derive(Debug)]
struct ShardStream {
    server: Server,
    sampler: Sampler,
    queue: VecDeque<Sample>,
    /// Statistics in the last batch.
    table: Option<TableStats>,
    polled: Option<Polled>,
    /// True while no samples are expected from this server, because it is unreachable or delays batches.
    excluded: bool,
    started: Instant,
}

/// The latest response to the periodic requests, which are sent while there are several servers.
#[derive(Debug)]
struct Polled {
    table: watch::Receiver<Option<Arc<TableStats>>>,
    _task: DropGuard,
}

impl ShardStream {
    fn start(server: Server, newest: NewestWeights, settings: &SamplerSettings) -> Self {
        let sampler = Sampler::with_newest(newest, &server.endpoint, settings.clone());
        let (queue, started) = (VecDeque::new(), Instant::now());
        Self { server, sampler, queue, table: None, polled: None, excluded: false, started }
    }

    /// Returns true if this stream draws from `server` and the endpoint of `server` has not changed.
    fn is_of(&self, server: &Server) -> bool {
        self.server.id == server.id && self.server.endpoint == server.endpoint
    }

    /// Requests the server's total weight repeatedly.
    fn poll_total_weight(&mut self, table: &str) {
        if self.polled.is_none() {
            let (sender, answers) = watch::channel(None);
            let stop = CancellationToken::new();
            let polling = poll(Arc::clone(&self.server.endpoint), table.to_owned(), sender);
            tokio::spawn(stop.clone().run_until_cancelled_owned(polling));
            self.polled = Some(Polled { table: answers, _task: stop.drop_guard() });
        }
    }

    /// Stops the requests, which a single server does not need because it has all of the weight.
    fn stop_poll(&mut self) {
        self.polled = None;
    }

    /// Takes a received batch, if no samples of the last batch are left.
    fn take_in(&mut self) {
        if self.queue.is_empty()
            && let Some(batch) = self.sampler.try_next()
        {
            self.put(batch);
        }
    }

    /// Returns the next sample, if one is buffered.
    fn take(&mut self) -> Option<Sample> {
        self.take_in();
        self.queue.pop_front()
    }

    fn put(&mut self, SampleBatch { samples, table }: SampleBatch) {
        self.queue.extend(samples);
        self.table = Some(table);
        if std::mem::take(&mut self.excluded) {
            tracing::info!(server = &*self.server.endpoint, "sampling from this server again");
        }
    }

    /// Returns the total weight of the server's table; `None` while the server is unlikely to send a batch.
    fn total_weight(&self) -> Option<f64> {
        if self.excluded {
            return None;
        }
        let known = self.known(TableStats::total_weight).filter(|&weight| weight > 0.0);
        // Buffered samples count in any current state of the table; some servers do not report the total weight.
        known.or_else(|| self.queue.front().map(|sample| sample.table_items as f64))
    }

    /// Returns the number of items in the server's window.
    fn items(&self) -> u64 {
        self.known(|table| table.window_items).unwrap_or(0)
    }

    /// Returns `what` of the latest known table statistics.
    fn known<T>(&self, what: impl Fn(&TableStats) -> T) -> Option<T> {
        let polled = self.polled.as_ref().and_then(|polled| polled.table.borrow().as_deref().map(&what));
        polled.or_else(|| self.table.as_ref().map(what))
    }

    fn is_unreachable(&self) -> bool {
        matches!(self.sampler.state(), State::Unreachable(_))
    }

    /// Returns true if the stream has just started and has no weight yet, so that a draw now would leave the server
    /// out.
    fn awaits_weight(&self, shard_timeout: Duration) -> bool {
        self.weight_deadline(shard_timeout).is_some_and(|until| Instant::now() < until)
    }

    /// Returns the deadline for the first weight; `None` once it has arrived.
    fn weight_deadline(&self, shard_timeout: Duration) -> Option<Instant> {
        let is_silent = matches!(self.sampler.state(), State::Opening | State::Serving);
        (is_silent && self.known(|_| ()).is_none()).then(|| self.started + shard_timeout)
    }

    /// Excludes the server from draws until the next batch.
    fn exclude(&mut self) {
        self.excluded = true;
        let (server, reason) = (&*self.server.endpoint, self.sampler.waiting_reason().unwrap_or_default());
        if self.is_unreachable() {
            tracing::warn!(server, reason, "replay server away; sampling from the other servers");
        } else {
            tracing::info!(server, reason, "replay server delays batches; sampling from the other servers");
        }
    }

    /// Waits for a batch, if no samples of the last batch are left, or for a change of the server's state or weight.
    /// Cancel-safe.
    async fn event(&mut self) {
        let news = async {
            let answered = match &mut self.polled {
                Some(polled) => polled.table.changed().await.is_ok(),
                None => false,
            };
            if !answered {
                pending().await
            }
        };
        let batch = if self.queue.is_empty() {
            tokio::select! {
                batch = self.sampler.next_or_change() => batch,
                () = news => None,
            }
        } else {
            tokio::select! {
                () = self.sampler.change() => None,
                () = news => None,
            }
        };
        if let Some(batch) = batch {
            self.put(batch);
        }
    }
}

/// Converts probability and item count of a sample from the server's table to all tables together.
fn reweigh(sample: &mut Sample, choice: &Choice) {
    // The probability stays above zero for any share; a share of one changes nothing.
    sample.probability = (sample.probability * choice.share).max(f64::MIN_POSITIVE);
    if let Some(items) = choice.all_items {
        sample.table_items = items;
    }
}

/// Returns each total weight divided by the sum. Shares sum to one up to rounding, and are all zero if all weights
/// are. The share of the only weight above zero is exactly 1.
fn shares(totals: &[f64]) -> Vec<f64> {
    // Division by the maximum keeps the sum finite.
    let greatest = totals.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let sum: f64 = totals.iter().map(|total| total / greatest).sum();
    totals.iter().map(|total| if *total > 0.0 { total / greatest / sum } else { 0.0 }).collect()
}

/// Divides the interval from 0 to 1 in proportion to `shares`, and returns the index of the part that contains `point`;
/// `None` if all shares are zero.
fn pick(shares: &[f64], point: f64) -> Option<usize> {
    let mut left = point;
    for (at, &share) in shares.iter().enumerate() {
        if left < share {
            return Some(at);
        }
        left -= share;
    }
    // Shares sum to one up to rounding only.
    shares.iter().rposition(|&share| share > 0.0)
}

async fn any(events: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>>) {
    if events.is_empty() {
        return pending().await;
    }
    select_all(events).await;
}

/// Requests the table statistics repeatedly. After a failed request the last result remains in use: the stream shows
/// whether the server is reachable.
async fn poll(endpoint: Arc<str>, table: String, answers: watch::Sender<Option<Arc<TableStats>>>) {
    let Ok(inspector) = Inspector::new(&endpoint) else { return };
    let mut ticks = interval(WEIGHT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Ok(stats) = inspector.stats_of(&table).await {
            answers.send_replace(Some(Arc::new(stats.table)));
        }
    }
}

#[cfg(test)]
mod tests;
