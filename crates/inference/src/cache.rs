//! A sharded position cache, shared by every self-play thread of a process.
//!
//! The cache has two generations of half the capacity each: answers enter the young one; when it is full, the old one
//! is emptied and the two are swapped. A hit in the old one moves the answer to the young one, so that requested
//! answers stay. This approximates least-recently-used eviction to within one generation, without a list to maintain
//! under a lock.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;
use game::Outcome;

use crate::{Predictions, Wdl};

/// The key of a cached answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The position's hash.
    pub position: u64,
    /// The weights version of the answer.
    pub weights_version: u64,
}

/// A bounded cache of answers to positions that were evaluated before, by position hash and weights version.
///
/// It is shared behind a reference or an `Arc`. Answers are kept in full precision: a hit is bitwise the same answer,
/// so enabling the cache changes no trajectory of a deterministic evaluator.
#[derive(Debug)]
pub struct Cache {
    generations: [Generation; 2],
    /// The index of the young generation.
    young: AtomicUsize,
    /// Held by the thread that swaps the generations.
    swapping: AtomicBool,
    generation_positions_max: usize,
    /// The oldest accepted weights version; answers of earlier versions are rejected.
    oldest_version: AtomicU64,
}

type Answers = DashMap<CacheKey, Answer, BuildHasherDefault<PositionHasher>>;

#[derive(Debug, Default)]
struct Generation {
    answers: Answers,
    /// The number of answers plus inserts in progress: never less than the size of the map, and cheaper to read.
    positions: AtomicUsize,
}

/// Win, draw and loss, then the priors of the legal actions, in one allocation for each answer.
#[derive(Debug)]
struct Answer(Box<[f32]>);

impl Answer {
    fn new(priors: &[f32], value: Wdl) -> Self {
        let mut numbers = Vec::with_capacity(Outcome::RESULTS + priors.len());
        numbers.extend([value.win, value.draw, value.loss]);
        numbers.extend_from_slice(priors);
        Self(numbers.into_boxed_slice())
    }

    fn has_legal_actions(&self, legal_actions: usize) -> bool {
        self.0.len() == Outcome::RESULTS + legal_actions
    }

    fn push_to(&self, predictions: &mut Predictions) {
        let (values, priors) = self.0.split_at(Outcome::RESULTS);
        predictions.push(priors, Wdl { win: values[0], draw: values[1], loss: values[2] });
    }
}

impl Cache {
    /// Creates an empty cache for at most `positions_max` positions; with 0 or 1 it never holds anything.
    #[must_use]
    pub fn new(positions_max: usize) -> Self {
        Self {
            generations: [Generation::default(), Generation::default()],
            young: AtomicUsize::new(0),
            swapping: AtomicBool::new(false),
            generation_positions_max: positions_max / 2,
            oldest_version: AtomicU64::new(0),
        }
    }

    /// Adds the answer for `key` to `predictions` and returns true, if the cache holds it.
    ///
    /// An answer with another number of legal actions belongs to another position with the same hash and counts as a
    /// miss. The caller counts hits and misses: a counter here would be written by every thread at every lookup.
    pub fn get(&self, key: CacheKey, legal_actions: usize, predictions: &mut Predictions) -> bool {
        let (young, old) = self.young_and_old();
        if let Some(answer) = young.answers.get(&key) {
            return answer.has_legal_actions(legal_actions) && {
                answer.push_to(predictions);
                true
            };
        }
        let Some((_, answer)) = old.answers.remove_if(&key, |_, answer| answer.has_legal_actions(legal_actions)) else {
            return false;
        };
        old.positions.fetch_sub(1, Ordering::Relaxed);
        answer.push_to(predictions);
        self.keep(key, answer);
        true
    }

    /// Inserts an answer, unless its version has been forgotten.
    pub fn insert(&self, key: CacheKey, priors: &[f32], value: Wdl) {
        if key.weights_version >= self.oldest_version.load(Ordering::Relaxed) {
            self.keep(key, Answer::new(priors, value));
        }
    }

    /// Removes every answer of versions before `weights_version`, and rejects further ones.
    pub fn forget_before(&self, weights_version: u64) {
        if self.oldest_version.fetch_max(weights_version, Ordering::Relaxed) >= weights_version {
            return;
        }
        for generation in &self.generations {
            generation.retain(|key| key.weights_version >= weights_version);
        }
    }

    /// Returns the number of cached answers.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.generations.iter().map(|generation| generation.answers.len()).sum()
    }

    fn young_and_old(&self) -> (&Generation, &Generation) {
        let young = self.young.load(Ordering::Acquire);
        (&self.generations[young], &self.generations[1 - young])
    }

    fn keep(&self, key: CacheKey, answer: Answer) {
        let (young, _) = self.young_and_old();
        let Err(answer) = young.insert(key, answer, self.generation_positions_max) else { return };
        // If another thread is swapping the generations, the answer is dropped, which is permitted in a cache.
        if self.swap_generations() {
            let _ = self.young_and_old().0.insert(key, answer, self.generation_positions_max);
        }
    }

    /// Empties the old generation and makes it the young one; false if another thread is doing so.
    fn swap_generations(&self) -> bool {
        if self.swapping.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let (young, old) = self.young_and_old();
        // Another thread may have swapped between the failed insert and the lock.
        if young.positions.load(Ordering::Relaxed) >= self.generation_positions_max {
            old.retain(|_| false);
            self.young.fetch_xor(1, Ordering::AcqRel);
        }
        self.swapping.store(false, Ordering::Release);
        true
    }
}

