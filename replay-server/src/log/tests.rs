use proto::replay::Suspect;
use replay::{SeenIds, SeenLimits};

use super::*;

mod failed_syncs;
mod format;
mod group_commit;
pub(crate) mod memory;

pub(crate) use memory::Memory;

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 3, epoch: 1, sequence }
}

fn text(sequence: u64) -> Vec<u8> {
    format!("the content of trajectory {sequence}").into_bytes()
}

fn entry(sequence: u64) -> Entry {
    let content = EncodedTrajectory::new(id(sequence), 10, UnixMillis(1000 + sequence), &text(sequence)).unwrap();
    Entry::Trajectory { id: id(sequence), items: 10, content }
}

/// Returns the recovered form of [`entry`].
fn read_back(sequence: u64) -> Recovered<Vec<u8>> {
    Recovered::Trajectory { id: id(sequence), inserted: UnixMillis(1000 + sequence), content: text(sequence) }
}

fn all_read_back(sequences: std::ops::Range<u64>) -> Vec<Recovered<Vec<u8>>> {
    sequences.map(read_back).collect()
}

fn settings(segment_bytes: u64) -> LogSettings {
    let (threads, planted) = (NonZeroUsize::MIN, Planted::default());
    let (seen, damaged_head) = (SeenLimits::default(), DamagedHead::default());
    LogSettings { game: "test".into(), segment_bytes, threads, salt_seed: [9; 32], seen, damaged_head, planted }
}

type Opened<V> = (Log<V>, Vec<Recovered<Vec<u8>>>, Vec<Repair>);

fn open<V: Volume + Clone>(volume: &V, segment_bytes: u64) -> Result<Opened<V>, OpenError> {
    open_with(volume, settings(segment_bytes))
}

fn open_with<V: Volume + Clone>(volume: &V, settings: LogSettings) -> Result<Opened<V>, OpenError> {
    let mut recovered = Vec::new();
    let (log, repairs) =
        Log::open(volume.clone(), settings, |_, content| Ok(content.to_vec()), |_, record| recovered.push(record))?;
    Ok((log, recovered, repairs))
}

/// Scans the frames of the first segment.
fn scan(bytes: &[u8]) -> frame::Scan<'_> {
    frame::scan(SegmentNumber(1), bytes).unwrap()
}

/// Returns a log of `commits` commits of one trajectory each.
fn written(commits: u64, segment_bytes: u64) -> Memory {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, segment_bytes).unwrap();
    for sequence in 0..commits {
        log.commit(&[entry(sequence)], sequence).unwrap();
    }
    memory
}

#[test]
fn committed_entries_are_read_back_with_their_totals() {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, 1 << 20).unwrap();
    log.commit(&[entry(0), entry(1)], 5).unwrap();
    log.commit(&[Entry::Operator(OperatorRecord::Quarantine(Suspect::Trajectory(id(1)))), entry(2)], 9).unwrap();
    let (again, entries, repairs) = open(&memory, 1 << 20).unwrap();
    assert_eq!(
        entries,
        [
            read_back(0),
            read_back(1),
            Recovered::Operator(OperatorRecord::Quarantine(Suspect::Trajectory(id(1)))),
            read_back(2)
        ]
    );
    assert_eq!(again.state().counters, Counters { trajectories: 3, items: 30, samples: 9 });
    assert_eq!((again.state(), repairs), (log.state(), Vec::new()));
}

#[test]
fn a_reopened_log_grows_on() {
    let memory = written(3, 1 << 20);
    open(&memory, 1 << 20).unwrap().0.commit(&[entry(3)], 0).unwrap();
    assert_eq!(memory.files().len(), 1);
    assert_eq!(open(&memory, 1 << 20).unwrap().1.len(), 4);
}

