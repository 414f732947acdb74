use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use inference::{Batch, Cache, CacheKey, Predictions};
use proto::inference::{Asked, Rows};

use super::traced::Traced;
use crate::engine::{Ask, Handle, Refusal};
use crate::metrics;

/// Answers positions from the cache that all clients share, and evaluates the others.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    handle: Handle,
    memory: Option<Arc<Memory>>,
}

#[derive(Debug)]
struct Memory {
    answers: Cache,
    /// Keyed anew in every process: no client can know which positions share a key.
    hashes: RandomState,
    hits: AtomicU64,
    /// The version that answered last.
    newest: AtomicU64,
}

impl Cached {
    /// Remembers `positions`; none if that is 0.
    pub(super) fn new(handle: Handle, positions: usize) -> Self {
        let memory = || Memory {
            answers: Cache::new(positions),
            hashes: RandomState::new(),
            hits: AtomicU64::new(0),
            newest: AtomicU64::new(0),
        };
        Self { handle, memory: (positions > 0).then(memory).map(Arc::new) }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Positions that were answered from memory.
    pub(super) fn hits(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.hits.load(Ordering::Relaxed))
    }

    /// The version that answered, and its answer.
    pub(super) async fn evaluate(
        &self,
        client: u64,
        asked: Asked,
        traced: &mut Traced,
    ) -> Result<(u64, Predictions), Refusal> {
        let Asked { version, timeout, batch, rows, .. } = asked;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (Some(memory), Some(number)) = (&self.memory, version.or_else(|| self.handle.newest())) else {
            let answer = self.handle.evaluate(Ask { client, version, batch, deadline }).await?;
            traced.computed(&answer);
            return Ok((answer.version, answer.predictions));
        };
        let keys: Vec<CacheKey> = (0..batch.len()).map(|i| memory.key(&rows, i, number)).collect();
        let mut known = Predictions::new();
        let hit = |(i, key): (usize, &CacheKey)| memory.answers.get(*key, batch.legal(i).len(), &mut known);
        let hits: Vec<bool> = keys.iter().enumerate().map(hit).collect();
        metrics::cached(known.len(), batch.len() - known.len());
        traced.cached(known.len());
        memory.hits.fetch_add(known.len() as u64, Ordering::Relaxed);
        if known.len() == batch.len() {
            return Ok((number, known));
        }
        let unknown = if known.is_empty() { batch } else { without(&batch, &hits) };
        let ask = Ask { client, version: Some(number), batch: unknown, deadline };
        let answer = self.handle.evaluate(ask).await?;
        traced.computed(&answer);
        let fresh = answer.predictions;
        if memory.newest.swap(number, Ordering::Relaxed) != number {
            memory.forget(&self.handle.numbers());
        }
        let unknown_keys = keys.iter().zip(&hits).filter(|(_, hit)| !**hit).map(|(key, _)| *key);
        for (i, key) in unknown_keys.enumerate() {
            memory.answers.insert(key, fresh.priors(i), fresh.value(i));
        }
        Ok((number, if known.is_empty() { fresh } else { interleave(&hits, &known, &fresh) }))
    }
}

impl Memory {
    /// Drops the answers of versions that are no longer served.
    fn forget(&self, resident: &[u64]) {
        if let Some(&oldest) = resident.first() {
            self.answers.forget_before(oldest);
        }
    }

    fn key(&self, rows: &Rows, i: usize, weights_version: u64) -> CacheKey {
        CacheKey { position: self.hashes.hash_one(rows.row(i)), weights_version }
    }
}

/// The positions that were no hits.
fn without(batch: &Batch, hits: &[bool]) -> Batch {
    let mut rest = Batch::new(batch.shape());
    for i in (0..batch.len()).filter(|&i| !hits[i]) {
        rest.push(batch.legal(i), |planes| planes.copy_from_slice(batch.observation(i)));
    }
    rest
}

/// Both in the order of the positions.
fn interleave(hits: &[bool], known: &Predictions, fresh: &Predictions) -> Predictions {
    let (mut all, mut next_known, mut next_fresh) = (Predictions::new(), 0, 0);
    for &hit in hits {
        let (from, next) = if hit { (known, &mut next_known) } else { (fresh, &mut next_fresh) };
        all.push(from.priors(*next), from.value(*next));
        *next += 1;
    }
    all
}
