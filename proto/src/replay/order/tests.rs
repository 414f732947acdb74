use std::time::Duration;

use experience::{Limits, Trajectory};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{
    Fault, InsertOrder, InsertReplies, InsertReply, Inserted, SampleOrder, SampleReplies, SampleReply, Sampled,
};
use crate::limits::{
    CREDIT_BATCHES_MAX, REASON_BYTES_MAX, SAMPLES_PER_BATCH_MAX, TRAJECTORY_BYTES_MAX, UNROLL_STEPS_MAX,
};
use crate::replay::v1::{self, insert_request, insert_response, sample_request, sample_response};
use crate::replay::{Answer, InsertWait, MAIN_TABLE, Origin, SampleQuery, waiting_to_wire};
use crate::scripted::{batch, trajectory};

const GAME: &str = "tic_tac_toe";

/// Returns the events of a stream's messages up to the first fault, and the fault as received by the peer.
fn received<M, E>(
    messages: impl IntoIterator<Item = M>,
    mut receive: impl FnMut(M) -> Result<E, Fault>,
) -> (Vec<E>, Option<(Code, String)>) {
    let mut events = Vec::new();
    for message in messages {
        match receive(message) {
            Ok(event) => events.push(event),
            Err(fault) => {
                let status = Status::from(fault);
                return (events, Some((status.code(), status.message().to_owned())));
            }
        }
    }
    (events, None)
}

/// Asserts that the last of `messages`, and no earlier message, closes the stream with this status.
#[track_caller]
fn ends<M: Clone, E>(messages: &[M], receive: impl FnMut(M) -> Result<E, Fault>, code: Code, message: &str) {
    let (events, fault) = received(messages.iter().cloned(), receive);
    assert_eq!(fault, Some((code, message.to_owned())), "after {} messages", events.len());
    assert_eq!(events.len() + 1, messages.len(), "the last message is at fault");
}

mod insert_requests {
    use super::*;

    fn order(credit: u32) -> InsertOrder {
        order_with(credit, Duration::ZERO)
    }

    fn order_with(credit: u32, heartbeat: Duration) -> InsertOrder {
        InsertOrder::new(GAME, credit, Limits { steps_max: 9, actions: 9 }, heartbeat)
    }

    fn hello() -> v1::InsertRequest {
        hello_of(GAME)
    }

    fn hello_of(game: &str) -> v1::InsertRequest {
        let hello = Origin { actor: 7, epoch: 3, game: game.into() }.into();
        v1::InsertRequest { message: Some(insert_request::Message::Hello(hello)), ..v1::InsertRequest::default() }
    }

    fn sends(sequence: u64) -> v1::InsertRequest {
        sends_changed(sequence, |_| ())
    }

    fn sends_changed(sequence: u64, change: impl FnOnce(&mut v1::Trajectory)) -> v1::InsertRequest {
        let mut message = v1::Trajectory::from(trajectory(sequence));
        change(&mut message);
        v1::InsertRequest {
            message: Some(insert_request::Message::Trajectory(message)),
            ..v1::InsertRequest::default()
        }
    }

    /// Returns columns with another game name.
    fn of_game(game: &str) -> bytes::Bytes {
        let steps: Vec<_> = trajectory(0).steps().collect();
        let of = Trajectory::of(trajectory(0).id(), game, &steps, trajectory(0).outcome());
        of.unwrap().columns().clone()
    }

    /// Returns the columns with `new` in place of `old`.
    fn with(columns: &[u8], old: &[u8], new: &[u8]) -> bytes::Bytes {
        let at = columns.windows(old.len()).position(|bytes| bytes == old).unwrap();
        [&columns[..at], new, &columns[at + old.len()..]].concat().into()
    }

    fn id(message: &mut v1::Trajectory) -> &mut v1::TrajectoryId {
        message.id.as_mut().unwrap()
    }

