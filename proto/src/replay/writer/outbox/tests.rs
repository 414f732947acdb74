use super::*;
use crate::scripted::trajectory;

const SECOND: Duration = Duration::from_secs(1);

fn outbox(epoch_use: EpochUse, now: Instant) -> Outbox {
    Outbox::new(Origin { actor: 7, epoch: 3, game: "tic_tac_toe".into() }, epoch_use, now)
}

fn ready(credit: u32, heartbeat_ms: u32, highest_epoch: u64) -> v1::InsertResponse {
    v1::Ready { credit, heartbeat_ms, highest_epoch }.into()
}

/// Returns the kinds of the requests that may be sent now, in order; trajectories as their number.
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
    (0..4).for_each(|number| outbox.accept(trajectory(number), None));
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
    // Number 0 was sent on the first stream, number 3 was not.
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
    outbox.accept(trajectory(0), None);
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
    (0..2).for_each(|number| outbox.accept(trajectory(number), None));
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
        outbox.accept(trajectory(0), None);
        outbox.open();
        assert_eq!(outbox.receive(ready(8, 0, 3), now), Ok(expected));
        assert_eq!(requests(&mut outbox, now).is_empty(), expected == Received::EpochTaken);
        let is_taken = expected == Received::EpochTaken;
        assert_eq!((outbox.is_done(), outbox.status().away_since.is_some()), (is_taken, is_taken));
        assert_eq!(outbox.into_unacknowledged(), [trajectory(0)]);
    }
}

#[test]
fn an_answer_to_what_was_not_sent_on_this_stream_is_a_fault() {
    let now = Instant::now();
    let mut outbox = outbox(EpochUse::New, now);
    (0..2).for_each(|number| outbox.accept(trajectory(number), None));
    outbox.open();
    outbox.receive(ready(1, 0, 0), now).unwrap();
    assert_eq!(requests(&mut outbox, now), ["0"]);
    outbox.receive(Answer::Inserted { sequence: 1 }.into(), now).unwrap_err();
    assert_eq!(outbox.unacknowledged(), 2);
}
