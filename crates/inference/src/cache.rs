//! A sharded position cache, shared by every self-play thread of a process.
//!
//! The cache has two generations, each with half of the capacity. Answers enter the young generation. When it is
//! full, the old generation is emptied and the two are swapped. A hit in the old generation moves the answer to the
//! young one, so that requested answers stay. This approximates least-recently-used eviction to within one
//! generation, without a list to maintain under a lock.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dashmap::DashMap;
use game::Outcome;

use crate::{Predictions, Wdl};

/// The key of a cached answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// Hash of the position.
    position: u64,
    /// Key of the evaluating weights.
    weights: u64,
}

/// A bounded cache of answers for evaluated positions, by position hash and weights. Access it through
/// [`of`](Self::of).
///
/// The key of weights depends on the content, not on the version: a learner that resumes from an older checkpoint
/// gives the same number to different weights, and a learner that lost its disk starts again with lower numbers.
///
/// The cache is shared by reference or in an `Arc`. Answers are kept in full precision: a hit is bitwise the same
/// answer, so the cache changes no trajectory of a deterministic evaluator.
#[derive(Debug)]
pub struct Cache {
    generations: [Generation; 2],
    /// Index of the young generation.
    young: AtomicUsize,
    /// Held by the thread that swaps the generations.
    swapping: AtomicBool,
    generation_positions_max: usize,
    /// Weights of the last [`retain`](Self::retain).
    retained: Mutex<Vec<u64>>,
}

/// The part of a [`Cache`] for one set of weights.
#[derive(Debug, Clone, Copy)]
pub struct WeightsCache<'a> {
    cache: &'a Cache,
    weights: u64,
}

type Answers = DashMap<Key, Answer, BuildHasherDefault<PositionHasher>>;

#[derive(Debug, Default)]
struct Generation {
    answers: Answers,
    /// Number of answers plus inserts in progress: never below the size of the map, and cheaper to read.
    positions: AtomicUsize,
}