/// A kill during a commit leaves a prefix of the file: all records acknowledged before survive.
#[test]
fn a_log_cut_anywhere_keeps_what_was_committed_before_the_cut() {
    let memory = written(4, 1 << 20);
    let (name, bytes) = memory.files().pop_first().unwrap();
    let ends: Vec<usize> =
        scan(&bytes).frames.iter().map(|(at, payload)| at + frame::HEADER_BYTES + payload.len()).collect();
    for length in 0..bytes.len() {
        let torn = Memory::with([(name.clone(), bytes[..length].to_vec())].into());
        let (mut log, entries, repairs) = open(&torn, 1 << 20).unwrap();
        // Frames: the head, then counters and a trajectory for each commit.
        let whole = ends.iter().filter(|&&end| end <= length).count() as u64;
        assert_eq!(entries, all_read_back(0..whole.saturating_sub(1) / 2), "cut at {length}");
        let is_whole = [0, frame::PROLOGUE_BYTES].contains(&length) || ends.contains(&length);
        let expected = (!is_whole).then_some(true);
        assert_eq!(repairs.first().map(|repair| repair.cut), expected, "cut at {length}");
        // The log can then be appended to as usual.
        log.commit(&[entry(99)], 0).unwrap();
        let (_, again, repairs) = open(&torn, 1 << 20).unwrap();
        assert_eq!((again.len(), repairs.len()), (entries.len() + 1, 0), "cut at {length}");
    }
}

#[test]
fn a_flipped_byte_anywhere_costs_at_most_its_own_record_and_is_named() {
    let memory = written(4, 1 << 20);
    let (name, bytes) = memory.files().pop_first().unwrap();
    let starts: Vec<usize> = scan(&bytes).frames.iter().map(|(offset, _)| *offset).collect();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x04;
        let damaged = Memory::with([(name.clone(), flipped)].into());
        let (_, entries, repairs) = open(&damaged, 1 << 20).unwrap();
        // A flip in one of the two prologue copies loses nothing.
        let hit = starts.iter().rposition(|&start| start <= at);
        // The trajectories are the frames with an even index, except for the head.
        let lost = hit.filter(|hit| hit % 2 == 0 && *hit > 0).map(|hit| hit as u64 / 2 - 1);
        let expected: Vec<_> = (0..4).filter(|&sequence| Some(sequence) != lost).map(read_back).collect();
        assert_eq!(entries, expected, "flipped {at}");
        let named: Vec<_> = repairs.iter().map(|repair| (repair.name.as_str(), repair.offset)).collect();
        let expected = hit.map(|hit| (name.as_str(), starts[hit]));
        assert_eq!(named, expected.as_slice(), "flipped {at}");
    }
}

#[test]
fn totals_survive_a_damaged_trajectory() {
    let memory = written(4, 1 << 20);
    let (name, mut bytes) = memory.files().pop_first().unwrap();
    let (offset, _) = scan(&bytes).frames[4];
    bytes[offset + frame::HEADER_BYTES + 30] ^= 1;
    let (log, entries, _) = open(&Memory::with([(name, bytes)].into()), 1 << 20).unwrap();
    assert_eq!((entries.len(), log.state().counters.items), (3, 40));
}

#[test]
fn the_heads_of_later_segments_keep_the_state_of_dropped_ones() {
    let memory = written(40, 600);
    assert!(memory.files().len() > 4, "{} segments", memory.files().len());
    let (mut log, entries, _) = open(&memory, 600).unwrap();
    assert_eq!(entries, all_read_back(0..40));
    let newest = log.segments.back().unwrap().0;
    assert!(log.drop_before(newest).unwrap() > 2);
    let (again, entries, repairs) = open(&memory, 600).unwrap();
    assert!(entries.len() < 10, "{}", entries.len());
    assert_eq!((again.state(), repairs), (log.state(), Vec::new()));
    let mut seen = SeenIds::default();
    seen.insert_interval(3, 1, 0..=39);
    assert_eq!(again.state().seen, seen);
}

/// The quarantine and revisions of a trajectory are in the same segment or in later segments.
#[test]
fn a_power_loss_brings_back_no_segment_before_a_dropped_one() {
    let files = written(40, 600).files();
    for seed in 0..200 {
        let disk = power_disk::PowerDisk::with(seed, files.clone());
        let (mut log, ..) = open(&disk, 600).unwrap();
        let newest = log.segments.back().unwrap().0;
        let operations_left = Some(u32::try_from(seed % 12).unwrap());
        disk.set_faults(power_disk::Faults { operations_left, ..power_disk::Faults::default() });
        let _ = log.drop_before(newest);
        disk.lose_power();
        let left: Vec<u64> =
            disk.files().keys().filter_map(|name| SegmentNumber::from_file_name(name)).map(|number| number.0).collect();
        assert!(left.windows(2).all(|pair| pair[0] + 1 == pair[1]), "seed {seed}: {left:?}");
    }
}

