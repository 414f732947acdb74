use std::collections::BTreeSet;

use experience::{Episode, TrajectoryId};
use proto::replay::v1::{InsertRequest, InsertResponse, Ready};
use proto::replay::{Answer, Origin};
use scripted::{Link, ReplayScript, Stream, server, until, within};
use selfplay::{Ending, FinishedEpisode};
use tempfile::TempDir;

use super::*;
use crate::Config;

const GAME: &str = "tic_tac_toe";
const ACTOR: u64 = 7;
/// An address without a listener.
const NOWHERE: &str = "http://127.0.0.1:0";

/// Time limit of an actor process for the last acknowledgements.
#[derive(Clone, Copy)]
enum DrainTimeout {
    /// Longer than any expected event.
    Long,
    /// No wait for acknowledgements.
    None,
}

/// One process of the actor: the upload, and the sender of the feeding channel.
struct ActorRun {
    episodes: mpsc::Sender<Finished>,
    drain: Drain,
    task: JoinHandle<anyhow::Result<()>>,
}

fn uploader_of(run: &TempDir, replay: impl Into<String>, patience: DrainTimeout, drain: &Drain) -> Uploader {
    let servers = Servers::resolved(&replay.into().parse().unwrap());
    uploader_over(run, servers, patience, drain)
}

fn uploader_over(run: &TempDir, servers: Servers, patience: DrainTimeout, drain: &Drain) -> Uploader {
    let mut config = Config::default();
    config.run.game = GAME.into();
    config.actor.id = ACTOR;
    config.actor.unacknowledged_max = 3;
    config.actor.drain_seconds = match patience {
        DrainTimeout::Long => 60.0,
        DrainTimeout::None => 0.0,
    };
    let state_dir = ActorStateDir::with_epochs_from_1(run.path(), ACTOR);
    let epoch = state_dir.next_epoch(0).unwrap();
    let settings = config.settings().unwrap();
    Uploader::start(&settings, servers, epoch, state_dir, drain).unwrap()
}

fn start(run: &TempDir, replay: impl Into<String>, patience: DrainTimeout) -> ActorRun {
    start_over(run, Servers::resolved(&replay.into().parse().unwrap()), patience)
}

fn start_over(run: &TempDir, servers: Servers, patience: DrainTimeout) -> ActorRun {
    let drain = Drain::new();
    let uploader = uploader_over(run, servers, patience, &drain);
    // A capacity of one: all episodes before the last have then been received.
    let (episodes, finished) = mpsc::channel(1);
    let signal = drain.clone();
    let task = tokio::spawn(async move { uploader.run(finished, &signal).await });
    ActorRun { episodes, drain, task }
}

impl ActorRun {
    /// Sends `episodes` finished episodes, as the threads do.
    async fn play(&self, episodes: u64) {
        for number in 0..episodes {
            within(self.episodes.send(Finished { episode: episode(number), insert: None })).await.unwrap();
        }
    }

    /// Stops the threads, and waits for the end of the upload.
    async fn end(self) {
        let Self { episodes, drain, task } = self;
        drain.start();
        drop(episodes);
        within(task).await.unwrap().unwrap();
    }
}

fn episode(number: u64) -> FinishedEpisode {
    let trajectory = scripted::trajectory(number);
    let (steps, outcome) = (trajectory.steps().collect(), trajectory.outcome());
    let (facts, ending) = (Episode::of(outcome), Ending::Rules);
    let (positions, surprises) = (Vec::new(), Vec::new());
    FinishedEpisode { slot: 0, number, steps, facts, ending, observations: None, positions, surprises }
}

fn inserted(sequence: u64) -> Answer {
    Answer::Inserted { sequence }
}

/// Returns the ids in the spool, as epoch and sequence.
fn spool(run: &TempDir) -> Vec<(u64, u64)> {
    let trajectories = ActorStateDir::open(run.path(), ACTOR).unwrap().read_spool().unwrap();
    trajectories.iter().map(|pending| (pending.trajectory.id().epoch, pending.trajectory.id().sequence)).collect()
}

