//! Gymnasium environments through the bridge, against the same environments in Python alone.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod interpreter;
mod process;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bridge::{Bridge, Settings};
use game::{Action, Environments as _, ObservationShape, Outcome, Play, Start, Taken};
use interpreter::{modules, python};

/// Bits of a reward, two flags, bits of an observation.
type Row = Vec<u32>;

/// Plays `episodes` episodes in Python; returns the rows of each.
fn played_directly(environment: &str, episodes: usize, actions: usize) -> Option<Vec<Vec<Row>>> {
    let python = python()?;
    let arguments = [environment, &episodes.to_string(), &actions.to_string()];
    let printed = python.run(&modules().join("play_directly.py"), &arguments, &modules()).unwrap();
    let mut played: Vec<Vec<Row>> = Vec::new();
    let mut is_over = true;
    for line in printed.lines() {
        let row: Row = line.split(' ').map(|number| number.parse().unwrap()).collect();
        if std::mem::replace(&mut is_over, row[1] + row[2] > 0) {
            played.push(Vec::new());
        }
        played.last_mut().unwrap().push(row);
    }
    Some(played)
}

fn row(bridge: &Bridge, environment: usize, reward: f32, outcome: Option<Outcome>) -> Row {
    let mut values = vec![f32::NAN; bridge.spec().observation.len()];
    bridge.observe(environment, &mut values);
    let ends = [Outcome::Finished, Outcome::Truncated].map(|end| u32::from(outcome == Some(end)));
    [reward.to_bits()].into_iter().chain(ends).chain(values.into_iter().map(f32::to_bits)).collect()
}

/// Plays the same episodes through a bridge, one in each environment, concurrently.
fn played_through(bridge: &mut Bridge) -> Vec<Vec<Row>> {
    let (len, actions) = (bridge.len(), bridge.spec().actions);
    let starts: Vec<Start> =
        (0..len).map(|environment| Start { environment, seed: 1000 + environment as u64 }).collect();
    bridge.begin(&starts, &mut Vec::new()).unwrap();
    let mut played: Vec<Vec<Row>> = (0..len).map(|environment| vec![row(bridge, environment, 0.0, None)]).collect();
    let mut running: Vec<usize> = (0..len).collect();
    let mut taken = Vec::new();
    for step in 0_usize.. {
        if running.is_empty() {
            break;
        }
        let action = |environment: usize| Action(u16::try_from((environment + step * step / 3) % actions).unwrap());
        let plays: Vec<Play> =
            running.iter().map(|&environment| Play { environment, action: action(environment) }).collect();
        bridge.step(&plays, &mut taken).unwrap();
        for (play, taken) in plays.iter().zip(&taken) {
            let Taken::Step { reward, outcome } = *taken else { panic!("environment {} is lost", play.environment) };
            played[play.environment].push(row(bridge, play.environment, reward, outcome));
            if outcome.is_some() {
                running.retain(|&other| other != play.environment);
            }
        }
    }
    played
}

fn assert_same_episodes(environment: &str, shape: ObservationShape, actions: usize, max_plies: usize) {
    const EPISODES: usize = 12;
    let Some(expected) = played_directly(environment, EPISODES, actions) else { return };
    assert_eq!(expected.len(), EPISODES);
    let settings = interpreter::settings(&python().unwrap(), environment, EPISODES, 2);
    let mut bridge = Bridge::start(settings).unwrap();
    let spec = bridge.spec();
    assert_eq!((spec.observation, spec.actions, spec.max_plies), (shape, actions, max_plies));
    let played = played_through(&mut bridge);
    for (episode, (played, expected)) in played.iter().zip(&expected).enumerate() {
        assert_eq!(played.len(), expected.len(), "steps of episode {episode} of {environment}");
        for (step, (row, expected)) in played.iter().zip(expected).enumerate() {
            assert_eq!(row, expected, "episode {episode} of {environment}, after {step} steps");
        }
    }
}

