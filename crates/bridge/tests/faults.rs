//! Bridges to environments that count and misbehave: losses, continuation, and reports.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod interpreter;
mod process;

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use bridge::{Bridge, Error, Settings};
use game::{Action, Environments as _, Frame, Losses, Outcome, Play, Start, Started, Taken};
use interpreter::python;
use service::{Drain, DrainPipe};

/// The actions that misbehave in `fake_environments.py`.
const DIE: u16 = 10;
const HANG: u16 = 11;
const NAN: u16 = 12;
const WRONG_RESULT: u16 = 17;
const GRANDCHILD: u16 = 18;

fn settings(function: &str, environments: usize, processes: usize) -> Option<Settings> {
    let environment = format!("call:fake_environments:{function}");
    python().map(|python| interpreter::settings(&python, &environment, environments, processes))
}

fn begin(bridge: &mut Bridge, environments: impl IntoIterator<Item = usize>) -> Vec<Started> {
    let start = |environment| Start { environment, seed: 50 + environment as u64 };
    let starts: Vec<Start> = environments.into_iter().map(start).collect();
    let mut started = Vec::new();
    bridge.begin(&starts, &mut started).unwrap();
    started
}

/// Takes one action in each of these environments.
fn step(bridge: &mut Bridge, actions: &[(usize, u16)]) -> Vec<Taken> {
    let play = |&(environment, action)| Play { environment, action: Action(action) };
    let mut taken = Vec::new();
    bridge.step(&actions.iter().map(play).collect::<Vec<Play>>(), &mut taken).unwrap();
    taken
}

fn observed(bridge: &Bridge, environment: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; bridge.spec().observation.len()];
    bridge.observe(environment, &mut values);
    values
}

/// Returns the process id of an environment.
fn process_id(bridge: &Bridge, environment: usize) -> i32 {
    observed(bridge, environment)[3] as i32
}

fn is_alive(id: i32) -> bool {
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::test_kill_process(id).is_ok()
}