#[tokio::test]
async fn episodes_become_trajectories_numbered_in_their_epoch() {
    let (run, mut server) = (tempfile::tempdir().unwrap(), ReplayScript::start().await);
    let actor_run = start(&run, server.endpoint(), DrainTimeout::None);
    actor_run.play(2).await;
    let mut stream = server.inserting().await;
    assert_eq!(stream.hello().await, Origin { actor: ACTOR, epoch: 1, game: GAME.into() });
    stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
    for sequence in 0..2 {
        let FinishedEpisode { steps, facts, .. } = episode(sequence);
        let id = TrajectoryId { actor: ACTOR, epoch: 1, sequence };
        assert_eq!(stream.trajectory().await, Trajectory::of_episode(id, GAME, &steps, facts).unwrap());
    }
    actor_run.end().await;
}

#[tokio::test]
async fn the_spool_is_written_while_a_thread_hangs_and_again_when_it_has_ended() {
    let run = tempfile::tempdir().unwrap();
    let actor_run = start(&run, NOWHERE, DrainTimeout::None);
    actor_run.play(2).await;
    actor_run.drain.start();
    // The actor has locked the directory, so the file is read directly.
    let path = run.path().join(format!("actors/{ACTOR}/unacknowledged.spool"));
    let count = || crate::spool::decode(&std::fs::read(&path).unwrap_or_default()).0.len();
    until(|| count() == 2).await;
    assert!(!actor_run.task.is_finished(), "a thread has not ended");
    actor_run.play(1).await;
    actor_run.end().await;
    assert_eq!(spool(&run), [(1, 0), (1, 1), (2, 0)], "the last one has an id of its own");
}

#[tokio::test]
async fn a_trajectory_that_is_not_acknowledged_is_sent_again_after_a_reconnect() {
    let (run, mut server) = (tempfile::tempdir().unwrap(), ReplayScript::start().await);
    let actor_run = start(&run, server.endpoint(), DrainTimeout::Long);
    actor_run.play(3).await;
    let mut first = server.ready(8).await;
    assert_eq!(first.sequences(3).await, [0, 1, 2]);
    first.answer(inserted(1)).await;
    // The stream ends.
    drop(first);

    let mut second = server.ready(8).await;
    assert_eq!(second.sequences(2).await, [0, 2]);
    second.answer(Answer::Duplicate { sequence: 0 }).await;
    second.answer(inserted(2)).await;
    actor_run.end().await;
    assert_eq!(spool(&run), []);
}

#[tokio::test]
async fn unacknowledged_trajectories_are_sent_again_after_the_link_is_cut() {
    let (run, mut server) = (tempfile::tempdir().unwrap(), ReplayScript::start().await);
    let link = Link::to(server.address).await;
    let actor_run = start(&run, link.endpoint(), DrainTimeout::Long);
    actor_run.play(2).await;
    let mut cut = server.ready(8).await;
    assert_eq!(cut.sequences(2).await, [0, 1]);
    link.cut();
    let mut stream = server.ready(8).await;
    for sequence in stream.sequences(2).await {
        stream.answer(inserted(sequence)).await;
    }
    actor_run.end().await;
    assert_eq!(spool(&run), []);
}

#[tokio::test]
async fn episodes_finished_during_the_drain_are_uploaded() {
    let (run, mut server) = (tempfile::tempdir().unwrap(), ReplayScript::start().await);
    let actor_run = start(&run, server.endpoint(), DrainTimeout::Long);
    actor_run.drain.start();
    actor_run.play(3).await;
    let mut stream = server.ready(8).await;
    let answer_all = async {
        for sequence in stream.sequences(3).await {
            stream.answer(inserted(sequence)).await;
        }
    };
    tokio::join!(actor_run.end(), answer_all);
    assert_eq!(spool(&run), []);
}

#[tokio::test]
async fn unacknowledged_trajectories_are_spooled_in_order_at_the_end() {
    let run = tempfile::tempdir().unwrap();
    let actor_run = start(&run, NOWHERE, DrainTimeout::None);
    // Three are in the writer, one waits for the writer, and one has no id yet.
    actor_run.play(5).await;
    actor_run.end().await;
    assert_eq!(spool(&run), [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]);
}

#[tokio::test]
async fn episodes_finished_after_the_drain_timeout_are_spooled() {
    let (run, drain) = (tempfile::tempdir().unwrap(), Drain::new());
    let uploader = uploader_of(&run, NOWHERE, DrainTimeout::None, &drain);
    let (episodes, finished) = mpsc::channel(2);
    drain.start();
    let mut running = std::pin::pin!(uploader.run(finished, &drain));
    tokio::select! {
        biased;
        _ = &mut running => panic!("a thread still plays"),
        () = std::future::ready(()) => {}
    }
    for number in 0..2 {
        episodes.try_send(Finished { episode: episode(number), insert: None }).unwrap();
    }
    drop(episodes);
    within(running).await.unwrap();
    assert_eq!(spool(&run), [(1, 0), (1, 1)]);
}

