use std::fmt::Debug;

use proptest::prelude::*;
use prost::Message;

use super::super::{insert, policies, sample, status, weights};
use super::*;
use crate::limits::{CHUNK_BYTES_MAX, NAME_BYTES_MAX, REASON_BYTES_MAX, STEPS_MAX};
use crate::replay::v1;
use crate::scripted::{batch, trajectory, version};
use crate::weights::v1 as weights_v1;

/// What is done to a valid message, and the words it is then refused with.
type Case<M> = (fn(&mut M), &'static str);

/// Claims that `message`, changed so, is refused with these words.
#[track_caller]
fn refused<M: Clone, T: TryFrom<M, Error = Invalid> + Debug>(message: &M, change: impl FnOnce(&mut M), expected: &str) {
    let mut changed = message.clone();
    change(&mut changed);
    assert_eq!(T::try_from(changed).unwrap_err().to_string(), expected);
}

/// Two bytes for each.
fn actions(count: usize) -> bytes::Bytes {
    vec![0; 2 * count].into()
}

fn run(version: u64, steps: u32) -> v1::VersionRun {
    v1::VersionRun { version, steps }
}

#[test]
fn every_malformed_trajectory_is_refused_by_the_field_at_fault() {
    let policies = |change: fn(&mut v1::Policies)| {
        move |message: &mut v1::Trajectory| change(message.policies.as_mut().expect("the fixture has policies"))
    };
    let cases: [Case<v1::Trajectory>; 24] = [
        (|m| m.id = None, "id: is missing"),
        (|m| m.game = String::new(), "game: is empty"),
        (|m| m.game = "x".repeat(NAME_BYTES_MAX + 1), "game: has 257 bytes, the limit is 256"),
        (|m| m.outcome = 0, "outcome: 0 is not an outcome"),
        (|m| m.outcome = 5, "outcome: 5 is not an outcome"),
        (|m| m.outcome = -1, "outcome: -1 is not an outcome"),
        (|m| m.actions = actions(0), "actions: is empty"),
        (|m| m.actions = vec![0; 5].into(), "actions: has 5 bytes, an action has 2"),
        (|m| m.actions = actions(STEPS_MAX + 1), "actions: has 65537 entries, the limit is 65536"),
        (|m| m.kinds = vec![1; 2].into(), "kinds: has 2 entries, expected 3"),
        (|m| m.kinds = vec![3, 0, 1].into(), "kinds[1]: 0 is not a step kind"),
        (|m| m.kinds = vec![3, 2, 255].into(), "kinds[2]: 255 is not a step kind"),
        (|m| m.values = vec![0.0], "values: has 1 entries, expected 2"),
        (|m| m.values = vec![0.0; 3], "values: has 3 entries, expected 2"),
        (|m| m.values[1] = f32::NAN, "values[1]: is not finite"),
        (|m| m.values[0] = f32::INFINITY, "values[0]: is not finite"),
        (|m| m.rewards = vec![0.0; 2], "rewards: has 2 entries, expected 3"),
        (|m| m.rewards = vec![0.0, 0.0, f32::NEG_INFINITY], "rewards[2]: is not finite"),
        (|m| m.versions = vec![], "versions: cover 0 of 3 steps"),
        (|m| m.versions = vec![run(1, 2)], "versions: cover 2 of 3 steps"),
        (|m| m.versions = vec![run(1, 2), run(2, 2)], "versions: run over the 3 steps"),
        (|m| m.versions = vec![run(1, u32::MAX)], "versions: run over the 3 steps"),
        (|m| m.versions = vec![run(1, 3), run(2, 0)], "versions[1].steps: is zero"),
        (|m| m.policies = None, "policies.sizes: has 0 entries, expected 1"),
    ];
    let message = v1::Trajectory::from(&trajectory(0));
    for (change, expected) in cases {
        refused::<_, Trajectory>(&message, change, expected);
    }
    let cases: [Case<v1::Policies>; 13] = [
        (|p| p.sizes = vec![1, 1], "policies.sizes: has 2 entries, expected 1"),
        (|p| p.sizes = vec![3], "policies.sizes[0]: 3 is more than the entries that are left"),
        (|p| p.sizes = vec![u32::MAX], "policies.sizes[0]: 4294967295 is more than the entries that are left"),
        (|p| p.sizes = vec![0], "policies[0]: is empty"),
        (|p| p.actions = actions(1), "policies.actions: has 2 bytes for 2 probabilities"),
        (|p| p.actions = vec![0; 3].into(), "policies.actions: has 3 bytes for 2 probabilities"),
        (|p| p.actions = actions(2), "policies[0]: is not ascending by action"),
        (|p| p.actions = vec![1, 0, 0, 0].into(), "policies[0]: is not ascending by action"),
        (|p| p.probabilities = vec![0.0, 1.0], "policies[0]: 0 is not a probability"),
        (|p| p.probabilities = vec![-0.5, 1.0], "policies[0]: -0.5 is not a probability"),
        (|p| p.probabilities = vec![0.5, f32::NAN], "policies[0]: NaN is not a probability"),
        (|p| p.probabilities = vec![0.5, f32::INFINITY], "policies[0]: inf is not a probability"),
        (|p| p.probabilities = vec![0.5, 0.25], "policies[0]: sums to 0.75"),
    ];
    for (change, expected) in cases {
        refused::<_, Trajectory>(&message, policies(change), expected);
    }
}

#[test]
fn policies_that_leave_entries_over_are_refused() {
    let entries = v1::Policies { sizes: vec![1], actions: vec![0, 0, 1, 0].into(), probabilities: vec![1.0, 1.0] };
    let error = policies::from_wire(Some(entries), 1, policies::Empty::Illegal).unwrap_err();
    assert_eq!(error.to_string(), "policies.sizes: sum to less than the entries");
}

#[test]
fn every_malformed_batch_is_refused_by_the_field_at_fault() {
    let message = v1::Batch::from(&batch(0, 2));
    refused::<_, SampleBatch>(&message, |m| m.samples.clear(), "samples: has 0 entries, expected 1 to 4096");
    let many = |m: &mut v1::Batch| m.samples = vec![m.samples[0].clone(); SAMPLES_PER_BATCH_MAX + 1];
    refused::<_, SampleBatch>(&message, many, "samples: has 4097 entries, expected 1 to 4096");
    refused::<_, SampleBatch>(&message, |m| m.table = None, "table: is missing");
    let cases: [Case<v1::Sample>; 20] = [
        (|s| s.trajectory = None, "trajectory: is missing"),
        (|s| s.outcome = 0, "outcome: 0 is not an outcome"),
        (|s| s.plies = 0, "plies: 0 is not between 1 and 65536"),
        (|s| s.plies = u32::MAX, "plies: 4294967295 is not between 1 and 65536"),
        (|s| s.ply = 3, "ply: 2 targets from ply 3 on pass the 3 plies"),
        (|s| s.ply = 2, "ply: 2 targets from ply 2 on pass the 3 plies"),
        (|s| s.ply = u32::MAX, "ply: 2 targets from ply 4294967295 on pass the 3 plies"),
        (|s| s.values.clear(), "values: has 0 entries, expected 1 to 65"),
        (|s| s.values = vec![0.0; 66], "values: has 66 entries, expected 1 to 65"),
        (|s| s.values[1] = f32::NAN, "values[1]: is not finite"),
        (|s| s.actions = actions(1), "actions: has 1 entries, expected 2"),
        (|s| s.actions = actions(3), "actions: has 3 entries, expected 2"),
        (|s| s.actions = vec![0; 3].into(), "actions: has 3 bytes, an action has 2"),
        (|s| s.rewards = vec![1.0], "rewards: has 1 entries, expected 2"),
        (|s| s.versions.clear(), "versions: cover 0 of 2 steps"),
        (|s| s.policies = None, "policies.sizes: has 0 entries, expected 2"),
        (|s| s.probability = 0.0, "probability: 0 is not a probability"),
        (|s| s.probability = 1.5, "probability: 1.5 is not a probability"),
        (|s| s.probability = f64::NAN, "probability: NaN is not a probability"),
        (|s| s.table_items = 0, "table_items: is zero"),
    ];
    for (change, expected) in cases {
        refused::<_, SampleBatch>(&message, |m| change(&mut m.samples[1]), &format!("samples[1].{expected}"));
    }
    const fn mass(weight: f64, log2_scale: f64) -> Option<v1::Mass> {
        Some(v1::Mass { weight, log2_scale })
    }
    let cases: [Case<v1::TableStats>; 7] = [
        (|t| t.mass = mass(f64::INFINITY, 0.0), "mass.weight: inf is not a finite ratio"),
        (|t| t.mass = mass(-1.0, 0.0), "mass.weight: -1 is not a finite ratio"),
        (|t| t.mass = mass(1.0, f64::NAN), "mass.log2_scale: NaN is not finite"),
        (|t| t.samples_per_insert = f64::NAN, "samples_per_insert: NaN is not a finite ratio"),
        (|t| t.samples_per_insert_target = -1.0, "samples_per_insert_target: -1 is not a finite ratio"),
        (|t| t.waiting_reason = "x".repeat(1025), "waiting_reason: has 1025 bytes, the limit is 1024"),
        (|t| t.oldest = Some(v1::TableEdge { id: None, weights_version: 1 }), "oldest.id: is missing"),
    ];
    for (change, expected) in cases {
        let change = |m: &mut v1::Batch| change(m.table.as_mut().expect("the fixture has a table"));
        refused::<_, SampleBatch>(&message, change, &format!("table.{expected}"));
    }
}

#[test]
fn every_malformed_report_is_refused_by_the_field_at_fault() {
    let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
    let message = v1::ReportRequest::from(Report { trajectory: id, ply: 4, reason: String::new() });
    refused::<_, Report>(&message, |m| m.trajectory = None, "trajectory: is missing");
    refused::<_, Report>(&message, |m| m.ply = 1 << 16, "ply: 65536 is not between 0 and 65535");
    let long = |m: &mut v1::ReportRequest| m.reason = "x".repeat(REASON_BYTES_MAX + 1);
    refused::<_, Report>(&message, long, "reason: has 1025 bytes, the limit is 1024");
}

#[test]
fn every_malformed_manifest_is_refused_by_the_field_at_fault() {
    let message = weights_v1::Manifest::from(&version(1, &b"abc"[..]).manifest);
    refused::<_, Manifest>(&message, |m| m.architecture = None, "architecture: is missing");
    for digest in ["", "abc", &"g".repeat(64), &"a".repeat(65)] {
        refused::<_, Manifest>(&message, |m| m.digest = digest.into(), "digest: is not 64 hexadecimal digits");
    }
    let cases: [Case<weights_v1::Architecture>; 10] = [
        (|a| a.game = String::new(), "game: is empty"),
        (|a| a.planes = 0, "planes: 0 is not between 1 and 1048576"),
        (|a| a.height = 0, "height: 0 is not between 1 and 1048576"),
        (|a| a.width = u32::MAX, "width: 4294967295 is not between 1 and 1048576"),
        (|a| a.actions = 0, "actions: 0 is not between 1 and 65536"),
        (|a| a.actions = 65537, "actions: 65537 is not between 1 and 65536"),
        (|a| a.channels = 0, "channels: 0 is not between 1 and 1048576"),
        (|a| a.blocks = 1 << 21, "blocks: 2097152 is not between 0 and 1048576"),
        (|a| a.squeeze_excitation = 1 << 21, "squeeze_excitation: 2097152 is not between 0 and 1048576"),
        (|a| a.global_pooling = a.channels, "global_pooling: 8 is not between 0 and 7"),
    ];
    for (change, expected) in cases {
        let change = |m: &mut weights_v1::Manifest| change(m.architecture.as_mut().expect("the fixture has one"));
        refused::<_, Manifest>(&message, change, &format!("architecture.{expected}"));
    }
    let fetch = weights_v1::FetchRequest { version: 1, digest: message.digest.clone(), offset: 0 };
    refused::<_, FetchQuery>(&fetch, |m| m.digest.push('0'), "digest: is not 64 hexadecimal digits");
}

#[test]
fn every_malformed_chunk_is_refused_by_the_field_at_fault() {
    for (length, expected) in
        [(0, "data: is empty"), (CHUNK_BYTES_MAX + 1, "data: has 1048577 bytes, the limit is 1048576")]
    {
        let chunk = weights_v1::Chunk { offset: 0, data: vec![0; length].into() };
        assert_eq!(weights::chunk_from_wire(chunk).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_status_says_the_field_twice_for_people_and_for_programs() {
    use tonic_types::StatusExt as _;
    let status = status(&Invalid { field: "steps[3].policy".into(), reason: "is empty".into() });
    assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, "steps[3].policy: is empty"));
    let violation = &status.get_details_bad_request().unwrap().field_violations[0];
    assert_eq!((violation.field.as_str(), violation.description.as_str()), ("steps[3].policy", "is empty"));
}

/// Overwrites a few bytes, then decodes and converts what still is a message.
fn tampered<M: Message + Default, T: TryFrom<M, Error = Invalid>>(
    message: &M,
    changes: &[(proptest::sample::Index, u8)],
) {
    let mut bytes = message.encode_to_vec();
    for (at, byte) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    if let Ok(Err(invalid)) = M::decode(bytes.as_slice()).map(T::try_from) {
        assert!(!invalid.field.is_empty() && !invalid.reason.is_empty(), "{invalid:?}");
    }
}

fn changes() -> impl Strategy<Value = Vec<(proptest::sample::Index, u8)>> {
    proptest::collection::vec(any::<(proptest::sample::Index, u8)>(), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_that_were_tampered_with_never_panic(trajectory in trajectories(), batch in batches(), changes in changes()) {
        tampered::<v1::Trajectory, Trajectory>(&(&trajectory).into(), &changes);
        tampered::<v1::Batch, SampleBatch>(&(&batch).into(), &changes);
    }

    #[test]
    fn tampered_requests_never_panic(
        (origin, query) in (origins(), sample_queries()),
        (report, manifest, fetch) in (reports(), manifests(), fetch_queries()),
        changes in changes(),
    ) {
        tampered::<v1::Hello, Origin>(&origin.into(), &changes);
        tampered::<v1::Open, SampleQuery>(&query.into(), &changes);
        tampered::<v1::ReportRequest, Report>(&report.into(), &changes);
        tampered::<weights_v1::Manifest, Manifest>(&(&manifest).into(), &changes);
        tampered::<weights_v1::FetchRequest, FetchQuery>(&fetch.into(), &changes);
    }

    #[test]
    fn lengths_that_do_not_belong_together_never_panic(
        lengths in proptest::array::uniform6(0_usize..6),
        sizes in proptest::collection::vec(prop_oneof![0_u32..4, Just(u32::MAX)], 0..4),
        runs in proptest::collection::vec((any::<u64>(), prop_oneof![0_u32..4, Just(u32::MAX)]), 0..4),
        kinds in proptest::collection::vec(0_u8..5, 0..6),
        (ply, plies) in any::<(u32, u32)>(),
    ) {
        let policies = v1::Policies { sizes, actions: vec![1; lengths[0]].into(), probabilities: vec![1.0; lengths[1]] };
        let versions = runs.into_iter().map(|(version, steps)| run(version, steps)).collect::<Vec<_>>();
        let (actions, values, rewards) = (vec![0; lengths[2]], vec![0.0; lengths[3]], vec![0.0; lengths[4]]);
        let _ = Trajectory::try_from(v1::Trajectory {
            actions: actions.clone().into(),
            kinds: kinds.into(),
            values: values.clone(),
            rewards: rewards.clone(),
            policies: Some(policies.clone()),
            versions: versions.clone(),
            ..v1::Trajectory::from(&trajectory(0))
        });
        let small = lengths[5] as u32;
        for (ply, plies) in [(ply, plies), (small, small + 1), (small, 9)] {
            let _ = Sample::try_from(v1::Sample {
                ply,
                plies,
                actions: actions.clone().into(),
                values: values.clone(),
                rewards: rewards.clone(),
                policies: Some(policies.clone()),
                versions: versions.clone(),
                ..v1::Batch::from(&batch(0, 1)).samples.remove(0)
            });
        }
        let _ = (insert::ready_from_wire(v1::Ready { credit: ply, heartbeat_ms: 0, highest_epoch: u64::MAX }), sample::credit_from_wire(v1::Credit { batches: ply, newest_weights_version: 0 }));
    }
}
