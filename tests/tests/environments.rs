//! The environments agree step by step with the published implementations: CartPole and Pendulum with Gymnasium, Catch
//! with bsuite, Breakout with MinAtar, keys and doors with Minigrid.
//!
//! This side plays and records episodes; `tests/python/environments.py` plays the same actions from the same starts and
//! compares states, observations, rewards and ends.

use std::path::{Path, PathBuf};

use game::{Action, Game, Outcome};
use games::{Breakout, CartPole, Catch, KeysAndDoors, Pendulum, breakout, cartpole, keys_and_doors, pendulum};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tests::Python;

/// Number of episodes per environment and policy.
const EPISODES: u64 = 30;

/// Way to compare an episode with the published implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// From the start: differences accumulate over the episode.
    Whole,
    /// Step by step, each from our state; for long episodes of unstable dynamics, where the last bit of a cosine grows
    /// by many orders of magnitude.
    Stepwise,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns Python with the published implementations; `None` if there is no Python, which fails the test in CI.
fn python() -> Option<Python> {
    let requirements = repository().join("tests/python/environments-requirements.txt");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("environments");
    let python = Python::with_exactly(&requirements, &folder).unwrap();
    if python.is_none() {
        tests::skip_python("3.10");
    }
    python
}

/// Recorded episodes of one environment.
struct Episodes<G: Game> {
    game: G,
    /// Numbers of a position from which the published implementation can start, or continue.
    state: fn(&G::Position) -> Vec<f64>,
    /// The action that a step took, given the chosen action and the next position; it may differ if actions are sticky.
    taken: fn(Action, &G::Position) -> Action,
    recorded: Vec<Value>,
}

impl<G: Game> Episodes<G> {
    fn of(game: G, state: fn(&G::Position) -> Vec<f64>) -> Self {
        Self { game, state, taken: |chosen, _| chosen, recorded: Vec::new() }
    }

    /// Plays episodes with random actions.
    fn random(self, comparison: Comparison) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        self.by(comparison, |_, legal| legal[rng.random_range(0..legal.len())])
    }

    /// Plays episodes with a policy, which chooses one of the legal actions.
    fn by(mut self, comparison: Comparison, mut policy: impl FnMut(&G::Position, &[Action]) -> Action) -> Self {
        for seed in 0..EPISODES {
            let mut position = self.game.start_from(seed);
            let (start, mut steps, mut legal) = (self.step(&position, 0.0), Vec::new(), Vec::new());
            while self.game.outcome(&position).is_none() {
                self.game.legal_actions(&position, &mut legal);
                let action = policy(&position, &legal);
                let reward = self.game.play(&mut position, action);
                let mut step = self.step(&position, reward);
                step["action"] = json!((self.taken)(action, &position).0);
                steps.push(step);
            }
            let whole = comparison == Comparison::Whole;
            self.recorded.push(json!({ "seed": seed, "whole": whole, "start": start, "steps": steps }));
        }
        self
    }

    /// Describes a position, and the reward of the action that led to it.
    fn step(&self, position: &G::Position, reward: f32) -> Value {
        let mut observation = vec![f32::NAN; self.game.spec().observation.len()];
        self.game.observe(position, &mut observation);
        let end = self.game.outcome(position).map(|outcome| match outcome {
            Outcome::Finished => "terminated",
            Outcome::Truncated => "truncated",
            Outcome::Win(_) | Outcome::Draw => panic!("an environment ended with {outcome:?}"),
        });
        json!({ "state": (self.state)(position), "observation": observation, "reward": reward, "end": end })
    }
}

/// Compares the episodes with the published implementation.
#[allow(clippy::print_stderr, reason = "the output of tests shows the largest difference")]
fn agrees<G: Game>(episodes: &Episodes<G>) {
    let Some(python) = python() else { return };
    let name = &episodes.game.spec().name;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("episodes.json");
    std::fs::write(&file, serde_json::to_string(&episodes.recorded).unwrap()).unwrap();
    let script = repository().join("tests/python/environments.py");
    let printed = python.run(&script, &[name, file.to_str().unwrap()], folder.path()).unwrap();
    let steps: usize = episodes.recorded.iter().map(|episode| episode["steps"].as_array().unwrap().len()).sum();
    let expected = format!("{name}: {} episodes of {steps} steps agree", episodes.recorded.len());
    assert!(printed.contains(&expected), "expected `{expected}`: {printed}");
    eprint!("{printed}");
}

