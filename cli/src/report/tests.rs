use std::collections::BTreeMap;
use std::path::Path;

use run_metrics::Health;

use super::*;
use crate::record::Record;

/// Creates a run directory of Hex for 40 minutes that contains only the configuration.
fn begin(runs: &Path) -> RunDirectory {
    let run = RunDirectory::new(runs, "first").unwrap();
    run.create().unwrap();
    let mut config = RunFile::default();
    (config.run.game, config.run.seed) = ("hex-5".to_owned(), 7);
    config.learner.schedule_minutes = 40.0;
    fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
    run
}

/// Writes metrics of ten minutes to the run, in which the loss falls to 1.
fn train(run: &RunDirectory) {
    let mut record = Record::open(run, &RunFile::default()).unwrap();
    for minute in 0..=10 {
        let loss_total = Some(2.0 - f64::from(minute) / 10.0);
        let elapsed_seconds = f64::from(60 * minute);
        record.append(&RunMetrics { elapsed_seconds, loss_total, ..RunMetrics::default() }).unwrap();
    }
}

fn written(run: &RunDirectory) -> Vec<String> {
    let names = ["summary.md", "summary.json", "picture.svg", "report.html"];
    names.iter().map(|name| fs::read_to_string(run.path().join(name)).unwrap()).collect()
}

#[test]
fn a_report_needs_only_metrics_and_configuration() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    train(&run);
    again(&run).unwrap();
    let [summary, _, picture, report] = written(&run).try_into().unwrap();
    assert!(summary.contains("| game, seed | hex-5, 7 |"), "{summary}");
    assert!(summary.contains("| trained | 10:00 of 40:00 |"), "{summary}");
    assert!(summary.contains("| loss | 1.000"), "{summary}");
    assert!(picture.contains("zerofleet learns hex-5: run first") && picture.contains("1.20 total"), "{picture}");
    let row = "<th scope=\"row\">trained</th><td>10:00 of 40:00</td>";
    assert!(report.contains(row) && report.contains("1.20 total"), "{report}");
}

#[test]
fn a_device_is_reported_with_its_mean_load_and_its_most_memory() {
    let used = |busy: f64, bytes: f64| DeviceUse {
        device: "cuda".to_owned(),
        name: Some("NVIDIA H100".to_owned()),
        roles: ["actor".to_owned()].into(),
        busy_share: Some(busy),
        memory_held_bytes: Some(bytes),
        memory_bytes: Some(8e9),
        ..DeviceUse::default()
    };
    let cpu = DeviceUse { device: "cpu".to_owned(), ..DeviceUse::default() };
    let run = [vec![], vec![used(0.9, 4e9), cpu.clone()], vec![used(0.7, 2e9), cpu.clone()]];
    let lines = crate::screen::device_lines(&DeviceUse::over(run.iter().flatten()));
    assert_eq!(lines, ["cuda H100 (actor): busy 80 %, 4.0 of 8.0 GB", "cpu ()"]);
    let summary = Summary { devices: vec![cpu], ..summary(RunMetrics::default()) };
    assert_eq!(row(&summary, "device (mean load, maximum memory)").as_deref(), None, "a CPU has neither");
    assert_eq!(row(&summary, "device").unwrap(), "cpu");
}

#[test]
fn a_repeated_report_is_identical_including_restarts() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    train(&run);
    let command = "zerofleet train --set 'a=b|c'".to_owned();
    let origin = Origin { command, commit: "0123456789ab".to_owned(), cores: 2, ..Origin::default() };
    write(&run, vec![("learner".to_owned(), 2)], origin).unwrap();
    let before = written(&run);
    let command = "| command | zerofleet train --set 'a=b\\|c' |\n| commit | 0123456789ab |\n";
    for row in ["| restarts of learner | 2 |", command] {
        assert!(before[0].contains(row), "{}", before[0]);
    }
    again(&run).unwrap();
    assert_eq!(written(&run), before);
}

#[test]
fn a_line_cut_short_by_a_crash_is_skipped() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    train(&run);
    let mut lines = fs::read(run.metrics()).unwrap();
    lines.extend(b"{\"elapsed_seconds\": 660.0, \"loss_to");
    fs::write(run.metrics(), lines).unwrap();
    let text = again(&run).unwrap();
    assert!(text.contains("10:00 of 40:00") && text.ends_with("report.html"), "{text}");
}

