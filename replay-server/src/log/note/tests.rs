use super::*;

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 1, epoch: 2, sequence }
}

fn notes() -> Vec<Note> {
    let update = |ply| PriorityUpdate { id: id(9), ply, priority: f64::from(ply) / 3.0 };
    vec![
        Note::Quarantine(id(1)),
        Note::Release(id(2)),
        Note::QuarantineActor(u64::MAX),
        Note::ReleaseActor(0),
        Note::Priorities { table: "uniform".into(), updates: (0..5).map(update).collect() },
        Note::Priorities { table: String::new(), updates: Vec::new() },
        Note::Table { name: "late".into(), settings: Some("{}".into()) },
        Note::Table { name: "gone".into(), settings: None },
        Note::TableCounters { table: "late".into(), counters: TableCounters { items: 3, samples: 4 } },
    ]
}

fn decode(payload: &[u8]) -> Result<Option<Note>, UnreadableRecord> {
    Note::decode(payload[0], &payload[1..])
}

#[test]
fn every_note_comes_back_as_it_was() {
    for note in notes() {
        assert_eq!(decode(&note.encode().unwrap()), Ok(Some(note)));
    }
}

#[test]
fn a_note_that_is_cut_or_has_something_behind_it_is_refused() {
    for note in notes() {
        let payload = note.encode().unwrap();
        (1..payload.len()).for_each(|length| drop(decode(&payload[..length]).unwrap_err()));
        decode(&[payload.as_slice(), &[0]].concat()).unwrap_err();
    }
}

#[test]
fn what_is_no_priority_is_refused() {
    for priority in [f64::NAN, f64::INFINITY, -1.0] {
        let updates = vec![PriorityUpdate { id: id(1), ply: 0, priority }];
        decode(&Note::Priorities { table: "t".into(), updates }.encode().unwrap()).unwrap_err();
    }
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let update = PriorityUpdate { id: id(1), ply: 0, priority: 1.0 };
    let notes = [
        Note::Priorities { table: "t".into(), updates: vec![update; PRIORITIES_MAX + 1] },
        Note::Table { name: "x".repeat(NAME_BYTES_MAX + 1), settings: None },
        Note::Table { name: "t".into(), settings: Some("x".repeat(TABLE_SETTINGS_BYTES_MAX + 1)) },
    ];
    notes.iter().for_each(|note| drop(note.encode().unwrap_err()));
}
