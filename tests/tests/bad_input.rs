//! Invalid input causes one error that names the input and the remedy, and no loss of data.

use std::net::TcpListener;
use std::process::ExitStatus;
use std::time::Duration;

use experience::{Trajectory, TrajectoryId};
use proto::replay::v1::insert_request::Message;
use proto::replay::{WriterError, v1};
use tests::trajectories::{GAME, answered, list, of_actions, won, writer};
use tests::{Cluster, Process, Role, SMALL_TIC_TAC_TOE, wait_until};
use transport::limits::MESSAGE_BYTES_MAX;

const DEADLINE: Duration = Duration::from_secs(60);

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 7, epoch: 1, sequence }
}

/// Starts a role that must fail, with exactly one error line that contains all of `words`.
fn check_refused(cluster: &mut Cluster, role: Role, words: &[&str]) {
    check_process_refused(cluster.process(role), words);
}

/// Starts a process that must fail, with exactly one error line that contains all of `words`. Returns the exit status.
fn check_process_refused(process: &mut Process, words: &[&str]) -> ExitStatus {
    process.start().unwrap();
    let output = process.ended(DEADLINE).unwrap();
    assert!(!output.status.success(), "{process:?} must refuse");
    let errors = output.errors();
    assert_eq!(errors.len(), 1, "one error: {}", output.text);
    for word in words {
        assert!(errors[0].contains(word), "`{}` does not contain `{word}`", errors[0]);
    }
    output.status
}

#[test]
fn a_wrong_key_is_refused_with_the_nearest_right_one() {
    for (role, set, words) in [
        (Role::Replay, "replay.min_itmes=3", ["min_itmes", "min_items"]),
        (Role::Learner, "learner.batchsize=3", ["batchsize", "batch_size"]),
        (Role::Actor, "actor.thread=3", ["thread", "threads"]),
        (Role::Arena, "arena.simulation=3", ["simulation", "simulations"]),
    ] {
        let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
        cluster.process(role).argue(&["--set", set]);
        check_refused(&mut cluster, role, &words);
    }
}

#[test]
fn a_named_device_that_cannot_be_used_ends_each_process_with_its_key() {
    // No machine has a thousand devices. Status 2 keeps the supervisor of a run from restarting the process.
    let refused = |process: &mut Process, section: &str| {
        process.argue(&["--set", &format!("{section}.device=cuda:1000")]);
        let key = format!("{section}.device: ");
        let status = check_process_refused(process, &[&key, "cuda:1000"]);
        assert_eq!(status.code(), Some(2), "{section}");
    };
    for (role, section) in [(Role::Learner, "learner"), (Role::Actor, "actor"), (Role::Arena, "arena")] {
        let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
        refused(cluster.process(role), section);
    }
    let cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    refused(&mut cluster.inference_server().unwrap().0, "inference");
}

#[test]
fn a_port_in_use_is_named() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    let port = cluster.replay_port();
    let _holder = TcpListener::bind(("127.0.0.1", port)).unwrap();
    check_refused(&mut cluster, Role::Replay, &[&port.to_string(), "in use", "another port"]);
}

#[test]
fn a_run_directory_that_cannot_be_written_is_named() {
    for role in [Role::Replay, Role::Learner, Role::Actor] {
        let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
        // Not even root can create a directory below a file.
        let blocked = cluster.directory().join("config.toml").join("run").display().to_string();
        cluster.process(role).argue(&["--set", &format!("run.directory={blocked}")]);
        check_refused(&mut cluster, role, &[&blocked]);
    }
}

