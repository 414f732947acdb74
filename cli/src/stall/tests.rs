use std::collections::BTreeMap;

use run_metrics::Health;

use super::*;

/// The expected result if nothing is printed.
const NOTHING: [(u64, String); 0] = [];

/// A stall watch with a simulated clock that advances by one second per reading.
struct Run {
    watch: Watch,
    now: Instant,
}

impl Run {
    fn begin() -> Self {
        Self { watch: Watch::default(), now: Instant::now() }
    }

    /// Passes the same metrics to the watch every second for `seconds` seconds. Returns the printed lines, each with
    /// the time in seconds.
    fn go(&mut self, seconds: u64, metrics: &RunMetrics) -> Vec<(u64, String)> {
        let read = |second| {
            self.now += Duration::from_secs(1);
            Some((second, self.watch.read(metrics, self.now)?))
        };
        (1..=seconds).filter_map(read).collect()
    }

    /// Passes the metrics to the watch for ten minutes, and asserts that no fault is found.
    fn assert_fine(mut self, metrics: &RunMetrics) {
        assert_eq!(self.go(600, metrics), NOTHING, "{metrics:?}");
    }
}

/// Returns the metrics of a healthy run that learns.
fn learning() -> RunMetrics {
    RunMetrics {
        positions_per_second: Some(100.0),
        evaluations_per_second: Some(5000.0),
        games_per_second: Some(2.0),
        inserts_per_second: Some(2.0),
        replay_items: Some(5000.0),
        steps_per_second: Some(3.0),
        not_finite: Some(0.0),
        weights_lag: Some(0.0),
        ..RunMetrics::default()
    }
}

/// Returns the metrics of a run that has just started: no game has finished, and the learner waits for the first items.
fn beginning() -> RunMetrics {
    let health = Health { samples_held: 1.0, ..Health::default() };
    let none = Some(0.0);
    RunMetrics {
        games_per_second: none,
        inserts_per_second: none,
        replay_items: none,
        steps_per_second: none,
        health,
        ..learning()
    }
}

fn refused() -> RunMetrics {
    let unstored = BTreeMap::from([("invalid".to_owned(), 7.0), ("stale".to_owned(), 1.0)]);
    let defect = Some("steps[0].action: 4224 is not below 4096".to_owned());
    let health = Health { unstored, defect, ..beginning().health };
    RunMetrics { games_per_second: Some(1.0), health, ..beginning() }
}

fn unplayable() -> RunMetrics {
    let weights_refusal = Some("the CPU kernel does not support 24 channels".to_owned());
    let health = Health { weights_refusal, ..beginning().health };
    let none = Some(0.0);
    RunMetrics { positions_per_second: none, evaluations_per_second: none, weights_lag: None, health, ..beginning() }
}

const REFUSED: &str =
    "the replay server refuses every game (steps[0].action: 4224 is not below 4096); raise replay.actions_max";
const UNPLAYABLE: &str = "no actor can play with the weights (the CPU kernel does not support 24 channels); change the \
                          section [network] or actor.device and start a new run";

#[test]
fn a_run_that_learns_and_one_whose_first_games_take_long_have_no_fault() {
    Run::begin().assert_fine(&learning());
    Run::begin().assert_fine(&beginning());
}

#[test]
fn refused_games_are_a_fault_after_three_minutes_until_one_is_stored() {
    let mut run = Run::begin();
    assert_eq!(run.go(180, &refused()), NOTHING);
    assert_eq!(run.go(60, &refused()), [(1, format!("the run learns nothing: {REFUSED}"))]);
    assert_eq!(run.watch.fault(), Some(REFUSED));
    assert_eq!(run.go(60, &learning()), [(1, "the run learns again".to_owned())]);
    assert_eq!((run.watch.fault(), run.watch.at_end(&learning())), (None, None));
}

#[test]
fn a_slow_game_between_refused_ones_does_not_hide_the_fault() {
    let mut run = Run::begin();
    run.go(20, &refused());
    let under_way = RunMetrics { games_per_second: Some(0.0), ..refused() };
    assert_eq!(run.go(200, &under_way), [(161, format!("the run learns nothing: {REFUSED}"))]);
}

#[test]
fn some_refused_games_among_stored_ones_are_no_fault() {
    let mut run = Run::begin();
    for _ in 0..20 {
        assert_eq!(run.go(100, &refused()), NOTHING);
        assert_eq!(run.go(20, &RunMetrics { health: refused().health, ..learning() }), NOTHING);
    }
}

#[test]
fn the_reason_why_no_game_is_stored_decides_the_remedy() {
    let key = |reason: &str, defect: &str| {
        let unstored = BTreeMap::from([(reason.to_owned(), 1.0)]);
        let health = Health { unstored, defect: Some(defect.to_owned()), ..Health::default() };
        not_stored(&RunMetrics { health, ..refused() })
    };
    for (reason, defect, expected) in [
        ("invalid", "steps: has 9 steps, the limit is 2", "replay.steps_max"),
        ("invalid", "steps[3].policy: has 9 entries for 2 actions", "replay.actions_max"),
        ("invalid", "columns: is cut", "of the same version"),
        ("stale", "", "replay.lag_versions_max"),
        ("without_items", "", "selfplay.full_search_probability"),
        ("over_memory", "", "replay.memory_bytes_max"),
        ("not_stored", "", "free disk space"),
    ] {
        assert!(key(reason, defect).contains(expected), "{}", key(reason, defect));
    }
    assert!(not_stored(&beginning()).contains("none reaches the replay table"));
}

