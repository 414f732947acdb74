use super::*;
use crate::Config;
use proto::replay::v1::insert_request::Message as Request;
use proto::replay::v1::insert_response::Message as Response;
use proto::security::Caller;
use tonic::Code;

pub(super) const GAME: &str = "connect_four";

/// Returns a stream whose actor has sent its hello of revision 1.
fn opened(now: Instant) -> InsertStream {
    let settings = Config::default().settings().unwrap();
    let actors = Actors::new(settings.heartbeat, INSERT_CREDIT);
    let mut stream =
        InsertStream::new(&settings, actors, Quota::new(None), Caller::default(), "10.0.0.1:4000".to_owned(), now);
    let hello = v1::Hello { actor: 1, epoch: 1, game: GAME.into(), revision: 1 };
    let received = stream.receive(request(Request::Hello(hello)), now, UnixMillis(0)).unwrap();
    assert!(matches!(received, Received::Hello(_)), "{received:?}");
    stream
}

fn request(message: Request) -> v1::InsertRequest {
    v1::InsertRequest { message: Some(message), ..v1::InsertRequest::default() }
}

pub(super) fn trajectory(sequence: u64) -> Trajectory {
    use experience::{ActionProbability, Step, StepKind};
    let policy = vec![ActionProbability { action: game::Action(0), probability: 1.0 }];
    let kind = StepKind::Full { policy, value: 0.0 };
    let step = Step { action: game::Action(0), reward: 0.0, kind, weights_version: weights::WeightsVersion(1) };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence };
    Trajectory::of(id, GAME, &vec![step; 4], game::Outcome::Draw).unwrap()
}

fn receive(stream: &mut InsertStream, sequence: u64, now: Instant) -> TrajectoryId {
    let message = request(Request::Trajectory(trajectory(sequence).into()));
    match stream.receive(message, now, UnixMillis(0)).unwrap() {
        Received::Insert { trajectory, .. } => trajectory.id(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_draining_stream_reads_nothing_and_ends_when_all_is_answered() {
    let now = Instant::now();
    let mut stream = opened(now);
    let id = receive(&mut stream, 0, now);
    stream.drain();
    assert!(!stream.reads() && stream.end().is_none());
    let answer = stream.inserted(Inserted::New(id)).unwrap().unwrap();
    assert!(matches!(answer.message, Some(Response::Ack(v1::Ack { sequence: 0, .. }))), "{answer:?}");
    assert_eq!(stream.end().unwrap().unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_trajectory_that_was_not_stored_ends_the_stream() {
    let now = Instant::now();
    let mut stream = opened(now);
    let id = receive(&mut stream, 0, now);
    let status = stream.inserted(Inserted::NotStored(id, "the disk is full".to_owned())).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

#[test]
fn a_silent_client_ends_its_stream_after_three_heartbeats_unless_the_server_was_stalled() {
    let start = Instant::now();
    let mut stream = opened(start);
    let half = stream.next_look().unwrap() - start;
    for looks in 1..=6 {
        stream.look(start + half * looks).unwrap();
    }
    assert_eq!(stream.look(start + half * 7).unwrap_err().code(), Code::Unavailable);

    let mut stalled = opened(start);
    stalled.look(start + half * 20).unwrap();
}
