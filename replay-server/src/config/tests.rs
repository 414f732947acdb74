use std::num::NonZeroU32;

use service::config::{SECTIONS, Sources};

use super::*;

fn refused(change: impl FnOnce(&mut ReplaySection)) -> String {
    let mut config = Config::default();
    change(&mut config.replay);
    config.settings().unwrap_err().to_string()
}

fn recent(change: impl FnOnce(&mut TableSection)) -> TableSection {
    let mut table = TableSection { name: "recent".to_owned(), ..TableSection::default() };
    change(&mut table);
    table
}

fn numbered(number: usize) -> TableSection {
    recent(|table| table.name = format!("recent-{number}"))
}

#[test]
fn the_main_table_is_what_the_section_itself_says_and_others_follow() {
    let mut config = Config::default();
    config.replay.samples_per_insert = 2.0;
    config.replay.tables = vec![recent(|table| table.blocks_inserts = false)];
    let tables = config.settings().unwrap().tables;
    let [main, recent] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!((main.name.as_str(), main.rate_limiter.samples_per_insert, main.blocks_inserts), (MAIN, 2.0, true));
    assert_eq!((recent.name.as_str(), recent.blocks_inserts), ("recent", false));
    assert_eq!(recent.rate_limiter.samples_per_insert, TableSection::default().samples_per_insert);
}

#[test]
fn the_defaults_make_sense() {
    let settings = Config::default().settings().unwrap();
    assert_eq!(settings.directory, PathBuf::from("runs/default/replay"));
}

#[test]
fn a_key_out_of_range_is_named() {
    for (key, said) in [
        ("replay.window_exponent", refused(|replay| replay.window_exponent = 1.5)),
        ("replay.window_slope", refused(|replay| replay.window_slope = 0.0)),
        ("replay.window_items_min", refused(|replay| replay.window_items_min = 0)),
        ("replay.capacity_items", refused(|replay| replay.capacity_items = 10)),
        ("replay.samples_per_insert", refused(|replay| replay.samples_per_insert = -1.0)),
        ("replay.min_items", refused(|replay| replay.min_items = 0)),
        ("replay.min_items", refused(|replay| replay.min_items = 1 << 40)),
        ("replay.error_items", refused(|replay| replay.error_items = 1.0)),
        ("replay.segment_bytes", refused(|replay| replay.segment_bytes = 1)),
        ("replay.fsync_ms", refused(|replay| replay.fsync_ms = 60_000)),
        ("replay.steps_max", refused(|replay| replay.steps_max = 0)),
        ("replay.exponent", refused(|replay| (replay.selector, replay.exponent) = (SelectorName::Prioritised, -1.0))),
        ("replay.age_max_hours", refused(|replay| replay.age_max_hours = Some(0.0))),
        ("replay.streams_max", refused(|replay| replay.streams_max = 0)),
        ("replay.actor_inserts_per_second_max", refused(|replay| replay.actor_inserts_per_second_max = u64::MAX)),
        ("replay.tables.recent.min_items", refused(|replay| replay.tables = vec![recent(|table| table.min_items = 0)])),
        ("replay.tables.main", refused(|replay| replay.tables = vec![recent(|table| table.name = MAIN.to_owned())])),
        ("replay.tables.a b.name", refused(|replay| replay.tables = vec![recent(|table| table.name = "a b".into())])),
        ("replay.tables", refused(|replay| replay.tables = (0..TABLES_MAX).map(numbered).collect())),
        ("replay.actions_max", refused(|replay| replay.actions_max = 1 << 40)),
    ] {
        assert!(said.contains(key), "{said}");
    }
}

#[test]
fn bounds_that_are_missing_may_be_set_and_0_is_none() {
    let load = |sets: &[&str]| {
        let sets = sets.iter().map(ToString::to_string).collect();
        let sources = Sources { file: None, env: std::iter::empty(), sets };
        sources.load::<Config>(SECTIONS).unwrap().replay
    };
    let set = load(&[
        "replay.max_times_sampled=4",
        "replay.age_max_hours=1.5",
        "replay.bytes_max=1000",
        "replay.lag_versions_max=3",
        "replay.memory_bytes_max=2000",
    ]);
    let expected = ReplaySection {
        max_times_sampled: NonZeroU32::new(4),
        age_max_hours: Some(1.5),
        bytes_max: Some(1000),
        lag_versions_max: Some(3),
        memory_bytes_max: Some(2000),
        ..ReplaySection::default()
    };
    assert_eq!(set, expected);
    let none = ["max_times_sampled", "age_max_hours", "bytes_max", "lag_versions_max", "memory_bytes_max"];
    let none = none.map(|key| format!("replay.{key}=0"));
    assert_eq!(load(&none.each_ref().map(String::as_str)), ReplaySection::default());
}
