use std::collections::BTreeMap;

use super::*;

/// A run of two minutes that has told this much.
fn summary(last: Readings) -> Summary {
    Summary {
        run: "first".to_owned(),
        game: "connect_four".to_owned(),
        seed: 1,
        minutes: 2.0,
        restarts: vec![("actor-0".to_owned(), 0), ("learner".to_owned(), 3)],
        last: Readings { elapsed_seconds: 60.0, ..last },
    }
}

/// What stands beside a name on the screen; `None` where it has no row.
fn row(summary: &Summary, name: &str) -> Option<String> {
    let text = summary.plain();
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix("  "));
    let mut rows = rows.map(|value| value.trim().to_owned());
    rows.next()
}

#[test]
fn rates_are_those_of_the_whole_run() {
    let summary = summary(Readings { games: Some(120.0), games_per_second: Some(99.0), ..Readings::default() });
    assert_eq!(row(&summary, "games").unwrap(), "120, 2.0 per second");
    assert_eq!(row(&summary, "trained").unwrap(), "1:00 of 2:00");
}

#[test]
fn the_time_of_a_role_is_divided_among_its_own_phases() {
    let seconds = [("actor/search", 20.0), ("actor/wait", 60.0), ("learner/train", 1.0), ("learner/wait", 3.0)];
    let seconds = seconds.map(|(key, seconds)| (key.to_owned(), seconds));
    let summary = summary(Readings { seconds: BTreeMap::from(seconds), ..Readings::default() });
    assert_eq!(row(&summary, "time of actor").unwrap(), "search 25 %, wait 75 %");
    assert_eq!(row(&summary, "time of learner").unwrap(), "train 25 %, wait 75 %");
}

#[test]
fn what_nobody_told_has_no_row_or_is_told_as_missing() {
    let summary = summary(Readings::default());
    assert_eq!(row(&summary, "solved positions, raw policy"), None);
    assert_eq!(row(&summary, "time of actor"), None);
    assert_eq!(row(&summary, "loss").unwrap(), "– = policy – + value –");
}

#[test]
fn only_who_was_started_again_is_listed() {
    let summary = summary(Readings::default());
    assert_eq!(
        (row(&summary, "restarts of learner").as_deref(), row(&summary, "restarts of actor-0")),
        (Some("3"), None)
    );
}

#[test]
fn the_screen_shows_every_row_of_the_file() {
    let accuracy = BTreeMap::from([("raw/preserving/overall".to_owned(), 0.75)]);
    let summary = summary(Readings { accuracy, elo: Some(812.0), ..Readings::default() });
    let rows = summary.markdown().lines().skip(4).count();
    assert_eq!(summary.plain().lines().count(), rows);
    assert_eq!(row(&summary, "solved positions, raw policy").unwrap(), "outcome kept 75.0 %, best move –");
}
