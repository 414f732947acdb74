use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use games::TicTacToe;
use inference::{Attributes, Batch, Error, Evaluator, Hashing, Predictions};
use scripted::{version, within};
use selfplay::{Episodes, FinishedEpisode, Round};
use tokio::runtime::Runtime;
use weights::Manifest;

use super::*;
use crate::Config;
use crate::state_dir::ActorStateDir;

mod learned;
mod spectators;

const SEED: u64 = 5;

/// Returns the context of a reanalysis thread, with networks that predict pseudo-randomly, and the sender of weights.
pub(crate) fn context_of_reanalysis(
    drain: &Drain,
    runtime: Handle,
) -> (ThreadContext, watch::Sender<Option<Arc<Published>>>) {
    let (weights, newest) = watch::channel(None);
    let (_, away) = watch::channel(None);
    let around = ThreadContext {
        backend: hashed(Arc::new(|_, _| Ok(()))),
        weights: newest,
        freshness: Freshness { away, most: None },
        finished: mpsc::channel(1).0,
        cache: None,
        cached_weights: 0,
        readiness: Readiness::starting(),
        drain: drain.clone(),
        runtime,
        announced: Arc::new(Once::new()),
        share: None,
    };
    (around, weights)
}

/// A test's action before an evaluator computes a batch; batches are numbered from one.
type Before = Arc<dyn Fn(u64, usize) -> Result<(), Error> + Send + Sync>;

struct Watched {
    inner: Hashing,
    before: Before,
    batches: usize,
}

/// Returns a backend with pseudo-random evaluators, different for each version, after the test's action.
fn hashed(before: Before) -> Arc<dyn Backend> {
    let build = move |manifest: &Manifest, _: &Bytes| -> Result<Box<dyn Evaluator>, evaluators::Error> {
        Ok(Box::new(watched(manifest.version.0, &before)))
    };
    Arc::new(build)
}

impl Evaluator for Watched {
    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        self.batches += 1;
        (self.before)(self.attributes().weights_version, self.batches)?;
        self.inner.evaluate(batch, predictions)
    }
}

fn watched(version: u64, before: &Before) -> Watched {
    let inner = Hashing::new(TicTacToe::new().spec().observation, version);
    Watched { inner, before: Arc::clone(before), batches: 0 }
}

fn broken() -> Error {
    Error::Shape { expected: "this".into(), got: "that".into() }
}

pub(crate) fn selfplay() -> selfplay::Settings {
    selfplay::Settings { games: 8, full_simulations: 24, fast_simulations: 8, ..selfplay::Settings::default() }
}

fn episodes() -> Episodes<TicTacToe> {
    Episodes::new(TicTacToe::new(), selfplay(), 1.0, SEED)
}

fn new_play() -> Play<TicTacToe> {
    Play::new(TicTacToe::new(), selfplay(), 1.0, SEED)
}

#[test]
fn an_actor_that_restarts_plays_other_games_and_the_same_seed_and_epoch_give_the_same() {
    let (settings, run) = (Config::default().settings().unwrap(), tempfile::tempdir().unwrap());
    // The epoch is above the epochs of all earlier starts.
    let [first, second] =
        [0; 2].map(|_| ActorStateDir::with_epochs_from_1(run.path(), settings.actor.id).next_epoch(0).unwrap());
    let games = |epoch| {
        let mut episodes = Episodes::new(TicTacToe::new(), selfplay(), 1.0, thread_seed(&settings, epoch, 0));
        let mut evaluator = Hashing::new(TicTacToe::new().spec().observation, 1);
        let mut games: Vec<FinishedEpisode> = Vec::new();
        while games.len() < 8 {
            episodes.advance(&mut evaluator, None).unwrap();
            games.extend(episodes.drain_finished());
        }
        games
    };
    let played = games(first);
    assert_eq!(games(first), played);
    assert_ne!(games(second), played);
}

/// Returns weights of this version for `game`.
pub(crate) fn published(game: &TicTacToe, number: u64) -> Arc<Published> {
    let spec = game.spec();
    let mut published = version(number, number.to_le_bytes().to_vec());
    let architecture = &mut published.manifest.architecture;
    (architecture.planes, architecture.actions) = (spec.observation.planes, spec.actions);
    (architecture.height, architecture.width) = (spec.observation.height, spec.observation.width);
    Arc::new(published)
}

/// A worker driven by the test call by call, and the process around it.
struct Bench {
    worker: Worker<TicTacToe>,
    weights: watch::Sender<Option<Arc<Published>>>,
    /// Time since when the learner is unreachable.
    away: watch::Sender<Option<tokio::time::Instant>>,
    finished: mpsc::Receiver<Finished>,
    readiness: Readiness,
    drain: Drain,
    live: Live,
    runtime: Runtime,
}

