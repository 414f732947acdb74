use std::path::Path;

use experience::Episode;
use proto::replay::v1::Ready;
use proto::replay::{Answer, INSERT_REVISION};
use scripted::{ReplayScript, server, servers, within};
use selfplay::Ending;
use tempfile::TempDir;

use super::*;

const ACTOR: u64 = 7;

fn writer() -> WriterSettings {
    WriterSettings { endpoint: String::new(), actor: ACTOR, epoch: 1, game: "tic_tac_toe".into(), in_flight_max: 4 }
}

/// Returns the router of an actor process with epoch 1.
fn router(run: &Path, servers: Servers, away_max: Duration) -> ReplayRouter {
    let state_dir = ActorStateDir::with_epochs_from_1(run, ACTOR);
    assert_eq!(state_dir.next_epoch(0).unwrap(), 1);
    ReplayRouter::new(servers, writer(), state_dir, away_max)
}

/// Returns a run directory, and two servers; the actor prefers the first.
async fn two_servers() -> (TempDir, [ReplayScript; 2]) {
    let scripts = [ReplayScript::start().await, ReplayScript::start().await];
    let ranked = preferred(&[server(&scripts[0]), server(&scripts[1])], ACTOR);
    let [a, b] = scripts;
    (tempfile::tempdir().unwrap(), if ranked[0] == server(&a) { [a, b] } else { [b, a] })
}

fn episode(number: u64) -> FinishedEpisode {
    let trajectory = scripted::trajectory(number);
    let (steps, outcome) = (trajectory.steps().collect(), trajectory.outcome());
    let (facts, ending) = (Episode::of(outcome), Ending::Rules);
    let (positions, surprises) = (Vec::new(), Vec::new());
    FinishedEpisode { slot: 0, number, steps, facts, ending, observations: None, positions, surprises }
}

