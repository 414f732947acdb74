use experience::Trajectory;
use proptest::prelude::*;
use prost::Message;

use super::super::{change_from_wire, insert, revise, sample, table, waiting_to_wire};
use super::*;
use crate::convert::tests::sent;
use crate::limits::{ANY_TRAJECTORY, REASON_BYTES_MAX};
use crate::replay::{Choice, INSERT_REVISION, v1};

/// Bytes of a sample in addition to the trajectory steps. The message limit exceeds the trajectory limit by at least
/// twice this value, plus the table and the lengths of a part.
const SAMPLE_OWN_BYTES_MAX: usize = 1 << 10;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn actors_come_back_as_they_went_out(actors in actors()) {
        prop_assert_eq!(table::checked_actors(sent(actors.clone())), Ok(actors));
    }

    #[test]
    fn trajectories_come_back_as_they_went_out(trajectory in trajectories()) {
        let back = Trajectory::try_from(sent(v1::Trajectory::from(trajectory.clone()))).unwrap();
        prop_assert_eq!(back.columns(), trajectory.columns());
        prop_assert_eq!(back, trajectory);
    }

    #[test]
    fn batches_come_back_as_they_went_out(batch in batches()) {
        prop_assert_eq!(SampleBatch::try_from(sent(v1::Batch::from(&batch))), Ok(batch));
    }

    #[test]
    fn a_batch_in_parts_is_the_same_samples_in_the_same_order(batch in batches(), part_bytes_max in 0_usize..500) {
        let parts = sample::parts(&batch, part_bytes_max);
        for part in &parts {
            let bytes = part.samples.iter().map(Message::encoded_len).sum::<usize>();
            prop_assert!(part.samples.len() == 1 || bytes <= part_bytes_max);
        }
        let parts = parts.into_iter().map(|part| SampleBatch::try_from(sent(part)).unwrap()).collect::<Vec<_>>();
        prop_assert!(parts.iter().all(|part| part.table == batch.table));
        let samples = parts.into_iter().flat_map(|part| part.samples).collect::<Vec<_>>();
        prop_assert_eq!(samples, batch.samples);
    }

    #[test]
    fn a_sample_fits_wherever_its_trajectory_does(trajectory in trajectories(), unroll_steps in 0_usize..12) {
        let bytes = v1::Trajectory::from(trajectory.clone()).encoded_len();
        for ply in 0..trajectory.plies() {
            let segment = trajectory.segment(ply, unroll_steps).unwrap();
            let sample = Sample { segment, probability: 1.0, table_items: u64::MAX };
            prop_assert!(v1::Sample::from(&sample).encoded_len() <= bytes + SAMPLE_OWN_BYTES_MAX);
        }
    }

    #[test]
    fn tables_come_back_as_they_went_out(table in tables()) {
        prop_assert_eq!(table::checked_table(sent(table.clone())), Ok(table));
    }

    #[test]
    fn origins_come_back_as_they_went_out(origin in origins()) {
        prop_assert_eq!(Origin::try_from(sent(v1::Hello::from(origin.clone()))), Ok(origin));
    }

    #[test]
    fn answers_come_back_as_they_went_out(answer in answers()) {
        let back = match sent(v1::InsertResponse::from(answer.clone())).message {
            Some(v1::insert_response::Message::Ack(ack)) => Answer::try_from(ack),
            Some(v1::insert_response::Message::Refused(refused)) => Answer::try_from(refused),
            other => panic!("an answer became {other:?}"),
        };
        prop_assert_eq!(back, Ok(answer));
    }

    #[test]
    fn queries_come_back_as_they_went_out(
        (query, list) in (sample_queries(), list_queries()),
        report in reports(),
        credit in credits(),
    ) {
        prop_assert_eq!(SampleQuery::try_from(sent(v1::Open::from(query.clone()))), Ok(query));
        prop_assert_eq!(ListQuery::try_from(sent(v1::ListRequest::from(list.clone()))), Ok(list));
        prop_assert_eq!(Report::try_from(sent(v1::ReportRequest::from(report.clone()))), Ok(report));
        prop_assert_eq!(sample::credit_from_wire(sent(v1::Credit { batches: credit, newest_weights_version: 0 })), Ok((credit, None)));
        let ready = v1::Ready { credit, heartbeat_ms: 0, highest_epoch: 3, revision: INSERT_REVISION };
        prop_assert_eq!(insert::checked_ready(sent(ready)), Ok(ready));
    }

    #[test]
    fn operator_messages_come_back_as_they_went_out(
        (suspect, quarantine, update) in (suspects(), quarantines(), priority_updates()),
        (stats, located, change) in (server_stats(), located(), table_changes()),
    ) {
        prop_assert_eq!(change_from_wire(sent(change.clone())), Ok(change));
        prop_assert_eq!(Suspect::try_from(sent(v1::ReleaseRequest::from(suspect))), Ok(suspect));
        prop_assert_eq!(Quarantine::try_from(sent(v1::QuarantineRequest::from(quarantine.clone()))), Ok(quarantine));
        let request = v1::UpdatePrioritiesRequest::from(update.clone());
        prop_assert_eq!(PriorityUpdate::try_from(sent(request)), Ok(update));
        prop_assert_eq!(ServerStats::try_from(sent(v1::StatsResponse::from(stats.clone()))), Ok(stats));
        prop_assert_eq!(Located::try_from(sent(v1::GetResponse::from(located.clone()))), Ok(located));
    }

    #[test]
    fn searches_come_back_as_they_went_out(query in search_queries(), page in search_pages()) {
        prop_assert_eq!(SearchQuery::try_from(sent(v1::SearchRequest::from(query.clone()))), Ok(query));
        prop_assert_eq!(SearchPage::try_from(sent(v1::SearchResponse::from(page.clone()))), Ok(page));
    }

    #[test]
    fn revisions_come_back_as_they_went_out(revision in revisions(), older_than in 1..=u64::MAX) {
        let request = sent(v1::ReviseRequest::from(revision.clone()));
        prop_assert_eq!(revise::revision_from_wire(request, ANY_TRAJECTORY), Ok(revision.clone()));
        let response = sent(revise::choice_to_wire(Some(revision.clone())));
        prop_assert_eq!(revise::choice_from_wire(response), Ok(Some(revision)));
        let choice = Choice { table: "main".to_owned(), older_than: WeightsVersion(older_than) };
        prop_assert_eq!(Choice::try_from(sent(v1::ChooseRequest::from(choice.clone()))), Ok(choice));
    }

    #[test]
    fn long_sentences_are_cut_to_what_a_receiver_accepts(reason in "[aü€]{300,1200}") {
        let Some(v1::sample_response::Message::Waiting(waiting)) = waiting_to_wire(reason.clone()).message else {
            panic!("a reason became something else");
        };
        let back = sample::waiting_from_wire(waiting).unwrap();
        prop_assert!(reason.starts_with(&back) && back.len() + 3 >= reason.len().min(REASON_BYTES_MAX));
        let report = Report { trajectory: TrajectoryId { actor: 0, epoch: 0, sequence: 0 }, ply: 0, reason };
        prop_assert_eq!(Report::try_from(v1::ReportRequest::from(report)).unwrap().reason, back);
    }
}

#[test]
fn a_connect_four_trajectory_has_less_than_two_kilobytes() {
    let policy = (0..7).map(|action| ActionProbability { action: Action(action), probability: 1.0 / 7.0 }).collect();
    let kind = StepKind::Full { policy, value: 0.5 };
    let step = Step { action: Action(3), reward: 0.0, kind, weights_version: WeightsVersion(2) };
    let id = TrajectoryId { actor: 7, epoch: 3, sequence: 0 };
    let trajectory = Trajectory::of(id, "connect_four", &vec![step; 36], Outcome::Draw).unwrap();
    let bytes = v1::Trajectory::from(trajectory).encoded_len();
    assert!((1000..2000).contains(&bytes), "{bytes} bytes");
}