/// Waits until a process that is not a child of this process has exited.
fn await_end(id: i32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_alive(id) {
        assert!(Instant::now() < deadline, "process {id} is alive");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const fn reward(reward: f32) -> Taken {
    Taken::Step { reward, outcome: None }
}

#[test]
fn environments_of_two_processes_advance_in_any_order() {
    let Some(settings) = settings("Counting", 5, 2) else { return };
    let mut bridge = Bridge::start(settings).unwrap();
    let spec = bridge.spec();
    assert_eq!((spec.name.as_str(), spec.actions, spec.max_plies), ("gym:call:fake_environments:Counting", 20, 100));
    assert_eq!(begin(&mut bridge, [4, 0, 2, 1, 3]), [Started::Now; 5]);
    assert_eq!(step(&mut bridge, &[(3, 7), (0, 1), (4, 9)]), [reward(8.0), reward(2.0), reward(10.0)]);
    assert_eq!(step(&mut bridge, &[(0, 2), (1, 3)]), [reward(4.0), reward(4.0)]);
    let expected = [[50.0, 2.0, 2.0], [51.0, 1.0, 3.0], [52.0, 0.0, -1.0], [53.0, 1.0, 7.0], [54.0, 1.0, 9.0]];
    for (environment, expected) in expected.into_iter().enumerate() {
        assert_eq!(observed(&bridge, environment)[..3], expected, "environment {environment}");
    }
    assert_eq!(process_id(&bridge, 0), process_id(&bridge, 1));
    assert_ne!(process_id(&bridge, 1), process_id(&bridge, 2));
    assert_eq!(bridge.losses(), Losses::default());
}

#[test]
fn termination_truncation_and_the_limit_of_the_settings_are_told_apart() {
    let Some(settings) = settings("Counting", 3, 1) else { return };
    let mut bridge = Bridge::start(Settings { steps_max: Some(7), ..settings.clone() }).unwrap();
    let seeds = |seeds: [u64; 3]| [0, 1, 2].map(|environment| Start { environment, seed: seeds[environment] });
    // The first terminates before the limit, the second at the limit, the third later.
    bridge.begin(&seeds([3, 7, 9]), &mut Vec::new()).unwrap();
    let mut ends = Vec::new();
    let mut running = vec![0, 1, 2];
    for ply in 1..=7 {
        let plays: Vec<(usize, u16)> = running.iter().map(|&environment| (environment, 0)).collect();
        for ((environment, _), taken) in plays.iter().zip(step(&mut bridge, &plays)) {
            if let Taken::Step { outcome: Some(outcome), .. } = taken {
                running.retain(|other| other != environment);
                ends.push((*environment, ply, outcome));
            }
        }
    }
    assert_eq!(ends, [(0, 3, Outcome::Finished), (1, 7, Outcome::Finished), (2, 7, Outcome::Truncated)]);
    let mut legal = vec![Action(1)];
    bridge.legal_actions(2, &mut legal);
    assert!(legal.is_empty(), "{legal:?}");
    assert_eq!(observed(&bridge, 2)[..2], [9.0, 7.0], "the observation after the last step stays");

    let mut bridge = Bridge::start(Settings { environments: 1, ..settings }).unwrap();
    bridge.begin(&seeds([1000, 0, 0])[..1], &mut Vec::new()).unwrap();
    let ends: Vec<Taken> = (0..100).map(|_| step(&mut bridge, &[(0, 0)])[0]).collect();
    let [steps @ .., last] = &ends[..] else { panic!("100 steps") };
    assert!(steps.iter().all(|taken| matches!(taken, Taken::Step { outcome: None, .. })));
    assert_eq!(*last, Taken::Step { reward: 100.0, outcome: Some(Outcome::Truncated) }, "by the environment");
}

#[test]
fn pictures_are_bytes_with_the_channels_first_and_stack_the_oldest_first() {
    let Some(settings) = settings("Pictures", 2, 1) else { return };
    let mut bridge = Bridge::start(Settings { stack: 3, ..settings }).unwrap();
    let shape = bridge.spec().observation;
    assert_eq!((shape.planes, shape.height, shape.width), (6, 3, 4));
    begin(&mut bridge, [0, 1]);
    step(&mut bridge, &[(1, 0)]);
    step(&mut bridge, &[(1, 0)]);
    step(&mut bridge, &[(1, 0)]);
    let picture = |steps: usize| {
        let pixels = (0..12).map(|cell| (cell / 4, cell % 4));
        let rows = pixels.clone().map(move |(row, _)| 10 * steps + row);
        rows.chain(pixels.map(|(_, column)| column)).map(|value| u8::try_from(value).unwrap())
    };
    let unit = |bytes: u8| f32::from(bytes) / 255.0;
    assert_eq!(observed(&bridge, 1), (1..=3).flat_map(picture).map(unit).collect::<Vec<f32>>());
    assert_eq!(observed(&bridge, 0), [0, 0, 0].into_iter().flat_map(picture).map(unit).collect::<Vec<f32>>());
    let newest: Vec<u8> = picture(3).collect();
    assert_eq!(bridge.frame(1), Some(Frame::Bytes(&newest)), "a single frame is stored");
}

#[test]
fn actions_are_counted_from_the_first_of_the_environment() {
    let Some(settings) = settings("Counting", 1, 1) else { return };
    let arguments = r#"{"actions": 5, "start": -2}"#.into();
    let mut bridge = Bridge::start(Settings { arguments, ..settings }).unwrap();
    assert_eq!(bridge.spec().actions, 5);
    begin(&mut bridge, [0]);
    step(&mut bridge, &[(0, 4)]);
    assert_eq!(observed(&bridge, 0)[2], 2.0);
}

#[test]
fn a_process_that_dies_is_replaced_and_loses_its_episodes_only() {
    let Some(settings) = settings("Counting", 4, 2) else { return };
    let mut bridge = Bridge::start(settings).unwrap();
    begin(&mut bridge, 0..4);
    let first = process_id(&bridge, 0);
    assert_eq!(step(&mut bridge, &[(0, DIE), (2, 1), (3, 1)]), [Taken::Lost, reward(2.0), reward(2.0)]);
    assert_eq!(bridge.losses(), Losses { processes_died: 1, episodes: 2, ..Losses::default() });
    assert_eq!(step(&mut bridge, &[(1, 1), (2, 1)]), [Taken::Lost, reward(3.0)], "it was in the same process");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut steps = 1;
    while begin(&mut bridge, [0]) == [Started::NotYet] {
        assert!(Instant::now() < deadline, "the process was not replaced");
        steps += 1;
        // Seed 53 terminates after 53 steps.
        if steps < 53 {
            assert_eq!(step(&mut bridge, &[(3, 0)]), [reward(steps as f32)], "the others go on");
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(step(&mut bridge, &[(0, 1)]), [reward(2.0)]);
    assert_ne!(process_id(&bridge, 0), first);
}

#[test]
fn a_killed_process_is_noticed_and_the_only_process_is_waited_for() {
    let Some(settings) = settings("Counting", 2, 1) else { return };
    let mut bridge = Bridge::start(settings).unwrap();
    begin(&mut bridge, [0, 1]);
    let id = process_id(&bridge, 0);
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), rustix::process::Signal::KILL).unwrap();
    assert_eq!(step(&mut bridge, &[(0, 1), (1, 1)]), [Taken::Lost; 2]);
    assert_eq!(begin(&mut bridge, [1, 0]), [Started::Now; 2], "the begin waits for the replacement");
    assert_eq!(step(&mut bridge, &[(0, 1), (1, 1)]), [reward(2.0); 2]);
}

#[test]
fn a_process_that_hangs_is_killed_and_the_others_go_on() {
    let Some(settings) = settings("Counting", 2, 2) else { return };
    let mut bridge = Bridge::start(Settings { step_timeout: Duration::from_secs(3), ..settings }).unwrap();
    begin(&mut bridge, [0, 1]);
    let id = process_id(&bridge, 0);
    assert_eq!(step(&mut bridge, &[(0, HANG), (1, 1)]), [Taken::Lost, reward(2.0)]);
    assert_eq!(bridge.losses(), Losses { processes_hung: 1, episodes: 1, ..Losses::default() });
    assert!(!is_alive(id));
    assert_eq!(step(&mut bridge, &[(1, 1)]), [reward(3.0)]);
}

#[test]
fn an_environment_that_fails_loses_its_own_episode_only() {
    let Some(settings) = settings("Counting", 3, 1) else { return };
    let mut bridge = Bridge::start(settings).unwrap();
    begin(&mut bridge, [0, 1, 2]);
    for (failures, action) in (1_u8..).zip(NAN..=WRONG_RESULT) {
        let steps = f32::from(failures);
        let expected = [reward(steps), Taken::Lost, reward(steps)];
        assert_eq!(step(&mut bridge, &[(0, 0), (1, action), (2, 0)]), expected, "action {action}");
        let environments_failed = u64::from(failures);
        let losses = Losses { environments_failed, episodes: environments_failed, ..Losses::default() };
        assert_eq!(bridge.losses(), losses, "action {action}");
        assert_eq!(begin(&mut bridge, [1]), [Started::Now], "after action {action}");
    }
    assert_eq!(observed(&bridge, 0)[..3], [50.0, 6.0, 0.0]);
}

#[test]
fn an_environment_that_always_fails_is_given_up_with_its_reason() {
    for (function, expected) in [("BrokenStart", "NaN or infinite"), ("OldGym", "the older gym")] {
        let Some(settings) = settings(function, 2, 1) else { return };
        let mut bridge = Bridge::start(settings).unwrap();
        let starts = [0, 1].map(|environment| Start { environment, seed: 1 });
        let error = bridge.begin(&starts, &mut Vec::new()).unwrap_err();
        let message = error.source.to_string();
        assert!(message.contains(expected) && message.contains("cannot play episodes"), "{message}");
        assert_eq!(bridge.losses().environments_failed, 20);
    }
}

#[test]
fn a_process_that_always_dies_is_given_up_with_its_last_line() {
    let Some(settings) = settings("Counting", 1, 1) else { return };
    let mut bridge = Bridge::start(settings).unwrap();
    let play = [Play { environment: 0, action: Action(DIE) }];
    let mut taken = Vec::new();
    for death in 1..6 {
        begin(&mut bridge, [0]);
        bridge.step(&play, &mut taken).unwrap();
        assert_eq!((taken[0], bridge.losses().processes_died), (Taken::Lost, death));
    }
    begin(&mut bridge, [0]);
    let error = bridge.step(&play, &mut taken).unwrap_err();
    let message = error.source.to_string();
    let expected = "failed 6 times without a finished episode: the process ended with status 3";
    assert!(message.contains(expected) && message.contains("the environment is on fire"), "{message}");
}

#[test]
fn what_is_not_supported_is_refused_with_the_reason() {
    let cases = [
        ("continuous", "there are no continuous actions yet"),
        ("dictionary", "its observations are a Dict; a single array is needed"),
        ("unlimited", "has no step limit; set environment.steps_max"),
        ("broken", "OSError: no display"),
        ("dying", "the process ended with status 7; last line: no licence"),
        ("missing", "has no attribute 'missing'"),
        ("Discrete", "missing 1 required positional argument"),
        ("Dict", "a Dict was made, which is no environment: it has no action_space"),
    ];
    for (function, expected) in cases {
        let Some(settings) = settings(function, 2, 1) else { return };
        let message = Bridge::start(settings).unwrap_err().to_string();
        assert!(message.contains(expected), "{function}: {message}");
    }
    let Some(settings) = settings("unlimited", 1, 1) else { return };
    let bridge = Bridge::start(Settings { steps_max: Some(9), ..settings }).unwrap();
    assert_eq!(bridge.spec().max_plies, 9);
}

#[test]
fn an_environment_that_is_never_made_ends_the_start() {
    let Some(settings) = settings("hanging", 1, 1) else { return };
    let error = Bridge::start(Settings { start_timeout: Duration::from_secs(1), ..settings }).unwrap_err();
    assert!(error.to_string().contains("no response for 1 s"), "{error}");
}

/// Returns a drain and the descriptor, with the runtime that closes it.
fn drain() -> (tokio::runtime::Runtime, Drain, DrainPipe) {
    let (runtime, drain) = (tokio::runtime::Runtime::new().unwrap(), Drain::new());
    let pipe = runtime.block_on(async { drain.pipe() }).unwrap();
    (runtime, drain, pipe)
}

#[test]
fn a_drain_ends_every_wait_for_an_environment() {
    let Some(settings) = settings("Counting", 2, 2) else { return };
    // Longer than a drain waits; without a drain each wait stops at this limit.
    let long = Duration::from_secs(20);
    let (_runtime, drained, pipe) = drain();
    drained.start();
    let hanging = interpreter::settings(&python().unwrap(), "call:fake_environments:hanging", 1, 1);
    let start = Bridge::start_until(Settings { start_timeout: long, ..hanging }, Some(pipe));
    assert!(matches!(start, Err(Error::Drained { .. })), "{start:?}");

    let hanging = interpreter::settings(&python().unwrap(), "call:fake_environments:Faulty", 1, 1);
    let arguments = r#"{"fault": "it hangs"}"#.to_owned();
    let (_runtime, drained, pipe) = drain();
    let mut bridge = Bridge::start_until(Settings { arguments, step_timeout: long, ..hanging }, Some(pipe)).unwrap();
    drained.start();
    let error = bridge.try_episode().unwrap_err().to_string();
    assert!(error.contains("(the process is draining)"), "{error}");

    let (_runtime, drained, pipe) = drain();
    let mut bridge = Bridge::start_until(Settings { step_timeout: long, ..settings }, Some(pipe)).unwrap();
    begin(&mut bridge, [0, 1]);
    let id = process_id(&bridge, 0);
    drained.start();
    let taken = step(&mut bridge, &[(0, HANG), (1, 1)]);
    assert_eq!(taken, [Taken::Lost, reward(2.0)], "an answer that comes is taken");
    assert!(!is_alive(id));
    assert_eq!(step(&mut bridge, &[(1, DIE)]), [Taken::Lost]);
    let starts = [0, 1].map(|environment| Start { environment, seed: 1 });
    let error = bridge.begin(&starts, &mut Vec::new()).unwrap_err();
    assert!(error.source.to_string().contains("the process is draining"), "{error:?}");
}

/// Starts a bridge to environments that draw, with this fault, and begins the episodes.
fn drawing(fault: &str, processes: usize) -> Option<Bridge> {
    let arguments = format!("{{\"fault\": \"{fault}\"}}");
    let settings = Settings { arguments, step_timeout: Duration::from_secs(6), ..settings("Drawing", 2, processes)? };
    let mut bridge = Bridge::start(settings).unwrap();
    assert_eq!(bridge.picture(0), None, "no episode is under way");
    assert_eq!(begin(&mut bridge, [0, 1]), [Started::Now; 2]);
    Some(bridge)
}

#[test]
fn an_environment_draws_its_state_on_request_at_most_once_a_second() {
    let Some(mut bridge) = drawing("", 1) else { return };
    step(&mut bridge, &[(0, 1), (1, 1)]);
    assert_eq!(observed(&bridge, 0)[1..3], [1.0, 0.0], "nothing is drawn without a request");
    let begin = Instant::now();
    let first = bridge.picture(0).unwrap();
    // 300 × 400 pixels without two of three rows and columns.
    assert!(first.starts_with("iVBORw0KGgoAAAANSUhEUgAAAIYAAABkCAIA"), "{first}");
    let requests = std::iter::repeat_with(|| bridge.picture(0));
    let second = requests.take_while(|_| begin.elapsed() < Duration::from_secs(90)).flatten().next();
    assert_eq!(second.as_ref(), Some(&first), "the state is the same");
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(step(&mut bridge, &[(0, 1), (1, 1)]), [reward(3.0); 2]);
    assert_eq!(observed(&bridge, 0)[2], 2.0, "pictures");
    assert_ne!(bridge.picture(1).unwrap(), first, "after another step");
}

#[test]
fn a_large_picture_becomes_a_small_one() {
    let Some(mut bridge) = drawing("it draws noise", 1) else { return };
    let bytes = bridge.picture(0).unwrap().len();
    assert!((30_000..=service::live::PICTURE_BYTES_MAX).contains(&bytes), "{bytes}");
}

#[test]
fn an_environment_that_fails_to_draw_loses_no_episode_and_is_not_asked_again() {
    for fault in ["it raises", "it draws text"] {
        let Some(mut bridge) = drawing(fault, 1) else { return };
        assert_eq!([0; 2].map(|environment| bridge.picture(environment)), [None, None], "{fault}");
        assert_eq!(step(&mut bridge, &[(0, 1), (1, 1)]), [reward(2.0); 2], "{fault}");
        assert_eq!([0, 1].map(|environment| observed(&bridge, environment)[2]), [1.0, 0.0], "{fault}");
        assert_eq!(bridge.losses(), Losses::default(), "{fault}");
    }
}

#[test]
fn a_picture_that_ends_the_process_is_the_last_of_the_bridge() {
    for (fault, processes_died) in [("it dies", 1), ("it hangs", 0)] {
        let Some(mut bridge) = drawing(fault, 2) else { return };
        assert_eq!([0, 1].map(|environment| bridge.picture(environment)), [None, None], "{fault}");
        let processes_hung = 1 - processes_died;
        let losses = Losses { processes_died, processes_hung, episodes: 1, ..Losses::default() };
        assert_eq!(bridge.losses(), losses, "{fault}");
        assert_eq!(step(&mut bridge, &[(0, 1), (1, 1)]), [Taken::Lost, reward(2.0)], "{fault}");
    }
}

#[test]
fn environments_inherit_no_variable_that_is_not_listed() {
    // Cargo sets variables for this test, like a service with credentials.
    assert!(std::env::vars_os().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    let Some(settings) = settings("variables", 1, 1) else { return };
    let message = Bridge::start(settings.clone()).unwrap_err().to_string();
    assert!(message.contains(" PATH ") && !message.contains("CARGO"), "{message}");
    let pass_variables = vec!["CARGO_MANIFEST_DIR".to_owned(), "NO_SUCH_VARIABLE".to_owned()];
    let message = Bridge::start(Settings { pass_variables, ..settings }).unwrap_err().to_string();
    assert!(message.contains("CARGO_MANIFEST_DIR") && !message.contains("CARGO_PKG_VERSION"), "{message}");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = || Settings::new("CartPole-v1", folder.path());
    let cases = [
        (Settings { environments: 0, ..settings() }, "environments must be from 1 to 65,536"),
        (Settings { processes: 65, ..settings() }, "processes must be from 1 to the number of environments"),
        (Settings { stack: 0, ..settings() }, "stack must be from 1 to 64"),
        (Settings { step_timeout: Duration::ZERO, ..settings() }, "step_timeout must be from a millisecond to a day"),
        (Settings { python: "no-such-python".into(), ..settings() }, "Python interpreter no-such-python"),
    ];
    for (settings, expected) in cases {
        let message = Bridge::start(settings).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// Starts a program in place of Python that writes these bytes, in `printf` notation, and waits.
fn impostor(bytes: &str) -> Result<Bridge, Error> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("impostor");
    std::fs::write(&program, format!("#!/bin/sh\nprintf '{bytes}'\nsleep 60\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Bridge::start(Settings { python: program, ..Settings::new("CartPole-v1", folder.path()) })
}

#[test]
fn a_program_that_does_not_speak_the_protocol_is_refused_before_memory_is_allocated() {
    let cases = [
        (r"\377\377\377\177", "the frame has 2147483647 bytes, the limit is 8188"),
        ("Hello, world", "the frame has 1819043144 bytes"),
        (r"\005\000\000\000\001ABCD", "another program"),
        (r"\007\000\000\000\001ZFGY\002\000", "protocol version 2, expected 1"),
        (r"\001\000\000\000\005", "unknown message kind 5"),
        (r"\001\000\000\000\005\005", "bytes follow the response"),
    ];
    for (bytes, expected) in cases {
        let message = impostor(bytes).unwrap_err().to_string();
        assert!(message.contains(expected), "{bytes}: {message}");
    }
}

#[test]
fn a_dropped_bridge_ends_its_processes_and_a_hanging_one_with_those_that_it_started() {
    let Some(settings) = settings("Counting", 2, 2) else { return };
    let mut bridge = Bridge::start(Settings { step_timeout: Duration::from_secs(3), ..settings }).unwrap();
    begin(&mut bridge, [0, 1]);
    step(&mut bridge, &[(0, GRANDCHILD)]);
    let [grandchild, first] = [2, 3].map(|value| observed(&bridge, 0)[value] as i32);
    let second = process_id(&bridge, 1);
    assert!([grandchild, first, second].into_iter().all(is_alive));
    step(&mut bridge, &[(0, HANG)]);
    await_end(grandchild);
    assert!(!is_alive(first));
    assert!(is_alive(second));
    drop(bridge);
    assert!(!is_alive(second));
}