#[test]
fn a_checkpoint_with_a_flipped_byte_is_passed_over_and_named() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.start(&[Role::Replay, Role::Learner, Role::Actor]).unwrap();
    let checkpoints = cluster.directory().join("checkpoints");
    let folders = || {
        let entries = std::fs::read_dir(&checkpoints).into_iter().flatten().flatten();
        let mut folders: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    };
    wait_until("there are two checkpoints", DEADLINE, || Ok(folders().len() >= 2)).unwrap();
    cluster.process(Role::Learner).terminate();
    cluster.process(Role::Learner).ended(Duration::from_secs(10)).unwrap();
    let files = std::fs::read_dir(folders().last().unwrap()).unwrap().flatten();
    let largest = files.max_by_key(|file| file.metadata().unwrap().len()).unwrap().path();
    let mut bytes = std::fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest, &bytes).unwrap();

    cluster.start(&[Role::Learner]).unwrap();
    let log = cluster.process(Role::Learner).log_text();
    assert!(log.contains("damaged"), "{log}");
    assert!(log.contains("continuing at training step"), "the one before is taken: {log}");
    let name = largest.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let kept = checkpoints.join(format!("damaged-0001-{name}")).join(largest.file_name().unwrap());
    assert_eq!(std::fs::read(&kept).unwrap(), bytes, "the damaged one is kept under another name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trajectory_with_nan_is_refused_and_its_neighbours_are_kept() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.start(&[Role::Replay]).unwrap();
    let endpoint = cluster.replay_endpoint();
    // The test uses the generated client, because a `Writer` takes only valid trajectories.
    let mut nan = v1::Trajectory::from(won(id(1)));
    let (value, not_a_number) = (0.5_f32.to_le_bytes(), f32::NAN.to_le_bytes());
    let at = nan.columns.windows(4).position(|bytes| bytes == value).unwrap();
    nan.columns = [&nan.columns[..at], &not_a_number, &nan.columns[at + 4..]].concat().into();
    let hello = v1::Hello { actor: 7, epoch: 1, game: GAME.to_owned(), ..v1::Hello::default() };
    let sent = [v1::Trajectory::from(won(id(0))), nan, won(id(2)).into()].map(Message::Trajectory);
    let messages = std::iter::once(Message::Hello(hello)).chain(sent);
    let request = |message| v1::InsertRequest { message: Some(message), ..v1::InsertRequest::default() };
    let requests: Vec<_> = messages.map(request).collect();
    let mut client = proto::replay::client(transport::channel(&endpoint).unwrap());
    let mut replies = client.insert(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let mut refused = Vec::new();
    while let Some(reply) = replies.message().await.unwrap() {
        if let Some(v1::insert_response::Message::Refused(answer)) = reply.message {
            refused.push((answer.sequence, answer.field));
        }
    }
    assert_eq!(refused, [(1, "values[0]".to_owned())]);
    assert_eq!(list(&endpoint).await.unwrap(), [id(0), id(2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trajectory_that_breaks_the_rules_is_taken_out_and_named_by_the_learner() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    for role in [Role::Replay, Role::Learner] {
        cluster.process(role).argue(&["--set", "replay.min_items=1"]);
        cluster.start(&[role]).unwrap();
    }
    let writer = writer(&cluster.replay_endpoint(), 7, 1);
    // The fourth step plays on an occupied square, which only the rules of the game can detect.
    for trajectory in [won(id(0)), of_actions(id(1), &[0, 3, 1, 0, 2])] {
        writer.insert(trajectory).await.unwrap();
    }
    answered(&writer, DEADLINE).await.unwrap();
    wait_until("the learner has reported it", DEADLINE, || {
        Ok(cluster.metric(Role::Replay, "zerofleet_replay_quarantined") == Some(1.0))
    })
    .unwrap();
    assert_eq!(list(&cluster.replay_endpoint()).await.unwrap(), [id(0), id(1)], "it is kept for inspection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_over_the_limit_is_named_and_the_next_one_is_taken() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.start(&[Role::Replay]).unwrap();
    let writer = writer(&cluster.replay_endpoint(), 7, 1);
    let step = won(id(0)).steps().next().unwrap();
    // Every full step takes at least ten bytes on the wire.
    let steps = vec![step; MESSAGE_BYTES_MAX / 10];
    let huge = Trajectory::of(id(0), GAME, &steps, won(id(0)).outcome()).unwrap();
    let error = writer.insert(huge).await.unwrap_err();
    assert!(matches!(error, WriterError::TooLarge { .. }), "{error}");
    writer.insert(won(id(1))).await.unwrap();
    answered(&writer, DEADLINE).await.unwrap();
    assert_eq!(list(&cluster.replay_endpoint()).await.unwrap(), [id(1)]);
}