#[test]
fn episodes_of_which_each_is_lost_to_its_environment_are_a_fault() {
    let health = Health { lost_episodes: Some(9.0), lost_per_second: Some(0.5), ..beginning().health };
    let lines = Run::begin().go(200, &RunMetrics { health, ..beginning() });
    assert!(lines[0].1.contains("every episode is lost to an environment failure"), "{lines:?}");
}

#[test]
fn weights_that_no_actor_can_play_with_are_named_after_three_minutes() {
    let mut run = Run::begin();
    assert_eq!(run.go(200, &unplayable()), [(181, format!("the run learns nothing: {UNPLAYABLE}"))]);
    let waiting = RunMetrics { health: beginning().health, ..unplayable() };
    assert!(run.go(1, &waiting)[0].1.contains("no actor has received weights"), "a new reason is a new line");
}

#[test]
fn an_actor_that_the_rate_limiter_pauses_is_no_fault() {
    let health = Health { inserts_held: 0.5, ..Health::default() };
    let none = Some(0.0);
    let paused = RunMetrics {
        positions_per_second: none,
        evaluations_per_second: none,
        games_per_second: none,
        inserts_per_second: none,
        health,
        ..learning()
    };
    Run::begin().assert_fine(&paused);
    // A finished game that waits for the rate limiter will be stored later.
    Run::begin().assert_fine(&RunMetrics { games_per_second: Some(1.0), ..paused });
}

#[test]
fn a_learner_that_may_draw_and_makes_no_step_is_a_fault() {
    let stuck = RunMetrics { steps_per_second: Some(0.0), ..learning() };
    let lines = Run::begin().go(200, &stuck);
    assert_eq!(lines.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [181]);
    assert!(lines[0].1.contains("the learner takes no training step although samples are available"), "{lines:?}");
    let health = Health { nothing_to_draw: 1.0, ..Health::default() };
    let lines = Run::begin().go(200, &RunMetrics { health, ..stuck.clone() });
    assert!(lines[0].1.contains("nothing in the replay table can be sampled"), "{lines:?}");
    // This run has just started, and the learner still waits for the first items.
    Run::begin().assert_fine(&RunMetrics { health: beginning().health, ..stuck });
}

#[test]
fn steps_that_are_as_slow_as_those_before_are_no_fault() {
    let mut run = Run::begin();
    let between = RunMetrics { steps_per_second: Some(0.0), ..learning() };
    run.go(150, &between);
    run.go(20, &learning());
    assert_eq!(run.go(297, &between), NOTHING);
    assert_eq!(run.go(20, &between).len(), 1);
}

#[test]
fn processes_that_do_not_answer_are_left_to_the_supervisor() {
    Run::begin().assert_fine(&RunMetrics::default());
    // Time without metrics, as during a restart, neither counts as time of a fault nor resets that time.
    let mut run = Run::begin();
    run.go(100, &unplayable());
    assert_eq!(run.go(600, &RunMetrics::default()), NOTHING);
    assert_eq!(run.go(100, &unplayable()).len(), 1);
}

#[test]
fn time_in_which_the_supervisor_stood_still_does_not_count() {
    let mut run = Run::begin();
    run.go(1, &unplayable());
    run.now += Duration::from_secs(3600);
    assert_eq!(run.go(100, &unplayable()), NOTHING);
}

#[test]
fn a_session_that_is_too_short_for_a_fault_ends_with_one_if_all_was_refused() {
    for (metrics, expected) in [(refused(), Some(REFUSED)), (unplayable(), Some(UNPLAYABLE)), (beginning(), None)] {
        let mut run = Run::begin();
        run.go(10, &metrics);
        assert_eq!(run.watch.fault(), None);
        assert_eq!(run.watch.at_end(&metrics).as_deref(), expected);
    }
    let mut run = Run::begin();
    run.go(10, &learning());
    let health = Health { weights_refusal: unplayable().health.weights_refusal, ..refused().health };
    assert_eq!(run.watch.at_end(&RunMetrics { health, ..refused() }), None, "it has trained");
}

#[test]
fn a_learner_of_the_user_that_publishes_nothing_for_long_is_no_fault() {
    // The server of weights in the place of the learner counts no batches that are not finite.
    let own = RunMetrics { not_finite: None, steps_per_second: Some(0.0), ..learning() };
    Run::begin().assert_fine(&own);
    let health = Health { inserts_held: 1.0, ..Health::default() };
    let none = Some(0.0);
    let blocked = RunMetrics {
        positions_per_second: none,
        evaluations_per_second: none,
        games_per_second: none,
        inserts_per_second: none,
        health,
        ..own
    };
    Run::begin().assert_fine(&blocked);
}
