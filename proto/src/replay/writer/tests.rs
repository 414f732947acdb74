use std::pin::pin;
use std::time::Duration;

use experience::{Invalid, TrajectoryId};
use futures::poll;
use tonic::Status;

use super::{Writer, WriterError, WriterSettings, WriterStats};
use crate::replay::{Answer, Origin, v1};
use crate::scripted::{Link, ReplayScript, Stream, trajectory, until, within};

/// A `close` timeout longer than any expected event.
const PATIENT: Duration = Duration::from_secs(60);

fn writer(endpoint: String, in_flight_max: usize) -> Writer {
    Writer::start(WriterSettings { endpoint, actor: 7, epoch: 3, game: "tic_tac_toe".into(), in_flight_max })
}

async fn insert(writer: &Writer, sequences: impl IntoIterator<Item = u64>) {
    for sequence in sequences {
        within(writer.insert(trajectory(sequence))).await.unwrap();
    }
}

fn inserted(sequence: u64) -> Answer {
    Answer::Inserted { sequence }
}

#[tokio::test]
async fn a_stream_opens_with_the_writers_origin_and_trajectories_arrive_as_they_were_inserted() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..2).await;
    let mut stream = server.inserting().await;
    assert_eq!(stream.hello().await, Origin { actor: 7, epoch: 3, game: "tic_tac_toe".into() });
    stream.reply(v1::Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..v1::Ready::default() }.into()).await;
    assert_eq!([stream.trajectory().await, stream.trajectory().await], [trajectory(0), trajectory(1)]);
}

#[tokio::test]
async fn close_waits_for_the_last_acknowledgement() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..3).await;
    assert_eq!(writer.unacknowledged(), 3);
    let mut stream = server.ready(8).await;
    let mut close = pin!(writer.close(PATIENT));
    assert!(poll!(close.as_mut()).is_pending());
    for sequence in stream.sequences(3).await {
        stream.answer(inserted(sequence)).await;
    }
    assert_eq!(within(close).await, []);
}

#[tokio::test]
async fn a_writer_is_flushed_when_everything_is_acknowledged_and_accepts_more_afterwards() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 2);
    within(writer.flushed()).await;
    insert(&writer, 0..2).await;
    let mut stream = server.ready(8).await;
    let mut flushed = pin!(writer.flushed());
    stream.sequences(2).await;
    stream.answer(inserted(0)).await;
    until(|| writer.unacknowledged() == 1).await;
    assert!(poll!(flushed.as_mut()).is_pending());
    stream.answer(inserted(1)).await;
    within(flushed).await;
    insert(&writer, 2..4).await;
}

#[tokio::test]
async fn unacknowledged_trajectories_are_sent_again_in_order_after_a_cut() {
    let mut server = ReplayScript::start().await;
    let link = Link::to(server.address).await;
    let writer = writer(link.endpoint(), 8);
    insert(&writer, 0..4).await;
    let mut first = server.ready(8).await;
    assert_eq!(first.sequences(4).await, [0, 1, 2, 3]);
    first.answer(inserted(1)).await;
    until(|| writer.unacknowledged() == 3).await;
    link.cut();
    insert(&writer, 4..5).await;

    let mut second = server.ready(8).await;
    assert_eq!(second.sequences(4).await, [0, 2, 3, 4]);
    // The server had stored 0 before the cut; only the acknowledgement was lost.
    second.answer(Answer::Duplicate { sequence: 0 }).await;
    for sequence in 2..5 {
        second.answer(inserted(sequence)).await;
    }
    until(|| writer.unacknowledged() == 0).await;
    assert_eq!(
        writer.stats(),
        WriterStats { inserted: 4, duplicates: 1, collisions: 0, stale: 0, refused: 0, broken_streams: 1 }
    );
    assert_eq!(within(writer.close(PATIENT)).await, []);
}

#[tokio::test]
async fn trajectories_survive_a_link_that_is_cut_again_and_again() {
    let mut server = ReplayScript::start().await;
    let link = Link::to(server.address).await;
    let writer = writer(link.endpoint(), 8);
    insert(&writer, 0..6).await;
    for first in 0..6 {
        let mut stream = server.ready(8).await;
        let left = usize::try_from(6 - first).unwrap();
        assert_eq!(stream.sequences(left).await, (first..6).collect::<Vec<_>>());
        stream.answer(inserted(first)).await;
        until(|| writer.unacknowledged() == left - 1).await;
        link.cut();
    }
    assert_eq!(writer.stats().inserted, 6);
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_opened_again() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..1).await;
    server.ready(8).await.end(Status::unavailable("draining")).await;
    let mut stream = server.ready(8).await;
    assert_eq!(stream.sequences(1).await, [0]);
    assert_eq!(writer.stats().broken_streams, 1);
}

