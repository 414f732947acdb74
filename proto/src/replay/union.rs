mod source;

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use experience::{Mass, Sample};
use futures::future::select_all;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use source::Source;
use tokio::time::{Instant, sleep_until};

use super::NewestWeights;
use crate::servers::{Server, Servers};

/// The settings of a [`UnionSampler`].
#[derive(Debug, Clone, PartialEq)]
pub struct UnionSettings {
    /// The name of the game, as in its spec.
    pub game: String,
    /// From which table of every server.
    pub table: String,
    /// Samples in a batch, 1 to [`SAMPLES_PER_BATCH_MAX`](crate::limits::SAMPLES_PER_BATCH_MAX).
    pub batch_size: usize,
    /// K: how many steps a segment unrolls, 0 to [`UNROLL_STEPS_MAX`](crate::limits::UNROLL_STEPS_MAX).
    pub unroll_steps: usize,
    /// The number of batches of each server that may wait here, 1 to
    /// [`CREDIT_BATCHES_MAX`](crate::limits::CREDIT_BATCHES_MAX), beside the one in use.
    pub prefetch_batches: usize,
    /// Decides which server each sample is taken from.
    pub seed: u64,
    /// The time for which a chosen server may keep a batch waiting while others could serve it; [`PATIENCE`] except in
    /// tests.
    pub patience: Duration,
}

/// The time for which a draw waits for a server that has items but sends none, most often because its rate limiter
/// waits for inserts: long enough that limiters of servers with equal load do not bias the draws, short enough that a
/// server without actors does not block the rest for long.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Samples drawn from all servers together.
#[derive(Debug, Clone, PartialEq)]
pub struct UnionBatch {
    /// The samples, as many as were requested. Their probabilities and numbers of items are those in all tables
    /// together.
    pub samples: Vec<Sample>,
    /// The server of each sample.
    pub servers: Vec<Server>,
}

/// Draws from the tables of several replay servers as if they were one.
///
/// Each sample of a batch is taken from a server that is drawn with its share of the mass of all: the number of samples
/// from each is multinomial, and an item has the probability it would have in the union. The sample carries that
/// probability: its probability in its own table times the share of its server.
///
/// The set of servers may change at any time. A server whose table draws nothing has no mass; one that is away, or
/// keeps the others waiting for longer than [`UnionSettings::patience`], is left out until its next batch. With one
/// server batches are its batches, unchanged.
#[derive(Debug)]
pub struct UnionSampler {
    servers: Servers,
    newest: NewestWeights,
    settings: UnionSettings,
    rng: ChaCha8Rng,
    /// One for each server, ascending by id.
    sources: Vec<Source>,
    /// The samples of the next batch so far.
    drawn: Vec<(Sample, Server)>,
    /// The server of the next sample.
    choice: Option<Choice>,
}

/// A server that was drawn, and keeps the draw waiting if it has no sample here.
#[derive(Debug, Clone)]
struct Choice {
    id: Arc<str>,
    share: f64,
    /// Items in all tables together; `None` if this is the only one, whose samples carry it themselves.
    union_items: Option<u64>,
    since: Instant,
}

