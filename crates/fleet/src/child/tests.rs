use std::io::Write as _;

use super::*;

/// Returns the settings of a fleet process that runs a line of shell.
fn shell(folder: &std::path::Path, script: &str) -> Settings {
    Settings {
        name: "actor-0".to_owned(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: Vec::new(),
        log: folder.join("actor-0.log"),
    }
}

fn start(folder: &std::path::Path, script: &str) -> Child {
    Child::start(shell(folder, script), Instant::now()).unwrap()
}

/// Waits for the next event, as of `now`. The minute is a deadline, not a measurement.
fn event(child: &mut Child, now: Instant) -> Event {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(event) = child.watch(now).unwrap() {
            return event;
        }
        std::thread::yield_now();
    }
    panic!("no event before the deadline");
}

#[test]
fn a_process_that_dies_is_restarted_after_a_growing_delay() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "echo 'error: out of luck' >&2; exit 1");
    let mut now = Instant::now();
    for pause in [500, 1000, 2000].map(Duration::from_millis) {
        let last_log_line = "error: out of luck".to_owned();
        assert_eq!(event(&mut child, now), Event::Died { how: "ended with status 1".to_owned(), last_log_line, pause });
        now += pause;
        assert_eq!(event(&mut child, now), Event::Restarted);
    }
    assert_eq!(child.restarts(), 3);
    assert_eq!(backoff(40), BACKOFF_MAX);
}

#[test]
fn the_end_of_a_process_that_is_not_restarted_is_returned_once_with_its_last_error() {
    let folder = tempfile::tempdir().unwrap();
    let (how, last_log_line) = ("ended with status 1".to_owned(), "error: out of luck".to_owned());
    let mut child = start(folder.path(), "echo 'error: out of luck' >&2; echo done; exit 1");
    assert_eq!(exit(&mut child), Exit { succeeded: false, how, last_log_line });
    assert_eq!((child.exit().unwrap(), child.running()), (None, false));
    assert!(exit(&mut start(folder.path(), "exit 0")).succeeded);
}

#[test]
fn a_process_that_rejects_its_configuration_is_not_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "echo 'error: unknown key' >&2; exit 2");
    let why = "refuses to start: error: unknown key".to_owned();
    assert_eq!(event(&mut child, Instant::now()), Event::Refused { why });
    assert_eq!(child.watch(Instant::now() + BACKOFF_MAX).unwrap(), None);
}

#[test]
fn a_process_that_loses_its_device_is_restarted_once_without_it_and_a_configured_device_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("devices");
    let script = "device=${1:-gpu}; echo \"with $device, lost: $ZEROFLEET_DEVICE_LOST\" >>";
    let script = format!("{script} {}; test $device = cpu || exit 3; exec sleep 60", file.display());
    let devices = || std::fs::read_to_string(&file).unwrap_or_default();
    let settings = shell(folder.path(), &script);
    let child = Child::start(settings.clone(), Instant::now()).unwrap();
    let mut child = child.or_without_device(["sh".into(), "cpu".into()]);
    let now = Instant::now();
    let Event::Died { how, pause, .. } = event(&mut child, now) else { panic!("the process did not end") };
    assert_eq!((how.as_str(), pause), ("lost the accelerator and continues on the CPU", BACKOFF_MIN));
    assert_eq!(event(&mut child, now + pause), Event::Restarted);
    let deadline = Instant::now() + Duration::from_secs(60);
    while devices().lines().count() < 2 {
        assert!(Instant::now() < deadline, "{}", devices());
        std::thread::yield_now();
    }
    assert_eq!(devices(), "with gpu, lost: \nwith cpu, lost: 1\n");
    child.kill();

    let mut configured = Child::start(settings, Instant::now()).unwrap();
    let Event::Died { how, .. } = event(&mut configured, now) else { panic!("the process did not end") };
    assert_eq!(how, "ended with status 3");
}

#[test]
fn a_process_that_fails_repeatedly_is_given_up_with_its_last_log_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "echo 'error: no more disk' >&2; exit 1");
    let mut now = Instant::now();
    for _ in 1..DEATHS_IN_A_ROW_MAX {
        assert!(matches!(event(&mut child, now), Event::Died { .. }));
        now += BACKOFF_MAX;
        assert_eq!(event(&mut child, now), Event::Restarted);
    }
    let Event::GivenUp { why } = event(&mut child, now) else { panic!("the process is not given up") };
    assert!(why.contains("5 times") && why.ends_with("error: no more disk"), "{why}");
}

