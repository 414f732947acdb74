use super::*;

fn run(folder: &Path) -> RunDirectory {
    let run = RunDirectory::new(folder, "first").unwrap();
    run.create().unwrap();
    run
}

#[test]
fn two_supervisors_never_share_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path());
    let lock = run.lock().unwrap();
    let error = run.lock().unwrap_err().to_string();
    let holder = std::process::id();
    assert_eq!(
        error,
        format!("run first is being trained by process {holder}; stop it, or choose another name with --run")
    );
    drop(lock);
    run.lock().unwrap();
}

#[test]
fn progress_survives() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path());
    assert_eq!(run.progress().unwrap(), None);
    let totals = BTreeMap::from([("games".to_owned(), 3.0)]);
    let replay = vec!["127.0.0.1:7001".parse().unwrap()];
    let progress = Progress { minutes: 15.0, elapsed_seconds: 61.5, inference: Inference::Remote, replay, totals };
    run.keep_progress(&progress).unwrap();
    assert_eq!(run.progress().unwrap(), Some(progress));
}

#[test]
fn progress_below_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path());
    run.keep_progress(&Progress { elapsed_seconds: -1.0, ..Progress::default() }).unwrap();
    let error = format!("{:#}", run.progress().unwrap_err());
    assert!(error.contains("progress.json: elapsed_seconds is -1, below 0"), "{error}");
}

#[test]
fn names_cannot_leave_the_folder() {
    for name in ["", "..", "a/b", ".hidden"] {
        assert!(RunDirectory::new(Path::new("runs"), name).is_err(), "{name}");
    }
}
