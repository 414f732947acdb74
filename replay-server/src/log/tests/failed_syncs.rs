//! Starts after failed syncs, when the kernel holds pages that are not on the disk.

use super::power_disk::{Faults, PowerDisk};
use super::*;

fn syncs_fail() -> Faults {
    Faults { sync: 1.0, ..Faults::default() }
}

/// Returns a disk with one durable record, followed by a record of a failed commit that could not be cut back.
fn with_lost_pages(seed: u64) -> PowerDisk {
    let disk = PowerDisk::new(seed);
    let (mut log, _, _) = open(&disk, 1 << 20).unwrap();
    log.commit(&[entry(0)], 0).unwrap();
    disk.set_faults(Faults { cut: 1.0, ..syncs_fail() });
    log.commit(&[entry(1)], 0).unwrap_err();
    disk.set_faults(Faults::default());
    disk.end_process();
    disk
}

#[test]
fn what_a_start_reads_survives_a_power_loss_although_its_sync_had_failed_before() {
    for seed in 0..100 {
        let disk = with_lost_pages(seed);
        assert_eq!(open(&disk, 1 << 20).unwrap().1, all_read_back(0..2), "seed {seed}");
        disk.lose_power();
        assert_eq!(open(&disk, 1 << 20).unwrap().1, all_read_back(0..2), "seed {seed}");
    }
}

#[test]
fn a_start_that_is_interrupted_anywhere_loses_nothing_that_was_durable() {
    for seed in 0..400 {
        let disk = with_lost_pages(seed);
        let operations_left = Some(u32::try_from(seed % 16).unwrap());
        disk.set_faults(Faults { operations_left, ..Faults::default() });
        let _ = open(&disk, 1 << 20);
        disk.set_faults(Faults::default());
        disk.lose_power();
        let (mut log, entries, _) = open(&disk, 1 << 20).unwrap();
        assert_eq!(entries.first(), Some(&read_back(0)), "seed {seed}");
        log.commit(&[entry(2)], 0).unwrap();
        disk.lose_power();
        let again = open(&disk, 1 << 20).unwrap().1;
        assert_eq!(again, [entries, vec![read_back(2)]].concat(), "seed {seed}");
    }
}

#[test]
fn a_segment_whose_sync_failed_is_durable_before_the_next_one_begins() {
    for seed in 0..100 {
        let disk = PowerDisk::new(seed);
        let (mut log, _, _) = open(&disk, 1 << 20).unwrap();
        log.write(&[entry(0)], 0).unwrap();
        disk.set_faults(syncs_fail());
        log.sync().unwrap_err();
        log.write(&[entry(1)], 0).unwrap_err();
        disk.set_faults(Faults::default());
        log.write(&[entry(1)], 0).unwrap();
        log.sync().unwrap();
        assert_eq!(log.segments(), 2);
        disk.lose_power();
        assert_eq!(open(&disk, 1 << 20).unwrap().1, all_read_back(0..2), "seed {seed}");
    }
}

#[test]
fn a_start_on_a_full_disk_reads_everything_and_the_log_grows_on_once_there_is_room() {
    let memory = written(4, 1 << 20);
    let files = memory.files();
    for room in [0, 10, files.values().next().unwrap().len() - 1] {
        let memory = Memory::with(files.clone());
        memory.set_room(Some(room));
        let (mut log, entries, repairs) = open(&memory, 1 << 20).unwrap();
        assert_eq!((entries, repairs), (all_read_back(0..4), Vec::new()));
        assert_eq!(memory.files(), files, "room {room}");
        memory.set_room(Some(0));
        assert_eq!(log.commit(&[entry(4)], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        memory.set_room(None);
        log.commit(&[entry(4)], 0).unwrap();
        assert_eq!((open(&memory, 1 << 20).unwrap().1, memory.files().len()), (all_read_back(0..5), 1));
    }
}

#[test]
fn what_a_start_on_a_full_disk_reads_survives_a_power_loss_although_its_sync_had_failed_before() {
    for seed in 0..100 {
        let disk = with_lost_pages(seed);
        disk.set_faults(Faults { room: Some(0), ..Faults::default() });
        assert_eq!(open(&disk, 1 << 20).unwrap().1, all_read_back(0..2), "seed {seed}");
        disk.set_faults(Faults::default());
        disk.lose_power();
        assert_eq!(open(&disk, 1 << 20).unwrap().1, all_read_back(0..2), "seed {seed}");
    }
}

#[test]
fn a_torn_tail_on_a_full_disk_stays_in_the_file_and_the_log_grows_on_in_another() {
    let (name, bytes) = written(4, 1 << 20).files().pop_first().unwrap();
    let empty = frame::PROLOGUE_BYTES - 1;
    for length in [empty, frame::PROLOGUE_BYTES + 3, bytes.len() - 1] {
        let files: std::collections::BTreeMap<_, _> = [(name.clone(), bytes[..length].to_vec())].into();
        let torn = Memory::with(files.clone());
        torn.set_room(Some(0));
        let (mut log, entries, repairs) = open(&torn, 1 << 20).unwrap();
        assert_eq!(torn.files(), files, "cut at {length}");
        assert_eq!(repairs.iter().map(|repair| repair.cut).collect::<Vec<_>>(), [false], "cut at {length}");
        torn.set_room(None);
        log.commit(&[entry(9)], 0).unwrap();
        let (_, again, _) = open(&torn, 1 << 20).unwrap();
        assert_eq!(again, [entries, vec![read_back(9)]].concat(), "cut at {length}");
    }
}

#[test]
fn a_full_disk_that_cannot_write_in_place_is_refused_with_the_bytes_that_it_needs_and_changes_no_segment() {
    let memory = written(4, 1 << 20);
    let (name, bytes) = memory.files().pop_first().unwrap();
    memory.copy_on_write();
    for room in [0, 10, bytes.len() - 1] {
        memory.set_room(Some(room));
        let error = open(&memory, 1 << 20).map(drop).unwrap_err();
        let needed = format!("({name}, {} bytes)", bytes.len());
        assert!(matches!(error, OpenError::Full { .. }) && error.to_string().contains(&needed), "{error}");
        assert_eq!(memory.files(), [(name.clone(), bytes.clone())].into());
    }
    memory.set_room(Some(bytes.len()));
    assert_eq!(open(&memory, 1 << 20).unwrap().1, all_read_back(0..4));
}

#[test]
fn bytes_that_are_cut_off_are_kept_under_their_position_and_the_oldest_files_make_room() {
    let (mut files, mut kept) = (written(1, 1 << 20).files(), Vec::new());
    for round in 0..12_u8 {
        let (name, bytes) = files.iter_mut().next().unwrap();
        kept.push((format!("{name}.{:010}.cut", bytes.len()), vec![round; 30]));
        bytes.extend([round; 30]);
        let torn = Memory::with(files);
        let (mut log, entries, repairs) = open(&torn, 1 << 20).unwrap();
        assert_eq!(entries, all_read_back(0..u64::from(round) + 1));
        assert_eq!(repairs[0].kept_in().as_ref(), kept.last().map(|(name, _)| name));
        log.commit(&[entry(u64::from(round) + 1)], 0).unwrap();
        files = torn.files();
    }
    files.retain(|name, _| SegmentNumber::from_file_name(name).is_none());
    assert_eq!(files, kept.split_off(4).into_iter().collect());
}