fn bench(before: impl Fn(u64, usize) -> Result<(), Error> + Send + Sync + 'static) -> Bench {
    bench_of(Drain::new(), Arc::new(before))
}

fn bench_of(drain: Drain, before: Before) -> Bench {
    let runtime = Runtime::new().unwrap();
    let (weights, newest) = watch::channel(None);
    let (tell_away, away) = watch::channel(None);
    let (sender, finished) = mpsc::channel(10_000);
    let readiness = Readiness::starting();
    let around = ThreadContext {
        backend: hashed(before),
        weights: newest,
        freshness: Freshness { away, most: Some(Duration::from_secs(60)) },
        finished: sender,
        cache: None,
        cached_weights: 0,
        readiness: readiness.clone(),
        drain: drain.clone(),
        runtime: runtime.handle().clone(),
        announced: Arc::new(Once::new()),
        share: None,
    };
    let live = Live::default();
    live.serve();
    let mut spectators = Spectators::of_thread(&live, 0, 8);
    spectators.interval = Duration::ZERO;
    let worker = Worker::new(new_play(), AdaptiveBudget::new(&selfplay()), spectators, around);
    Bench { worker, weights, away: tell_away, finished, readiness, drain, live, runtime }
}

impl Bench {
    fn publish(&self, number: u64) {
        self.weights.send_replace(Some(published(&TicTacToe::new(), number)));
    }

    /// Plays `rounds`, taking newer weights before each.
    fn play(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.worker.swap_weights().unwrap();
            self.worker.call(Pace::Advance).unwrap();
        }
    }

    /// Returns true if a search is in progress.
    fn searches(&mut self) -> bool {
        self.worker.play.call(Pace::Settle, None, None).unwrap().result.unwrap() != Round::default()
    }

    fn version(&self) -> Option<u64> {
        self.worker.play.weights_version()
    }
}

/// Returns the episodes that finish when driven by hand, with the same seed and predictions, for `rounds` or until an
/// error.
fn finished_by_hand(rounds: usize, before: &Before) -> Vec<FinishedEpisode> {
    let (mut episodes, mut evaluator) = (episodes(), watched(1, before));
    for _ in 0..rounds {
        if episodes.advance(&mut evaluator, None).is_err() {
            break;
        }
    }
    episodes.drain_finished().collect()
}

fn received(mut finished: mpsc::Receiver<Finished>) -> Vec<FinishedEpisode> {
    std::iter::from_fn(|| finished.blocking_recv()).map(|finished| finished.episode).collect()
}

#[test]
fn weights_change_between_moves_only() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requests);
    let mut bench = bench(move |version, _| {
        log.lock().unwrap().push(version);
        Ok(())
    });
    bench.publish(1);
    bench.play(5);
    let before = requests.lock().unwrap().len();
    bench.publish(2);
    bench.worker.swap_weights().unwrap();
    assert_eq!(bench.version(), Some(2));
    let after = requests.lock().unwrap().split_off(before);
    assert!(!after.is_empty(), "searches were under way");
    assert!(after.iter().all(|&version| version == 1), "they are finished by the weights that began them: {after:?}");
    assert!(!bench.searches(), "the new weights find none that they did not begin");
}

/// A backend with weights that another thread prepares, for the first `rounds` attempts that need not wait.
struct Prepared {
    inner: Arc<dyn Backend>,
    rounds: AtomicUsize,
}

impl Backend for Prepared {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, evaluators::Error> {
        self.inner.build(manifest, bytes)
    }

    fn try_build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Box<dyn Evaluator>>, evaluators::Error> {
        let left = |rounds: usize| rounds.checked_sub(1);
        match self.rounds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(None),
            Err(_) => self.inner.build(manifest, bytes).map(Some),
        }
    }
}

#[test]
fn a_thread_plays_on_with_old_weights_while_another_one_prepares_the_new_ones() {
    let mut bench = bench(|_, _| Ok(()));
    let inner = Arc::clone(&bench.worker.around.backend);
    bench.worker.around.backend = Arc::new(Prepared { inner, rounds: AtomicUsize::new(2) });
    bench.publish(1);
    bench.play(1);
    assert_eq!(bench.version(), Some(1), "the first weights are waited for");
    bench.publish(2);
    for expected in [1, 1, 2] {
        bench.play(1);
        assert_eq!(bench.version(), Some(expected));
    }
}

