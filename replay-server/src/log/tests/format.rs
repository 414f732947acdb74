//! Logs of other formats.

use super::*;

/// Returns the first frame of a segment in the layout of formats 1 and 2.
fn old(format: u8) -> Vec<u8> {
    let head = br#"{"game":"test","counters":{"trajectories":0,"items":0,"samples":0},"seen":[]}"#;
    let payload = [&[1, format], zstd::bulk::compress(head, 3).unwrap().as_slice()].concat();
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend(crc32c::crc32c(&payload).to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend(payload);
    bytes
}

#[test]
fn a_log_of_an_older_format_is_refused_with_its_version_and_left_unchanged() {
    for format in [1, 2] {
        let memory = Memory::with([(SegmentNumber(1).file_name(), old(format))].into());
        let files = memory.files();
        let error = open(&memory, 1 << 20).map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("has format {format}, this program reads format 3")), "{error}");
        assert_eq!(memory.files(), files);
    }
}

#[test]
fn operator_records_of_actors_and_tables_survive_the_drop_of_their_segments() {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, 600).unwrap();
    let counters = TableCounters { items: 70, samples: 700 };
    let table =
        |settings: Option<&str>| OperatorRecord::Table { name: "late".into(), settings: settings.map(str::to_owned) };
    let gone = OperatorRecord::Table { name: "gone".into(), settings: Some("{}".into()) };
    let records = [
        OperatorRecord::Quarantine(Suspect::Actor(7)),
        OperatorRecord::Quarantine(Suspect::Actor(8)),
        OperatorRecord::Release(Suspect::Actor(7)),
        table(Some(r#"{"from":0.5}"#)),
        OperatorRecord::TableCounters { table: "late".into(), counters },
        gone,
        OperatorRecord::Table { name: "gone".into(), settings: None },
    ];
    log.commit(&records.map(Entry::Operator), 0).unwrap();
    for sequence in 0..40 {
        log.commit(&[entry(sequence)], 0).unwrap();
    }
    log.drop_before(log.segment()).unwrap();
    assert!(!memory.files().contains_key(&SegmentNumber(1).file_name()));
    let (again, _, _) = open(&memory, 600).unwrap();
    assert_eq!(again.state(), log.state());
    assert_eq!(again.state().quarantined_actors, [8].into());
    let late = LoggedTable { settings: r#"{"from":0.5}"#.into(), counters };
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
fn a_segment_with_a_damaged_beginning_is_named_and_kept_unchanged_and_the_log_goes_on_behind_it() {
    let memory = written(3, 1 << 20);
    let (name, mut bytes) = memory.files().pop_first().unwrap();
    bytes[..frame::PROLOGUE_BYTES].fill(0);
    let damaged = Memory::with([(name.clone(), bytes.clone())].into());
    let refused = open(&damaged, 1 << 20).map(drop).unwrap_err();
    assert!(refused.to_string().contains(&name), "{refused}");
    let open =
        |memory: &Memory| open_with(memory, LogSettings { damaged_head: DamagedHead::Accept, ..settings(1 << 20) });
    let (mut log, entries, repairs) = open(&damaged).unwrap();
    assert_eq!((entries.len(), repairs.len(), repairs[0].cut), (0, 1, false));
    assert_eq!(log.commit(&[entry(9)], 0).unwrap(), SegmentNumber(2));
    assert_eq!(damaged.files()[&name], bytes);
    assert_eq!(open(&damaged).unwrap().1, [read_back(9)]);
}

#[test]
fn a_log_is_not_opened_without_any_head_unless_its_first_segment_is_there() {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, 300).unwrap();
    log.commit(&[Entry::Operator(OperatorRecord::Quarantine(Suspect::Actor(7)))], 0).unwrap();
    for sequence in 0..9 {
        log.commit(&[entry(sequence)], 0).unwrap();
    }
    let damage = |memory: &Memory| {
        let mut files = memory.files();
        files.values_mut().for_each(|bytes| bytes[frame::PROLOGUE_BYTES + frame::HEADER_BYTES + 2] ^= 1);
        Memory::with(files)
    };
    let whole = open(&damage(&memory), 300).unwrap().0;
    assert_eq!((&whole.state().seen, &whole.state().quarantined_actors), (&log.state().seen, &[7].into()));
    log.drop_before(log.segment()).unwrap();
    let damaged = damage(&memory);
    assert!(matches!(open(&damaged, 300).map(drop).unwrap_err(), OpenError::Head { .. }));
    let accepted = LogSettings { damaged_head: DamagedHead::Accept, ..settings(300) };
    assert_eq!(open_with(&damaged, accepted).unwrap().0.state().quarantined_actors, [].into());
}