impl Generation {
    /// Inserts an answer; returns it if the generation is full.
    fn insert(&self, key: CacheKey, answer: Answer, positions_max: usize) -> Result<(), Answer> {
        if self.positions.fetch_add(1, Ordering::Relaxed) >= positions_max {
            self.positions.fetch_sub(1, Ordering::Relaxed);
            return Err(answer);
        }
        if self.answers.insert(key, answer).is_some() {
            self.positions.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn retain(&self, keep: impl Fn(&CacheKey) -> bool) {
        self.answers.retain(|key, _| {
            let keep = keep(key);
            if !keep {
                self.positions.fetch_sub(1, Ordering::Relaxed);
            }
            keep
        });
    }
}

/// A hasher for maps by position hash, which is well mixed already: one multiplication mixes in the rest of the key.
#[derive(Debug, Default)]
pub struct PositionHasher(u64);

impl Hasher for PositionHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The factor is 2^64 / golden ratio, odd; the rotation moves the well-mixed high bits down to those that hash
        // tables use.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const VALUE: Wdl = Wdl { win: 0.6, draw: 0.3, loss: 0.1 };

    fn key(position: u64, weights_version: u64) -> CacheKey {
        CacheKey { position, weights_version }
    }

    fn holds(cache: &Cache, key: CacheKey) -> bool {
        cache.get(key, 2, &mut Predictions::new())
    }

    #[test]
    fn a_hit_is_the_answer_to_the_last_bit() {
        let cache = Cache::new(10);
        let priors = [1.0 / 3.0, 2.0 / 3.0];
        cache.insert(key(7, 1), &priors, VALUE);
        let mut predictions = Predictions::new();
        assert!(cache.get(key(7, 1), 2, &mut predictions));
        assert_eq!(predictions.priors(0), priors);
        assert_eq!(predictions.wdl()[0], VALUE);
    }

    #[test]
    fn an_answer_of_another_version_is_a_miss() {
        let cache = Cache::new(10);
        cache.insert(key(7, 1), &[0.5, 0.5], VALUE);
        assert!(!holds(&cache, key(7, 2)));
    }

    #[test]
    fn an_answer_with_another_number_of_actions_is_a_miss() {
        let cache = Cache::new(10);
        cache.insert(key(7, 1), &[0.5, 0.3, 0.2], VALUE);
        let mut predictions = Predictions::new();
        assert!(!cache.get(key(7, 1), 2, &mut predictions));
        assert!(predictions.is_empty());
        assert!(cache.get(key(7, 1), 3, &mut predictions));
    }

    #[test]
    fn the_cache_never_holds_more_than_its_capacity() {
        for capacity in [0, 1, 2, 7, 100] {
            let cache = Cache::new(capacity);
            for position in 0..1000 {
                cache.insert(key(position, 1), &[0.5, 0.5], VALUE);
                assert!(cache.positions() <= capacity);
            }
        }
    }

    #[test]
    fn requested_answers_stay_cached_and_others_are_evicted() {
        let cache = Cache::new(20);
        cache.insert(key(0, 1), &[0.5, 0.5], VALUE);
        for position in 1..500 {
            cache.insert(key(position, 1), &[0.5, 0.5], VALUE);
            assert!(holds(&cache, key(0, 1)), "after {position} others");
        }
        assert!(!holds(&cache, key(1, 1)));
        assert!(holds(&cache, key(499, 1)));
    }

    #[test]
    fn answers_before_the_oldest_version_are_removed_and_rejected() {
        let cache = Cache::new(100);
        (0..10).for_each(|position| cache.insert(key(position, 1), &[0.5, 0.5], VALUE));
        cache.insert(key(0, 2), &[0.5, 0.5], VALUE);
        cache.forget_before(2);
        assert_eq!(cache.positions(), 1);
        cache.insert(key(3, 1), &[0.5, 0.5], VALUE);
        assert!(!holds(&cache, key(3, 1)));
        assert!(holds(&cache, key(0, 2)));
    }

    #[test]
    fn concurrent_inserts_keep_the_capacity_and_return_correct_answers() {
        let cache = Arc::new(Cache::new(64));
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let cache = Arc::clone(&cache);
                std::thread::spawn(move || {
                    let mut predictions = Predictions::new();
                    for i in 0..5000 {
                        let position = (i * 7 + thread) % 200;
                        let share = position as f32 / 200.0;
                        predictions.clear();
                        if cache.get(key(position, 1), 2, &mut predictions) {
                            assert_eq!(predictions.priors(0), [share, 1.0 - share]);
                        } else {
                            cache.insert(key(position, 1), &[share, 1.0 - share], VALUE);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(cache.positions() <= 64, "{}", cache.positions());
        let counted: usize = cache.generations.iter().map(|g| g.positions.load(Ordering::Relaxed)).sum();
        assert_eq!(counted, cache.positions(), "the counts agree with the maps");
    }
}
