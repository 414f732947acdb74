use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inference::{Batch, Cache, CacheKey, Predictions};
use proto::inference::EvalRequest;

use crate::engine::{self, Answer, Handle};
use crate::metrics;
use crate::rejection::Rejection;

/// Answers positions from the cache that all clients share, and evaluates the others.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    pub(super) handle: Handle,
    memory: Option<Arc<Memory>>,
}

#[derive(Debug)]
struct Memory {
    answers: Cache,
    /// The hasher of the keys, with a new random seed in every process, so that no client can predict which positions
    /// collide.
    hashes: RandomState,
    hits: AtomicU64,
    /// The version of the last answer.
    newest: AtomicU64,
}

impl Cached {
    /// Creates a cache of `positions`, or none if that is 0.
    pub(super) fn new(handle: Handle, positions: usize) -> Self {
        let memory = || Memory {
            answers: Cache::new(positions),
            hashes: RandomState::new(),
            hits: AtomicU64::new(0),
            newest: AtomicU64::new(0),
        };
        Self { handle, memory: (positions > 0).then(memory).map(Arc::new) }
    }

    /// The number of positions answered from the cache.
    pub(super) fn hits(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.hits.load(Ordering::Relaxed))
    }

    /// Returns the answer, and the number of positions answered from the cache; only the other positions are unpacked.
    pub(super) async fn evaluate(&self, client: u64, request: EvalRequest) -> Result<(Answer, usize), Rejection> {
        let EvalRequest { version, timeout, positions, .. } = request;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let evaluate = |version, batch: Batch| {
            self.handle.evaluate(engine::EvalRequest { client, version, batch: Arc::new(batch), deadline })
        };
        let (Some(memory), Some(number)) = (&self.memory, version.or_else(|| self.handle.newest())) else {
            return Ok((evaluate(version, positions.batch(0..positions.count())).await?, 0));
        };
        let key = |i| CacheKey { position: memory.hashes.hash_one(positions.row(i)), weights_version: number };
        let keys: Vec<CacheKey> = (0..positions.count()).map(key).collect();
        let mut known = Predictions::new();
        let is_hit = |(i, key): (usize, &CacheKey)| memory.answers.get(*key, positions.legal_actions(i), &mut known);
        let are_hits: Vec<bool> = keys.iter().enumerate().map(is_hit).collect();
        let hits = known.len();
        metrics::cached(hits, keys.len() - hits);
        memory.hits.fetch_add(hits as u64, Ordering::Relaxed);
        if hits == keys.len() {
            let (queued, computed) = (Duration::ZERO, Duration::ZERO);
            return Ok((Answer { version: number, predictions: known, queued, computed }, hits));
        }
        let misses: Vec<usize> = (0..keys.len()).filter(|&i| !are_hits[i]).collect();
        let mut answer = evaluate(Some(number), positions.batch(misses.iter().copied())).await?;
        if memory.newest.swap(number, Ordering::Relaxed) != number
            && let Some(&oldest) = self.handle.numbers().first()
        {
            // Removes answers of versions that are no longer served.
            memory.answers.forget_before(oldest);
        }
        for (i, (miss, &wdl)) in misses.into_iter().zip(answer.predictions.wdl()).enumerate() {
            memory.answers.insert(keys[miss], answer.predictions.priors(i), wdl);
        }
        if hits > 0 {
            answer.predictions = interleave(&are_hits, &known, &answer.predictions);
        }
        Ok((answer, hits))
    }
}

/// Merges the cached and the new answers in the order of the positions.
fn interleave(are_hits: &[bool], known: &Predictions, fresh: &Predictions) -> Predictions {
    let (mut all, mut next_known, mut next_fresh) = (Predictions::new(), 0, 0);
    for &is_hit in are_hits {
        let (from, next) = if is_hit { (known, &mut next_known) } else { (fresh, &mut next_fresh) };
        all.extend_from(from, [*next]);
        *next += 1;
    }
    all
}