#[test]
fn a_picture_of_an_unknown_run_is_an_error_that_lists_the_runs() {
    let runs = tempfile::tempdir().unwrap();
    let picture = Args { run: "second".to_owned(), runs: runs.path().to_owned() };
    let error = picture.run().unwrap_err().to_string();
    assert!(error.starts_with("no run second in") && error.ends_with("zerofleet train starts one"), "{error}");
}

#[test]
fn a_run_without_metrics_is_an_error_with_a_remedy() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    let error = again(&run).unwrap_err().to_string();
    let command = printed_command::train(&run);
    assert_eq!(error, format!("run first has no metrics yet; train it with {command}"));
}

/// Returns the summary of a run that trained for two minutes and has `last` as the last metrics.
fn summary(last: RunMetrics) -> Summary {
    Summary {
        run: "first".to_owned(),
        game: "connect_four".to_owned(),
        boards: vec!["connect_four".to_owned()],
        seed: 1,
        minutes: 2.0,
        restarts: vec![("actor-0".to_owned(), 0), ("learner".to_owned(), 3)],
        last: RunMetrics { elapsed_seconds: 60.0, ..last },
        ..Summary::default()
    }
}

/// Returns the value in the row `name` of the plain text; `None` without such a row.
fn row(summary: &Summary, name: &str) -> Option<String> {
    let text = summary.plain();
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix("  "));
    let mut rows = rows.map(|value| value.trim().to_owned());
    rows.next()
}

#[test]
fn the_date_is_that_of_the_last_reading_in_utc() {
    assert_eq!(date(1_764_296_851.5), "2025-11-28 02:27 UTC");
    assert_eq!([0.0, -1.0, f64::NAN, 1e12, 1e300].map(date), [""; 5]);
}

#[test]
fn rates_are_those_of_the_whole_run() {
    let summary = summary(RunMetrics { games: Some(120.0), games_per_second: Some(99.0), ..RunMetrics::default() });
    assert_eq!(row(&summary, "games").unwrap(), "120, 2.0 per second");
    assert_eq!(row(&summary, "trained").unwrap(), "1:00 of 2:00");
}

#[test]
fn the_time_of_a_role_is_divided_among_its_own_phases() {
    let seconds = [("actor/search", 20.0), ("actor/wait", 60.0), ("learner/train", 1.0), ("learner/wait", 3.0)];
    let seconds = seconds.map(|(key, seconds)| (key.to_owned(), seconds));
    let summary = summary(RunMetrics { seconds: BTreeMap::from(seconds), ..RunMetrics::default() });
    assert_eq!(row(&summary, "time of actor").unwrap(), "search 25 %, wait 75 %");
    assert_eq!(row(&summary, "time of learner").unwrap(), "train 25 %, wait 75 %");
}

#[test]
fn unknown_values_have_no_row_or_are_shown_as_missing() {
    let summary = summary(RunMetrics::default());
    assert_eq!(row(&summary, "solved positions, raw policy"), None);
    assert_eq!(row(&summary, "time of actor"), None);
    assert_eq!(row(&summary, "loss").unwrap(), "no training step yet");
    assert_eq!(row(&summary, "held-out games"), None);
}

#[test]
fn the_loss_of_a_learner_that_reports_none_is_not_that_of_an_untrained_run() {
    let summary = summary(RunMetrics { steps: Some(5.0), ..RunMetrics::default() });
    assert_eq!(row(&summary, "loss").unwrap(), "not reported");
}

#[test]
fn the_newest_validation_has_a_row() {
    let validated = RunMetrics {
        validation_loss_policy: Some(1.25),
        validation_policy_accuracy: Some(0.625),
        validation_value_squared_error: Some(0.5),
        ..RunMetrics::default()
    };
    // MuZero values are not probabilities, so that they have neither a value loss nor a calibration error.
    assert_eq!(row(&summary(validated.clone()), "held-out games").unwrap(), "policy 1.250 · best move 62.5 %");
    let of_games =
        RunMetrics { validation_loss_value: Some(0.75), validation_calibration_error: Some(0.031), ..validated };
    assert_eq!(
        row(&summary(of_games), "held-out games").unwrap(),
        "policy 1.250 · value 0.750 · best move 62.5 % · calibration 3.1 %"
    );
}