const fn vector(planes: usize) -> ObservationShape {
    ObservationShape { planes, height: 1, width: 1 }
}

#[test]
fn episodes_of_cart_pole_through_the_bridge_are_those_of_gymnasium_bit_by_bit() {
    assert_same_episodes("CartPole-v1", vector(4), 2, 500);
}

#[test]
fn episodes_of_lunar_lander_through_the_bridge_are_those_of_gymnasium_bit_by_bit() {
    assert_same_episodes("LunarLander-v3", vector(8), 4, 1000);
}

#[test]
fn truncated_episodes_through_the_bridge_are_those_of_gymnasium_bit_by_bit() {
    // Only the goal at the top ends an episode before the limit, and these actions do not reach it.
    assert_same_episodes("MountainCar-v0", vector(2), 3, 200);
}

#[test]
fn an_environment_of_gymnasium_draws_if_the_settings_say_so() {
    for render in [false, true] {
        let Some(python) = python() else { return };
        let settings = Settings { render, ..interpreter::settings(&python, "CartPole-v1", 1, 1) };
        let mut bridge = Bridge::start(settings).unwrap();
        bridge.begin(&[Start { environment: 0, seed: 1 }], &mut Vec::new()).unwrap();
        assert_eq!(bridge.picture(0).is_some(), render);
    }
}