    #[test]
    fn hello_and_then_trajectories_are_in_order() {
        let mut order = order(2);
        let (events, fault) = received([hello(), sends(0), sends(1)], |message| order.receive(message));
        let origin = Origin { actor: 7, epoch: 3, game: GAME.into() };
        let trajectories = [0, 1].map(|sequence| Inserted::Trajectory(trajectory(sequence)));
        assert_eq!(events, [vec![Inserted::Hello(origin)], trajectories.into()].concat());
        assert_eq!((fault, order.unanswered()), (None, 2));
        assert_eq!(order.ready(5), v1::Ready { credit: 2, heartbeat_ms: 0, highest_epoch: 5, revision: 2 }.into());
    }

    fn heartbeat() -> v1::InsertRequest {
        v1::InsertRequest {
            message: Some(insert_request::Message::Heartbeat(v1::Heartbeat {})),
            ..v1::InsertRequest::default()
        }
    }

    fn goodbye() -> v1::InsertRequest {
        v1::InsertRequest {
            message: Some(insert_request::Message::Goodbye(v1::Goodbye {})),
            ..v1::InsertRequest::default()
        }
    }

    #[test]
    fn heartbeats_and_one_goodbye_may_stand_anywhere_after_hello() {
        let mut order = order(2);
        let messages = [hello(), heartbeat(), sends(0), goodbye(), sends(1), heartbeat()];
        let (events, fault) = received(messages, |message| order.receive(message));
        assert_eq!((events.len(), fault), (6, None));
        assert_eq!((&events[1], &events[3]), (&Inserted::Heartbeat, &Inserted::Goodbye));
    }

    #[test]
    fn heartbeats_are_requested_and_stale_answers_sent_only_from_revision_1_on() {
        for (revision, heartbeat_ms, is_understood) in [
            (0, 0, Answer::Inserted { sequence: 5 }),
            (1, 2000, Answer::Stale { sequence: 5 }),
            (9, 2000, Answer::Stale { sequence: 5 }),
        ] {
            let mut order = order_with(2, Duration::from_secs(2));
            let hello = v1::Hello { actor: 7, epoch: 3, game: GAME.into(), revision };
            let hello = v1::InsertRequest {
                message: Some(insert_request::Message::Hello(hello)),
                ..v1::InsertRequest::default()
            };
            assert!(order.receive(hello).is_ok());
            let ready = v1::Ready { credit: 2, heartbeat_ms, highest_epoch: 0, revision: revision.min(2) };
            assert_eq!((order.ready(0), order.reads_waiting()), (ready.into(), revision > 1));
            assert_eq!(order.understood(Answer::Stale { sequence: 5 }), is_understood);
        }
    }

    #[test]
    fn every_message_out_of_order_ends_the_stream() {
        let empty = v1::InsertRequest { message: None, ..v1::InsertRequest::default() };
        let cases = [
            (vec![heartbeat()], "`heartbeat` came before `hello`"),
            (vec![goodbye()], "`goodbye` came before `hello`"),
            (vec![hello(), goodbye(), heartbeat(), goodbye()], "duplicate `goodbye`"),
            (vec![empty.clone()], "empty message or unknown message kind"),
            (vec![hello(), empty], "empty message or unknown message kind"),
            (vec![sends(0)], "`trajectory` came before `hello`"),
            (vec![hello(), hello()], "duplicate `hello`"),
            (vec![hello(), sends(0), hello()], "duplicate `hello`"),
        ];
        for (messages, message) in cases {
            let mut order = order(4);
            ends(&messages, |message| order.receive(message), Code::FailedPrecondition, message);
        }
    }

    #[test]
    fn a_message_of_another_game_actor_or_epoch_ends_the_stream() {
        let cases = [
            (vec![hello_of("hex")], "game: is `hex`, this stream is for `tic_tac_toe`"),
            (vec![hello_of("")], "game: is empty"),
            (vec![hello_of(&"x".repeat(300))], "game: has 300 bytes, the limit is 256"),
            (vec![hello(), sends_changed(0, |message| message.id = None)], "id: is missing"),
            (
                vec![hello(), sends_changed(0, |message| id(message).actor = 8)],
                "id.actor: is `8`, this stream is for `7`",
            ),
            (
                vec![hello(), sends_changed(0, |message| id(message).epoch = 4)],
                "id.epoch: is `4`, this stream is for `3`",
            ),
            (
                vec![hello(), sends_changed(0, |message| message.columns = of_game("hex"))],
                "game: is `hex`, this stream is for `tic_tac_toe`",
            ),
        ];
        for (messages, message) in cases {
            let mut order = order(4);
            ends(&messages, |message| order.receive(message), Code::InvalidArgument, message);
        }
    }