#[test]
fn the_newest_segment_is_never_dropped() {
    let memory = written(40, 600);
    let (mut log, _, _) = open(&memory, 600).unwrap();
    log.drop_before(SegmentNumber(u64::MAX)).unwrap();
    assert_eq!(memory.files().len(), 1);
}

/// A disk may become full at any byte of a commit, including the head of a new segment.
#[test]
fn on_a_full_disk_a_commit_fails_whole_and_succeeds_once_there_is_room() {
    for room in 0..400 {
        let memory = Memory::default();
        let (mut log, _, _) = open(&memory, 300).unwrap();
        memory.set_room(Some(room));
        let mut committed = 0;
        let refused = loop {
            match log.commit(&[entry(committed)], 0) {
                Ok(_) => committed += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let (_, entries, _) = open(&Memory::with(memory.files()), 300).unwrap();
        assert_eq!(entries, all_read_back(0..committed), "room {room}");
        memory.set_room(None);
        log.commit(&[entry(committed)], 0).unwrap();
        let (_, entries, repairs) = open(&memory, 300).unwrap();
        assert_eq!(entries, all_read_back(0..committed + 1), "room {room}");
        assert_eq!(repairs, [], "room {room}");
    }
}

#[test]
fn a_commit_that_can_neither_be_synced_nor_cut_back_is_refused_until_it_can_be_and_counts_once() {
    let memory = written(1, 1 << 20);
    let (mut log, _, _) = open(&memory, 1 << 20).unwrap();
    memory.fail_syncs(true);
    memory.fail_cuts(true);
    log.commit(&[entry(1)], 0).unwrap_err();
    memory.fail_syncs(false);
    log.commit(&[entry(1)], 0).unwrap_err();
    memory.fail_cuts(false);
    log.commit(&[entry(1)], 0).unwrap();
    let (again, entries, _) = open(&memory, 1 << 20).unwrap();
    assert_eq!(entries, all_read_back(0..2));
    assert_eq!(again.state().counters, Counters { trajectories: 2, items: 20, samples: 0 });
}

#[test]
fn a_log_of_another_game_or_format_is_refused_and_left_unchanged() {
    let memory = written(2, 1 << 20);
    let files = memory.files();
    let error = open_with(&memory, LogSettings { game: "hex11".into(), ..settings(1 << 20) }).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "the replay log holds trajectories of test, this run plays hex11; use another run");
    assert_eq!(memory.files(), files);

    let newer = [&b"zfreplay"[..], &77_u32.to_le_bytes(), &[0; 36]].concat().repeat(2);
    let newer = Memory::with([("00000000000000000001.log".into(), newer)].into());
    let error = open(&newer, 1 << 20).map(drop).unwrap_err();
    let words = "has format 77, this program reads format 3; use the program version that wrote the file";
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn files_of_other_names_are_no_segments() {
    let memory = written(2, 1 << 20);
    let mut files = memory.files();
    for name in ["7.log", "+0000000000000000009.log", "00000000000000000002.log.old", "notes"] {
        files.insert(name.into(), b"not a segment".to_vec());
    }
    let (_, entries, repairs) = open(&Memory::with(files), 1 << 20).unwrap();
    assert_eq!((entries.len(), repairs), (2, Vec::new()));
}

#[test]
fn a_log_whose_numbers_have_run_out_refuses_to_grow() {
    let prologue = Prologue::new(SegmentNumber(u64::MAX), [1; 32]);
    let mut bytes = prologue.encode();
    let head = Head { game: "test".into(), ..Head::default() };
    prologue.append(&mut bytes, 0, &Record::encode_head(&head).unwrap()).unwrap();
    let last = Memory::with([(SegmentNumber(u64::MAX).file_name(), bytes)].into());
    let (mut log, _, _) = open(&last, 1).unwrap();
    log.commit(&[entry(1)], 0).unwrap_err();
    assert_eq!(last.files().len(), 1);
}

#[test]
fn a_record_that_cannot_be_used_is_named_and_the_others_are_kept() {
    let memory = written(3, 1 << 20);
    let mut kept = Vec::new();
    let decode =
        |_, content: &[u8]| if content == text(1) { Err("steps: is empty".into()) } else { Ok(content.to_vec()) };
    let (_, repairs) = Log::open(memory, settings(1 << 20), decode, |_, record| kept.push(record)).unwrap();
    assert_eq!(kept, [read_back(0), read_back(2)]);
    assert_eq!(repairs[0].what, "an unusable record: steps: is empty");
}

/// After any disk failure, the entry is reported as not stored, and the next attempt stores it.
#[test]
fn a_commit_that_fails_on_the_disk_is_cut_back_and_may_be_repeated() {
    for (room, syncs_fail) in [(Some(0), false), (Some(40), false), (None, true)] {
        let memory = written(3, 1 << 20);
        let (mut log, _, _) = open(&memory, 1 << 20).unwrap();
        let before = memory.files();
        memory.set_room(room);
        memory.fail_syncs(syncs_fail);
        log.commit(&[entry(3)], 0).unwrap_err();
        assert_eq!(memory.files(), before, "a partial commit is cut back");
        memory.set_room(None);
        memory.fail_syncs(false);
        log.commit(&[entry(3)], 0).unwrap();
        assert_eq!(open(&memory, 1 << 20).unwrap().1, all_read_back(0..4));
    }
}

/// A client controls only the payload content. It could have obtained frames of another segment, or frames of
/// this segment at another offset.
#[test]
fn a_frame_inside_a_payload_is_never_found_whatever_becomes_of_the_frame_around_it() {
    let memory = written(2, 1 << 20);
    let (_, stolen) = memory.files().pop_first().unwrap();
    let forged = Head { game: "test".into(), quarantined_actors: [3].into(), ..Head::default() };
    let forged = Record::encode_head(&forged).unwrap();
    let mut planted = Vec::new();
    // A frame in the layout of formats 1 and 2.
    planted.extend((forged.len() as u32).to_le_bytes());
    planted.extend(crc32c::crc32c(&forged).to_le_bytes());
    planted.extend(crc32c::crc32c(&planted).to_le_bytes());
    planted.extend(&forged);
    Prologue::new(SegmentNumber(1), [1; 32]).append(&mut planted, 0, &forged).unwrap();
    planted.extend(stolen);
    // The content is incompressible, so that the payload contains it verbatim.
    let content = EncodedTrajectory::new(id(2), 10, UnixMillis(0), &planted).unwrap();
    let (mut log, _, _) = open(&memory, 1 << 20).unwrap();
    let before = log.bytes() as usize;
    log.commit(&[Entry::Trajectory { id: id(2), items: 10, content }], 0).unwrap();
    let (name, bytes) = memory.files().pop_first().unwrap();
    let mut torn: Vec<Vec<u8>> = (before..bytes.len()).map(|length| bytes[..length].to_vec()).collect();
    torn.extend((before..before + 100).map(|at| {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        flipped
    }));
    for bytes in torn {
        let damaged = Memory::with([(name.clone(), bytes)].into());
        let (log, entries, _) = open(&damaged, 1 << 20).unwrap();
        let others =
            entries.iter().filter(|entry| !matches!(entry, Recovered::Trajectory { id, .. } if id.sequence == 2));
        assert!(others.eq(&all_read_back(0..2)), "{entries:?}");
        assert!(log.state().quarantined_actors.is_empty());
    }
}

#[test]
fn a_head_is_accepted_at_the_beginning_of_a_file_only() {
    let memory = written(1, 1 << 20);
    let (name, mut bytes) = memory.files().pop_first().unwrap();
    let prologue = scan(&bytes).prologue;
    let head = Head { game: "another".into(), ..Head::default() };
    prologue.append(&mut bytes, 0, &Record::encode_head(&head).unwrap()).unwrap();
    let (_, entries, repairs) = open(&Memory::with([(name, bytes)].into()), 1 << 20).unwrap();
    assert_eq!(entries, all_read_back(0..1));
    assert_eq!(repairs[0].what, "a head inside a file");
}
