use super::*;

/// What the memory of a run holds after a session that goes on from `before` and writes once.
fn remembered(before: &str) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDirectory::new(folder.path(), "first").unwrap();
    run.create().unwrap();
    fs::write(run.metrics(), before).unwrap();
    let readings = Readings { elapsed_seconds: 7.0, ..Readings::default() };
    Record::open(&run, 0.0).unwrap().append(&readings).unwrap();
    read(&run).unwrap().into_iter().map(|readings| readings.elapsed_seconds).collect()
}

#[test]
fn a_session_goes_on_where_the_last_one_stopped() {
    assert_eq!(remembered(""), [7.0]);
    assert_eq!(remembered("{\"elapsed_seconds\": 5.0}\n"), [5.0, 7.0]);
}

#[test]
fn a_line_cut_short_by_a_crash_takes_no_other_with_it() {
    assert_eq!(remembered("{\"elapsed_seconds\": 5.0}\n{\"elapsed_sec"), [5.0, 7.0]);
}