    #[test]
    fn a_trajectory_over_the_credit_ends_the_stream() {
        let mut order = order(2);
        let messages = [hello(), sends(0), sends(1), sends(2)];
        let reason = "`trajectory` exceeds the credit of 2";
        ends(&messages, |message| order.receive(message), Code::ResourceExhausted, reason);
    }

    #[test]
    fn an_answer_frees_credit() {
        let mut order = order(1);
        order.receive(hello()).unwrap();
        for sequence in 0..3 {
            order.receive(sends(sequence)).unwrap();
            order.answered();
        }
        assert_eq!(order.unanswered(), 0);
    }

    #[test]
    fn an_invalid_trajectory_is_refused_and_the_stream_goes_on() {
        let mut order = order(3);
        let messages = [
            hello(),
            sends_changed(0, |message| {
                message.columns = with(&message.columns, &(-0.5_f32).to_le_bytes(), &f32::NAN.to_le_bytes());
            }),
            // Valid on the wire, but beyond the limits of the game.
            sends_changed(1, |message| {
                message.columns = with(&message.columns, &[0, 1, 2], &[9, 1, 2]);
            }),
            sends(2),
        ];
        let (events, fault) = received(messages, |message| order.receive(message));
        assert_eq!(fault, None);
        let refused = |event: &Inserted| match event {
            Inserted::Refused(Answer::Refused { sequence, fault }) => format!("{sequence} {fault}"),
            other => format!("{other:?}"),
        };
        assert_eq!(refused(&events[1]), "0 values[0]: is not finite");
        assert_eq!(refused(&events[2]), "1 steps[0].action: 9 is not below 9");
        assert_eq!(events[3], Inserted::Trajectory(trajectory(2)));
        assert_eq!(order.unanswered(), 3);
    }