#[test]
fn an_environment_with_continuous_actions_and_one_that_does_not_exist_are_refused() {
    let Some(python) = python() else { return };
    for (environment, expected) in [("Pendulum-v1", "no continuous actions yet"), ("NoSuchThing-v0", "NameNotFound")] {
        let message = Bridge::start(interpreter::settings(&python, environment, 1, 1)).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// Follows the advice in the refusal of an environment, and plays an episode; returns the number of actions and the
/// shape.
fn follow_advice(environment: &str) -> Option<(usize, [usize; 3])> {
    let python = python()?;
    let refused = Bridge::start(interpreter::settings(&python, environment, 1, 1)).unwrap_err().to_string();
    let (advice, code) = refused.split_once("\n\n").unwrap_or_else(|| panic!("no code: {refused}"));
    assert!(
        advice.contains("write the following to wrapped.py, name the environment gym:call:wrapped:make"),
        "{advice}"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("wrapped.py"), code).unwrap();
    let mut settings = interpreter::settings(&python, "call:wrapped:make", 1, 1);
    settings.modules.push(folder.path().to_owned());
    let mut bridge = Bridge::start(Settings { steps_max: Some(50), ..settings }).unwrap();
    bridge.try_episode().unwrap_or_else(|error| panic!("{error}\n{code}"));
    let ObservationShape { planes, height, width } = bridge.spec().observation;
    Some((bridge.spec().actions, [planes, height, width]))
}

#[test]
fn what_is_advised_for_a_space_that_is_not_supported_works() {
    let cases = [
        ("Blackjack-v1", 2, [45, 1, 1]),
        ("Pendulum-v1", 3, [3, 1, 1]),
        ("call:unsupported:picture_and_mission", 3, [3, 7, 7]),
        ("call:unsupported:numbers_and_mission", 3, [6, 1, 1]),
        ("call:unsupported:tuple_with_mission", 3, [6, 1, 1]),
        ("call:unsupported:text", 3, [5, 1, 1]),
        ("call:unsupported:four_dimensions", 3, [120, 1, 1]),
        ("call:unsupported:torques", 81, [3, 1, 1]),
        ("call:unsupported:gears", 6, [3, 1, 1]),
        ("call:unsupported:keys", 8, [3, 1, 1]),
        ("call:unsupported:nested", 216, [3, 1, 1]),
        ("call:unsupported:both", 6, [5, 1, 1]),
    ];
    for (environment, actions, shape) in cases {
        let Some(found) = follow_advice(environment) else { return };
        assert_eq!(found, (actions, shape), "{environment}");
    }
}

#[test]
fn no_code_is_advised_where_none_would_work() {
    let Some(python) = python() else { return };
    for (environment, expected) in [
        ("call:unsupported:sequence", "a wrapper of your own (gymnasium.ObservationWrapper)"),
        ("call:unsupported:unbounded", "a wrapper of your own (gymnasium.ActionWrapper)"),
        ("call:unsupported:too_many", "a wrapper of your own (gymnasium.ActionWrapper)"),
    ] {
        let message = Bridge::start(interpreter::settings(&python, environment, 1, 1)).unwrap_err().to_string();
        assert!(message.contains(expected) && !message.contains('\n'), "{environment}: {message}");
    }
}

#[test]
fn a_missing_package_is_reported_with_the_command_that_installs_it() {
    let Some(python) = python() else { return };
    let settings = interpreter::settings(&python, "CartPole-v1", 1, 1);
    let folder = tempfile::tempdir().unwrap();
    // A module with this name hides the installed package.
    std::fs::write(folder.path().join("gymnasium.py"), "raise ImportError('no gymnasium')").unwrap();
    let modules = [folder.path().to_owned()].into_iter().chain(settings.modules.clone()).collect();
    let message = Bridge::start(Settings { modules, ..settings }).unwrap_err().to_string();
    assert!(message.contains("no gymnasium") && message.contains("-m pip install gymnasium"), "{message}");
}

#[test]
fn a_process_ends_with_its_parent_also_while_an_environment_hangs() {
    let Some(python) = python() else { return };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let path = std::env::join_paths([&package, &modules(), python.packages()].map(AsRef::<Path>::as_ref)).unwrap();
    let mut command = Command::new(python.program());
    command.args(["-Bm", "zerofleet_gym", "--env", "call:fake_environments:Counting"]).env("PYTHONPATH", path);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut hello = [0; 36];
    child.stdout.as_mut().unwrap().read_exact(&mut hello).unwrap();
    let mut input = child.stdin.take().unwrap();
    // A request to begin with seed 1, then a step with the hanging action: see docs/environments.md.
    input.write_all(&[17, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    input.write_all(&[13, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0]).unwrap();
    let mut answer = [0; 30];
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    assert!(child.try_wait().unwrap().is_none(), "it waits or hangs");
    drop(input);
    let deadline = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the process outlives its parent");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_environment_of_the_docs_can_be_played() {
    let Some(python) = python() else { return };
    let docs =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/environments.md")).unwrap();
    let code = docs.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("corridor.py"), code).unwrap();
    let mut settings = interpreter::settings(&python, "call:corridor:make", 8, 1);
    settings.modules.push(folder.path().to_owned());
    let mut bridge = Bridge::start(settings).unwrap();
    let starts: Vec<Start> = (0..8).map(|environment| Start { environment, seed: environment as u64 }).collect();
    bridge.begin(&starts, &mut Vec::new()).unwrap();
    let cell = |bridge: &Bridge, environment: usize| {
        let mut values = [f32::NAN; 9];
        bridge.observe(environment, &mut values);
        values.iter().position(|&value| value == 1.0).unwrap()
    };
    let first: Vec<usize> = (0..8).map(|environment| cell(&bridge, environment)).collect();
    assert!(first.iter().any(|other| *other != first[0]), "the start depends on the seed: {first:?}");
    let mut taken = Vec::new();
    for (environment, first) in first.into_iter().enumerate() {
        let right = [Play { environment, action: Action(1) }];
        let mut steps = 0;
        loop {
            bridge.step(&right, &mut taken).unwrap();
            steps += 1;
            match taken[0] {
                Taken::Step { reward: -0.1, outcome: None } => {}
                Taken::Step { reward: -0.1, outcome: Some(Outcome::Finished) } => break,
                other => panic!("{other:?} after {steps} steps from cell {first}"),
            }
        }
        assert_eq!((steps, cell(&bridge, environment)), (8 - first, 8));
    }
}
