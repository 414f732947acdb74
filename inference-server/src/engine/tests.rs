use std::sync::Arc;
use std::time::{Duration, Instant};

use evaluator_doubles::{Fault, Faulty};
use futures::{FutureExt as _, poll};
use game::{Action, Game as _, ObservationShape};
use inference::{Batch, Evaluator, Hashing, Predictions};
use service::{Drain, Health};
use weights::{Architecture, Manifest, WeightsVersion};

use super::VERSIONS_AHEAD_MAX;
use super::{Engine, EvalRequest, Handle};
use crate::queue::QueueSettings;
use crate::rejection::Rejection;
use crate::versions::{Version, Versions};

pub(crate) const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };

/// Returns the manifest of a version with the weights `seed`.
fn manifest(version: u64, seed: u64) -> Manifest {
    let spec = games::tic_tac_toe::TicTacToe::new().spec().clone();
    let architecture = Architecture::plain(spec.name, [SHAPE.planes, SHAPE.height, SHAPE.width], 9, [8, 1]);
    Manifest::of(&seed.to_le_bytes(), WeightsVersion(version), 0, architecture)
}

fn hashing(version: u64, threads: usize) -> Version {
    of_weights(version, version, threads)
}

/// Returns a version that evaluates like [`Hashing`] with `seed` in place of weights.
pub(crate) fn of_weights(version: u64, seed: u64, threads: usize) -> Version {
    let evaluators = (0..threads).map(|_| Box::new(Hashing::new(SHAPE, seed)) as Box<dyn Evaluator>);
    Version::new(manifest(version, seed), evaluators.collect())
}

pub(crate) struct Fixture {
    pub(crate) versions: Arc<Versions>,
    engine: Engine,
    pub(crate) handle: Handle,
    drain: Drain,
}

impl Fixture {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        let (versions, drain) = (Arc::new(Versions::new(2)), Drain::new());
        let (engine, handle) =
            Engine::start(Arc::clone(&versions), settings, Duration::from_secs(20), &drain, &Health::default())
                .unwrap();
        Self { versions, engine, handle, drain }
    }

    /// Starts two threads that serve version 1.
    fn serving() -> Self {
        let fixture = Self::new(settings());
        fixture.versions.add(hashing(1, 2));
        fixture
    }

    pub(crate) fn end(self) {
        self.handle.drain();
        self.engine.join().unwrap();
    }
}

pub(crate) fn settings() -> QueueSettings {
    QueueSettings { batch_max: 16, delay: Duration::ZERO, waiting_max: 1000, evaluators: 2 }
}

/// Returns a batch of positions that differ with `seed`.
fn batch(seed: u32, positions: usize) -> Batch {
    let mut batch = Batch::new(SHAPE);
    for position in 0..positions {
        let legal: Vec<Action> =
            (0..9).filter(|action| !(usize::from(*action) + position).is_multiple_of(3)).map(Action).collect();
        batch.push(&legal, |planes| planes[position % 18] = seed as f32 / 7.0);
    }
    batch
}

fn request(batch: Batch) -> EvalRequest {
    EvalRequest { client: 0, version: None, batch: Arc::new(batch), deadline: None }
}

fn assert_same(a: &Predictions, b: &Predictions) {
    assert_eq!(a.len(), b.len());
    for i in 0..a.len() {
        assert_eq!((a.priors(i), a.value(i)), (b.priors(i), b.value(i)), "position {i}");
    }
}