#[tokio::test]
async fn insert_waits_while_as_many_as_allowed_are_unacknowledged() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 2);
    insert(&writer, 0..2).await;
    let mut stream = server.ready(8).await;
    assert_eq!(stream.sequences(2).await, [0, 1]);

    let mut third = pin!(writer.insert(trajectory(2)));
    assert!(poll!(third.as_mut()).is_pending());
    assert_eq!(writer.unacknowledged(), 2);
    stream.answer(inserted(1)).await;
    within(third).await.unwrap();
    assert_eq!(writer.unacknowledged(), 2);
    assert_eq!(stream.sequences(1).await, [2]);
}

#[tokio::test]
async fn an_insert_that_is_given_up_was_not_accepted() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 1);
    insert(&writer, 0..1).await;
    let mut stream = server.ready(8).await;
    assert_eq!(stream.sequences(1).await, [0]);
    {
        let mut given_up = pin!(writer.insert(trajectory(1)));
        assert!(poll!(given_up.as_mut()).is_pending());
    }
    stream.answer(inserted(0)).await;
    insert(&writer, 2..3).await;
    assert_eq!(stream.sequences(1).await, [2]);
}

#[tokio::test]
async fn no_more_trajectories_are_sent_than_the_server_gave_credit_for() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 8);
    insert(&writer, 0..4).await;
    let mut stream = server.ready(2).await;
    assert_eq!(stream.sequences(2).await, [0, 1]);
    {
        let mut early = pin!(stream.trajectory());
        for _ in 0..100 {
            assert!(poll!(early.as_mut()).is_pending(), "a trajectory came over the credit");
            tokio::task::yield_now().await;
        }
    }
    stream.answer(inserted(1)).await;
    assert_eq!(stream.sequences(1).await, [2]);
    stream.answer(inserted(0)).await;
    assert_eq!(stream.sequences(1).await, [3]);
}

#[tokio::test]
async fn a_refused_trajectory_is_counted_and_not_sent_again() {
    let mut server = ReplayScript::start().await;
    let link = Link::to(server.address).await;
    let writer = writer(link.endpoint(), 4);
    insert(&writer, 0..2).await;
    let mut first = server.ready(8).await;
    assert_eq!(first.sequences(2).await, [0, 1]);
    let fault = Invalid { field: "steps[1].action".into(), reason: "9 is not below 9".into() };
    first.answer(Answer::Refused { sequence: 0, fault }).await;
    until(|| writer.stats().refused == 1).await;
    link.cut();
    let mut second = server.ready(8).await;
    assert_eq!(second.sequences(1).await, [1]);
    second.answer(inserted(1)).await;
    until(|| writer.unacknowledged() == 0).await;
    assert_eq!(
        writer.stats(),
        WriterStats { inserted: 1, duplicates: 0, collisions: 0, stale: 0, refused: 1, broken_streams: 1 }
    );
}

#[tokio::test]
async fn close_returns_the_unacknowledged_trajectories_in_order() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..4).await;
    let mut stream = server.ready(3).await;
    assert_eq!(stream.sequences(3).await, [0, 1, 2]);
    stream.answer(inserted(1)).await;
    until(|| writer.unacknowledged() == 3).await;
    assert_eq!(within(writer.close(Duration::ZERO)).await, [trajectory(0), trajectory(2), trajectory(3)]);
}

#[tokio::test]
async fn close_returns_the_trajectories_when_no_server_was_reached() {
    let nowhere = writer("http://127.0.0.1:0".into(), 4);
    insert(&nowhere, 0..2).await;
    assert_eq!(within(nowhere.close(Duration::ZERO)).await, [trajectory(0), trajectory(1)]);
}

#[tokio::test]
async fn a_writer_without_trajectories_closes_without_a_server() {
    let nowhere = writer("http://127.0.0.1:0".into(), 4);
    // Far beyond the deadline of the test: `close` must not wait for it.
    assert_eq!(within(nowhere.close(Duration::MAX)).await, []);
}