#[tokio::test]
async fn a_refused_trajectory_is_not_kept() {
    let (run, mut server) = (tempfile::tempdir().unwrap(), ReplayScript::start().await);
    let actor_run = start(&run, server.endpoint(), DrainTimeout::Long);
    actor_run.play(2).await;
    let mut stream = server.ready(8).await;
    assert_eq!(stream.sequences(2).await, [0, 1]);
    let fault = experience::Invalid { field: "values[0]".into(), reason: "is not finite".into() };
    stream.answer(Answer::Refused { sequence: 0, fault }).await;
    stream.answer(inserted(1)).await;
    actor_run.end().await;
    assert_eq!(spool(&run), []);
}

#[tokio::test]
async fn the_spool_outlives_a_restart_and_its_ids_are_not_used_again() {
    let run = tempfile::tempdir().unwrap();
    let first = start(&run, NOWHERE, DrainTimeout::None);
    first.play(3).await;
    first.end().await;

    let mut server = ReplayScript::start().await;
    let second = start(&run, server.endpoint(), DrainTimeout::Long);
    second.play(2).await;
    let (mut streams, mut ids) = (Vec::new(), BTreeSet::new());
    for _ in 0..2 {
        let mut stream = server.inserting().await;
        let epoch = stream.hello().await.epoch;
        stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
        for sequence in stream.sequences(if epoch == 1 { 3 } else { 2 }).await {
            stream.answer(inserted(sequence)).await;
            ids.insert((epoch, sequence));
        }
        streams.push(stream);
    }
    assert_eq!(ids, BTreeSet::from([(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]));
    let file = run.path().join("actors").join(ACTOR.to_string()).join("unacknowledged.spool");
    until(|| !file.exists()).await;
    second.end().await;
    assert_eq!(spool(&run), []);
}

#[tokio::test]
async fn spooled_trajectories_stay_in_the_spool_until_they_are_acknowledged() {
    let run = tempfile::tempdir().unwrap();
    let first = start(&run, NOWHERE, DrainTimeout::None);
    first.play(2).await;
    first.end().await;
    for _ in 0..2 {
        let mut server = ReplayScript::start().await;
        let held_up = start(&run, server.endpoint(), DrainTimeout::None);
        let mut streams = [server.inserting().await, server.inserting().await];
        for stream in &mut streams {
            let epoch = stream.hello().await.epoch;
            stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
            if epoch == 1 {
                assert_eq!(stream.sequences(2).await, [0, 1]);
            }
        }
        held_up.end().await;
        assert_eq!(spool(&run), [(1, 0), (1, 1)]);
    }
}

#[tokio::test]
async fn a_spooled_trajectory_of_another_game_stays_in_the_spool() {
    let run = tempfile::tempdir().unwrap();
    let id = TrajectoryId { actor: ACTOR, epoch: 1, sequence: 4 };
    let like = scripted::trajectory(4);
    let other = Trajectory::of(id, "hex-5", &like.steps().collect::<Vec<_>>(), like.outcome()).unwrap();
    ActorStateDir::open(run.path(), ACTOR)
        .unwrap()
        .write_spool(&[PendingUpload { trajectory: other, to: None }])
        .unwrap();
    start(&run, NOWHERE, DrainTimeout::None).end().await;
    assert_eq!(spool(&run), [(1, 4)]);
}

/// Returns the epoch at the start of the next stream of a script, and the stream after the server has reported
/// `highest_epoch`.
async fn stores(server: &mut ReplayScript, highest_epoch: u64) -> (u64, Stream<InsertRequest, InsertResponse>) {
    let mut stream = server.inserting().await;
    let epoch = stream.hello().await.epoch;
    stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch, ..Ready::default() }.into()).await;
    (epoch, stream)
}

