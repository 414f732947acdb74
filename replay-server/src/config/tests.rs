use super::*;

fn refused(change: impl FnOnce(&mut ReplaySection)) -> String {
    let mut config = Config::default();
    change(&mut config.replay);
    config.settings().unwrap_err().to_string()
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
        ("replay.actions_max", refused(|replay| replay.actions_max = 1 << 40)),
    ] {
        assert!(said.contains(key), "{said}");
    }
}