#[tokio::test]
async fn every_request_gets_its_own_answer_however_requests_share_batches() {
    let fixture = Fixture::serving();
    let tasks: Vec<_> = (0..400_u32)
        .map(|seed| {
            let handle = fixture.handle.clone();
            let batch = batch(seed, 1 + seed as usize % 9);
            let expected = {
                let mut predictions = Predictions::new();
                Hashing::new(SHAPE, 1).evaluate(&batch, &mut predictions).unwrap();
                predictions
            };
            let request = EvalRequest { client: u64::from(seed % 5), ..request(batch) };
            tokio::spawn(async move {
                let answer = loop {
                    match handle.evaluate(request.clone()).await {
                        Err(Rejection::Full { .. }) => tokio::task::yield_now().await,
                        answer => break answer.unwrap(),
                    }
                };
                assert_eq!(answer.version, 1);
                assert_same(&answer.predictions, &expected);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let counts = fixture.handle.counts();
    assert_eq!((counts.requests, counts.failed, counts.waiting_positions), (400, 0, 0));
    assert_eq!(counts.positions, (0..400).map(|seed| 1 + seed % 9).sum::<u64>());
    assert!(counts.explain(16).contains("batches hold"), "{}", counts.explain(16));
    fixture.end();
}

#[tokio::test]
async fn a_request_larger_than_a_batch_is_evaluated_in_parts_and_answered_as_one() {
    let fixture = Fixture::serving();
    let large = batch(3, 100);
    let mut expected = Predictions::new();
    Hashing::new(SHAPE, 1).evaluate(&large, &mut expected).unwrap();
    assert_same(&fixture.handle.evaluate(request(large)).await.unwrap().predictions, &expected);
    let counts = fixture.handle.counts();
    assert_eq!((counts.requests, counts.positions, counts.batches), (1, 100, 7));
    fixture.end();
}

#[tokio::test]
async fn a_future_version_is_awaited_and_a_removed_one_is_refused_with_the_resident_versions() {
    let fixture = Fixture::serving();
    let waiting = {
        let handle = fixture.handle.clone();
        tokio::spawn(async move { handle.evaluate(EvalRequest { version: Some(2), ..request(batch(1, 2)) }).await })
    };
    tokio::task::yield_now().await;
    for version in 2..=3 {
        fixture.versions.add(hashing(version, 2));
        if version == 2 {
            // The waiting request must get version 2 before the next version replaces it.
            tokio::task::yield_now().await;
        }
    }
    let answered = waiting.await.unwrap();
    assert!(matches!(&answered, Ok(answer) if answer.version == 2), "{answered:?}");
    let refused = fixture.handle.evaluate(EvalRequest { version: Some(1), ..request(batch(1, 1)) }).await.unwrap_err();
    assert_eq!(refused, Rejection::UnknownVersion { version: 1, resident: vec![2, 3] });
    let newest = fixture.handle.evaluate(request(batch(1, 1))).await.unwrap();
    assert_eq!(newest.version, 3);
    fixture.end();
}

#[tokio::test]
async fn a_request_for_a_version_that_does_not_come_in_time_is_refused_by_then() {
    let fixture = Fixture::serving();
    let deadline = Some(Instant::now() + Duration::from_millis(5));
    let refused =
        fixture.handle.evaluate(EvalRequest { version: Some(2), deadline, ..request(batch(1, 1)) }).await.unwrap_err();
    assert_eq!(refused, Rejection::UnknownVersion { version: 2, resident: vec![1] });
    fixture.end();
}

#[tokio::test]
async fn a_version_far_ahead_of_the_newest_is_refused_at_once() {
    let fixture = Fixture::serving();
    for version in [2 + VERSIONS_AHEAD_MAX, u64::MAX] {
        let ahead = EvalRequest { version: Some(version), ..request(batch(1, 1)) };
        let refused = fixture.handle.evaluate(ahead).now_or_never().expect("it is refused at once").unwrap_err();
        assert_eq!(refused, Rejection::UnknownVersion { version, resident: vec![1] });
    }
    fixture.end();
}

#[tokio::test]
async fn requests_for_the_next_version_count_towards_the_waiting_positions() {
    let fixture = Fixture::serving();
    let next = || EvalRequest { version: Some(2), ..request(batch(1, 100)) };
    let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(fixture.handle.evaluate(next()))).collect();
    for each in &mut waiting {
        assert!(poll!(each).is_pending());
    }
    let full = |refused: Option<Result<_, Rejection>>| matches!(refused, Some(Err(Rejection::Full { .. })));
    assert!(full(fixture.handle.evaluate(next()).now_or_never()));
    // They leave the share of another client free.
    fixture.handle.evaluate(EvalRequest { client: 1, ..request(batch(1, 1)) }).await.unwrap();
    // A client that stops waiting frees capacity.
    waiting.pop();
    waiting.push(Box::pin(fixture.handle.evaluate(next())));
    assert!(poll!(waiting.last_mut().unwrap()).is_pending());
    fixture.versions.add(hashing(2, 2));
    for each in waiting {
        assert_eq!(each.await.unwrap().version, 2);
    }
    fixture.handle.evaluate(next()).await.unwrap();
    fixture.end();
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_version_ends_with_the_configured_time_whatever_the_client_asks_for() {
    let fixture = Fixture::serving();
    let start = tokio::time::Instant::now();
    let deadline = Some(Instant::now() + Duration::from_secs(1_000_000));
    let refused = fixture.handle.evaluate(EvalRequest { version: Some(2), deadline, ..request(batch(1, 1)) }).await;
    assert_eq!(refused.unwrap_err(), Rejection::UnknownVersion { version: 2, resident: vec![1] });
    // The fixture's time limit of a request, plus the difference between the machine clock and the test clock.
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    fixture.end();
}

#[tokio::test]
async fn before_the_first_weights_there_is_no_model() {
    let fixture = Fixture::new(settings());
    assert_eq!(fixture.handle.model(), None);
    assert_eq!(fixture.handle.evaluate(request(batch(1, 1))).await.unwrap_err(), Rejection::NoModel);
    fixture.versions.add(hashing(4, 2));
    assert_eq!(fixture.handle.served().await.versions, [4]);
    fixture.end();
}

#[tokio::test]
async fn positions_of_another_shape_and_no_positions_are_refused() {
    let fixture = Fixture::serving();
    let mut other = Batch::new(ObservationShape { planes: 1, ..SHAPE });
    other.push(&[Action(0)], |_| {});
    for batch in [other, Batch::new(SHAPE)] {
        assert!(matches!(fixture.handle.evaluate(request(batch)).await, Err(Rejection::Shape(_))));
    }
    fixture.end();
}

#[tokio::test]
async fn a_failed_batch_fails_its_requests_and_the_next_batch_is_evaluated() {
    let fixture = Fixture::new(QueueSettings { evaluators: 1, ..settings() });
    let faulty = Faulty::new(SHAPE, Fault::NotFinite, 1);
    fixture.versions.add(Version::new(manifest(1, 1), vec![Box::new(faulty)]));
    assert!(fixture.handle.evaluate(request(batch(1, 1))).await.is_ok());
    assert!(matches!(fixture.handle.evaluate(request(batch(1, 1))).await, Err(Rejection::Failed(_))));
    assert!(fixture.handle.evaluate(request(batch(1, 1))).await.is_ok());
    let counts = fixture.handle.counts();
    assert_eq!((counts.requests, counts.batches, counts.failed), (2, 2, 1));
    fixture.end();
}

#[tokio::test]
async fn a_thread_that_panics_ends_the_process_in_order() {
    let fixture = Fixture::new(QueueSettings { evaluators: 1, ..settings() });
    let panics = evaluator_doubles::Scripted::new(SHAPE, 1, |_: &[f32], _: &[Action], _: &mut [f32]| panic!("a bug"));
    fixture.versions.add(Version::new(manifest(1, 1), vec![Box::new(panics)]));
    assert_eq!(fixture.handle.evaluate(request(batch(1, 1))).await.unwrap_err(), Rejection::Draining);
    fixture.drain.wait().await;
    fixture.handle.drain();
    assert!(fixture.engine.join().is_err());
}

#[tokio::test]
async fn waiting_and_later_requests_are_refused_once_the_process_drains() {
    // There are no evaluators.
    let fixture = Fixture::new(QueueSettings { evaluators: 0, ..settings() });
    fixture.versions.add(hashing(1, 1));
    let waiting = {
        let handle = fixture.handle.clone();
        tokio::spawn(async move { handle.evaluate(request(batch(1, 1))).await })
    };
    while fixture.handle.counts().waiting_positions == 0 {
        tokio::task::yield_now().await;
    }
    fixture.handle.drain();
    assert_eq!(waiting.await.unwrap().unwrap_err(), Rejection::Draining);
    assert_eq!(fixture.handle.evaluate(request(batch(1, 1))).await.unwrap_err(), Rejection::Draining);
}

#[tokio::test]
async fn a_batch_that_does_not_return_is_a_stall_and_waiting_for_requests_is_none() {
    let (versions, health, drain) = (Arc::new(Versions::new(2)), Health::default(), Drain::new());
    versions.add(hashing(1, 2));
    let patience = Duration::from_secs(20);
    let (engine, handle) = Engine::start(Arc::clone(&versions), settings(), patience, &drain, &health).unwrap();
    let problem = || health.problem(Instant::now() + 2 * super::STALLED_AFTER);
    let until = async |condition: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline, "it comes before the deadline");
            tokio::task::yield_now().await;
        }
    };
    until(&|| problem().is_none()).await;
    let version = versions.newest().unwrap();
    let hangs = [0, 1].map(|thread| version.evaluator(thread).lock());
    let (asking, request) = (handle.clone(), request(batch(1, 3)));
    let answer = tokio::spawn(async move { asking.evaluate(request).await });
    until(&|| problem().is_some_and(|it| it.starts_with("the thread evaluate has stalled"))).await;
    drop(hangs);
    answer.await.unwrap().unwrap();
    until(&|| problem().is_none()).await;
    handle.drain();
    engine.join().unwrap();
}