impl UnionSampler {
    /// Starts to draw. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(servers: Servers, settings: UnionSettings) -> Self {
        Self::telling(NewestWeights::default(), servers, settings)
    }

    /// Starts as [`UnionSampler::start`] does, for a learner: sends the newest weights version to every server.
    #[must_use]
    pub fn telling(newest: NewestWeights, servers: Servers, settings: UnionSettings) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(settings.seed);
        let mut sampler = Self { servers, newest, settings, rng, sources: Vec::new(), drawn: Vec::new(), choice: None };
        sampler.follow();
        sampler
    }

    /// The next batch; waits for as long as no server has one. Cancel-safe.
    pub async fn next(&mut self) -> UnionBatch {
        if self.servers.has_changed() {
            self.follow();
        }
        self.sources.iter_mut().for_each(Source::take_in);
        while self.drawn.len() < self.settings.batch_size {
            if !self.draw() {
                self.wait().await;
            }
        }
        let (samples, servers) = std::mem::take(&mut self.drawn).into_iter().unzip();
        UnionBatch { samples, servers }
    }

    /// Returns the number of servers, and the number of them that are drawn from now.
    #[must_use]
    pub fn servers(&self) -> (usize, usize) {
        (self.sources.len(), self.masses().iter().filter(|mass| mass.weight > 0.0).count())
    }

    /// Ends all streams and joins their tasks.
    pub async fn close(self) {
        for source in self.sources {
            source.close().await;
        }
    }

    /// One more sample, if it can be had without waiting.
    fn draw(&mut self) -> bool {
        while let Some(choice) = self.choice.clone().or_else(|| self.choose()) {
            let Some(source) = self.sources.iter_mut().find(|source| source.server().id == choice.id) else {
                // The server is gone.
                self.choice = None;
                continue;
            };
            if let Some(mut sample) = source.take() {
                reweigh(&mut sample, &choice);
                self.drawn.push((sample, source.server().clone()));
                self.choice = None;
                return true;
            }
            let others_wait = self.sources.iter().any(|other| other.server().id != choice.id && other.mass().is_some());
            let patience = self.settings.patience;
            let source = self.sources.iter_mut().find(|source| source.server().id == choice.id);
            match source {
                Some(source) if others_wait && (source.is_away() || choice.since.elapsed() >= patience) => {
                    source.leave_out();
                    self.choice = None;
                }
                _ => {
                    self.choice = Some(choice);
                    return false;
                }
            }
        }
        false
    }

    /// Draws the server of the next sample; `None` while there is nothing to draw, or a server has yet to report its
    /// weight.
    fn choose(&mut self) -> Option<Choice> {
        let patience = self.settings.patience;
        if self.sources.iter().any(|source| source.is_unheard(patience)) {
            return None;
        }
        if let [only] = self.sources.as_slice() {
            // What most runs have, for every sample: nothing is drawn, nothing is allocated.
            only.mass().filter(|mass| mass.weight > 0.0)?;
            return Some(Choice {
                id: Arc::clone(&only.server().id),
                share: 1.0,
                union_items: None,
                since: Instant::now(),
            });
        }
        let shares = Mass::shares(&self.masses());
        let at = pick(&shares, self.rng.random())?;
        let sharing = self.sources.iter().zip(&shares).filter(|(_, share)| **share > 0.0);
        let union_items = sharing.clone().map(|(source, _)| source.items()).fold(0_u64, u64::saturating_add);
        let union_items = (sharing.count() > 1).then_some(union_items.max(1));
        let id = Arc::clone(&self.sources[at].server().id);
        Some(Choice { id, share: shares[at], union_items, since: Instant::now() })
    }

    /// Returns the current weight of each server.
    fn masses(&self) -> Vec<Mass> {
        self.sources.iter().map(|source| source.mass().unwrap_or_default()).collect()
    }

    /// Waits until something has happened that a draw may go by.
    async fn wait(&mut self) {
        let patience = self.settings.patience;
        let due = self.choice.iter().map(|choice| choice.since + patience);
        let due = due.chain(self.sources.iter().filter_map(|source| source.unheard_until(patience)));
        let due = due.filter(|due| *due > Instant::now()).min();
        let is_new_set = {
            let events = self.sources.iter_mut().map(|source| {
                let event: Pin<Box<dyn Future<Output = ()> + Send + '_>> = Box::pin(source.event());
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

    /// Takes in what servers there are now.
    fn follow(&mut self) {
        let set = self.servers.current();
        self.sources.retain(|source| {
            let stays = set.iter().any(|server| source.is_of(server));
            if !stays {
                tracing::info!(server = &*source.server().endpoint, "samples no longer come from this server");
            }
            stays
        });
        for server in set.iter() {
            if !self.sources.iter().any(|source| source.is_of(server)) {
                self.sources.push(Source::start(server.clone(), self.newest.clone(), &self.settings));
            }
        }
        self.sources.sort_by(|a, b| a.server().cmp(b.server()));
        let is_one_of_several = self.sources.len() > 1;
        for source in &mut self.sources {
            if is_one_of_several {
                source.watch_mass(&self.settings.table);
            } else {
                source.forget_mass();
            }
        }
    }
}

/// Converts the statistics of a sample from its own table to the union of all tables.
fn reweigh(sample: &mut Sample, choice: &Choice) {
    // A probability is above zero, however small the share; a share of one changes nothing.
    sample.probability = (sample.probability * choice.share).max(f64::MIN_POSITIVE);
    if let Some(items) = choice.union_items {
        sample.table_items = items;
    }
}

/// Returns the index of the share that contains `point`, from 0 up to 1; `None` where all are zero.
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

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