#[test]
fn catch_agrees_with_bsuite() {
    let state = |position: &<Catch as Game>::Position| position.coordinates().map(f64::from).to_vec();
    agrees(&Episodes::of(Catch::new(), state).random(Comparison::Whole));
}

/// Pushes the cart so that the pole stays up and the cart near the middle.
fn balance(position: &cartpole::Position, _: &[Action]) -> Action {
    let state = position.state();
    let sum = state.position + 1.5 * state.velocity + 20.0 * state.angle + 3.0 * state.angular_velocity;
    Action(u16::from(sum > 0.0))
}

#[test]
fn cartpole_agrees_with_gymnasium_until_the_pole_falls_and_until_it_is_truncated() {
    for version in [cartpole::Version::V0, cartpole::Version::V1] {
        let episodes = Episodes::of(CartPole::new(version), |position| position.state().numbers().to_vec());
        agrees(&episodes.random(Comparison::Whole).by(Comparison::Stepwise, balance));
    }
}

#[test]
fn pendulum_agrees_with_gymnasium() {
    for torques in [5, 9] {
        let game = Pendulum::new(pendulum::Torques::new(torques).unwrap());
        agrees(&Episodes::of(game, |position| position.numbers().to_vec()).random(Comparison::Whole));
    }
}

/// Moves the paddle below the next position of the ball, or at random, so that some episodes last long enough to clear
/// a wall, and some are short.
fn follow(position: &breakout::Position, legal: &[Action]) -> Action {
    let numbers: Vec<u8> = position.numbers().collect();
    let (ball, direction, paddle) = (numbers[1], numbers[2], numbers[5]);
    let right = matches!(direction, 1 | 2);
    // In every fifth row, aims for the column of the ball itself, which sends it to another side.
    let next = if numbers[0] % 5 == 4 { ball } else { ball.saturating_add_signed(if right { 1 } else { -1 }).min(9) };
    let action = match paddle.cmp(&next) {
        std::cmp::Ordering::Less => 2,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    };
    legal[action]
}

#[test]
fn breakout_agrees_with_minatar_with_and_without_sticky_actions() {
    for sticky in [breakout::StickyActions::On, breakout::StickyActions::Off] {
        let mut episodes = Episodes::of(Breakout::new(sticky), |position| position.numbers().map(f64::from).collect());
        episodes.taken = |_, position| position.last_action();
        agrees(&episodes.random(Comparison::Whole).by(Comparison::Whole, follow));
    }
}

/// Walks at random, mostly forward, picks up the key and opens the door on the way; drops the key and closes the door
/// now and then.
fn explore(rng: &mut ChaCha8Rng, legal: &[Action]) -> Action {
    let [left, right, forward, pick_up, drop, toggle] = [0, 1, 2, 3, 4, 5];
    let usual = [left, right, forward, forward, forward, pick_up, toggle];
    let action = if rng.random_range(0..40) == 0 { drop } else { usual[rng.random_range(0..usual.len())] };
    legal[action]
}

#[test]
fn keys_and_doors_agree_with_minigrid() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut of_size = |size| {
        let game = KeysAndDoors::new(keys_and_doors::Size::new(size).unwrap());
        let episodes = Episodes::of(game, |position| position.numbers().map(f64::from).to_vec());
        episodes.by(Comparison::Whole, |_, legal| explore(&mut rng, legal))
    };
    let small = of_size(5);
    let goals = small
        .recorded
        .iter()
        .filter(|episode| episode["steps"].as_array().unwrap().last().unwrap()["end"] == "terminated");
    let (goals, episodes) = (goals.count(), small.recorded.len());
    assert!(goals > 2 && goals < episodes, "{goals} of {episodes} episodes reached the goal");
    agrees(&small.random(Comparison::Whole));
    agrees(&of_size(8));
}