#[tokio::test]
async fn an_actor_whose_epoch_the_server_has_stored_hands_everything_in_under_a_higher_one() {
    let (run, mut server) = (tempfile::tempdir().unwrap(), ReplayScript::start().await);
    let actor_run = start(&run, server.endpoint(), DrainTimeout::Long);
    actor_run.play(2).await;
    // The actor has lost the epoch: the highest stored by the server is 40.
    let (epoch, mut refused) = stores(&mut server, 40).await;
    assert_eq!((epoch, refused.request().await), (1, None));
    let (epoch, mut stream) = stores(&mut server, 40).await;
    assert!(epoch > 40);
    assert_eq!(stream.sequences(2).await, [0, 1]);
    actor_run.play(1).await;
    assert_eq!(stream.sequences(1).await, [2]);
    for sequence in 0..3 {
        stream.answer(inserted(sequence)).await;
    }
    actor_run.end().await;
    assert_eq!(spool(&run), []);
    assert_eq!(ActorStateDir::open(run.path(), ACTOR).unwrap().next_epoch(0).unwrap(), epoch + 1);
}

#[tokio::test]
async fn an_actor_that_drains_when_its_epoch_turns_out_to_be_taken_hands_in_under_a_higher_one() {
    let (run, mut server) = (tempfile::tempdir().unwrap(), ReplayScript::start().await);
    let actor_run = start(&run, server.endpoint(), DrainTimeout::Long);
    actor_run.play(2).await;
    let store = async {
        let _refused = stores(&mut server, 40).await;
        let (epoch, mut stream) = stores(&mut server, 40).await;
        assert!(epoch > 40);
        assert_eq!(stream.sequences(2).await, [0, 1]);
        stream.answer(inserted(0)).await;
        stream.answer(inserted(1)).await;
        stream
    };
    tokio::join!(actor_run.end(), store);
    assert_eq!(spool(&run), []);
}

/// Returns a nonexistent server that the actor prefers less than `other`.
fn gone(other: &Server) -> Server {
    let gone = |number| Server { id: format!("gone-{number}").into(), endpoint: NOWHERE.into(), has_own_name: true };
    (0..).map(gone).find(|gone| preferred(&[gone.clone(), other.clone()], ACTOR)[0] == *other).unwrap()
}

#[tokio::test]
async fn pending_uploads_for_one_of_several_servers_are_sent_to_that_server_only() {
    let run = tempfile::tempdir().unwrap();
    let (mut owner, mut other) = (ReplayScript::start().await, ReplayScript::start().await);
    let (_sender, servers) = scripted::servers(&[server(&owner), gone(&server(&owner))]);
    let first = start_over(&run, servers, DrainTimeout::None);
    first.play(2).await;
    let mut held = owner.ready(8).await;
    assert_eq!(held.sequences(2).await, [0, 1]);
    first.end().await;
    assert_eq!(spool(&run), [(1, 0), (1, 1)]);

    let (sender, servers) = scripted::servers(&[server(&other)]);
    let second = start_over(&run, servers, DrainTimeout::Long);
    second.play(1).await;
    let mut stream = other.inserting().await;
    let epoch = stream.hello().await.epoch;
    assert!(epoch > 1, "what is pending to another server came here");
    stream.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
    assert_eq!(stream.sequences(1).await, [0]);
    stream.answer(inserted(0)).await;
    sender.send_replace([server(&other), server(&owner)].into());
    // This actor may prefer either server for new trajectories; trajectories of epoch 1 go to this server.
    let mut back = loop {
        let mut stream = owner.inserting().await;
        if stream.hello().await.epoch == 1 {
            break stream;
        }
    };
    back.reply(Ready { credit: 8, heartbeat_ms: 0, highest_epoch: 0, ..Ready::default() }.into()).await;
    for sequence in back.sequences(2).await {
        back.answer(inserted(sequence)).await;
    }
    second.end().await;
    assert_eq!(spool(&run), []);
}

#[tokio::test]
async fn pending_uploads_for_the_only_server_are_sent_to_its_new_address() {
    let run = tempfile::tempdir().unwrap();
    let first = start(&run, NOWHERE, DrainTimeout::None);
    first.play(1).await;
    first.end().await;
    let mut server = ReplayScript::start().await;
    let second = start(&run, server.endpoint(), DrainTimeout::None);
    let mut epochs = BTreeSet::new();
    for _ in 0..2 {
        epochs.insert(server.inserting().await.hello().await.epoch);
    }
    assert_eq!(epochs, BTreeSet::from([1, 2]));
    second.end().await;
}
