use std::path::Path;

use proto::replay::v1::Ready;
use proto::scripted::{ReplayScript, server, servers, within};
use selfplay::Ending;
use tempfile::TempDir;

use super::*;

const ACTOR: u64 = 7;

fn writer() -> WriterSettings {
    WriterSettings { endpoint: String::new(), actor: ACTOR, epoch: 1, game: "tic_tac_toe".into(), in_flight_max: 4 }
}

/// A start of the actor whose epoch is 1.
fn lanes(run: &Path, servers: Servers, away_max: Duration) -> Lanes {
    let home = Home::with_epochs_from_1(run, ACTOR);
    assert_eq!(home.next_epoch(0).unwrap(), 1);
    Lanes::new(servers, writer(), home, away_max)
}

/// A run, and two servers of which the actor prefers the first.
async fn two_servers() -> (TempDir, [ReplayScript; 2]) {
    let scripts = [ReplayScript::start().await, ReplayScript::start().await];
    let ranked = preferred(&[server(&scripts[0]), server(&scripts[1])], ACTOR);
    let [a, b] = scripts;
    (tempfile::tempdir().unwrap(), if ranked[0] == server(&a) { [a, b] } else { [b, a] })
}

fn episode(number: u64) -> FinishedEpisode {
    let trajectory = proto::scripted::trajectory(number);
    let (steps, outcome) = (trajectory.steps().collect(), trajectory.outcome());
    FinishedEpisode { slot: 0, number, steps, outcome, ending: Ending::Rules }
}

/// Looks again and again until this is the server that trajectories go to.
async fn goes_to(lanes: &mut Lanes, expected: &Server) {
    within(async {
        loop {
            lanes.steer();
            if lanes.current.as_ref() == Some(&expected.id) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// What a server receives next: epoch and number.
async fn receives(script: &mut ReplayScript) -> (u64, u64) {
    let mut stream = script.inserting().await;
    let epoch = stream.hello().await.epoch;
    stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0 }.into()).await;
    (epoch, stream.trajectory().await.id().sequence)
}

/// What is owed, as epoch, number and server.
async fn owed(lanes: Lanes) -> Vec<(u64, u64, Option<Owner>)> {
    let (owed, _) = lanes.close(Vec::new(), Instant::now()).await;
    let ids = owed.into_iter().map(|Owed { trajectory, to }| (trajectory.id(), to));
    ids.map(|(id, to)| (id.epoch, id.sequence, to)).collect()
}

#[tokio::test]
async fn with_one_server_there_is_one_epoch_however_long_it_is_away() {
    let run = tempfile::tempdir().unwrap();
    let nowhere = Server::at("http://127.0.0.1:0");
    let (_tell, set) = servers(std::slice::from_ref(&nowhere));
    let mut lanes = lanes(run.path(), set, Duration::ZERO);
    for number in 0..4 {
        lanes.steer();
        within(lanes.insert(&episode(number))).await;
    }
    let to = Some(Owner::new(&nowhere, true));
    assert_eq!(owed(lanes).await, (0..4).map(|number| (1, number, to.clone())).collect::<Vec<_>>());
    assert_eq!(Home::open(run.path(), ACTOR).unwrap().next_epoch(0).unwrap(), 2);
}

#[tokio::test]
async fn while_the_preferred_server_is_away_the_next_gets_what_comes_under_another_epoch() {
    let (run, [mut first, mut second]) = two_servers().await;
    let (home, away) = (server(&first), server(&second));
    let (_tell, set) = servers(&[home.clone(), away.clone()]);
    let mut lanes = lanes(run.path(), set, Duration::from_millis(20));
    goes_to(&mut lanes, &home).await;
    lanes.insert(&episode(0)).await;
    assert_eq!(receives(&mut first).await, (1, 0));

    let address = first.address;
    drop(first);
    // The second one is taken once it takes trajectories.
    let (_, mut stream) = tokio::join!(goes_to(&mut lanes, &away), async {
        let mut stream = second.inserting().await;
        assert_eq!(stream.hello().await.epoch, 2);
        stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0 }.into()).await;
        stream
    });
    lanes.insert(&episode(1)).await;
    assert_eq!(stream.sequences(1).await, [0]);
    let (to_first, to_second) = (Owner::new(&home, false), Owner::new(&away, false));

    // Back again, it gets what it is owed, and what comes.
    let mut first = ReplayScript::again_at(address, proto::replay::TableStats::default()).await;
    let (_, mut stream) = tokio::join!(goes_to(&mut lanes, &home), async {
        let mut stream = first.inserting().await;
        assert_eq!(stream.hello().await.epoch, 1);
        stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0 }.into()).await;
        stream
    });
    assert_eq!(stream.sequences(1).await, [0]);
    lanes.insert(&episode(2)).await;
    assert_eq!(lanes.stats().moves, 2);
    assert_eq!(owed(lanes).await, [(1, 0, Some(to_first.clone())), (1, 1, Some(to_first)), (2, 0, Some(to_second))]);
}

#[tokio::test]
async fn a_preferred_server_that_is_added_gets_what_comes_from_then_on() {
    let (run, [mut added, mut old]) = two_servers().await;
    let (tell, set) = servers(&[server(&old)]);
    let mut lanes = lanes(run.path(), set, Duration::from_secs(600));
    goes_to(&mut lanes, &server(&old)).await;
    lanes.insert(&episode(0)).await;
    assert_eq!(receives(&mut old).await, (1, 0));
    tell.send_replace([server(&added), server(&old)].into());
    let added_server = server(&added);
    let (_, mut stream) = tokio::join!(goes_to(&mut lanes, &added_server), async {
        let mut stream = added.inserting().await;
        assert_eq!(stream.hello().await.epoch, 2);
        stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0 }.into()).await;
        stream
    });
    lanes.insert(&episode(1)).await;
    assert_eq!(stream.sequences(1).await, [0]);
}

#[tokio::test]
async fn a_server_that_is_taken_away_is_left_at_once() {
    let (run, [mut first, second]) = two_servers().await;
    let (tell, set) = servers(&[server(&first), server(&second)]);
    let mut lanes = lanes(run.path(), set, Duration::from_secs(600));
    lanes.insert(&episode(0)).await;
    assert_eq!(receives(&mut first).await, (1, 0));
    tell.send_replace([server(&second)].into());
    goes_to(&mut lanes, &server(&second)).await;
    assert_eq!(owed(lanes).await, [(1, 0, Some(Owner::new(&server(&first), false)))]);
}

#[tokio::test]
async fn an_episode_that_finds_no_server_waits_and_is_owed_to_nobody() {
    let run = tempfile::tempdir().unwrap();
    let (_tell, set) = servers(&[]);
    let mut lanes = lanes(run.path(), set, Duration::ZERO);
    let episode = episode(0);
    tokio::select! {
        biased;
        () = lanes.insert(&episode) => panic!("there is no server"),
        () = std::future::ready(()) => {}
    }
    let (owed, numbered) = lanes.close(vec![episode], Instant::now()).await;
    assert_eq!((owed.len(), numbered), (1, 1));
    assert_eq!((owed[0].trajectory.id(), &owed[0].to), (TrajectoryId { actor: ACTOR, epoch: 1, sequence: 0 }, &None));
}