#[test]
fn a_drain_that_fails_is_an_event_and_one_that_succeeds_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    for status in [0, 3] {
        let script =
            format!("trap 'echo bye; exit {status}' TERM; : > {}; while :; do sleep 0.1; done", ready.display());
        let mut child = start(folder.path(), &script);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ready.exists() {
            assert!(Instant::now() < deadline, "the process starts");
            std::thread::yield_now();
        }
        std::fs::remove_file(&ready).unwrap();
        child.terminate();
        let mut seen = None;
        while child.running() {
            assert!(Instant::now() < deadline, "the process ends");
            seen = seen.or(child.watch(Instant::now()).unwrap());
        }
        let why = "ended with status 3 instead of draining; last log line: bye".to_owned();
        assert_eq!(seen, (status == 3).then_some(Event::GivenUp { why }));
    }
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
    let Event::Refused { why } = event(&mut child, Instant::now()) else { panic!("the process does not refuse") };
    assert!(why.contains("libtorch is missing or damaged; run cargo xtask libtorch"), "{why}");
}

/// Waits for the exit of a process that is not restarted.
fn exit(child: &mut Child) -> Exit {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(exit) = child.exit().unwrap() {
            return exit;
        }
        std::thread::yield_now();
    }
    panic!("no end before the deadline");
}

/// Waits until `line` is the last line of the log.
fn wait_for_last_line(child: &Child, line: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while last_line(&child.settings) != line {
        assert!(Instant::now() < deadline, "the log does not end with {line}");
        std::thread::yield_now();
    }
}

#[test]
fn a_process_ended_by_sigterm_before_it_has_a_handler_has_drained() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), "exec sleep 60");
    child.terminate();
    assert!(exit(&mut child).succeeded);
}

#[test]
fn a_process_that_fails_to_drain_is_reported_with_its_last_log_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(
        folder.path(),
        "trap 'echo error: no more disk; exit 1' TERM; echo listening; while :; do sleep 0.01; done",
    );
    wait_for_last_line(&child, "listening");
    child.terminate();
    let (how, last_log_line) = ("ended with status 1".to_owned(), "error: no more disk".to_owned());
    assert_eq!(exit(&mut child), Exit { succeeded: false, how, last_log_line });
}

#[test]
fn variables_that_override_the_run_file_are_not_passed_to_a_process() {
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
        wait_for_last_line(&child, word);
        assert_eq!(child.watch(Instant::now()).unwrap(), None);
    }
    drop(child.process.as_mut().unwrap().stdin.take());
    let Event::Died { last_log_line, .. } = event(&mut child, Instant::now()) else {
        panic!("the process did not end")
    };
    assert_eq!(last_log_line, "it is over");
}

#[test]
fn standard_output_in_place_of_the_log_is_kept_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    let settings = shell(folder.path(), "echo to the supervisor; echo to the log >&2; exit 1");
    let mut child = Child::start_writing_to(Some(writer.into()), settings, Instant::now()).unwrap();
    let mut now = Instant::now();
    for _ in 0..2 {
        let Event::Died { last_log_line, .. } = event(&mut child, now) else { panic!("the process did not end") };
        assert_eq!(last_log_line, "to the log");
        now += BACKOFF_MAX;
        assert_eq!(event(&mut child, now), Event::Restarted);
    }
    drop(child);
    let mut written = String::new();
    reader.read_to_string(&mut written).unwrap();
    // The last process may be killed before it writes.
    assert!(written.starts_with("to the supervisor\nto the supervisor\n"), "{written}");
}

#[test]
fn a_requested_restart_drains_the_process_and_adds_arguments_without_counting_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut child =
        start(folder.path(), "trap 'echo drained; exit 0' TERM; echo started $0 $1; while :; do sleep 0.01; done");
    let log = || std::fs::read_to_string(folder.path().join("actor-0.log")).unwrap_or_default();
    let wait = |text: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !log().contains(text) {
            assert!(Instant::now() < deadline, "{}", log());
            std::thread::yield_now();
        }
    };
    wait("started");
    child.restart_with(["four".into(), "threads".into()]);
    assert_eq!(event(&mut child, Instant::now()), Event::Restarted);
    wait("started four threads");
    assert!(log().contains("drained"));
    assert_eq!(child.restarts(), 0);
    child.kill();
}
