use super::super::tests::report;
use super::*;

#[test]
fn every_share_that_can_be_seen_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("phases.svg");
    draw(&path, &report()).unwrap();
    let svg = std::fs::read_to_string(path).unwrap();
    let shares = ["evaluation 40.0 %", "backward 50.0 %", "waiting for training 90.0 %", "actor-0 56.2 %"];
    for text in shares.into_iter().chain(["time of 2 self-play threads", "CPU time of all processes"]) {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert!(!svg.contains("checkpoint"), "what took no time has no name");
}

#[test]
fn names_stay_within_the_width() {
    for bar in bars(&report()) {
        for line in lines(&bar) {
            let width: i32 = line.iter().map(|part| label_width(part)).sum();
            assert!(width <= i32::try_from(WIDTH).unwrap() - 2 * MARGIN, "{width}");
        }
    }
}

#[test]
fn without_cpu_times_there_is_no_bar_of_them() {
    let mut report = report();
    report.processes.iter_mut().for_each(|process| process.cpu_share = None);
    assert_eq!(bars(&report).len(), report.threads.len());
}
