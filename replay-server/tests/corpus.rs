//! Runs the corpus of the fuzz targets through the same functions, without libFuzzer.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use prost::Message as _;
use proto::replay::{Suspect, v1};
use replay::ItemKey;
use replay_server::log::{EncodedTrajectory, Head, OperatorRecord, Record, TableCounters, UnixMillis};
use weights::WeightsVersion;

#[path = "../../fuzz/checks.rs"]
mod checks;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// Runs every file of a corpus, and variants of it: truncated, and with a byte changed.
fn run(target: &str, check: fn(&[u8])) {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {target} is missing");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        check(&bytes);
        let step = bytes.len() / 40 + 1;
        for at in (0..bytes.len()).step_by(step) {
            check(&bytes[..at]);
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            check(&changed);
        }
    }
}

#[test]
fn any_payload_is_a_record_or_is_refused() {
    run("record", checks::record);
}

#[test]
fn any_bytes_are_a_log_that_keeps_its_whole_records_or_are_refused() {
    run("segments", checks::segments);
}

#[test]
fn any_bytes_are_a_stream_of_valid_inserts_or_end_it() {
    run("inserts", checks::inserts);
}

/// Writes the initial trajectories of the corpus.
#[test]
#[ignore = "writes into the source tree"]
fn seeds_are_written() {
    let id = |sequence| TrajectoryId { actor: 1, epoch: 1, sequence };
    let policy = |ply: u16| {
        let entry = |action| ActionProbability { action: Action(action), probability: 0.25 };
        (ply..ply + 4).map(entry).collect()
    };
    let kind = |ply: u16| match ply {
        0 => StepKind::Opening,
        1 => StepKind::Fast { value: 0.5 },
        _ => StepKind::Full { policy: policy(ply), value: -0.5 },
    };
    let step = |ply: u16| Step {
        action: Action(ply),
        reward: f32::from(ply % 2),
        kind: kind(ply),
        weights_version: WeightsVersion(u64::from(ply / 2)),
    };
    let trajectory = |sequence| {
        let steps: Vec<Step> = (0..5).map(step).collect();
        Trajectory::of(id(sequence), "connect_four", &steps, Outcome::Draw).unwrap()
    };

    let head = Head { game: "connect_four".into(), ..Head::default() };
    let framed = |sequence| {
        EncodedTrajectory::new(id(sequence), 3, UnixMillis(7), trajectory(sequence).columns())
            .unwrap()
            .payload()
            .to_vec()
    };
    let update = (ItemKey { trajectory: id(0), ply: 2 }, 0.5);
    let operator_records = [
        OperatorRecord::Quarantine(Suspect::Trajectory(id(0))),
        OperatorRecord::Release(Suspect::Trajectory(id(0))),
        OperatorRecord::Quarantine(Suspect::Actor(1)),
        OperatorRecord::Release(Suspect::Actor(1)),
        OperatorRecord::Priorities { table: "t".into(), updates: vec![update; 2] },
        OperatorRecord::Table { name: "t".into(), settings: Some("{}".into()) },
        OperatorRecord::TableCounters { table: "t".into(), counters: TableCounters { items: 1, samples: 2 } },
    ];
    let mut records = vec![Record::encode_head(&head).unwrap()];
    for sequence in 0..3 {
        records.push(Record::encode_counters(replay_server::log::Counters::default()));
        records.push(framed(sequence));
    }
    records.extend(operator_records.iter().map(|record| record.encode().unwrap()));
    let revision = EncodedTrajectory::revision(id(0), 1, UnixMillis(9), trajectory(0).columns()).unwrap();
    records.push(revision.payload().to_vec());
    let put = |target: &str, name: usize, bytes: &[u8]| {
        std::fs::create_dir_all(corpus(target)).unwrap();
        std::fs::write(corpus(target).join(format!("seed-{name:02}")), bytes).unwrap();
    };
    records.iter().enumerate().for_each(|(name, record)| put("record", name, record));

    let behind_lengths = |messages: &[Vec<u8>]| {
        let with_length = |message: &Vec<u8>| [&(message.len() as u16).to_le_bytes()[..], message].concat();
        messages.iter().flat_map(with_length).collect::<Vec<u8>>()
    };
    let file = checks::segment(1, &records);
    put("segments", 0, &[&[0], file.as_slice()].concat());
    put("segments", 1, &[&[2], file.as_slice(), &checks::segment(2, &records)].concat());
    put("segments", 2, &[&[4], behind_lengths(&records).as_slice()].concat());
    put("segments", 3, &[&[5], behind_lengths(&[records.clone(), records.clone()].concat()).as_slice()].concat());

    let wrap = |message| v1::InsertRequest { message: Some(message), ..v1::InsertRequest::default() }.encode_to_vec();
    let hello = v1::Hello { actor: 1, epoch: 1, game: "connect_four".into(), ..v1::Hello::default() };
    let hello = wrap(v1::insert_request::Message::Hello(hello));
    let trajectories: Vec<Vec<u8>> =
        (0..3).map(|sequence| wrap(v1::insert_request::Message::Trajectory(trajectory(sequence).into()))).collect();
    put("inserts", 0, &behind_lengths(&[vec![hello.clone()], trajectories.clone()].concat()));
    put("inserts", 1, &behind_lengths(&[hello.clone(), hello]));
    put("inserts", 2, &behind_lengths(&trajectories));
}
