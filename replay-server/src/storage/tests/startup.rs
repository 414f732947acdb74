//! The start of a server on a log: memory, and measurements of the restored trajectories.

use super::*;

#[test]
fn a_log_larger_than_the_memory_is_refused_with_both_sizes_and_opens_where_it_fits() {
    let files = files_of(&[0, 1, 2, 3].map(insert_entry));
    let needed = (0..4).map(|sequence| trajectory(id(sequence)).bytes() as u64).sum::<u64>();
    let restored = |memory_bytes_max| {
        let memory = Memory::with(files.clone());
        let startup = Startup { memory_bytes_max: Some(memory_bytes_max), ..Startup::in_tests() };
        let restored = restore(memory.clone(), &settings(), startup);
        assert_eq!(memory.files(), files, "nothing is lost");
        restored.map(|(_, restored, _)| restored.tables[0].table().trajectories())
    };
    let error = restored(needed - 1).unwrap_err().to_string();
    let words =
        format!("need {needed} bytes of memory, and this machine or the limit of the container leaves {}", needed - 1);
    assert!(error.contains(&words) && error.contains("replay.capacity_items"), "{error}");
    assert_eq!(restored(needed).unwrap(), 4);
}

#[test]
fn repetition_is_measured_from_the_trajectories_of_the_log_and_exported_by_the_first_tick_after_a_restart() {
    let entry = |sequence| {
        let positions = [1, 2, 3, 4 + sequence];
        let content = encode(&trajectory(id(sequence)).with_positions(&positions, &[]).unwrap(), UnixMillis(1));
        Entry::Trajectory { id: id(sequence), items: ITEMS as u32, content: content.unwrap() }
    };
    let files = files_of(&[0, 1, 2, 3].map(entry));
    let (_, restored, _) = restore(Memory::with(files), &settings(), Startup::in_tests()).unwrap();
    let (to_log, _commands) = sync_channel(LOG_COMMANDS_MAX);
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let mut tables = TableService::new(restored, &settings(), to_log, Clock::start());
        tables.apply(Command::Tick, Instant::now());
    });
    let text = recorder.handle().render();
    for line in [
        "distinct_share{part=\"overall\"} 0.4375",
        "distinct_share{part=\"empty/0-7\"} 0.4375",
        "distinct_share{part=\"empty/8-15\"} NaN",
        "distinct_share{part=\"other\"} NaN",
        "top_1000_share 1",
    ] {
        assert!(text.contains(&format!("\nzerofleet_replay_{line}\n")), "{line} is not in {text}");
    }
}
