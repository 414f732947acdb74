//! Tests pauses with a simulated clock, and the pacer in an environment that publishes a version every five seconds.

use std::sync::Mutex;

use bytes::Bytes;
use evaluator_doubles::Uniform;
use game::{Game, ObservationShape};
use games::{ConnectFour, GameKind};
use inference::Evaluator;
use run_file::arena::Config;
use weights::{Architecture, Manifest};

use super::*;

const PUBLISH_INTERVAL: Duration = Duration::from_secs(5);

/// An environment with a clock that advances only by sleeping.
struct World {
    begin: Instant,
    now: Instant,
    game: String,
    /// Time at which the process drains, if any.
    end: Option<Instant>,
}

impl World {
    fn flow(&self) -> ControlFlow<()> {
        if self.end.is_some_and(|end| self.now >= end) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Environment for World {
    fn newest(&mut self) -> Option<Arc<Published>> {
        let versions = (self.now - self.begin).as_secs() / PUBLISH_INTERVAL.as_secs();
        Some(published(1 + versions, &self.game))
    }

    fn now(&mut self) -> Instant {
        self.now
    }

    fn sleep(&mut self, duration: Duration) -> ControlFlow<()> {
        self.now += duration;
        self.flow()
    }

    fn accept(&mut self, _: &Published) {}

    fn wait_for_weights(&mut self, at_most: Duration) -> ControlFlow<()> {
        self.sleep(at_most.min(PUBLISH_INTERVAL))
    }
}

fn published(version: u64, game: &str) -> Arc<Published> {
    let bytes = bytes::Bytes::from_static(b"weights");
    let spec = game.parse::<GameKind>().unwrap().rules().spec().clone();
    let ObservationShape { planes, height, width } = spec.observation;
    let architecture = Architecture::plain(game, [planes, height, width], spec.actions, [1, 0]);
    let manifest = Manifest::of(&bytes, WeightsVersion(version), 1, architecture);
    Arc::new(Published { manifest, bytes })
}

/// A pacer in an environment, and the versions with an evaluated raw policy.
struct Stage {
    pacer: Pacer<ConnectFour, World>,
    evaluated: Arc<Mutex<Vec<u64>>>,
}

impl Stage {
    fn new(positions: usize) -> Self {
        Self::with_weights_of("connect_four", positions)
    }

    fn with_weights_of(game: &str, positions: usize) -> Self {
        let now = Instant::now();
        let world = World { begin: now, now, game: game.to_owned(), end: None };
        let rules = ConnectFour::new();
        let observation = rules.spec().observation;
        let evaluated = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&evaluated);
        let build = move |manifest: &Manifest, _: &Bytes| -> Result<Box<dyn Evaluator>, evaluators::Error> {
            log.lock().unwrap().push(manifest.version.0);
            Ok(Box::new(Uniform::new(observation)))
        };
        let mut config = Config::default();
        config.arena.positions = positions;
        let mut setup = Setup::new(rules, config.settings().unwrap(), Arc::new(build));
        setup.positions.get_mut().unwrap().truncate(positions);
        Self { pacer: Pacer::new(world, Arc::new(setup)), evaluated }
    }

    /// Works for `seconds`, then pauses.
    fn work(&mut self, seconds: u64) -> ControlFlow<()> {
        self.pacer.environment.now += Duration::from_secs(seconds);
        self.pacer.take()
    }

    fn evaluated(&self) -> Vec<u64> {
        self.evaluated.lock().unwrap().clone()
    }
}

#[test]
fn newer_weights_are_evaluated_during_the_sleep_that_follows_long_work() {
    let mut stage = Stage::new(3);
    assert!(stage.work(4).is_continue());
    // Four seconds of work at a share of a tenth take 40 seconds, including sleep.
    assert_eq!(stage.pacer.environment.now() - stage.pacer.environment.begin, Duration::from_secs(40));
    // Evaluations occur at 4, 14, 24 and 34 seconds.
    assert_eq!(stage.evaluated(), [1, 3, 5, 7]);
}

#[test]
fn no_version_is_evaluated_twice_or_without_positions() {
    let mut stage = Stage::new(3);
    let mut network = Network::Evaluator(Box::new(Uniform::new(ConnectFour::new().spec().observation)));
    assert!(stage.pacer.evaluate(WeightsVersion(1), &mut network).unwrap().is_continue());
    assert!(stage.work(0).is_continue());
    assert!(stage.evaluated().is_empty(), "it was evaluated when it became the version that is measured");
    let mut stage = Stage::new(0);
    assert!(stage.work(4).is_continue());
    assert!(stage.evaluated().is_empty());
}

#[test]
fn unusable_weights_are_skipped_for_an_interval() {
    let mut stage = Stage::with_weights_of("tic_tac_toe", 3);
    assert!(stage.work(4).is_continue());
    assert!(stage.evaluated().is_empty());
    stage.pacer.environment.game = "connect_four".to_owned();
    assert!(stage.work(4).is_continue());
    assert_eq!(stage.evaluated().first(), Some(&9), "the first that can be used, at 44 seconds");
}

#[test]
fn an_idle_worker_evaluates_the_newest_weights() {
    let mut stage = Stage::new(3);
    while stage.pacer.environment.now() - stage.pacer.environment.begin < Duration::from_secs(30) {
        assert!(stage.pacer.idle(Duration::from_secs(30)).is_continue());
    }
    assert_eq!(stage.evaluated(), [1, 3, 5]);
}

#[test]
fn a_drain_ends_a_break_at_once() {
    let mut stage = Stage::new(3);
    stage.pacer.environment.end = Some(stage.pacer.environment.begin + Duration::from_secs(10));
    assert!(stage.work(4).is_break());
    assert!(stage.pacer.environment.now() - stage.pacer.environment.begin <= Duration::from_secs(10) + LOOK_INTERVAL);
}

/// Works for each of `stretches`, sleeps as required, and returns the share of working time.
fn share_of(share: f64, stretches: impl Iterator<Item = u64>) -> f64 {
    let start = Instant::now();
    let mut now = start;
    let mut pacing = Pacing::new(share, now);
    for stretch in stretches {
        now += Duration::from_millis(stretch);
        now += pacing.pause(now);
        pacing.resume(now);
    }
    pacing.busy.as_secs_f64() / (now - start).as_secs_f64()
}

#[test]
fn the_cpu_share_is_kept_for_work_of_any_length() {
    for stretches in [vec![20; 500], vec![5_000, 1, 1, 1], vec![3]] {
        let share = share_of(0.1, stretches.into_iter());
        assert!((share - 0.1).abs() < 1e-6, "{share}");
    }
}

#[test]
fn a_sleep_that_was_cut_short_is_made_up_for() {
    let mut now = Instant::now();
    let mut pacing = Pacing::new(0.5, now);
    now += Duration::from_millis(100);
    assert_eq!(pacing.pause(now), Duration::from_millis(100));
    now += Duration::from_millis(30);
    pacing.resume(now);
    assert_eq!(pacing.pause(now), Duration::from_millis(70));
}

#[test]
fn a_full_share_never_sleeps() {
    let mut now = Instant::now();
    let mut pacing = Pacing::new(1.0, now);
    now += Duration::from_secs(5);
    assert_eq!(pacing.pause(now), Duration::ZERO);
}

#[test]
fn idle_time_is_not_credited_to_later_work() {
    let mut now = Instant::now();
    let mut pacing = Pacing::new(0.5, now);
    pacing.pause(now);
    now += Duration::from_secs(3600);
    pacing.resume(now);
    now += Duration::from_millis(10);
    assert_eq!(pacing.pause(now), Duration::from_millis(10));
}