#[test]
fn a_search_that_its_weights_cannot_finish_begins_again_with_the_next() {
    for failure in [|| Error::NotFinite { weights_version: 1 }, || Error::Backend("gone".into())] {
        let mut bench = bench(move |version, batch| if version == 1 && batch > 5 { Err(failure()) } else { Ok(()) });
        bench.publish(1);
        bench.play(5);
        // A worker waits for a failing backend, but not during a drain.
        bench.drain.start();
        bench.publish(2);
        bench.worker.swap_weights().unwrap();
        assert_eq!(bench.version(), Some(2));
        assert!(!bench.searches(), "what version 1 began is not gone on with");
    }
}

#[test]
fn weights_that_return_nan_are_unloaded_and_the_next_version_is_used() {
    let mut bench =
        bench(|version, _| if version == 1 { Err(Error::NotFinite { weights_version: 1 }) } else { Ok(()) });
    bench.publish(1);
    bench.play(1);
    assert_eq!(bench.version(), None);
    assert_eq!(bench.readiness.reason().unwrap(), "output of weights version 1 is not finite");
    bench.publish(2);
    bench.play(1);
    assert_eq!((bench.version(), bench.readiness.reason()), (Some(2), None));
}

#[test]
fn weights_of_another_game_or_shape_are_passed_over() {
    let mut bench = bench(|_, _| Ok(()));
    bench.publish(1);
    bench.play(1);
    let mut other_game = (*published(&TicTacToe::new(), 2)).clone();
    other_game.manifest.architecture.game = "hex-3".into();
    let mut other_shape = (*published(&TicTacToe::new(), 3)).clone();
    other_shape.manifest.architecture.actions += 1;
    for other in [other_game, other_shape] {
        bench.weights.send_replace(Some(Arc::new(other)));
        bench.play(1);
        assert_eq!(bench.version(), Some(1));
    }
    bench.publish(4);
    bench.play(1);
    assert_eq!(bench.version(), Some(4));
}

#[test]
fn a_backend_that_keeps_failing_is_given_up() {
    let mut bench = bench(|_, _| Err(Error::Backend("gone".into())));
    bench.publish(1);
    bench.worker.swap_weights().unwrap();
    // A draining worker does not pause between attempts.
    bench.drain.start();
    for _ in 1..FAILURES_MAX {
        bench.worker.call(Pace::Advance).unwrap();
    }
    let error = bench.worker.call(Pace::Advance).unwrap_err();
    assert!(service::chain(&error).contains("gone"), "{error:#}");
}

#[test]
fn a_drained_worker_hands_in_what_it_finished() {
    let drain = Drain::new();
    let signal = drain.clone();
    let rounds = 200;
    let before: Before = Arc::new(move |_, batch| {
        if batch == rounds {
            signal.start();
        }
        Ok(())
    });
    let bench = bench_of(drain, before);
    bench.publish(1);
    let Bench { worker, weights: _weights, finished, .. } = bench;
    worker.run().unwrap();
    let expected = finished_by_hand(rounds, &(Arc::new(|_, _| Ok(())) as Before));
    assert!(!expected.is_empty());
    assert_eq!(received(finished), expected);
}

#[test]
fn a_worker_that_fails_hands_in_what_it_finished_before_and_ends_the_others() {
    let mut left_by_the_last_round = 0;
    for last in 1..120 {
        let before: Before = Arc::new(move |_, batch| if batch > last { Err(broken()) } else { Ok(()) });
        let bench = bench_of(Drain::new(), Arc::clone(&before));
        bench.publish(1);
        let Bench { worker, weights: _weights, finished, drain, .. } = bench;
        worker.run().unwrap_err();
        assert!(drain.started());
        let expected = finished_by_hand(usize::MAX, &before);
        left_by_the_last_round += expected.len() - finished_by_hand(last, &before).len();
        assert_eq!(received(finished), expected, "failed after {last} batches");
    }
    assert!(left_by_the_last_round > 0, "some rounds finish an episode and then fail");
}

fn no_servers() -> Servers {
    Servers::watching(watch::channel(Arc::from([])).1)
}

fn settings(actor: u64, threads: usize) -> Settings {
    let mut config = Config::default();
    config.run.game = "tic_tac_toe".into();
    (config.actor.id, config.actor.threads) = (actor, threads);
    Settings { selfplay: selfplay(), ..config.settings().unwrap() }
}

