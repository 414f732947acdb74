use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inference::{Batch, Cache, Predictions};
use proto::inference::EvalRequest;

use crate::engine::{self, Answer, Handle};
use crate::metrics;
use crate::rejection::Rejection;

/// Serves positions from a cache shared by all clients, and evaluates the rest.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    pub(super) handle: Handle,
    memory: Option<Arc<Memory>>,
}

#[derive(Debug)]
struct Memory {
    answers: Cache,
    /// Hash function of the keys, with a new random seed in every process, so that no client can construct positions
    /// that collide.
    hashes: RandomState,
    hits: AtomicU64,
}

impl Cached {
    /// Creates a cache of `positions` positions; none for 0.
    pub(super) fn new(handle: Handle, positions: usize) -> Self {
        let memory = || Memory { answers: Cache::new(positions), hashes: RandomState::new(), hits: AtomicU64::new(0) };
        Self { handle, memory: (positions > 0).then(memory).map(Arc::new) }
    }

    /// Returns the number of positions served from the cache.
    pub(super) fn hits(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.hits.load(Ordering::Relaxed))
    }

    /// Returns the answer, and the number of positions from the cache; only the other positions are unpacked.
    pub(super) async fn evaluate(&self, client: u64, request: EvalRequest) -> Result<(Answer, usize), Rejection> {
        let EvalRequest { version, timeout, positions, .. } = request;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // The weights are held from here on: a replacement version with the same number evaluates later requests.
        let held = self.handle.resident(version);
        let evaluate = |batch: Batch| {
            let request = engine::EvalRequest { client, version, batch: Arc::new(batch), deadline };
            self.handle.evaluate_with(held.clone(), request, None)
        };
        // The cache has no answers for a version yet to come.
        let (Some(memory), Some(held)) = (&self.memory, &held) else {
            let batch = positions.batch(0..positions.count());
            // The message takes no memory while the positions wait.
            drop(positions);
            return Ok((evaluate(batch).await?, 0));
        };
        let answers = memory.answers.of(held.key());
        let keys: Vec<u64> = (0..positions.count()).map(|i| memory.hashes.hash_one(positions.row(i))).collect();
        let mut known = Predictions::new();
        let is_hit = |(i, key): (usize, &u64)| answers.get(*key, positions.legal_actions(i), &mut known);
        let are_hits: Vec<bool> = keys.iter().enumerate().map(is_hit).collect();
        let hits = known.len();
        metrics::cached(hits, keys.len() - hits);
        memory.hits.fetch_add(hits as u64, Ordering::Relaxed);
        if hits == keys.len() {
            let (queued, computed) = (Duration::ZERO, Duration::ZERO);
            return Ok((Answer { version: held.number(), predictions: known, queued, computed }, hits));
        }
        let misses: Vec<usize> = (0..keys.len()).filter(|&i| !are_hits[i]).collect();
        let batch = positions.batch(misses.iter().copied());
        drop(positions);
        let mut answer = evaluate(batch).await?;
        memory.answers.retain(&self.handle.keys());
        for (i, (miss, &wdl)) in misses.into_iter().zip(answer.predictions.wdl()).enumerate() {
            answers.insert(keys[miss], answer.predictions.priors(i), wdl);
        }
        if hits > 0 {
            answer.predictions = interleave(&are_hits, &known, &answer.predictions);
        }
        Ok((answer, hits))
    }
}

/// Merges cached and new answers in the order of the positions.
fn interleave(are_hits: &[bool], known: &Predictions, fresh: &Predictions) -> Predictions {
    let (mut all, mut next_known, mut next_fresh) = (Predictions::new(), 0, 0);
    for &is_hit in are_hits {
        let (from, next) = if is_hit { (known, &mut next_known) } else { (fresh, &mut next_fresh) };
        all.extend_from(from, [*next]);
        *next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use game::{Game as _, ObservationShape};
    use games::tic_tac_toe::TicTacToe;
    use inference::{Evaluator as _, Hashing};
    use proto::inference::order::{Evaluate, EvaluateOrder};
    use proto::inference::v1::eval_request::Observations;
    use proto::inference::v1::evaluate_request::Message;
    use proto::inference::{Hello, Welcome, v1};

    use super::*;
    use crate::engine::tests::{Fixture, SHAPE, of_weights, settings};

    /// Returns a request for two positions, as the service converts it.
    fn request(version: u64) -> EvalRequest {
        let game = TicTacToe::new().spec().name.clone();
        let hello = Hello { name: "test".into(), game, shape: SHAPE, actions: 9 };
        let mut order = EvaluateOrder::default();
        order.receive(v1::EvaluateRequest { message: Some(Message::Hello(hello.into())) }).unwrap();
        order.welcomed(Welcome { version, positions_max: 2, requests_max: 1 });
        let ObservationShape { planes, height, width } = SHAPE;
        let bits = vec![0b0110_1001; 2 * (planes * height * width).div_ceil(8)];
        let message = v1::EvalRequest {
            id: 1,
            version,
            positions: 2,
            timeout_us: 0,
            observations: Some(Observations::Bits(bits.into())),
            legal: vec![0b1010_1010, 1, 0b0101_0101, 0].into(),
            trace: String::new(),
        };
        match order.receive(v1::EvaluateRequest { message: Some(Message::Request(message)) }).unwrap() {
            Evaluate::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn weights_that_replace_others_answer_for_themselves_whatever_their_number() {
        let fixture = Fixture::new(settings());
        let cached = Cached::new(fixture.handle.clone(), 100);
        // A resumed learner repeats the number; a learner with a lost disk starts again with lower numbers.
        for (number, weights) in [(3, 30), (3, 31), (2, 20), (1, 10), (2, 21)] {
            fixture.versions.add(of_weights(number, weights, 2));
            let mut expected = Predictions::new();
            let positions = request(number).positions;
            Hashing::new(SHAPE, weights).evaluate(&positions.batch(0..2), &mut expected).unwrap();
            for (version, hits) in [(number, 0), (number, 2), (0, 2)] {
                let (answer, hit) = cached.evaluate(1, request(version)).await.unwrap();
                assert_eq!((answer.version, hit), (number, hits), "weights {weights} as v{number}");
                assert_eq!(answer.predictions.wdl(), expected.wdl(), "weights {weights} as v{number}");
            }
        }
        fixture.end();
    }
}
