use std::io::Write as _;

use super::*;

/// A line of shell as a process of the fleet.
fn shell(folder: &std::path::Path, script: &str) -> Settings {
    Settings {
        name: "actor-0".to_owned(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        log: folder.join("actor-0.log"),
    }
}

fn start(folder: &std::path::Path, script: &str) -> Child {
    Child::start(shell(folder, script), Instant::now()).unwrap()
}

/// Waits for the next event, as of `now`; a minute is a deadline, not a measurement.
fn event(child: &mut Child, now: Instant) -> Event {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(event) = child.watch(now).unwrap() {
            return event;
        }
        std::thread::yield_now();
    }
    panic!("nothing happened");
}

#[test]
fn a_process_that_dies_is_started_again_after_a_growing_pause() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "echo 'error: out of luck' >&2; exit 1");
    let mut now = Instant::now();
    for pause in [500, 1000, 2000].map(Duration::from_millis) {
        let last_words = "error: out of luck".to_owned();
        assert_eq!(event(&mut child, now), Event::Died { how: "ended with status 1".to_owned(), last_words, pause });
        now += pause;
        assert_eq!(event(&mut child, now), Event::Restarted);
    }
    assert_eq!(child.restarts(), 3);
    assert_eq!(backoff(40), BACKOFF_MAX);
}

#[test]
fn a_process_that_refuses_its_configuration_is_not_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "echo 'error: unknown key' >&2; exit 2");
    let why = "refuses to start: error: unknown key".to_owned();
    assert_eq!(event(&mut child, Instant::now()), Event::GivenUp { why });
    assert_eq!(child.watch(Instant::now() + BACKOFF_MAX).unwrap(), None);
}

#[test]
fn a_process_that_ends_again_and_again_is_given_up_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "echo 'error: no more disk' >&2; exit 1");
    let mut now = Instant::now();
    for _ in 1..DEATHS_IN_A_ROW_MAX {
        assert!(matches!(event(&mut child, now), Event::Died { .. }));
        now += BACKOFF_MAX;
        assert_eq!(event(&mut child, now), Event::Restarted);
    }
    let Event::GivenUp { why } = event(&mut child, now) else { panic!("it is not given up") };
    assert!(why.contains("5 times") && why.ends_with("error: no more disk"), "{why}");
}

#[test]
fn a_process_that_is_killed_is_never_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "kill -KILL $$");
    let mut now = Instant::now();
    for _ in 0..3 * DEATHS_IN_A_ROW_MAX {
        assert!(matches!(event(&mut child, now), Event::Died { .. }));
        now += BACKOFF_MAX;
        assert_eq!(event(&mut child, now), Event::Restarted);
    }
}

#[test]
fn a_missing_libtorch_is_named_with_the_command_that_fetches_it() {
    let folder = tempfile::tempdir().unwrap();
    let loader = "learner: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file";
    let mut child = start(folder.path(), &format!("echo '{loader}' >&2; exit 127"));
    let Event::GivenUp { why } = event(&mut child, Instant::now()) else { panic!("it is not given up") };
    assert!(why.contains("libtorch is missing or damaged; run cargo xtask libtorch"), "{why}");
}

/// Waits until it has ended; what [`Child::ended`] had to say.
fn end(child: &mut Child) -> Option<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let failure = child.ended().unwrap();
        if !child.running() {
            return failure;
        }
        std::thread::yield_now();
    }
    panic!("it does not end");
}

/// Waits until these are the last words in its log.
fn hear(child: &Child, words: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while last_line(&child.settings) != words {
        assert!(Instant::now() < deadline, "it never says {words}");
        std::thread::yield_now();
    }
}

#[test]
fn a_process_that_our_signal_ends_before_it_listens_has_drained() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "exec sleep 60");
    child.terminate();
    assert_eq!(end(&mut child), None);
}

#[test]
fn a_process_that_fails_to_drain_is_told_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(
        folder.path(),
        "trap 'echo error: no more disk; exit 1' TERM; echo listening; while :; do sleep 0.01; done",
    );
    hear(&child, "listening");
    child.terminate();
    assert_eq!(end(&mut child).unwrap(), "ended with status 1; its last words: error: no more disk");
}

#[test]
fn what_goes_over_the_run_file_is_not_passed_on_to_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let settings = shell(folder.path(), "exit 0");
    let variables = ["PATH", "ZEROFLEETS", "ZEROFLEET__RUN__DIRECTORY"].map(OsString::from);
    let command = command(&settings, variables.into_iter());
    let changes: Vec<_> = command.get_envs().collect();
    assert_eq!(changes, [(std::ffi::OsStr::new("ZEROFLEET__RUN__DIRECTORY"), None)]);
}

#[test]
fn standard_input_stays_open_until_the_supervisor_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "while read word; do echo $word; done; echo it is over");
    for word in ["one", "another"] {
        let input = child.process.as_mut().unwrap().stdin.as_mut().expect("its input is ours");
        writeln!(input, "{word}").unwrap();
        hear(&child, word);
        assert_eq!(child.watch(Instant::now()).unwrap(), None);
    }
    drop(child.process.as_mut().unwrap().stdin.take());
    let Event::Died { last_words, .. } = event(&mut child, Instant::now()) else { panic!("it did not end") };
    assert_eq!(last_words, "it is over");
}
