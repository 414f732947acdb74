//! Logs of other formats.

use super::*;

/// A segment as format 1 wrote it: trajectories without a time, totals behind them.
fn format_1(sequences: std::ops::Range<u64>) -> Vec<u8> {
    let head = br#"{"game":"test","counters":{"trajectories":0,"items":0,"samples":0},"seen":[]}"#;
    let mut bytes = Vec::new();
    frame::append(&mut bytes, &[&[1, 1], zstd::bulk::compress(head, 3).unwrap().as_slice()].concat()).unwrap();
    for sequence in sequences {
        let words = |kind: u8, words: [u64; 3]| [&[kind][..], &words.map(u64::to_le_bytes).concat()].concat();
        let content = zstd::bulk::compress(&text(sequence), 3).unwrap();
        let trajectory = [words(2, [3, 1, sequence]), 10_u32.to_le_bytes().to_vec(), content].concat();
        frame::append(&mut bytes, &trajectory).unwrap();
        frame::append(&mut bytes, &words(4, [sequence + 1, 10 * (sequence + 1), sequence])).unwrap();
    }
    bytes
}

#[test]
fn a_log_of_format_1_is_read_and_goes_on_in_a_segment_of_its_own() {
    let old = format_1(0..3);
    let memory = Memory::with([(SegmentNumber(1).file_name(), old.clone())].into());
    let (mut log, recovered, repairs) = open(&memory, 1 << 20).unwrap();
    let without_time = |sequence| Recovered::Trajectory { id: id(sequence), inserted: None, content: text(sequence) };
    assert_eq!((recovered, repairs), ((0..3).map(without_time).collect(), Vec::new()));
    assert_eq!(log.state().counters, Counters { trajectories: 3, items: 30, samples: 2 });
    assert_eq!(log.commit(&[entry(3)], 5).unwrap(), SegmentNumber(2));
    assert_eq!(memory.files()[&SegmentNumber(1).file_name()], old);
    let (again, recovered, _) = open(&memory, 1 << 20).unwrap();
    assert_eq!(recovered.last(), Some(&read_back(3)));
    assert_eq!((recovered.len(), again.state()), (4, log.state()));
}

#[test]
fn what_concerns_actors_and_tables_outlives_the_segments_in_which_it_was_written() {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, 600).unwrap();
    let counters = TableCounters { items: 70, samples: 700 };
    let table = |settings: Option<&str>| Note::Table { name: "late".into(), settings: settings.map(str::to_owned) };
    let gone = Note::Table { name: "gone".into(), settings: Some("{}".into()) };
    let notes = [
        Note::QuarantineActor(7),
        Note::QuarantineActor(8),
        Note::ReleaseActor(7),
        table(Some(r#"{"from":0.5}"#)),
        Note::TableCounters { table: "late".into(), counters },
        gone,
        Note::Table { name: "gone".into(), settings: None },
    ];
    log.commit(&notes.map(Entry::Note), 0).unwrap();
    for sequence in 0..40 {
        log.commit(&[entry(sequence)], 0).unwrap();
    }
    log.drop_before(log.segment()).unwrap();
    assert!(!memory.files().contains_key(&SegmentNumber(1).file_name()));
    let (again, _, _) = open(&memory, 600).unwrap();
    assert_eq!(again.state(), log.state());
    assert_eq!(again.state().quarantined_actors, [8].into());
    let late = TableState { settings: r#"{"from":0.5}"#.into(), counters };
    assert_eq!(again.state().tables, [("late".to_owned(), late)].into());
}

#[test]
fn several_threads_read_back_what_one_does_in_the_same_order() {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, 64 << 10).unwrap();
    for first in (0..3000).step_by(100) {
        log.commit(&(first..first + 100).map(entry).collect::<Vec<_>>(), first).unwrap();
    }
    assert!(memory.files().len() > 1);
    let many = LogSettings { threads: NonZeroUsize::new(4).unwrap(), ..settings(64 << 10) };
    let (again, recovered, repairs) = open_with(&memory, many).unwrap();
    assert_eq!((recovered, repairs), (all_read_back(0..3000), Vec::new()));
    assert_eq!(again.state(), log.state());
}

#[test]
fn a_newer_format_behind_many_records_still_ends_the_reading() {
    let memory = written(0, 1 << 20);
    let (mut log, _, _) = open(&memory, 1 << 20).unwrap();
    log.commit(&(0..2000).map(entry).collect::<Vec<_>>(), 0).unwrap();
    let (name, mut bytes) = memory.files().pop_first().unwrap();
    frame::append(&mut bytes, &[1, 77]).unwrap();
    let many = LogSettings { threads: NonZeroUsize::new(4).unwrap(), ..settings(1 << 20) };
    let error = open_with(&Memory::with([(name, bytes)].into()), many).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Format { found: 77, .. }), "{error}");
}