#[tokio::test]
async fn an_answer_to_an_unsent_sequence_ends_the_stream() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..1).await;
    let mut first = server.ready(8).await;
    assert_eq!(first.sequences(1).await, [0]);
    first.answer(inserted(5)).await;
    let mut second = server.ready(8).await;
    assert_eq!(second.sequences(1).await, [0]);
    assert_eq!(writer.stats(), WriterStats { broken_streams: 1, ..WriterStats::default() });
}

#[tokio::test]
async fn trajectories_of_another_actor_epoch_or_game_are_not_accepted() {
    let writer = writer("http://127.0.0.1:0".into(), 4);
    let ours = trajectory(0);
    for other in [
        ours.with_id(TrajectoryId { actor: 8, ..ours.id() }),
        ours.with_id(TrajectoryId { epoch: 4, ..ours.id() }),
        experience::Trajectory::of(ours.id(), "hex", &ours.steps().collect::<Vec<_>>(), ours.outcome()).unwrap(),
    ] {
        let error = writer.insert(other.clone()).await.unwrap_err();
        assert!(matches!(&error, WriterError::NotOurs { id, .. } if *id == other.id()), "{error}");
    }
    assert_eq!(writer.unacknowledged(), 0);
}

#[tokio::test]
async fn a_trajectory_that_fits_no_message_is_not_accepted() {
    let writer = writer("http://127.0.0.1:0".into(), 4);
    let small = trajectory(0);
    let step = experience::Step { reward: 1.0, ..small.steps().last().unwrap() };
    let large = experience::Trajectory::of(small.id(), small.game(), &vec![step; 1 << 20], small.outcome()).unwrap();
    let error = writer.insert(large).await.unwrap_err();
    assert!(
        matches!(error, WriterError::TooLarge { bytes, .. } if bytes > transport::limits::MESSAGE_BYTES_MAX),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_is_away_from_the_start_or_the_end_of_a_stream_until_it_takes_trajectories() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 2);
    assert!(writer.away_for().is_some());
    let stream = server.ready(8).await;
    until(|| writer.away_for().is_none()).await;
    drop(stream);
    until(|| writer.away_for().is_some()).await;
    let before = writer.away_for();
    until(|| writer.away_for() > before).await;
    let _stream = server.ready(8).await;
    until(|| writer.away_for().is_none()).await;
}

#[tokio::test]
async fn unacknowledged_trajectories_are_sent_to_the_new_address_of_a_moved_server() {
    let (mut old, mut new) = (ReplayScript::start().await, ReplayScript::start().await);
    let writer = writer(old.endpoint(), 2);
    insert(&writer, 0..1).await;
    let mut stream = old.ready(8).await;
    assert_eq!(stream.sequences(1).await, [0]);
    writer.moved(&new.endpoint());
    drop((stream, old));
    assert_eq!(new.ready(8).await.sequences(1).await, [0]);
}

/// Returns all further messages of a stream, by kind.
async fn kinds(stream: &mut Stream<v1::InsertRequest, v1::InsertResponse>, count: usize) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    while kinds.len() < count {
        kinds.push(match stream.request().await.and_then(|request| request.message) {
            Some(v1::insert_request::Message::Heartbeat(_)) => "heartbeat",
            Some(v1::insert_request::Message::Goodbye(_)) => "goodbye",
            Some(v1::insert_request::Message::Trajectory(_)) => "trajectory",
            Some(v1::insert_request::Message::Hello(_)) => "hello",
            None => "end",
        });
    }
    kinds
}

#[tokio::test]
async fn a_writer_sends_the_requested_heartbeats_and_a_goodbye_when_it_closes() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    let mut stream = server.inserting().await;
    stream.hello().await;
    stream.reply(v1::Ready { credit: 8, heartbeat_ms: 20, highest_epoch: 0, ..v1::Ready::default() }.into()).await;
    assert_eq!(kinds(&mut stream, 3).await, ["heartbeat"; 3]);
    insert(&writer, 0..1).await;
    assert_eq!(stream.trajectory().await.id().sequence, 0);
    let closing = tokio::spawn(writer.close(PATIENT));
    while kinds(&mut stream, 1).await != ["goodbye"] {}
    stream.answer(inserted(0)).await;
    while kinds(&mut stream, 1).await != ["end"] {}
    drop(stream);
    assert_eq!(within(closing).await.unwrap(), []);
}

#[tokio::test]
async fn a_server_that_requests_no_heartbeats_receives_neither_heartbeats_nor_a_goodbye() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..1).await;
    let mut stream = server.ready(8).await;
    assert_eq!(kinds(&mut stream, 1).await, ["trajectory"]);
    let closing = tokio::spawn(writer.close(PATIENT));
    stream.answer(inserted(0)).await;
    assert_eq!(kinds(&mut stream, 1).await, ["end"]);
    assert_eq!(within(closing).await.unwrap(), []);
}

