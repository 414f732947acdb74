use super::super::report::Compared;
use super::super::tests::report;
use super::*;

#[test]
fn every_phase_of_every_kind_of_threads_is_a_row() {
    let text = markdown(&report());
    assert!(text.contains("\n| self-play (2) | evaluation | 8.00 s | 40.0 % | 50.0 % |\n"), "{text}");
    assert!(text.contains("\n| training (1) | backward | 5.00 s | 50.0 % | 25.0 % |\n"), "{text}");
    assert!(!text.contains("change"), "{text}");
}

#[test]
fn the_bottleneck_comes_with_what_to_change() {
    let text = markdown(&report());
    assert!(text.contains("\n**The learner is the bottleneck: it trains 90 % of its time"), "{text}");
    assert!(text.contains("lower replay.samples_per_insert"), "{text}");
}

#[test]
fn processes_and_cost_follow() {
    let text = markdown(&report());
    assert!(text.contains("\n| actor-0 | 9.00 s | 56.2 % | 1.00 s | 64 MiB |\n"), "{text}");
    let cost = "10 epochs of 100000 training positions take 0.14 hours at this speed, in which self-play makes 250.0k moves, \
                and cost 0.42 at 3 per hour.\n";
    assert!(text.ends_with(cost), "{text}");
}

#[test]
fn what_the_system_does_not_tell_is_said_to_be_not_measured() {
    let mut report = report();
    report.threads[0].phases[0].cpu_share = None;
    report.processes[0].cpu_seconds = None;
    report.processes[0].cpu_share = None;
    report.processes[0].sockets_cpu_seconds = None;
    report.processes[0].memory_bytes = None;
    let text = markdown(&report);
    assert!(text.contains("\n| actor-0 | not measured | not measured | not measured | not measured |\n"), "{text}");
    assert!(text.contains("| self-play (2) | selection | 2.00 s | 10.0 % | not measured |\n"), "{text}");
}

#[test]
fn accelerators_are_named_with_what_they_did() {
    let mut report = report();
    assert!(markdown(&report).contains("\n- accelerator: none here\n"));
    let busy = Accelerator { name: "A".to_owned(), busy_share: Some(0.25), memory_bytes: Some(3 << 20) };
    report.accelerators = vec![busy.clone(), Accelerator { busy_share: None, ..busy }];
    let text = markdown(&report);
    assert!(text.contains("\n- accelerator: A, busy 25.0 % of the time, 3 MiB in use\n"), "{text}");
    assert!(text.contains("\n- accelerator: A, busy not measured of the time, 3 MiB in use\n"), "{text}");
}

#[test]
fn changes_stand_beside_what_they_are_to() {
    let mut report = report();
    report.compared = Some(Compared {
        file: "before.json".to_owned(),
        cpu: "Another CPU".to_owned(),
        positions_ratio: Some(1.5),
        training_positions_ratio: None,
    });
    report.threads[0].phases[0].wall_share_change = Some(-0.125);
    let text = markdown(&report);
    let change =
        "- change: to before.json, measured on Another CPU; moves/s 1.50 times, positions trained on/s not measured";
    assert!(text.contains(change), "{text}");
    assert!(text.contains("| self-play (2) | selection | 2.00 s | 10.0 % | 12.5 % | -12.5 points |\n"), "{text}");
    assert!(text.contains("| self-play (2) | evaluation | 8.00 s | 40.0 % | 50.0 % | – |\n"), "{text}");
}
