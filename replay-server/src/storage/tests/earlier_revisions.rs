//! Logs from earlier revisions of the program: `tests/testdata/README.md` describes how to add one.

use std::fmt::Write as _;
use std::path::Path;

use proto::replay::Suspect;
use replay::ItemKey;

use super::*;
use crate::log::{Disk, OperatorRecord, TableCounters};

/// Describes everything that a restore finds in a directory, which it changes.
fn restored_text(folder: &Path) -> String {
    let (log, restored, repairs) = restore(Disk::new(folder), &settings(), Startup::in_tests()).unwrap();
    assert_eq!(repairs, [], "{}", folder.display());
    let mut text = String::new();
    for table in &restored.tables {
        let counts = table.limiter().counts();
        writeln!(text, "table {}: {} inserted, {} sampled", table.name(), counts.inserted, counts.sampled).unwrap();
        for held in table.table().held() {
            let (trajectory, revised) = (held.trajectory, held.revised.map(|at| at.as_millis()));
            let steps: Vec<_> =
                trajectory.steps().map(|step| (step.action.0, step.reward, step.weights_version.0)).collect();
            writeln!(
                text,
                "{} of {}, {:?}, inserted at {} ms, revision {} at {revised:?}, quarantined {}: {steps:?}",
                trajectory.id(),
                trajectory.game(),
                trajectory.outcome(),
                held.inserted.as_millis(),
                held.revision,
                held.quarantined
            )
            .unwrap();
        }
    }
    let head = log.state();
    writeln!(text, "{} trajectories, {} items", head.counters.trajectories, head.counters.items).unwrap();
    head.seen.intervals().for_each(|(actor, epoch, ids)| writeln!(text, "seen: {actor} {epoch} {ids:?}").unwrap());
    writeln!(text, "actors in quarantine: {:?}", head.quarantined_actors).unwrap();
    text
}

#[test]
fn the_log_of_every_earlier_revision_is_restored_with_its_content() {
    for kept in ::earlier_revisions::of_each("replay").unwrap() {
        // A start writes to the directory.
        let folder = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()) {
            std::fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
        }
        let expected = std::fs::read_to_string(kept.with_extension("txt")).unwrap();
        assert_eq!(restored_text(folder.path()), expected, "{}", kept.display());
    }
}

#[test]
#[ignore = "writes the files of a new revision: ZEROFLEET_REVISION names their folder"]
fn write_the_log_of_this_revision() {
    let revision = ::earlier_revisions::make_new().unwrap();
    let folder = revision.join("replay");
    std::fs::create_dir_all(&folder).unwrap();
    let (mut log, ..) = restore(Disk::new(&folder), &settings(), Startup::in_tests()).unwrap();
    let item = ItemKey { trajectory: id(5), ply: 1 };
    let records = [
        OperatorRecord::Quarantine(Suspect::Trajectory(id(4))),
        OperatorRecord::Quarantine(Suspect::Actor(7)),
        OperatorRecord::Quarantine(Suspect::Actor(8)),
        OperatorRecord::Release(Suspect::Actor(7)),
        OperatorRecord::Priorities { table: "long".to_owned(), updates: vec![(item, 2.5)] },
        OperatorRecord::TableCounters { table: "long".to_owned(), counters: TableCounters { items: 48, samples: 9 } },
    ];
    let entries = (0..20).map(insert_entry).chain([revision_entry(6, 1), revision_entry(6, 2)]);
    for (samples, entry) in (0..).zip(entries.chain(records.map(Entry::Operator))) {
        log.commit(&[entry], samples).unwrap();
    }
    drop(log);
    std::fs::write(revision.join("replay.txt"), restored_text(&folder)).unwrap();
}
