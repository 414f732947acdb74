use std::sync::mpsc::sync_channel;
use std::time::Duration;

use run_file::replay::{Ack, CommitSettings};

use super::*;
use crate::log::committer::{COMMIT_ENTRIES_MAX, Committer, LogCommand, LogEvent, run};

fn committed(events: Vec<LogEvent>) -> Vec<Entry> {
    let entries = |event| match event {
        LogEvent::Committed { entries, .. } => entries,
        LogEvent::Failed { .. } | LogEvent::Panicked => panic!("{event:?}"),
    };
    events.into_iter().flat_map(entries).collect()
}

/// Commits entries with these sequences, and returns the events.
fn step(committer: &mut Committer<Memory>, sequences: std::ops::Range<u64>) -> Vec<LogEvent> {
    sequences.for_each(|sequence| committer.take(LogCommand::Append(entry(sequence))));
    let mut events = Vec::new();
    committer.commit(&mut |event| events.push(event));
    events
}

fn committer(memory: &Memory, ack: Ack) -> Committer<Memory> {
    Committer::new(open(memory, 600).unwrap().0, ack)
}

fn events(memory: &Memory, commands: impl IntoIterator<Item = LogCommand>) -> Vec<LogEvent> {
    let (log, _, _) = open(memory, 600).unwrap();
    let (sender, receiver) = sync_channel(10_000);
    commands.into_iter().for_each(|command| sender.send(command).unwrap());
    drop(sender);
    let mut events = Vec::new();
    let settings = CommitSettings { ack: Ack::Fsync, wait: Duration::ZERO };
    run(log, &receiver, settings, || {}, |event| events.push(event));
    events
}

#[test]
fn every_entry_sent_before_the_end_is_durable_and_reported_in_order() {
    let memory = Memory::default();
    let total = COMMIT_ENTRIES_MAX as u64 + 10;
    let events = events(&memory, (0..total).map(|sequence| LogCommand::Append(entry(sequence))));
    assert_eq!(committed(events), (0..total).map(entry).collect::<Vec<_>>());
    assert_eq!(open(&memory, 600).unwrap().1, all_read_back(0..total));
}

#[test]
fn a_full_disk_is_reported_for_every_entry() {
    let memory = Memory::default();
    memory.set_room(Some(0));
    let events = events(&memory, (0..3).map(|sequence| LogCommand::Append(entry(sequence))));
    let failed = |event: &LogEvent| matches!(event, LogEvent::Failed { error, .. } if error.contains("storage"));
    assert!(events.iter().all(failed), "{events:?}");
}

#[test]
fn samples_drawn_are_durable_even_when_nothing_comes_in() {
    let memory = Memory::default();
    events(&memory, [LogCommand::Samples(77)]);
    assert_eq!(open(&memory, 600).unwrap().0.state().counters.samples, 77);
}

#[test]
fn entries_acknowledged_when_flushed_are_in_the_file_and_share_one_later_sync() {
    let memory = Memory::default();
    let mut committer = committer(&memory, Ack::Flushed);
    step(&mut committer, 0..1);
    let before = memory.syncs();
    assert_eq!(committed(step(&mut committer, 1..3)), [entry(1), entry(2)]);
    assert_eq!((memory.syncs(), committer.is_behind()), (before, true));
    assert_eq!(open(&Memory::with(memory.files()), 600).unwrap().1, all_read_back(0..3));
    committer.sync();
    assert_eq!((memory.syncs(), committer.is_behind()), (before + 1, false));
}

#[test]
fn an_entry_acknowledged_from_memory_is_written_once_there_is_room_and_more_are_refused_until_then() {
    let memory = Memory::default();
    let mut committer = committer(&memory, Ack::Memory);
    step(&mut committer, 0..1);
    memory.set_room(Some(0));
    assert_eq!(committed(step(&mut committer, 1..2)), [entry(1)]);
    assert!(matches!(step(&mut committer, 2..3)[..], [LogEvent::Failed { .. }]));
    memory.set_room(None);
    assert_eq!(committed(step(&mut committer, 3..4)), [entry(3)]);
    committer.finish();
    assert_eq!(open(&memory, 600).unwrap().1, [read_back(0), read_back(1), read_back(3)]);
}

#[test]
fn a_commit_of_many_bytes_takes_no_more_entries() {
    let mut committer = committer(&Memory::default(), Ack::Fsync);
    let content = EncodedTrajectory::new(id(0), 1, UnixMillis(0), &noise(3 << 20)).unwrap();
    let mut taken = 0;
    while !committer.is_full() {
        committer.take(LogCommand::Append(Entry::Trajectory { id: id(taken), items: 1, content: content.clone() }));
        taken += 1;
    }
    assert!(taken < 10, "{taken}");
}

/// Returns `bytes` incompressible bytes.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// If a commit waited for the interval of an hour, this test would fail at the deadline.
#[test]
fn a_commit_of_several_entries_does_not_wait_out_its_interval_when_no_more_arrive() {
    let (log, _, _) = open(&Memory::default(), 600).unwrap();
    let (sender, receiver) = sync_channel(100);
    let (answer, answers) = sync_channel(100);
    let settings = CommitSettings { ack: Ack::Fsync, wait: Duration::from_secs(3600) };
    std::thread::scope(|scope| {
        scope.spawn(move || run(log, &receiver, settings, || {}, |event| answer.send(event).unwrap()));
        let mut sequences = 0..;
        for _ in 0..3 {
            let sent: Vec<Entry> = sequences.by_ref().take(40).map(entry).collect();
            sent.iter().for_each(|entry| sender.send(LogCommand::Append(entry.clone())).unwrap());
            let mut acknowledged = Vec::new();
            // On a slow machine, a pause between two entries may end a batch.
            while acknowledged.len() + 8 <= sent.len() {
                acknowledged.extend(committed(vec![answers.recv_timeout(Duration::from_secs(60)).unwrap()]));
            }
            assert_eq!(acknowledged, sent[..acknowledged.len()]);
            if acknowledged.len() < sent.len() {
                break;
            }
        }
        drop(sender);
    });
}
