use std::time::{Duration, Instant};

use super::{EpochUse, Outbox, Received, WriterStats};
use crate::replay::v1::insert_request::Message;
use crate::replay::{Answer, InsertWait, Origin, v1};
use crate::scripted::trajectory;

const SECOND: Duration = Duration::from_secs(1);

fn outbox(epoch_use: EpochUse, now: Instant) -> Outbox {
    Outbox::new(Origin { actor: 7, epoch: 3, game: "tic_tac_toe".into() }, epoch_use, now)
}

fn ready(credit: u32, heartbeat_ms: u32, highest_epoch: u64) -> v1::InsertResponse {
    v1::Ready { credit, heartbeat_ms, highest_epoch, ..v1::Ready::default() }.into()
}

/// Returns the kinds of requests that may be sent now, in order; trajectories as numbers.
fn requests(outbox: &mut Outbox, now: Instant) -> Vec<String> {
    let mut kinds = Vec::new();
    while outbox.has_request() {
        let request = outbox.next_request(now).expect("a request was announced");
        kinds.push(match request.message.expect("a request has a message") {
            Message::Trajectory(trajectory) => trajectory.id.map_or(0, |id| id.sequence).to_string(),
            Message::Goodbye(_) => "goodbye".to_owned(),
            Message::Heartbeat(_) | Message::Hello(_) => "other".to_owned(),
        });
    }
    assert_eq!(outbox.next_request(now), None);
    kinds
}

#[test]
fn trajectories_are_sent_within_the_credit_and_again_in_order_after_a_break() {
    let now = Instant::now();
    let mut outbox = outbox(EpochUse::New, now);
    (0..4).for_each(|number| outbox.accept(trajectory(number), None, now));
    outbox.open();
    assert_eq!(requests(&mut outbox, now), [""; 0], "nothing is sent before the server is ready");
    assert_eq!(outbox.receive(ready(2, 0, 0), now), Ok(Received::Ready));
    assert_eq!(requests(&mut outbox, now), ["0", "1"]);
    assert_eq!(outbox.receive(Answer::Inserted { sequence: 1 }.into(), now), Ok(Received::Answered));
    assert_eq!(requests(&mut outbox, now), ["2"]);
    outbox.broke(now);
    outbox.open();
    outbox.receive(ready(8, 0, 3), now).unwrap();
    assert_eq!(requests(&mut outbox, now), ["0", "2", "3"]);
    // Trajectory 0 was sent on the first stream, trajectory 3 was not.
    outbox.receive(Answer::Duplicate { sequence: 0 }.into(), now).unwrap();
    outbox.receive(Answer::Duplicate { sequence: 3 }.into(), now).unwrap();
    let expected =
        WriterStats { inserted: 1, duplicates: 1, collisions: 1, broken_streams: 1, ..WriterStats::default() };
    assert_eq!(outbox.status().stats, expected);
    assert_eq!(outbox.into_unacknowledged(), [trajectory(2)]);
}

#[test]
fn a_heartbeat_is_due_one_interval_after_the_last_request() {
    let now = Instant::now();
    let mut outbox = outbox(EpochUse::Known, now);
    outbox.open();
    assert_eq!(outbox.next_heartbeat(), None);
    outbox.receive(ready(8, 1000, 0), now).unwrap();
    assert_eq!(outbox.next_heartbeat(), Some(now + SECOND));
    outbox.accept(trajectory(0), None, now);
    assert_eq!(requests(&mut outbox, now + SECOND / 2), ["0"]);
    assert_eq!(outbox.next_heartbeat(), Some(now + SECOND / 2 + SECOND));
    outbox.heartbeat(now + 2 * SECOND);
    assert_eq!(outbox.next_heartbeat(), Some(now + 3 * SECOND));
    outbox.broke(now + 2 * SECOND);
    assert_eq!(outbox.next_heartbeat(), None);
}

#[test]
fn a_closed_outbox_sends_one_goodbye_and_is_done_when_all_is_answered() {
    let now = Instant::now();
    let mut outbox = outbox(EpochUse::New, now);
    outbox.open();
    outbox.receive(ready(1, 1000, 0), now).unwrap();
    (0..2).for_each(|number| outbox.accept(trajectory(number), None, now));
    assert_eq!(requests(&mut outbox, now), ["0"]);
    outbox.close();
    assert_eq!(requests(&mut outbox, now), ["goodbye"]);
    outbox.receive(Answer::Inserted { sequence: 0 }.into(), now).unwrap();
    assert_eq!(requests(&mut outbox, now), ["1"]);
    assert!(!outbox.is_done());
    outbox.receive(Answer::Inserted { sequence: 1 }.into(), now).unwrap();
    assert!(outbox.is_done());
    assert_eq!(outbox.goodbye(), None);
}