#[tokio::test]
async fn a_stale_trajectory_is_dropped_and_counted() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..1).await;
    let mut stream = server.ready(8).await;
    assert_eq!(stream.sequences(1).await, [0]);
    stream.answer(Answer::Stale { sequence: 0 }).await;
    until(|| writer.unacknowledged() == 0).await;
    assert_eq!(writer.stats(), WriterStats { stale: 1, ..WriterStats::default() });
}

/// A stopped process: the system accepts connections, but no call has a response.
#[tokio::test]
async fn a_server_that_takes_connections_and_answers_nothing_is_left_and_dialled_again() {
    let stopped = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let writer = writer(format!("http://{}", stopped.local_addr().unwrap()), 4);
    insert(&writer, 0..1).await;
    within(async {
        while writer.stats().broken_streams == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(writer.away_for().is_some_and(|away| away < Duration::from_secs(25)), "{:?}", writer.away_for());
}

/// Returns the next stream of a script, after the server has reported `highest_epoch`.
async fn ready_after(server: &mut ReplayScript, highest_epoch: u64) -> Stream<v1::InsertRequest, v1::InsertResponse> {
    let mut stream = server.inserting().await;
    stream.hello().await;
    stream.reply(v1::Ready { credit: 8, heartbeat_ms: 0, highest_epoch, ..v1::Ready::default() }.into()).await;
    stream
}

fn writer_of_new_epoch(endpoint: String) -> Writer {
    Writer::start_epoch(WriterSettings { endpoint, actor: 7, epoch: 3, game: "tic_tac_toe".into(), in_flight_max: 4 })
}

#[tokio::test]
async fn nothing_is_sent_under_a_new_epoch_that_the_server_has_stored_or_passed() {
    for highest in [3, 4] {
        let mut server = ReplayScript::start().await;
        let writer = writer_of_new_epoch(server.endpoint());
        insert(&writer, 0..2).await;
        let mut stream = ready_after(&mut server, highest).await;
        until(|| writer.epoch_taken() == Some(highest)).await;
        assert_eq!(stream.request().await, None);
        assert!(writer.away_for().is_some());
        assert_eq!(within(writer.close(Duration::ZERO)).await, [trajectory(0), trajectory(1)]);
    }
}

#[tokio::test]
async fn a_new_epoch_above_those_stored_is_used_and_is_still_good_after_a_reconnect() {
    let mut server = ReplayScript::start().await;
    let writer = writer_of_new_epoch(server.endpoint());
    insert(&writer, 0..1).await;
    let mut stream = ready_after(&mut server, 2).await;
    assert_eq!(stream.sequences(1).await, [0]);
    drop(stream);
    let mut stream = ready_after(&mut server, 3).await;
    assert_eq!(stream.sequences(1).await, [0]);
    stream.answer(Answer::Duplicate { sequence: 0 }).await;
    until(|| writer.unacknowledged() == 0).await;
    assert_eq!(writer.stats(), WriterStats { duplicates: 1, broken_streams: 1, ..WriterStats::default() });
}

#[tokio::test]
async fn a_duplicate_of_a_trajectory_that_was_sent_once_is_a_collision() {
    let mut server = ReplayScript::start().await;
    let writer = writer_of_new_epoch(server.endpoint());
    insert(&writer, 0..1).await;
    let mut stream = ready_after(&mut server, 0).await;
    assert_eq!(stream.sequences(1).await, [0]);
    stream.answer(Answer::Duplicate { sequence: 0 }).await;
    until(|| writer.unacknowledged() == 0).await;
    assert_eq!(writer.stats(), WriterStats { collisions: 1, ..WriterStats::default() });
}

#[tokio::test]
async fn a_duplicate_under_an_epoch_that_was_used_before_is_no_collision() {
    let mut server = ReplayScript::start().await;
    let writer = writer(server.endpoint(), 4);
    insert(&writer, 0..1).await;
    let mut stream = ready_after(&mut server, 9).await;
    assert_eq!(stream.sequences(1).await, [0]);
    stream.answer(Answer::Duplicate { sequence: 0 }).await;
    until(|| writer.unacknowledged() == 0).await;
    assert_eq!(writer.stats(), WriterStats { duplicates: 1, ..WriterStats::default() });
}