    #[test]
    fn a_trajectory_whose_samples_might_fit_no_message_is_refused() {
        let mut order = order(1);
        order.receive(hello()).unwrap();
        let large = sends_changed(0, |message| message.columns = vec![1; TRAJECTORY_BYTES_MAX + 1].into());
        match order.receive(large).unwrap() {
            Inserted::Refused(Answer::Refused { sequence: 0, fault }) => assert_eq!(fault.field, "columns"),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn a_status_for_a_field_names_it_in_its_details() {
        let status = Status::from(order(1).receive(hello_of("hex")).unwrap_err());
        let details = status.get_details_bad_request().unwrap();
        assert_eq!(details.field_violations[0].field, "game");
    }
}

mod insert_replies {
    use super::*;

    fn response(message: insert_response::Message) -> v1::InsertResponse {
        v1::InsertResponse { message: Some(message) }
    }

    fn ready(credit: u32) -> v1::InsertResponse {
        v1::Ready { credit, heartbeat_ms: 0, highest_epoch: 0, ..v1::Ready::default() }.into()
    }

    fn ready_of(revision: u32) -> v1::InsertResponse {
        v1::Ready { credit: 2, heartbeat_ms: 2000, highest_epoch: 0, revision }.into()
    }

    fn waiting(wait: i32) -> v1::InsertResponse {
        response(insert_response::Message::Waiting(v1::InsertWaiting { wait }))
    }

    fn ack(sequence: u64) -> v1::InsertResponse {
        Answer::Inserted { sequence }.into()
    }

    fn refused(sequence: u64, field: String, reason: String) -> v1::InsertResponse {
        response(insert_response::Message::Refused(v1::Refused { sequence, field, reason }))
    }

    /// Returns a client that sends sequence numbers from 0 as soon as the credit allows.
    fn eager() -> impl FnMut(v1::InsertResponse) -> Result<InsertReply, Fault> {
        let (mut order, mut next) = (InsertReplies::default(), 0..);
        move |message| {
            let reply = order.receive(message)?;
            while order.may_send() {
                order.sent(next.next().unwrap());
            }
            Ok(reply)
        }
    }

    #[test]
    fn ready_and_then_answers_in_any_order_are_in_order() {
        let answers = [ack(1), refused(0, "game".into(), "is empty".into()), Answer::Duplicate { sequence: 2 }.into()];
        let (events, fault) = received([vec![ready(2)], answers.into()].concat(), eager());
        let sequences = events.iter().map(|event| match event {
            InsertReply::Ready { .. } | InsertReply::Waiting(_) => None,
            InsertReply::Answer(answer) => Some(answer.sequence()),
        });
        assert_eq!((sequences.collect::<Vec<_>>(), fault), (vec![None, Some(1), Some(0), Some(2)], None));
    }

    #[test]
    fn reasons_to_wait_may_stand_anywhere_after_ready_of_revision_2() {
        let reasons = [InsertWait::Turn, InsertWait::Limited, InsertWait::Log];
        for wait in reasons {
            let messages = [ready_of(2), wait.into(), ack(0), wait.into()];
            let (events, fault) = received(messages, eager());
            assert_eq!((events.len(), fault), (4, None));
            assert_eq!([&events[1], &events[3]], [&InsertReply::Waiting(wait); 2]);
        }
        let silence = |revision| {
            let mut order = InsertReplies::default();
            order.receive(ready_of(revision)).unwrap();
            order.silence_max()
        };
        assert_eq!([0, 1, 2].map(silence), [None, None, Some(Duration::from_secs(2))]);
    }

    #[test]
    fn nothing_may_be_sent_before_ready_or_over_the_credit() {
        let mut order = InsertReplies::default();
        assert!(!order.may_send());
        order.receive(ready(1)).unwrap();
        assert!(order.may_send());
        order.sent(0);
        assert!(!order.may_send());
        order.receive(ack(0)).unwrap();
        assert!(order.may_send());
    }

    #[test]
    fn every_message_out_of_order_ends_the_stream() {
        let empty = v1::InsertResponse { message: None };
        let cases = [
            (vec![empty.clone()], "empty message or unknown message kind"),
            (vec![ready(2), empty], "empty message or unknown message kind"),
            (vec![ack(0)], "`ack` came before `ready`"),
            (vec![refused(0, String::new(), String::new())], "`refused` came before `ready`"),
            (vec![waiting(1)], "`waiting` came before `ready`"),
            (vec![ready(2), ready(2)], "duplicate `ready`"),
            (vec![ready(2), ack(0), ready(2)], "duplicate `ready`"),
        ];
        for (messages, message) in cases {
            ends(&messages, eager(), Code::FailedPrecondition, message);
        }
    }

    #[test]
    fn every_invalid_answer_ends_the_stream() {
        let disposition = |disposition| response(insert_response::Message::Ack(v1::Ack { sequence: 0, disposition }));
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        let cases = [
            (vec![ready(0)], "credit: is zero"),
            (vec![ready_of(3)], "revision: is 3, the client has 2"),
            (vec![ready_of(1), waiting(1)], "waiting: requires revision 2, the stream has revision 1"),
            (vec![ready_of(2), waiting(2), waiting(0)], "wait: 0 is not a wait reason"),
            (vec![ready_of(2), waiting(4)], "wait: 4 is not a wait reason"),
            (vec![ready(2), ack(2)], "sequence: 2 awaits no response"),
            (vec![ready(2), ack(0), ack(0)], "sequence: 0 awaits no response"),
            (vec![ready(2), ack(0), refused(0, "game".into(), "is empty".into())], "sequence: 0 awaits no response"),
            (vec![ready(2), disposition(0)], "disposition: 0 is not a disposition"),
            (vec![ready(2), disposition(4)], "disposition: 4 is not a disposition"),
            (vec![ready(2), disposition(-1)], "disposition: -1 is not a disposition"),
            (vec![ready(2), refused(0, long.clone(), String::new())], "field: has 1025 bytes, the limit is 1024"),
            (vec![ready(2), refused(0, String::new(), long)], "reason: has 1025 bytes, the limit is 1024"),
        ];
        for (messages, message) in cases {
            ends(&messages, eager(), Code::InvalidArgument, message);
        }
    }
}

mod sample_requests {
    use super::*;

    fn open() -> v1::SampleRequest {
        open_of(GAME, 2, 1)
    }

    fn query_of(game: &str, batch_size: usize, unroll_steps: usize) -> SampleQuery {
        SampleQuery { game: game.into(), batch_size, unroll_steps, table: MAIN_TABLE.into(), timeout: None }
    }

    fn open_of(game: &str, batch_size: usize, unroll_steps: usize) -> v1::SampleRequest {
        let open = query_of(game, batch_size, unroll_steps).into();
        v1::SampleRequest { message: Some(sample_request::Message::Open(open)) }
    }

    fn credit(batches: u32) -> v1::SampleRequest {
        v1::SampleRequest {
            message: Some(sample_request::Message::Credit(v1::Credit { batches, newest_weights_version: 0 })),
        }
    }

    #[test]
    fn open_and_then_credit_are_in_order() {
        let mut order = SampleOrder::new(GAME);
        let (events, fault) = received([open(), credit(1), credit(3)], |message| order.receive(message));
        let query = query_of(GAME, 2, 1);
        assert_eq!(
            (events, fault),
            (vec![Sampled::Open(query), Sampled::Credit { newest: None }, Sampled::Credit { newest: None }], None)
        );
        assert_eq!(order.credit(), 4);
        order.sent();
        assert_eq!(order.credit(), 3);
    }

    #[test]
    fn every_message_out_of_order_ends_the_stream() {
        let empty = v1::SampleRequest { message: None };
        let cases = [
            (vec![empty.clone()], "empty message or unknown message kind"),
            (vec![open(), empty], "empty message or unknown message kind"),
            (vec![credit(1)], "`credit` came before `open`"),
            (vec![open(), open()], "duplicate `open`"),
            (vec![open(), credit(1), open()], "duplicate `open`"),
        ];
        for (messages, message) in cases {
            let mut order = SampleOrder::new(GAME);
            ends(&messages, |message| order.receive(message), Code::FailedPrecondition, message);
        }
    }

    #[test]
    fn every_size_out_of_its_range_and_every_other_game_ends_the_stream() {
        let cases = [
            (vec![open_of("hex", 2, 1)], "game: is `hex`, this stream is for `tic_tac_toe`"),
            (vec![open_of("", 2, 1)], "game: is empty"),
            (vec![open_of(GAME, 0, 1)], "batch_size: 0 is not between 1 and 4096"),
            (vec![open_of(GAME, SAMPLES_PER_BATCH_MAX + 1, 1)], "batch_size: 4097 is not between 1 and 4096"),
            (vec![open_of(GAME, 2, UNROLL_STEPS_MAX + 1)], "unroll_steps: 1025 is not between 0 and 1024"),
            (vec![open(), credit(0)], "batches: 0 is not between 1 and 64"),
            (vec![open(), credit(65)], "batches: 65 is not between 1 and 64"),
            (vec![open(), credit(u32::MAX)], "batches: 4294967295 is not between 1 and 64"),
        ];
        for (messages, message) in cases {
            let mut order = SampleOrder::new(GAME);
            ends(&messages, |message| order.receive(message), Code::InvalidArgument, message);
        }
    }

    #[test]
    fn more_unused_credit_than_the_limit_ends_the_stream() {
        let mut order = SampleOrder::new(GAME);
        let messages = [open(), credit(CREDIT_BATCHES_MAX), credit(1)];
        let reason = "`credit` exceeds the credit of 64";
        ends(&messages, |message| order.receive(message), Code::ResourceExhausted, reason);
    }

    #[test]
    fn a_batch_uses_credit_and_makes_room_for_more() {
        let mut order = SampleOrder::new(GAME);
        order.receive(open()).unwrap();
        order.receive(credit(CREDIT_BATCHES_MAX)).unwrap();
        for _ in 0..3 {
            order.sent();
            order.receive(credit(1)).unwrap();
        }
        assert_eq!(order.credit(), CREDIT_BATCHES_MAX);
    }
}

mod sample_replies {
    use super::*;

    fn order(credit: u32) -> SampleReplies {
        let mut order = SampleReplies::new(2, 1);
        order.gave(credit);
        order
    }

    /// Returns the samples of batch 1.
    fn sends(samples: usize) -> v1::SampleResponse {
        sends_changed(|part| part.samples = v1::Batch::from(&batch(1, samples)).samples)
    }

    fn sends_changed(change: impl FnOnce(&mut v1::Batch)) -> v1::SampleResponse {
        let mut message = v1::Batch::from(&batch(1, 2));
        change(&mut message);
        v1::SampleResponse { message: Some(sample_response::Message::Batch(message)) }
    }

    #[test]
    fn batches_within_the_credit_and_reasons_in_any_mix_are_in_order() {
        let mut order = order(2);
        let reason = || waiting_to_wire("too few".into());
        let messages = [reason(), sends(2), reason(), reason(), sends(2)];
        let (events, fault) = received(messages, |message| order.receive(message));
        let (sent, waits) = (SampleReply::Batch(batch(1, 2).into()), SampleReply::Waiting("too few".into()));
        assert_eq!((events, fault), (vec![waits.clone(), sent.clone(), waits.clone(), waits, sent], None));
    }

    #[test]
    fn the_parts_of_a_batch_use_one_credit_and_reasons_may_come_between_them() {
        let mut order = order(2);
        let messages = [sends(1), waiting_to_wire("too few".into()), sends(1), sends(1), sends(1)];
        let (events, fault) = received(messages, |message| order.receive(message));
        let (part, whole) = (SampleReply::Part, SampleReply::Batch(batch(1, 2).into()));
        let waits = SampleReply::Waiting("too few".into());
        assert_eq!((events, fault), (vec![part.clone(), waits, whole.clone(), part, whole], None));
    }

    #[test]
    fn a_part_with_more_samples_than_the_batch_lacks_ends_the_stream() {
        let mut order = order(1);
        let reason = "samples: has 2 entries, expected 1 to 1";
        ends(&[sends(1), sends(2)], |message| order.receive(message), Code::InvalidArgument, reason);
    }

    #[test]
    fn an_empty_message_ends_the_stream() {
        let mut order = order(2);
        let messages = [sends(2), v1::SampleResponse { message: None }];
        let reason = "empty message or unknown message kind";
        ends(&messages, |message| order.receive(message), Code::FailedPrecondition, reason);
    }

    #[test]
    fn a_batch_without_credit_ends_the_stream() {
        for credit in 0..3 {
            let mut order = order(credit);
            let messages = vec![sends(2); credit as usize + 1];
            let reason = "`batch` exceeds the credit of 0";
            ends(&messages, |message| order.receive(message), Code::ResourceExhausted, reason);
        }
    }

    #[test]
    fn every_invalid_batch_or_waiting_reason_ends_the_stream() {
        let long = |batch: &mut v1::Batch| {
            batch.samples[1].segment = trajectory(0).segment(0, 2).unwrap().columns().clone();
        };
        let reason = v1::Waiting { reason: "x".repeat(REASON_BYTES_MAX + 1) };
        let reason = v1::SampleResponse { message: Some(sample_response::Message::Waiting(reason)) };
        let cases = [
            (sends(0), "samples: has 0 entries, expected 1 to 2"),
            (sends(3), "samples: has 3 entries, expected 1 to 2"),
            (sends_changed(|batch| batch.table = None), "table: is missing"),
            (sends_changed(|batch| batch.samples[1].trajectory = None), "samples[1].trajectory: is missing"),
            (sends_changed(long), "samples[1].segment.steps: has 3 entries, expected 1 to 2"),
            (reason, "reason: has 1025 bytes, the limit is 1024"),
        ];
        for (message, reason) in cases {
            let mut order = order(1);
            ends(&[message], |message| order.receive(message), Code::InvalidArgument, reason);
        }
    }
}