#[test]
fn games_scored_by_rewards_have_a_mean_return_in_place_of_elo() {
    let returns = RunMetrics {
        return_mean: Some(487.25),
        return_low: Some(470.0),
        return_high: Some(504.5),
        random_return: Some(22.4),
        episode_length: Some(487.25),
        ..RunMetrics::default()
    };
    let summary = summary(returns);
    assert_eq!(row(&summary, "mean return").unwrap(), "487 (470 to 504)");
    assert_eq!(row(&summary, "mean return of random play").unwrap(), "22.4");
    assert_eq!(row(&summary, "Elo (random play is 0)"), None);
}

#[test]
fn only_processes_with_restarts_are_listed() {
    let summary = summary(RunMetrics::default());
    assert_eq!(
        (row(&summary, "restarts of learner").as_deref(), row(&summary, "restarts of actor-0")),
        (Some("3"), None)
    );
}

#[test]
fn the_screen_shows_every_row_of_the_file() {
    let shares =
        [("raw/preserving/overall", 0.75), ("search/preserving/overall", 0.5), ("search/value_error/overall", 0.25)];
    let accuracy = BTreeMap::from(shares.map(|(name, value)| (name.to_owned(), value)));
    let summary = summary(RunMetrics { accuracy, elo: Some(812.0), ..RunMetrics::default() });
    let rows = summary.markdown().lines().skip(4).count();
    assert_eq!(summary.plain().lines().count(), rows);
    assert_eq!(row(&summary, "solved positions, raw policy").unwrap(), "outcome kept 75.0 %, best move –");
    let searched = row(&summary, "solved positions, with search").unwrap();
    assert_eq!(searched, "outcome kept 50.0 %, best move –, value error 0.250");
}

/// Returns metrics with every fault that a summary reports.
fn faulty() -> RunMetrics {
    let health = Health {
        fault: Some("the replay server refuses every game".to_owned()),
        unstored: BTreeMap::from([("invalid".to_owned(), 12.0)]),
        lost_devices: vec!["learner".to_owned(), "actor".to_owned()],
        without_graphs: vec!["actor: a replay differs".to_owned()],
        lost_episodes: Some(9.0),
        environment_failures: Some(4.0),
        support: Some(25.0),
        beyond_support_share: Some(0.5),
        target_magnitude_max: Some(700.0),
        ..Health::default()
    };
    RunMetrics { health, ..RunMetrics::default() }
}

#[test]
fn what_a_run_lost_or_did_not_learn_has_rows_and_a_sound_run_has_none() {
    let found = summary(faulty());
    assert_eq!(row(&found, "fault").unwrap(), "the replay server refuses every game");
    assert!(row(&found, "replay").unwrap().ends_with(", 12 games refused"));
    assert_eq!(row(&found, "lost").unwrap(), "9 episodes, in 4 environment failures");
    let device = row(&found, "GPU lost").unwrap();
    assert!(device.starts_with("learner and actor on the CPU after a fault"), "{device}");
    assert_eq!(row(&found, "no graphs").unwrap(), "actor: a replay differs");
    assert!(row(&found, "targets").unwrap().contains("network.support = 27"), "{}", found.plain());
    let sound = summary(RunMetrics::default());
    assert!(
        ["fault", "GPU lost", "no graphs", "lost", "targets"].iter().all(|name| row(&sound, name).is_none()),
        "{}",
        sound.plain()
    );
}

#[test]
fn the_fault_of_the_last_reading_counts_though_the_learner_answered_earlier() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    let mut record = Record::open(&run, &RunFile::default()).unwrap();
    for reading in [RunMetrics { steps: Some(7.0), ..RunMetrics::default() }, faulty()] {
        record.append(&reading).unwrap();
    }
    assert!(again(&run).unwrap().contains("the replay server refuses every game"));
    record.append(&RunMetrics::default()).unwrap();
    assert!(!again(&run).unwrap().contains("fault"), "it was over");
}
