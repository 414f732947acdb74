//! Payload of a frame in the replay log.

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use proto::replay::Suspect;
use replay::ItemKey;
use replay_server::log::{Counters, EncodedTrajectory, Head, OperatorRecord, Record, TableCounters, UnixMillis};
use weights::WeightsVersion;

/// Size limit for the decompressed content of a record, in bytes.
const CONTENT_BYTES_MAX: usize = transport::limits::MESSAGE_BYTES_MAX;

/// Checks that any payload decodes to a record or is rejected, that the content of a trajectory or a revision is within
/// the size limit, and that every record is read back as written.
pub(crate) fn check(payload: &[u8]) {
    let Ok(record) = Record::decode(payload) else { return };
    let written = match &record {
        Record::Trajectory { id, items, inserted, content } => {
            assert!(content.len() <= CONTENT_BYTES_MAX);
            EncodedTrajectory::new(*id, *items, *inserted, content).map(|encoded| encoded.payload().to_vec())
        }
        Record::Revision { id, revision, revised, content } => {
            assert!(content.len() <= CONTENT_BYTES_MAX);
            EncodedTrajectory::revision(*id, *revision, *revised, content).map(|encoded| encoded.payload().to_vec())
        }
        Record::Head(head) => Record::encode_head(head),
        Record::Operator(operator) => operator.encode(),
        Record::Counters(counters) => Ok(Record::encode_counters(*counters)),
    };
    assert_eq!(Record::decode(&written.expect("it was read")).as_ref(), Ok(&record));
}

/// Returns one record of each kind.
#[allow(dead_code, reason = "used by the test of the corpus and by other checks")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let head = Head { game: "connect_four".into(), ..Head::default() };
    let content = |sequence| trajectory(sequence).columns().to_vec();
    let framed = |sequence| {
        let encoded = EncodedTrajectory::new(id(sequence), 3, UnixMillis(7), &content(sequence));
        encoded.expect("it is small").payload().to_vec()
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
    let mut records = vec![Record::encode_head(&head).expect("it is small")];
    for sequence in 0..3 {
        records.push(Record::encode_counters(Counters::default()));
        records.push(framed(sequence));
    }
    records.extend(operator_records.iter().map(|record| record.encode().expect("it is small")));
    let revision = EncodedTrajectory::revision(id(0), 1, UnixMillis(9), &content(0));
    records.push(revision.expect("it is small").payload().to_vec());
    records
}

#[allow(dead_code, reason = "used by the test of the corpus and by other checks")]
fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 1, epoch: 1, sequence }
}

/// Returns a trajectory with steps of every kind.
#[allow(dead_code, reason = "used by the test of the corpus and by other checks")]
pub(crate) fn trajectory(sequence: u64) -> Trajectory {
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
    let steps: Vec<Step> = (0..5).map(step).collect();
    Trajectory::of(id(sequence), "connect_four", &steps, Outcome::Draw).expect("it is valid")
}
