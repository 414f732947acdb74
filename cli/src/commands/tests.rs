use super::*;

#[test]
fn a_picture_of_an_unknown_run_is_answered_with_the_runs_there_are() {
    let runs = tempfile::tempdir().unwrap();
    let picture = Picture { run: "second".to_owned(), runs: runs.path().to_owned() };
    let error = picture.run().unwrap_err().to_string();
    assert!(error.starts_with("no run second in") && error.ends_with("zerofleet train makes one"), "{error}");
}