/// Win, draw and loss, then the priors of the legal actions; one allocation per answer.
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
    /// Creates an empty cache for at most `positions_max` positions; with 0 or 1 it stays empty.
    #[must_use]
    pub fn new(positions_max: usize) -> Self {
        Self {
            generations: [Generation::default(), Generation::default()],
            young: AtomicUsize::new(0),
            swapping: AtomicBool::new(false),
            generation_positions_max: positions_max / 2,
            retained: Mutex::default(),
        }
    }

    /// Returns the part of the cache for the weights with this key.
    #[must_use]
    pub fn of(&self, weights: u64) -> WeightsCache<'_> {
        WeightsCache { cache: self, weights }
    }

    fn get(&self, key: Key, legal_actions: usize, predictions: &mut Predictions) -> bool {
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

    /// Removes the answers of all weights not in `weights`. Repeated calls with the same list do nothing, so that
    /// every thread may call it. A slower thread may insert answers of earlier weights afterwards: they are evicted
    /// like any other answer.
    pub fn retain(&self, weights: &[u64]) {
        let mut retained = self.retained.lock().unwrap_or_else(PoisonError::into_inner);
        if retained.as_slice() == weights {
            return;
        }
        *retained = weights.to_vec();
        drop(retained);
        for generation in &self.generations {
            generation.retain(|key| weights.contains(&key.weights));
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

    fn keep(&self, key: Key, answer: Answer) {
        let (young, _) = self.young_and_old();
        let Err(answer) = young.insert(key, answer, self.generation_positions_max) else { return };
        // While another thread swaps the generations, the answer is dropped, which a cache may do.
        if self.swap_generations() {
            let _ = self.young_and_old().0.insert(key, answer, self.generation_positions_max);
        }
    }

    /// Empties the old generation and makes it the young one; false if another thread does so already.
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

impl WeightsCache<'_> {
    /// Appends the cached answer for this position hash to `predictions` and returns true; false without an answer.
    ///
    /// An answer with another number of legal actions belongs to another position with the same hash and counts as a
    /// miss. The caller counts hits and misses: a counter here would be written by every thread at every lookup.
    pub fn get(&self, position: u64, legal_actions: usize, predictions: &mut Predictions) -> bool {
        self.cache.get(Key { position, weights: self.weights }, legal_actions, predictions)
    }

    /// Inserts the answer for this position hash.
    pub fn insert(&self, position: u64, priors: &[f32], value: Wdl) {
        self.cache.keep(Key { position, weights: self.weights }, Answer::new(priors, value));
    }
}

impl Generation {
    /// Inserts an answer; returns it if the generation is full.
    fn insert(&self, key: Key, answer: Answer, positions_max: usize) -> Result<(), Answer> {
        if self.positions.fetch_add(1, Ordering::Relaxed) >= positions_max {
            self.positions.fetch_sub(1, Ordering::Relaxed);
            return Err(answer);
        }
        if self.answers.insert(key, answer).is_some() {
            self.positions.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn retain(&self, keep: impl Fn(&Key) -> bool) {
        self.answers.retain(|key, _| {
            let keep = keep(key);
            if !keep {
                self.positions.fetch_sub(1, Ordering::Relaxed);
            }
            keep
        });
    }
}

/// A hasher for maps by position hash: the hash is well mixed already, and one multiplication mixes in the rest of
/// the key.
#[derive(Debug, Default)]
pub struct PositionHasher(u64);

impl Hasher for PositionHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The factor is 2^64 / golden ratio, odd; the rotation moves the well-mixed high bits down to the bits that
        // hash tables use.
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

    fn holds(answers: WeightsCache<'_>, position: u64) -> bool {
        answers.get(position, 2, &mut Predictions::new())
    }

    #[test]
    fn a_hit_is_the_answer_to_the_last_bit() {
        let cache = Cache::new(10);
        let priors = [1.0 / 3.0, 2.0 / 3.0];
        cache.of(1).insert(7, &priors, VALUE);
        let mut predictions = Predictions::new();
        assert!(cache.of(1).get(7, 2, &mut predictions));
        assert_eq!(predictions.priors(0), priors);
        assert_eq!(predictions.wdl()[0], VALUE);
    }

    #[test]
    fn an_answer_of_other_weights_is_a_miss() {
        let cache = Cache::new(10);
        cache.of(1).insert(7, &[0.5, 0.5], VALUE);
        assert!(!holds(cache.of(2), 7));
    }

    #[test]
    fn an_answer_with_another_number_of_actions_is_a_miss() {
        let cache = Cache::new(10);
        cache.of(1).insert(7, &[0.5, 0.3, 0.2], VALUE);
        let mut predictions = Predictions::new();
        assert!(!cache.of(1).get(7, 2, &mut predictions));
        assert!(predictions.is_empty());
        assert!(cache.of(1).get(7, 3, &mut predictions));
    }

    #[test]
    fn the_cache_never_holds_more_than_its_capacity() {
        for capacity in [0, 1, 2, 7, 100] {
            let cache = Cache::new(capacity);
            for position in 0..1000 {
                cache.of(1).insert(position, &[0.5, 0.5], VALUE);
                assert!(cache.positions() <= capacity);
            }
        }
    }

    #[test]
    fn requested_answers_stay_cached_and_others_are_evicted() {
        let cache = Cache::new(20);
        cache.of(1).insert(0, &[0.5, 0.5], VALUE);
        for position in 1..500 {
            cache.of(1).insert(position, &[0.5, 0.5], VALUE);
            assert!(holds(cache.of(1), 0), "after {position} others");
        }
        assert!(!holds(cache.of(1), 1));
        assert!(holds(cache.of(1), 499));
    }

    #[test]
    fn answers_of_weights_that_are_not_retained_are_removed_whatever_the_order_of_their_keys() {
        let cache = Cache::new(100);
        for weights in [2, 1, 3] {
            (0..10).for_each(|position| cache.of(weights).insert(position, &[0.5, 0.5], VALUE));
            cache.retain(&[weights]);
            assert_eq!(cache.positions(), 10);
            assert!(holds(cache.of(weights), 3));
        }
        cache.of(4).insert(0, &[0.5, 0.5], VALUE);
        cache.retain(&[3, 4]);
        assert_eq!(cache.positions(), 11);
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
                        if cache.of(1).get(position, 2, &mut predictions) {
                            assert_eq!(predictions.priors(0), [share, 1.0 - share]);
                        } else {
                            cache.of(1).insert(position, &[share, 1.0 - share], VALUE);
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
