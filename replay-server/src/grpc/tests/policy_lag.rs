//! Tests of stale trajectories: a learner announces the latest version, and the server rejects older versions.

use super::*;

const STORED: v1::Disposition = v1::Disposition::Inserted;
const STALE: v1::Disposition = v1::Disposition::Stale;

/// Starts a server that accepts trajectories up to three versions behind the latest.
async fn serve_bounded(directory: &Path) -> Server {
    // No client sends heartbeats here; the long interval keeps all clients from being lost.
    let bounded = |replay: &mut ReplaySection| {
        (replay.main.lag_versions_max, replay.main.error_items, replay.heartbeat_seconds) = (3, 1e6, 60.0);
    };
    serve_with(directory, bounded).await
}

/// The stream of a learner.
struct Learner(mpsc::Sender<v1::SampleRequest>, Streaming<v1::SampleResponse>);

impl Learner {
    async fn open(server: &Server) -> Self {
        let (sender, answers) = server.sample().await;
        sender.send(open(1)).await.unwrap();
        Self(sender, answers)
    }

    /// Announces a version and waits for a batch, which confirms that the server has received it. The table must hold
    /// items.
    async fn publish(&mut self, version: u64) {
        let credit = v1::Credit { batches: 1, newest_weights_version: version };
        self.0.send(sample_request(SampleMessage::Credit(credit))).await.unwrap();
        loop {
            let answer = self.1.message().await.unwrap().unwrap().message;
            if matches!(answer, Some(Out::Batch(_))) {
                return;
            }
        }
    }
}

fn played_by(actor: u64, sequence: u64, version: u64) -> v1::InsertRequest {
    wrap(In::Trajectory(message_of(actor, sequence, 0.5, version)))
}

/// The stream of actor `number`.
struct Actor {
    number: u64,
    sender: mpsc::Sender<v1::InsertRequest>,
    answers: Streaming<v1::InsertResponse>,
}

impl Actor {
    async fn open(server: &Server, number: u64, revision: u32) -> Self {
        let (sender, mut answers) = server.insert().await;
        sender.send(wrap(In::Hello(v1::Hello { actor: number, epoch: 1, game: GAME.into(), revision }))).await.unwrap();
        answers.message().await.unwrap().unwrap();
        Self { number, sender, answers }
    }

    /// Returns the disposition of a trajectory played with `version`.
    async fn hand_in(&mut self, sequence: u64, version: u64) -> v1::Disposition {
        self.sender.send(played_by(self.number, sequence, version)).await.unwrap();
        match self.answers.message().await.unwrap().unwrap().message {
            Some(Answer::Ack(ack)) => {
                assert_eq!(ack.sequence, sequence);
                ack.disposition()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_trajectory_too_stale_for_every_table_is_acknowledged_and_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_bounded(directory.path()).await;
    let mut actor = Actor::open(&server, 1, 1).await;
    assert_eq!(actor.hand_in(0, 10).await, STORED);
    let mut learner = Learner::open(&server).await;
    learner.publish(10).await;
    // A trajectory with the maximum lag is stored; a repeated stale trajectory is checked again.
    assert_eq!(actor.hand_in(1, 7).await, STORED);
    assert_eq!([actor.hand_in(2, 6).await, actor.hand_in(2, 6).await], [STALE, STALE]);
    assert_eq!(actor.hand_in(1, 1).await, v1::Disposition::Duplicate);
    // A client without support for stale trajectories receives the old reply.
    assert_eq!(Actor::open(&server, 1, 0).await.hand_in(4, 6).await, STORED);
    assert_eq!(server.stats().await.trajectories_inserted_total, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_version_from_the_future_that_one_actor_claims_makes_nothing_stale_and_pushes_nothing_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_bounded(directory.path()).await;
    let (mut broken, mut sound) = (Actor::open(&server, 1, 1).await, Actor::open(&server, 2, 1).await);
    // These inserts come before and after the first message of a learner.
    assert_eq!(broken.hand_in(0, u64::MAX).await, STORED);
    assert_eq!(sound.hand_in(0, 10).await, STORED);
    Learner::open(&server).await.publish(10).await;
    assert_eq!(broken.hand_in(1, u64::MAX).await, STORED);
    assert_eq!(sound.hand_in(1, 10).await, STORED);
    assert_eq!(server.stats().await.trajectories, 4);
    server.stop().await;
}

#[tokio::test]
async fn staleness_is_measured_by_the_version_of_the_learner_and_not_by_that_of_an_actor() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_bounded(directory.path()).await;
    let mut actor = Actor::open(&server, 1, 1).await;
    assert_eq!(actor.hand_in(0, 20).await, STORED);
    assert_eq!(actor.hand_in(1, 3).await, STORED, "no learner has announced a version yet");
    let mut learner = Learner::open(&server).await;
    learner.publish(20).await;
    assert_eq!(actor.hand_in(2, 3).await, STALE);
    // A sampler without a version does not change the latest version, which outlives the stream that announced it.
    drop(learner);
    Learner::open(&server).await.publish(0).await;
    assert_eq!(actor.hand_in(2, 3).await, STALE);
    server.stop().await;
}

#[tokio::test]
async fn a_learner_that_resumes_from_an_older_checkpoint_lowers_the_newest_version_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_bounded(directory.path()).await;
    let mut actor = Actor::open(&server, 1, 1).await;
    assert_eq!(actor.hand_in(0, 100).await, STORED);
    Learner::open(&server).await.publish(100).await;
    assert_eq!(actor.hand_in(1, 8).await, STALE);
    Learner::open(&server).await.publish(8).await;
    assert_eq!(actor.hand_in(1, 8).await, STORED);
    server.stop().await;
}

#[tokio::test]
async fn after_a_restart_nothing_is_stale_until_the_learner_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_bounded(directory.path()).await;
    let mut actor = Actor::open(&server, 1, 1).await;
    assert_eq!(actor.hand_in(0, 10).await, STORED);
    Learner::open(&server).await.publish(10).await;
    assert_eq!(actor.hand_in(1, 1).await, STALE);
    drop(actor);
    server.stop().await;
    let server = serve_bounded(directory.path()).await;
    let mut actor = Actor::open(&server, 1, 1).await;
    assert_eq!(actor.hand_in(1, 9).await, STORED);
    Learner::open(&server).await.publish(10).await;
    assert_eq!(actor.hand_in(2, 1).await, STALE);
    server.stop().await;
}