#[test]
fn an_outbox_whose_new_epoch_is_taken_is_done_and_has_sent_nothing() {
    let now = Instant::now();
    for (epoch_use, expected) in [(EpochUse::New, Received::EpochTaken), (EpochUse::Known, Received::Ready)] {
        let mut outbox = outbox(epoch_use, now);
        outbox.accept(trajectory(0), None, now);
        outbox.open();
        assert_eq!(outbox.receive(ready(8, 0, 3), now), Ok(expected));
        assert_eq!(requests(&mut outbox, now).is_empty(), expected == Received::EpochTaken);
        let is_taken = expected == Received::EpochTaken;
        assert_eq!((outbox.is_done(), outbox.status().away_for(now).is_some()), (is_taken, is_taken));
        assert_eq!(outbox.into_unacknowledged(), [trajectory(0)]);
    }
}

#[test]
fn an_answer_to_what_was_not_sent_on_this_stream_is_a_fault() {
    let now = Instant::now();
    let mut outbox = outbox(EpochUse::New, now);
    (0..2).for_each(|number| outbox.accept(trajectory(number), None, now));
    outbox.open();
    outbox.receive(ready(1, 0, 0), now).unwrap();
    assert_eq!(requests(&mut outbox, now), ["0"]);
    outbox.receive(Answer::Inserted { sequence: 1 }.into(), now).unwrap_err();
    assert_eq!(outbox.unacknowledged(), 2);
}

fn ready_of(revision: u32) -> v1::InsertResponse {
    v1::Ready { credit: 8, heartbeat_ms: 2000, highest_epoch: 0, revision }.into()
}

#[test]
fn a_server_is_away_once_it_is_owed_an_answer_and_gives_no_sign_for_a_heartbeat() {
    let start = Instant::now();
    let mut outbox = outbox(EpochUse::Known, start);
    let away = |outbox: &Outbox, seconds| outbox.status().away_for(start + seconds * SECOND);
    outbox.open();
    outbox.receive(ready_of(2), start + SECOND).unwrap();
    assert_eq!(away(&outbox, 100), None, "nothing is owed");
    outbox.accept(trajectory(0), None, start + 100 * SECOND);
    assert_eq!((away(&outbox, 101), away(&outbox, 103)), (None, Some(3 * SECOND)));
    for (wait, expected) in [
        (InsertWait::Log, Some(10 * SECOND)),
        (InsertWait::Turn, None),
        (InsertWait::Log, None),
        (InsertWait::Limited, None),
    ] {
        assert_eq!(outbox.receive(wait.into(), start + 110 * SECOND), Ok(Received::Waiting(wait)));
        assert_eq!(away(&outbox, 110), expected, "{wait:?}");
    }
    assert_eq!(away(&outbox, 120), Some(10 * SECOND));
    requests(&mut outbox, start + 120 * SECOND);
    outbox.receive(Answer::Inserted { sequence: 0 }.into(), start + 120 * SECOND).unwrap();
    assert_eq!(away(&outbox, 1000), None);
}

#[test]
fn a_server_that_is_ready_and_breaks_every_stream_is_away_until_it_answers() {
    let start = Instant::now();
    let mut outbox = outbox(EpochUse::Known, start);
    outbox.accept(trajectory(0), None, start);
    for seconds in 0..30 {
        let now = start + seconds * SECOND;
        outbox.open();
        outbox.receive(ready_of(2), now).unwrap();
        assert_eq!(requests(&mut outbox, now), ["0"]);
        assert_eq!(outbox.status().away_for(now), Some(seconds * SECOND));
        outbox.broke(now);
    }
    outbox.open();
    outbox.receive(ready_of(2), start + 30 * SECOND).unwrap();
    requests(&mut outbox, start + 30 * SECOND);
    outbox.receive(Answer::Inserted { sequence: 0 }.into(), start + 30 * SECOND).unwrap();
    assert_eq!(outbox.status().away_for(start + 30 * SECOND), None);
}

#[test]
fn a_server_that_does_not_report_why_trajectories_wait_is_away_without_a_stream_only() {
    let start = Instant::now();
    for revision in [0, 1] {
        let mut outbox = outbox(EpochUse::Known, start);
        outbox.accept(trajectory(0), None, start);
        assert_eq!(outbox.status().away_for(start + SECOND), Some(SECOND));
        outbox.open();
        outbox.receive(ready_of(revision), start).unwrap();
        requests(&mut outbox, start);
        outbox.accept(trajectory(1), None, start);
        assert_eq!(outbox.status().away_for(start + 1000 * SECOND), None, "a limiter may block inserts");
        outbox.broke(start + 1000 * SECOND);
        assert_eq!(outbox.status().away_for(start + 1001 * SECOND), Some(SECOND));
    }
}