#[tokio::test]
async fn a_failing_thread_ends_all_threads_and_its_error_is_returned() {
    // One of two evaluators fails.
    let failures = AtomicUsize::new(0);
    let before: Before =
        Arc::new(
            move |_, batch| {
                if batch == 30 && failures.fetch_add(1, Ordering::Relaxed) == 0 { Err(broken()) } else { Ok(()) }
            },
        );
    let (weights, newest) = watch::channel(Some(published(&TicTacToe::new(), 1)));
    let (readiness, drain) = (Readiness::starting(), Drain::new());
    let evaluators = Chosen { backend: hashed(before), threads: 2 };
    let (_at_hand, away) = watch::channel(None);
    let fresh = Freshness { away, most: None };
    let Workers { mut finished, threads } = Workers::start(
        &settings(0, 2),
        1,
        evaluators,
        newest,
        fresh,
        readiness.clone(),
        &drain,
        &Health::default(),
        &Live::default(),
        &no_servers(),
    )
    .unwrap();
    let drained = async { while finished.recv().await.is_some() {} };
    let (ended, ()) = within(async { tokio::join!(threads.join(), drained) }).await;
    assert!(service::chain(&ended.unwrap_err()).contains("the network accepts"));
    assert!(drain.started());
    assert_eq!(readiness.reason(), None, "it was ready when it had weights");
    drop(weights);
}

#[test]
fn no_two_actors_epochs_or_threads_play_the_same_games() {
    let seeds: BTreeSet<u64> = [(0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1), (1, 0, 0), (0, 0, 1)]
        .into_iter()
        .map(|(actor, epoch, thread)| thread_seed(&settings(actor, 1), epoch, thread))
        .collect();
    assert_eq!(seeds.len(), 6);
}

#[test]
fn self_play_pauses_while_the_learner_is_away_for_too_long_and_goes_on_by_itself() {
    let Bench { worker, weights, away, finished: _finished, readiness, drain, live: _, runtime: _runtime } =
        bench(|_, _| Ok(()));
    weights.send_replace(Some(published(&TicTacToe::new(), 1)));
    // On some machines the monotonic clock started less than this long ago: the test is then skipped.
    let Some(long_ago) = tokio::time::Instant::now().checked_sub(Duration::from_secs(61)) else { return };
    away.send_replace(Some(long_ago));
    let playing = std::thread::spawn(move || worker.run());
    let is_paused = || readiness.reason().is_some_and(|reason| reason.contains("self-play is paused"));
    until(is_paused);
    away.send_replace(None);
    until(|| readiness.reason().is_none());
    away.send_replace(Some(long_ago));
    until(is_paused);
    drain.start();
    playing.join().unwrap().unwrap();
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it comes before the deadline");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_batch_that_does_not_return_is_a_stall_and_waiting_for_weights_is_none() {
    let (gate, is_inside) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
    let (shut, inside) = (Arc::clone(&gate), Arc::clone(&is_inside));
    let before: Before = Arc::new(move |_, _| {
        inside.store(true, Ordering::SeqCst);
        drop(shut.lock().unwrap());
        Ok(())
    });
    let (weights, newest) = watch::channel(None);
    let (health, drain, (_at_hand, away)) = (Health::default(), Drain::new(), watch::channel(None));
    let (evaluators, readiness) = (Chosen { backend: hashed(before), threads: 1 }, Readiness::starting());
    let fresh = Freshness { away, most: None };
    let live = Live::default();
    let Workers { mut finished, threads } =
        Workers::start(&settings(0, 1), 1, evaluators, newest, fresh, readiness, &drain, &health, &live, &no_servers())
            .unwrap();
    let problem = || health.problem(Instant::now() + 2 * STALLED_AFTER);
    until(|| problem().is_none());
    let hangs = gate.lock().unwrap();
    weights.send_replace(Some(published(&TicTacToe::new(), 1)));
    until(|| is_inside.load(Ordering::SeqCst));
    assert!(problem().is_some_and(|it| it.starts_with("the thread selfplay has stalled")));
    drop(hangs);
    drain.start();
    let drained = async { while finished.recv().await.is_some() {} };
    within(async { tokio::join!(threads.join(), drained) }).await.0.unwrap();
}

const AWAY_MAX: Duration = Duration::from_secs(60);

#[tokio::test]
async fn weights_are_outdated_once_the_learner_is_away_for_too_long_and_until_it_is_back() {
    let (away_sender, away) = watch::channel(None);
    let [mut bounded, unbounded] = [Some(AWAY_MAX), None].map(|most| Freshness { away: away.clone(), most });
    assert_eq!(bounded.outdated_for(), None);
    away_sender.send_replace(Some(tokio::time::Instant::now()));
    assert_eq!(bounded.outdated_for(), None);
    // If the monotonic clock started more recently, the rest is skipped.
    let Some(long_ago) = tokio::time::Instant::now().checked_sub(AWAY_MAX + Duration::from_secs(1)) else { return };
    away_sender.send_replace(Some(long_ago));
    assert!(bounded.outdated_for().is_some_and(|away| away > AWAY_MAX));
    assert_eq!(unbounded.outdated_for(), None);
    assert!(tokio::time::timeout(Duration::from_millis(1), bounded.restored()).await.is_err());
    away_sender.send_replace(None);
    bounded.restored().await;
    assert_eq!(bounded.outdated_for(), None);
}
