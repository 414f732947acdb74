use std::time::Duration;

use super::*;

/// Waits until `holds` is true for the actors of the server; `what` is the panic message after a minute.
async fn until(server: &Server, what: &str, holds: impl Fn(&[v1::Actor]) -> bool) -> v1::ActorsResponse {
    let look = async {
        loop {
            let response = server.client.clone().actors(v1::ActorsRequest {}).await.unwrap().into_inner();
            if holds(&response.actors) {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.expect(what)
}

fn is(state: v1::ActorState) -> impl Fn(&[v1::Actor]) -> bool {
    move |actors| matches!(actors, [actor] if actor.state() == state)
}

fn hello_of_revision(revision: u32) -> v1::InsertRequest {
    wrap(In::Hello(v1::Hello { actor: 1, epoch: 1, game: GAME.into(), revision }))
}

fn heartbeat() -> v1::InsertRequest {
    wrap(In::Heartbeat(v1::Heartbeat {}))
}

async fn serve_with_heartbeat(directory: &Path, seconds: f64) -> Server {
    serve_with(directory, |replay| replay.heartbeat_seconds = seconds).await
}

async fn opened(
    server: &Server,
    revision: u32,
) -> (mpsc::Sender<v1::InsertRequest>, Streaming<v1::InsertResponse>, v1::Ready) {
    let (sender, mut answers) = server.insert().await;
    sender.send(hello_of_revision(revision)).await.unwrap();
    match answers.message().await.unwrap().unwrap().message {
        Some(Answer::Ready(ready)) => (sender, answers, ready),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_actor_that_falls_silent_is_lost_its_stream_ends_and_it_may_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with_heartbeat(directory.path(), 0.1).await;
    let (sender, mut answers, ready) = opened(&server, 1).await;
    assert_eq!((ready.credit, ready.heartbeat_ms), (INSERT_CREDIT, 100));
    sender.send(trajectory(0)).await.unwrap();
    let response = until(&server, "the trajectory is counted", |actors| actors[0].trajectories == 1).await;
    let v1::Actor { actor, epoch, weights_version, unanswered, credit, ref address, .. } = response.actors[0];
    assert_eq!((actor, epoch, weights_version, unanswered, credit), (1, 1, Some(7), 0, INSERT_CREDIT));
    assert!(address.starts_with("127.0.0.1:"), "{address}");

    let status = end(&mut answers).await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("the heartbeat interval is 100ms"), "{status}");
    until(&server, "the actor is lost", is(v1::ActorState::Lost)).await;

    let (_sender, _answers, _) = opened(&server, 1).await;
    let response = until(&server, "the actor is back", is(v1::ActorState::Live)).await;
    assert_eq!((response.actors[0].trajectories, response.lost_total), (1, 1));
    server.stop().await;
}

#[tokio::test]
async fn heartbeats_alone_keep_an_actor_live() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with_heartbeat(directory.path(), 0.5).await;
    let (sender, mut answers, _) = opened(&server, 1).await;
    let mut beats = tokio::time::interval(Duration::from_millis(100));
    let beating = async {
        loop {
            beats.tick().await;
            sender.send(heartbeat()).await.unwrap();
        }
    };
    tokio::select! {
        () = beating => {}
        _ = until(&server, "it outlives its lease", |actors| actors.iter().any(|actor| actor.since_ms > 3000)) => {}
    }
    sender.send(trajectory(0)).await.unwrap();
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ack(_))));
    let response = until(&server, "the actor is live", is(v1::ActorState::Live)).await;
    assert_eq!(response.lost_total, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_client_without_heartbeats_is_live_while_its_stream_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with_heartbeat(directory.path(), 0.05).await;
    let (sender, mut answers, ready) = opened(&server, 0).await;
    assert_eq!(ready.heartbeat_ms, 0, "nothing that it does not know");
    until(&server, "it outlives every lease", |actors| actors.iter().any(|actor| actor.since_ms > 1000)).await;
    sender.send(trajectory(0)).await.unwrap();
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ack(_))));
    assert_eq!(until(&server, "it is live", is(v1::ActorState::Live)).await.lost_total, 0);
    drop((sender, answers));
    until(&server, "it is lost when its stream is over", is(v1::ActorState::Lost)).await;
    server.stop().await;
}

