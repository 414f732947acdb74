use proptest::prelude::*;

use super::super::{insert, revise, sample};
use super::*;
use crate::convert::tests::{Case, changes, refused, tampered};
use crate::limits::{ANY_TRAJECTORY, REASON_BYTES_MAX};
use crate::replay::{Choice, v1};
use crate::scripted::{batch, trajectory};

/// [`Trajectory::parse`] checks the columns; the tests of that function cover every fault.
#[test]
fn every_malformed_trajectory_is_refused_by_the_field_at_fault() {
    let message = v1::Trajectory::from(trajectory(0));
    let cases: [Case<v1::Trajectory>; 4] = [
        (|m| m.id = None, "id: is missing"),
        (|m| m.columns.clear(), "columns: are truncated"),
        (|m| m.columns = vec![1; 1 << 24].into(), "columns: has 16777216 bytes, the limit is 16773120"),
        (|m| m.columns = [&m.columns[..], &[0]].concat().into(), "columns: have 1 bytes after the end"),
    ];
    for (change, expected) in cases {
        refused::<_, Trajectory>(&message, change, expected);
    }
}

#[test]
fn every_malformed_revision_is_refused_by_the_field_at_fault() {
    let message = v1::ReviseRequest::from(Revisable { trajectory: trajectory(0), revision: 2 });
    let cases: [Case<v1::ReviseRequest>; 5] = [
        (|m| m.trajectory = None, "trajectory: is missing"),
        (|m| m.trajectory.as_mut().unwrap().id = None, "trajectory.id: is missing"),
        (|m| m.trajectory.as_mut().unwrap().columns.clear(), "trajectory.columns: are truncated"),
        (
            |m| m.trajectory.as_mut().unwrap().columns = vec![1; 1 << 24].into(),
            "trajectory.columns: has 16777216 bytes, the limit is 16773120",
        ),
        (|m| m.revision = u64::MAX, "revision: is the maximum"),
    ];
    for (change, expected) in cases {
        let mut changed = message.clone();
        change(&mut changed);
        assert_eq!(revise::revision_from_wire(changed, ANY_TRAJECTORY).unwrap_err().to_string(), expected);
    }
    // The server's game has fewer actions than the policies name, or shorter episodes.
    for (steps_max, actions, field) in [(9, 3, "trajectory.steps[2].policy"), (2, 9, "trajectory.steps")] {
        let limits = experience::Limits { steps_max, actions };
        assert_eq!(revise::revision_from_wire(message.clone(), limits).unwrap_err().field, field);
    }
    let choice = v1::ChooseRequest { table: String::new(), older_than: 0 };
    assert_eq!(Choice::try_from(choice).unwrap_err().field, "older_than");
    let unnamed = v1::ChooseResponse { trajectory: Some(v1::Trajectory::default()), revision: 0 };
    assert_eq!(revise::choice_from_wire(unnamed).unwrap_err().field, "trajectory.id");
}

#[test]
fn every_malformed_search_is_refused_by_the_field_at_fault() {
    let message = v1::SearchRequest::from(SearchQuery::default());
    let cases: [Case<v1::SearchRequest>; 7] = [
        (|m| m.table = "x".repeat(257), "table: has 257 bytes, the limit is 256"),
        (|m| m.order = 9, "order: 9 is not a list order"),
        (|m| m.limit = 0, "limit: 0 is not between 1 and 4096"),
        (|m| m.limit = 4097, "limit: 4097 is not between 1 and 4096"),
        (|m| m.cursor = "x".repeat(257), "cursor: has 257 bytes, the limit is 256"),
        (|m| m.outcome = 6, "outcome: 6 is not an outcome"),
        (|m| (m.plies_min, m.plies_max) = (5, Some(4)), "plies_max: 4 is below the minimum of 5"),
    ];
    for (change, expected) in cases {
        refused::<_, SearchQuery>(&message, change, expected);
    }
    let versions =
        |m: &mut v1::SearchRequest| (m.weights_version_min, m.weights_version_max) = (u64::MAX, Some(u64::MAX - 1));
    let expected = "weights_version_max: 18446744073709551614 is below the minimum of 18446744073709551615";
    refused::<_, SearchQuery>(&message, versions, expected);

    let id = Some(v1::TrajectoryId { actor: 1, epoch: 2, sequence: 3 });
    let found = v1::Found { trajectory: id, plies: 9, outcome: 1, surprise: Some(0.5), ..v1::Found::default() };
    let message = v1::SearchResponse { found: vec![found; 2], next: "1-2".into() };
    SearchPage::try_from(message.clone()).unwrap();
    let many = |m: &mut v1::SearchResponse| m.found = vec![m.found.remove(0); SEARCH_PAGE_MAX + 1];
    refused::<_, SearchPage>(&message, many, "found: has 4097 entries, the limit is 4096");
    refused::<_, SearchPage>(&message, |m| m.found.clear(), "next: follows an empty page");
    refused::<_, SearchPage>(&message, |m| m.next = "x".repeat(257), "next: has 257 bytes, the limit is 256");
    let cases: [Case<v1::Found>; 6] = [
        (|f| f.trajectory = None, "trajectory: is missing"),
        (|f| f.plies = 65_537, "plies: 65537 is not between 0 and 65536"),
        (|f| f.outcome = 0, "outcome: is missing"),
        (|f| f.outcome = -1, "outcome: -1 is not an outcome"),
        (|f| f.surprise = Some(-0.5), "surprise: -0.5 is not a finite number of at least 0"),
        (|f| f.surprise = Some(f32::NAN), "surprise: NaN is not a finite number of at least 0"),
    ];
    for (change, expected) in cases {
        refused::<_, SearchPage>(&message, |m| change(&mut m.found[1]), &format!("found[1].{expected}"));
    }
}

