//! A trial episode before an environment is used: faults are named, harmless behaviour is accepted.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod interpreter;
mod process;

use std::time::Duration;

use bridge::{Bridge, Error, Settings, Trial};
use game::Outcome;
use interpreter::python;

fn settings(class: &str, arguments: &str) -> Option<Settings> {
    let settings = interpreter::settings(&python()?, &format!("call:fake_environments:{class}"), 1, 1);
    Some(Settings { arguments: arguments.to_owned(), ..settings })
}

fn tried(settings: Settings) -> Result<Trial, Error> {
    Bridge::start(settings).unwrap().try_episode()
}

#[test]
fn every_fault_is_named_with_the_call_that_has_it() {
    let cases = [
        ("reset takes no seed", "reset(seed=1): TypeError: ", "older gym"),
        ("reset returns an observation", "reset(seed=1): ValueError: reset() returned a ndarray", "older gym"),
        ("reset raises", "reset(seed=1): RuntimeError: the board is lost", ""),
        ("step returns four values", "step 3: ValueError: step() returned a tuple of 4 values", "older gym"),
        ("a wrapper unpacks four values", "step 1: ValueError: not enough values to unpack", "older gym"),
        ("the observation is shorter", "step 3: ValueError: the observation has the shape (3,) instead of (4,)", ""),
        ("the observation is text", "step 3: ValueError: the observation is of <U1 instead of float32", ""),
        ("the observation is a dictionary", "step 3: ValueError: the observation is a dict", ""),
        ("terminated is text", "step 3: ValueError: terminated is 'no', True or False is needed", ""),
        ("truncated is a dictionary", "step 3: ValueError: truncated is {}, True or False is needed", ""),
        ("it dies", "step 3: the process ended with status 3", ""),
    ];
    for (fault, expected, hint) in cases {
        let Some(settings) = settings("Faulty", &format!("{{\"fault\": \"{fault}\"}}")) else { return };
        let message = tried(settings).unwrap_err().to_string();
        assert!(message.contains(&format!(" failed in {expected}")) && message.contains(hint), "{fault}: {message}");
    }
}

#[test]
fn a_step_that_hangs_is_named_with_the_limit_of_its_time() {
    let Some(settings) = settings("Faulty", r#"{"fault": "it hangs"}"#) else { return };
    let message = tried(Settings { step_timeout: Duration::from_secs(2), ..settings }).unwrap_err().to_string();
    let expected = "failed in step 3: no response for 2 s (environment.step_timeout_seconds)";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_reward_is_whatever_holds_one_number() {
    for reward in ["1", "True", "1.0", "np.float32(1)", "np.int64(1)", "np.array(1.0)", "np.array([1.0])", "[[1]]"] {
        let Some(settings) = settings("Reward", &format!("{{\"reward\": \"{reward}\"}}")) else { return };
        let Trial { steps, reward: sum, outcome, .. } = tried(settings).unwrap();
        assert_eq!((steps, sum, outcome), (1, 1.0, Some(Outcome::Finished)), "{reward}: seed 1 ends after a step");
    }
}

#[test]
fn a_reward_that_is_no_single_finite_number_is_named() {
    let cases = [
        ("np.array([1.0, 2.0])", "the reward has the shape (2,), a number is needed"),
        ("[]", "the reward has the shape (0,), a number is needed"),
        ("None", "the reward is None, a number is needed"),
        ("'1'", "the reward is '1', a number is needed"),
        ("{}", "the reward is {}, a number is needed"),
        ("[1, [2]]", "the reward is [1, [2]], a number is needed"),
        ("1j", "the reward is 1j, a number is needed"),
        ("float('nan')", "the reward is NaN"),
        ("-1e300", "the reward is -inf"),
    ];
    for (reward, expected) in cases {
        let Some(settings) = settings("Reward", &format!("{{\"reward\": \"{reward}\"}}")) else { return };
        let message = tried(settings).unwrap_err().to_string();
        assert!(message.contains("failed in step 1: ") && message.contains(expected), "{reward}: {message}");
    }
}

#[test]
fn a_trial_stops_before_the_end_of_a_long_episode() {
    let Some(settings) = settings("Endless", "{}") else { return };
    let Trial { steps, outcome, .. } = tried(settings).unwrap();
    assert!((1..=1000).contains(&steps) && outcome.is_none(), "{steps} steps, {outcome:?}");
}

#[test]
fn values_outside_the_bounds_of_the_space_are_no_fault_and_are_reported() {
    let Some(settings) = settings("Outside", "{}") else { return };
    let printed = tried(settings).unwrap().printed.unwrap();
    assert!(printed.contains("outside the bounds of its space, 0.0 to 1.0"), "{printed}");
}