#[tokio::test]
async fn an_actor_that_sends_a_goodbye_is_not_counted_as_lost() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with_heartbeat(directory.path(), 0.05).await;
    let (sender, mut answers, _) = opened(&server, 1).await;
    sender.send(wrap(In::Goodbye(v1::Goodbye {}))).await.unwrap();
    until(&server, "it drains", |actors| actors.is_empty() || is(v1::ActorState::Draining)(actors)).await;
    sender.send(trajectory(0)).await.unwrap();
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ack(_))));
    drop(sender);
    assert_eq!(answers.message().await.unwrap(), None);
    assert_eq!(until(&server, "it is gone", <[_]>::is_empty).await.lost_total, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_writer_keeps_its_lease_and_sends_a_goodbye() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with_heartbeat(directory.path(), 0.2).await;
    let endpoint = format!("http://{}", server.running.address);
    let settings = proto::replay::WriterSettings { endpoint, actor: 9, epoch: 4, game: GAME.into(), in_flight_max: 4 };
    let writer = proto::replay::Writer::start(settings);
    until(&server, "the writer is live", is(v1::ActorState::Live)).await;
    let response = until(&server, "it outlives its lease", |actors| actors[0].since_ms > 1500).await;
    assert_eq!((response.actors[0].actor, response.actors[0].epoch, response.lost_total), (9, 4, 0));
    assert!(writer.close(Duration::from_secs(30)).await.is_empty());
    assert_eq!(until(&server, "it is gone", <[_]>::is_empty).await.lost_total, 0);
    server.stop().await;
}

#[tokio::test]
async fn an_actor_whose_link_goes_without_a_goodbye_is_lost_after_its_lease() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with_heartbeat(directory.path(), 0.1).await;
    let (sender, answers, _) = opened(&server, 1).await;
    drop((sender, answers));
    assert_eq!(until(&server, "it is lost", is(v1::ActorState::Lost)).await.lost_total, 1);
    server.stop().await;
}

/// Waits for `acks` acknowledgements; returns the wait reasons before the last of them.
async fn reasons_before(answers: &mut Streaming<v1::InsertResponse>, mut acks: usize) -> Vec<v1::InsertWait> {
    let mut reasons = Vec::new();
    while acks > 0 {
        match answers.message().await.unwrap().unwrap().message {
            Some(Answer::Waiting(waiting)) => reasons.push(waiting.wait()),
            Some(Answer::Ack(_)) => acks -= 1,
            other => panic!("{other:?}"),
        }
    }
    reasons
}

#[tokio::test]
async fn a_client_of_revision_2_is_told_that_a_limiter_blocks_it_and_an_older_one_is_served_as_before() {
    for revision in 0..=2 {
        let directory = tempfile::tempdir().unwrap();
        let server = serve_with_heartbeat(directory.path(), 1.0).await;
        let (sender, mut answers, ready) = opened(&server, revision).await;
        assert_eq!(ready.revision, revision);
        // The limiter admits two trajectories before the first sample.
        for sequence in 0..3 {
            sender.send(trajectory(sequence)).await.unwrap();
        }
        let early = reasons_before(&mut answers, 2).await;
        until(&server, "the lease is checked", |actors| actors[0].since_ms > 700).await;
        let (sampling, mut batches) = server.sample().await;
        sampling.send(open(2)).await.unwrap();
        sampling.send(credit(1)).await.unwrap();
        batches.message().await.unwrap().unwrap();
        let reasons = reasons_before(&mut answers, 1).await;
        if revision == 2 {
            assert!(reasons.contains(&v1::InsertWait::Limited), "{reasons:?}");
        } else {
            assert_eq!((early, reasons), (vec![], vec![]), "revision {revision}");
        }
        drop((sender, answers));
        server.stop().await;
    }
}