/// Steers repeatedly until trajectories go to the server `expected`.
async fn goes_to(router: &mut ReplayRouter, expected: &Server) {
    within(async {
        loop {
            router.steer();
            if router.route.current() == Some(&expected.id) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Returns epoch and number of the next trajectory that a server receives.
async fn receives(script: &mut ReplayScript) -> (u64, u64) {
    let mut stream = script.inserting().await;
    let epoch = stream.hello().await.epoch;
    stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
    (epoch, stream.trajectory().await.id().sequence)
}

/// Returns the pending uploads, as epoch, number and server.
async fn pending(router: ReplayRouter) -> Vec<(u64, u64, Option<Destination>)> {
    let (pending, _) = router.close(Vec::new(), Instant::now()).await;
    let ids = pending.into_iter().map(|PendingUpload { trajectory, to }| (trajectory.id(), to));
    ids.map(|(id, to)| (id.epoch, id.sequence, to)).collect()
}

#[tokio::test]
async fn with_one_server_there_is_one_epoch_however_long_it_is_away() {
    let run = tempfile::tempdir().unwrap();
    let nowhere = Server::at("http://127.0.0.1:0");
    let (_sender, set) = servers(std::slice::from_ref(&nowhere));
    let mut router = router(run.path(), set, Duration::ZERO);
    for number in 0..4 {
        router.steer();
        within(router.insert(&episode(number), None)).await;
    }
    let to = Some(Destination::new(&nowhere, true));
    assert_eq!(pending(router).await, (0..4).map(|number| (1, number, to.clone())).collect::<Vec<_>>());
    assert_eq!(ActorStateDir::open(run.path(), ACTOR).unwrap().next_epoch(0).unwrap(), 2);
}

#[tokio::test]
async fn episodes_go_to_the_next_server_under_a_new_epoch_while_the_preferred_one_is_away() {
    let (run, [mut first, mut second]) = two_servers().await;
    let (home, away) = (server(&first), server(&second));
    let (_sender, set) = servers(&[home.clone(), away.clone()]);
    let mut router = router(run.path(), set, Duration::from_millis(20));
    goes_to(&mut router, &home).await;
    router.insert(&episode(0), None).await;
    assert_eq!(receives(&mut first).await, (1, 0));

    let address = first.address;
    drop(first);
    // The second server is used once it accepts trajectories.
    let (_, mut stream) = tokio::join!(goes_to(&mut router, &away), async {
        let mut stream = second.inserting().await;
        assert_eq!(stream.hello().await.epoch, 2);
        stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
        stream
    });
    router.insert(&episode(1), None).await;
    assert_eq!(stream.sequences(1).await, [0]);
    let (to_first, to_second) = (Destination::new(&home, false), Destination::new(&away, false));

    // After a restart, the first server receives the pending trajectories, and new trajectories.
    let mut first = ReplayScript::again_at(address, proto::replay::TableStats::default()).await;
    let (_, mut stream) = tokio::join!(goes_to(&mut router, &home), async {
        let mut stream = first.inserting().await;
        assert_eq!(stream.hello().await.epoch, 1);
        stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
        stream
    });
    assert_eq!(stream.sequences(1).await, [0]);
    router.insert(&episode(2), None).await;
    assert_eq!(router.stats().failovers, 2);
    assert_eq!(
        pending(router).await,
        [(1, 0, Some(to_first.clone())), (1, 1, Some(to_first)), (2, 0, Some(to_second))]
    );
}

#[tokio::test]
async fn an_added_preferred_server_receives_later_episodes_under_a_new_epoch() {
    let (run, [mut added, mut old]) = two_servers().await;
    let (sender, set) = servers(&[server(&old)]);
    let mut router = router(run.path(), set, Duration::from_secs(600));
    goes_to(&mut router, &server(&old)).await;
    router.insert(&episode(0), None).await;
    assert_eq!(receives(&mut old).await, (1, 0));
    sender.send_replace([server(&added), server(&old)].into());
    let added_server = server(&added);
    let (_, mut stream) = tokio::join!(goes_to(&mut router, &added_server), async {
        let mut stream = added.inserting().await;
        assert_eq!(stream.hello().await.epoch, 2);
        stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
        stream
    });
    router.insert(&episode(1), None).await;
    assert_eq!(stream.sequences(1).await, [0]);
}

#[tokio::test]
async fn the_router_switches_from_a_removed_server_at_once() {
    let (run, [mut first, second]) = two_servers().await;
    let (sender, set) = servers(&[server(&first), server(&second)]);
    let mut router = router(run.path(), set, Duration::from_secs(600));
    router.insert(&episode(0), None).await;
    assert_eq!(receives(&mut first).await, (1, 0));
    sender.send_replace([server(&second)].into());
    goes_to(&mut router, &server(&second)).await;
    assert_eq!(pending(router).await, [(1, 0, Some(Destination::new(&server(&first), false)))]);
}

#[tokio::test]
async fn an_episode_without_a_server_is_pending_without_a_destination() {
    let run = tempfile::tempdir().unwrap();
    let (_sender, set) = servers(&[]);
    let mut router = router(run.path(), set, Duration::ZERO);
    let episode = episode(0);
    tokio::select! {
        biased;
        () = router.insert(&episode, None) => panic!("there is no server"),
        () = std::future::ready(()) => {}
    }
    let (pending, numbered) = router.close(vec![episode], Instant::now()).await;
    assert_eq!((pending.len(), numbered), (1, 1));
    assert_eq!(
        (pending[0].trajectory.id(), &pending[0].to),
        (TrajectoryId { actor: ACTOR, epoch: 1, sequence: 0 }, &None)
    );
}

#[tokio::test]
async fn episodes_go_to_the_next_server_while_the_preferred_one_is_ready_and_stores_nothing() {
    let (run, [mut first, mut second]) = two_servers().await;
    let (home, away) = (server(&first), server(&second));
    let (_sender, set) = servers(&[home.clone(), away.clone()]);
    let mut router = router(run.path(), set, Duration::from_millis(20));
    goes_to(&mut router, &home).await;
    let ready = |heartbeat_ms| Ready { credit: 8, heartbeat_ms, revision: INSERT_REVISION, ..Ready::default() };
    router.insert(&episode(0), None).await;
    let mut stuck = first.inserting().await;
    stuck.hello().await;
    stuck.reply(ready(50).into()).await;
    assert_eq!(stuck.trajectory().await.id().sequence, 0);
    let (_, _stream) = tokio::join!(goes_to(&mut router, &away), async {
        let mut stream = second.inserting().await;
        stream.hello().await;
        stream.reply(ready(60_000).into()).await;
        stream
    });
    stuck.answer(Answer::Inserted { sequence: 0 }).await;
    goes_to(&mut router, &home).await;
    assert_eq!(router.stats().failovers, 2);
}