/// Returns a trajectory with more steps than any segment may have.
fn long() -> Trajectory {
    let short = trajectory(0);
    let steps = vec![short.steps().next().unwrap(); 2 * UNROLL_STEPS_MAX];
    Trajectory::of(short.id(), short.game(), &steps, short.outcome()).unwrap()
}

#[test]
fn every_malformed_batch_is_refused_by_the_field_at_fault() {
    let message = v1::Batch::from(&batch(0, 2));
    refused::<_, SampleBatch>(&message, |m| m.samples.clear(), "samples: has 0 entries, expected 1 to 4096");
    let many = |m: &mut v1::Batch| m.samples = vec![m.samples[0].clone(); SAMPLES_PER_BATCH_MAX + 1];
    refused::<_, SampleBatch>(&message, many, "samples: has 4097 entries, expected 1 to 4096");
    refused::<_, SampleBatch>(&message, |m| m.table = None, "table: is missing");
    let cases: [Case<v1::Sample>; 7] = [
        (|s| s.trajectory = None, "trajectory: is missing"),
        (|s| s.segment.truncate(9), "segment.columns: are truncated"),
        (
            |s| s.segment = long().segment(0, UNROLL_STEPS_MAX + 1).unwrap().columns().clone(),
            "segment.steps: has 1026 entries, expected 1 to 1025",
        ),
        (|s| s.probability = 0.0, "probability: 0 is not a probability"),
        (|s| s.probability = 1.5, "probability: 1.5 is not a probability"),
        (|s| s.probability = f64::NAN, "probability: NaN is not a probability"),
        (|s| s.table_items = 0, "table_items: is zero"),
    ];
    for (change, expected) in cases {
        refused::<_, SampleBatch>(&message, |m| change(&mut m.samples[1]), &format!("samples[1].{expected}"));
    }
    const fn total_weight(weight: f64) -> Option<v1::TotalWeight> {
        Some(v1::TotalWeight { weight })
    }
    let cases: [Case<v1::TableStats>; 6] = [
        (|t| t.total_weight = total_weight(f64::INFINITY), "total_weight.weight: inf is not a finite ratio"),
        (|t| t.total_weight = total_weight(-1.0), "total_weight.weight: -1 is not a finite ratio"),
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_that_were_tampered_with_never_panic(trajectory in trajectories(), batch in batches(), changes in changes()) {
        tampered::<v1::Trajectory, Trajectory>(&trajectory.into(), &changes);
        tampered::<v1::Batch, SampleBatch>(&(&batch).into(), &changes);
    }

    #[test]
    fn tampered_requests_never_panic(
        (origin, query) in (origins(), sample_queries()),
        report in reports(),
        search in search_queries(),
        changes in changes(),
    ) {
        tampered::<v1::SearchRequest, SearchQuery>(&search.into(), &changes);
        tampered::<v1::Hello, Origin>(&origin.into(), &changes);
        tampered::<v1::Open, SampleQuery>(&query.into(), &changes);
        tampered::<v1::ReportRequest, Report>(&report.into(), &changes);
    }

    #[test]
    fn credits_of_any_size_never_panic(count in any::<u32>()) {
        let _ = insert::checked_ready(v1::Ready { credit: count, heartbeat_ms: 0, highest_epoch: u64::MAX, revision: count });
        let _ = sample::credit_from_wire(v1::Credit { batches: count, newest_weights_version: 0 });
    }

    #[test]
    fn any_bytes_are_columns_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), counts in any::<bool>()) {
        // Few random byte strings start with a header, so half of them get one.
        let header = [1, 0, 3, 1, b'x', 2, 0, 2, 2, 0];
        let bytes = if counts { [&header[..], &bytes].concat() } else { bytes };
        let message = v1::Trajectory { id: Some(v1::TrajectoryId::default()), columns: bytes.clone().into() };
        let _ = Trajectory::try_from(message);
        let sample = v1::Sample { trajectory: Some(v1::TrajectoryId::default()), segment: bytes.into(), probability: 1.0, table_items: 1 };
        let _ = Sample::try_from(sample);
    }
}
