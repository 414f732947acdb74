mod archive;
mod bounds;
mod clients;
mod configure;
mod failover;
mod leases;
mod operator;
mod policy_lag;
mod revisions;
mod scopes;
mod tables;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use prost::Message as _;
use proto::replay::v1;
use proto::replay::v1::insert_request::Message as In;
use proto::replay::v1::insert_response::Message as Answer;
use proto::replay::v1::sample_request::Message as SampleMessage;
use proto::replay::v1::sample_response::Message as Out;
use run_file::replay::Ack;
use run_file::replay::{Config, ReplaySection, TableKeys};
use service::Drain;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use transport::Channel;
use transport::limits::MESSAGE_BYTES_MAX;
use weights::WeightsVersion;

use crate::insert_stream::INSERT_CREDIT;
use crate::{Running, start};

const GAME: &str = "connect_four";

/// A running server on port 0, with a client.
struct Server {
    client: v1::replay_client::ReplayClient<Channel>,
    drain: Drain,
    running: Running,
}

async fn serve(directory: &Path) -> Server {
    serve_with(directory, |_| {}).await
}

async fn serve_with(directory: &Path, change: impl FnOnce(&mut ReplaySection)) -> Server {
    let mut config = Config::default();
    config.run.directory = directory.to_owned();
    config.replay.main = TableKeys { min_items: 4, samples_per_insert: 2.0, error_items: 8.0, ..config.replay.main };
    config.replay.fsync_ms = 1;
    change(&mut config.replay);
    let listener = service::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let drain = Drain::new();
    let running = start(config.settings().unwrap(), listener, drain.clone()).await.unwrap();
    let channel = transport::channel(&format!("http://{}", running.address)).unwrap();
    Server { client: proto::replay::client(channel).max_encoding_message_size(usize::MAX), drain, running }
}

impl Server {
    async fn stop(self) {
        self.drain.start();
        self.running.finished().await.unwrap();
    }

    async fn stats(&self) -> v1::TableStats {
        self.client.clone().stats(v1::StatsRequest::default()).await.unwrap().into_inner().table.unwrap()
    }

    async fn insert(&self) -> (mpsc::Sender<v1::InsertRequest>, Streaming<v1::InsertResponse>) {
        let (sender, receiver) = mpsc::channel(1000);
        (sender, self.client.clone().insert(ReceiverStream::new(receiver)).await.unwrap().into_inner())
    }

    async fn sample(&self) -> (mpsc::Sender<v1::SampleRequest>, Streaming<v1::SampleResponse>) {
        let (sender, receiver) = mpsc::channel(1000);
        (sender, self.client.clone().sample(ReceiverStream::new(receiver)).await.unwrap().into_inner())
    }

    /// Inserts trajectories of four items each and returns the acknowledgements.
    async fn insert_all(&self, sequences: impl IntoIterator<Item = u64>) -> Vec<v1::Ack> {
        let (sender, mut answers) = self.insert().await;
        sender.send(hello()).await.unwrap();
        answers.message().await.unwrap().unwrap();
        let mut acks = Vec::new();
        for sequence in sequences {
            sender.send(trajectory(sequence)).await.unwrap();
            match answers.message().await.unwrap().unwrap().message {
                Some(Answer::Ack(ack)) => acks.push(ack),
                other => panic!("{other:?}"),
            }
        }
        acks
    }
}

fn hello() -> v1::InsertRequest {
    wrap(In::Hello(v1::Hello { actor: 1, epoch: 1, game: GAME.into(), ..v1::Hello::default() }))
}

fn wrap(message: In) -> v1::InsertRequest {
    v1::InsertRequest { message: Some(message), ..v1::InsertRequest::default() }
}

fn message(sequence: u64) -> v1::Trajectory {
    message_of(1, sequence, 0.5, 7)
}

/// Returns a drawn game of four steps, all searched by weights `version` with `value`.
fn message_of(actor: u64, sequence: u64, value: f32, version: u64) -> v1::Trajectory {
    let kind = StepKind::Full { policy: vec![ActionProbability { action: Action(3), probability: 1.0 }], value };
    let step = Step { action: Action(3), reward: 0.0, kind, weights_version: WeightsVersion(version) };
    let id = TrajectoryId { actor, epoch: 1, sequence };
    Trajectory::of(id, GAME, &vec![step; 4], Outcome::Draw).unwrap().into()
}

fn trajectory(sequence: u64) -> v1::InsertRequest {
    wrap(In::Trajectory(message(sequence)))
}

fn sample_request(message: SampleMessage) -> v1::SampleRequest {
    v1::SampleRequest { message: Some(message) }
}

fn open(batch_size: u32) -> v1::SampleRequest {
    sample_request(SampleMessage::Open(v1::Open {
        game: GAME.into(),
        batch_size,
        unroll_steps: 1,
        ..v1::Open::default()
    }))
}

fn credit(batches: u32) -> v1::SampleRequest {
    sample_request(SampleMessage::Credit(v1::Credit { batches, newest_weights_version: 0 }))
}

async fn end<T>(stream: &mut Streaming<T>) -> Status {
    loop {
        if let Err(status) = stream.message().await.map(|message| message.expect("a stream that ends with a fault")) {
            return status;
        }
    }
}

fn inserted(acks: &[v1::Ack]) -> Vec<bool> {
    acks.iter().map(|ack| ack.disposition() == v1::Disposition::Inserted).collect()
}

#[tokio::test]
async fn an_insert_is_acknowledged_and_a_second_one_is_a_duplicate() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    assert_eq!(inserted(&server.insert_all([0, 1, 0]).await), [true, true, false]);
    let stats = server.stats().await;
    assert_eq!((stats.trajectories, stats.items, stats.duplicates_total), (2, 8, 1));
    assert_eq!(stats.oldest.unwrap().weights_version, 7);
    server.stop().await;
}

#[tokio::test]
async fn contents_ids_and_counters_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    server.insert_all([0, 1]).await;
    let (sender, mut batches) = server.sample().await;
    sender.send(open(3)).await.unwrap();
    sender.send(credit(1)).await.unwrap();
    batches.message().await.unwrap().unwrap();
    let before = server.stats().await;
    assert_eq!(before.samples_total, 3);
    server.stop().await;

    let server = serve(directory.path()).await;
    assert_eq!(v1::TableStats { bytes: 0, ..server.stats().await }, v1::TableStats { bytes: 0, ..before });
    assert_eq!(inserted(&server.insert_all([1, 2]).await), [false, true]);
    server.stop().await;
}

#[tokio::test]
async fn samples_wait_with_a_reason_until_the_table_holds_its_minimum() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let (sender, mut batches) = server.sample().await;
    sender.send(open(2)).await.unwrap();
    sender.send(credit(1)).await.unwrap();
    match batches.message().await.unwrap().unwrap().message {
        Some(Out::Waiting(v1::Waiting { reason })) => {
            assert_eq!(reason, "the table holds 0 of 4 items required for sampling");
        }
        other => panic!("{other:?}"),
    }
    server.insert_all([0]).await;
    loop {
        match batches.message().await.unwrap().unwrap().message {
            Some(Out::Waiting(_)) => {}
            Some(Out::Batch(batch)) => break assert_eq!(batch.samples.len(), 2),
            None => panic!("an empty message"),
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn the_total_weight_of_a_table_is_zero_below_its_minimum_and_then_that_of_its_items() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.main.min_items = 8).await;
    for (sequence, weight) in [(0, 0.0), (1, 8.0)] {
        server.insert_all([sequence]).await;
        assert_eq!(server.stats().await.total_weight, Some(v1::TotalWeight { weight }));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_batch_larger_than_a_message_comes_in_parts_for_one_credit() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.main.error_items = 200.0).await;
    let entry = |action| ActionProbability { action: Action(action), probability: 1.0 / 65536.0 };
    let kind = StepKind::Full { policy: (0..=u16::MAX).map(entry).collect(), value: 0.5 };
    let step = Step { action: Action(3), reward: 0.0, kind, weights_version: WeightsVersion(7) };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    let trajectory = Trajectory::of(id, GAME, &vec![step; 4], Outcome::Draw).unwrap();
    let (sender, mut answers) = server.insert().await;
    for message in [hello(), wrap(In::Trajectory(trajectory.into()))] {
        sender.send(message).await.unwrap();
        answers.message().await.unwrap().unwrap();
    }

    let (requests, mut batches) = server.sample().await;
    for message in [open(64), credit(1)] {
        requests.send(message).await.unwrap();
    }
    let (mut samples, mut bytes) = (0, 0);
    while samples < 64 {
        match batches.message().await.unwrap().unwrap().message {
            Some(Out::Batch(part)) => (samples, bytes) = (samples + part.samples.len(), bytes + part.encoded_len()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(samples, 64);
    assert!(bytes > MESSAGE_BYTES_MAX, "{bytes} bytes fit one message");
    drop(requests);
    assert_eq!(batches.message().await.unwrap(), None, "one credit is one batch");
    assert_eq!(server.stats().await.samples_total, 64);
    server.stop().await;
}

#[tokio::test]
async fn inserts_wait_for_the_learner_and_go_on_when_it_samples() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    // The minimum is 4 items; after that, the cursor may grow by 8 samples, which a second trajectory uses up.
    server.insert_all([0, 1]).await;
    let (sender, mut answers) = server.insert().await;
    for message in [hello(), trajectory(2)] {
        sender.send(message).await.unwrap();
    }
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ready(_))));
    let (requests, mut batches) = server.sample().await;
    requests.send(open(10)).await.unwrap();
    requests.send(credit(1)).await.unwrap();
    assert!(matches!(batches.message().await.unwrap().unwrap().message, Some(Out::Batch(_))));
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ack(_))));
    server.stop().await;
}

#[tokio::test]
async fn every_illegal_insert_ends_its_stream_with_its_fault_and_the_client_may_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let other_game = wrap(In::Hello(v1::Hello { actor: 1, epoch: 1, game: "hex11".into(), ..v1::Hello::default() }));
    let other_actor = wrap(In::Trajectory(v1::Trajectory {
        id: Some(v1::TrajectoryId { actor: 2, epoch: 1, sequence: 0 }),
        ..message(0)
    }));
    let empty = v1::InsertRequest { message: None, ..v1::InsertRequest::default() };
    let too_large =
        wrap(In::Hello(v1::Hello { actor: 1, epoch: 1, game: "x".repeat(MESSAGE_BYTES_MAX), ..v1::Hello::default() }));
    for (name, messages, code) in [
        ("no hello", vec![trajectory(0)], Code::FailedPrecondition),
        ("two hellos", vec![hello(), hello()], Code::FailedPrecondition),
        ("an empty message", vec![empty], Code::FailedPrecondition),
        ("another game", vec![other_game], Code::InvalidArgument),
        ("another actor", vec![hello(), other_actor], Code::InvalidArgument),
        ("a message over the limit", vec![too_large], Code::OutOfRange),
    ] {
        let (sender, mut answers) = server.insert().await;
        for message in messages {
            sender.send(message).await.unwrap();
        }
        let status = end(&mut answers).await;
        assert_eq!(status.code(), code, "{name}: {status}");
    }
    assert_eq!(inserted(&server.insert_all([0]).await), [true]);
    server.stop().await;
}

/// Returns the ply of a sample.
fn ply_of(sample: &v1::Sample) -> u32 {
    let id = sample.trajectory.unwrap().into();
    let segment = experience::Segment::parse(id, sample.segment.clone(), proto::limits::ANY_TRAJECTORY).unwrap();
    segment.ply() as u32
}

/// Returns the columns with NaN in place of the first value.
fn with_nan(columns: &[u8]) -> prost::bytes::Bytes {
    let (value, nan) = (0.5_f32.to_le_bytes(), f32::NAN.to_le_bytes());
    let at = columns.windows(4).position(|bytes| bytes == value).unwrap();
    [&columns[..at], &nan, &columns[at + 4..]].concat().into()
}

#[tokio::test]
async fn an_invalid_trajectory_is_refused_with_its_field_and_the_stream_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let (sender, mut answers) = server.insert().await;
    let mut bad = message(5);
    bad.columns = with_nan(&bad.columns);
    for message in [hello(), wrap(In::Trajectory(bad)), trajectory(6)] {
        sender.send(message).await.unwrap();
    }
    answers.message().await.unwrap();
    match answers.message().await.unwrap().unwrap().message {
        Some(Answer::Refused(v1::Refused { sequence, field, .. })) => assert_eq!((sequence, &*field), (5, "values[0]")),
        other => panic!("{other:?}"),
    }
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ack(_))));
    assert_eq!(server.stats().await.refused_total, 1);
    server.stop().await;
}

#[tokio::test]
async fn every_illegal_sample_ends_its_stream_with_its_fault() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    for (name, messages, code) in [
        ("credit first", vec![credit(1)], Code::FailedPrecondition),
        ("two opens", vec![open(1), open(1)], Code::FailedPrecondition),
        ("a batch of nothing", vec![open(0)], Code::InvalidArgument),
        ("a batch that would wait for ever", vec![open(1000)], Code::InvalidArgument),
        ("too much credit", vec![open(1), credit(64), credit(1)], Code::ResourceExhausted),
    ] {
        let (sender, mut answers) = server.sample().await;
        for message in messages {
            sender.send(message).await.unwrap();
        }
        let status = end(&mut answers).await;
        assert_eq!(status.code(), code, "{name}: {status}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_reported_trajectory_is_out_of_sampling_even_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    server.insert_all([0, 1]).await;
    let report = |sequence| v1::ReportRequest {
        trajectory: Some(v1::TrajectoryId { actor: 1, epoch: 1, sequence }),
        ply: 2,
        reason: "column 3 is full".into(),
    };
    let mut client = server.client.clone();
    assert!(client.report(report(0)).await.unwrap().into_inner().held);
    assert!(!client.report(report(9)).await.unwrap().into_inner().held);
    server.stop().await;
    let server = serve(directory.path()).await;
    let stats = server.stats().await;
    assert_eq!((stats.trajectories, stats.items, stats.quarantined_total), (2, 4, 1));
    server.stop().await;
}

#[tokio::test]
async fn the_list_goes_on_after_an_id() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.main.error_items = 100.0).await;
    server.insert_all([2, 0, 1]).await;
    let after = Some(v1::TrajectoryId { actor: 1, epoch: 1, sequence: 0 });
    let request = v1::ListRequest { after, limit: 1, ..v1::ListRequest::default() };
    let mut ids = server.client.clone().list(request).await.unwrap().into_inner();
    assert_eq!(ids.message().await.unwrap().unwrap().sequence, 1);
    assert!(ids.message().await.unwrap().is_none());
    server.stop().await;
}

#[tokio::test]
async fn old_segments_are_dropped_and_their_ids_still_count_as_seen() {
    let directory = tempfile::tempdir().unwrap();
    let small = |replay: &mut ReplaySection| {
        (replay.main.capacity_items, replay.main.window_items_min, replay.segment_bytes) = (40, 10, 4096);
        replay.main.error_items = 1e9;
    };
    let server = serve_with(directory.path(), small).await;
    server.insert_all(0..120).await;
    server.stop().await;
    let files = std::fs::read_dir(directory.path().join("replay")).unwrap().count();
    assert!(files <= 4, "{files} files");
    let server = serve_with(directory.path(), small).await;
    let stats = server.stats().await;
    assert_eq!((stats.trajectories, stats.trajectories_inserted_total, stats.items_inserted_total), (10, 120, 480));
    assert_eq!(inserted(&server.insert_all([0, 119, 120]).await), [false, false, true]);
    server.stop().await;
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let mut config = Config::default();
    config.run.directory = directory.path().to_owned();
    let listener = service::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = start(config.settings().unwrap(), listener, Drain::new()).await.unwrap_err();
    assert!(error.to_string().contains("another process uses"), "{error:#}");
    server.stop().await;
}

/// The name of the next segment is in use. Until it is free the log cannot grow, as on a full disk.
#[tokio::test]
async fn an_insert_is_refused_while_the_log_cannot_grow_and_stored_once_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let obstacle = directory.path().join("replay").join(crate::log::SegmentNumber(1).file_name());
    std::fs::create_dir(&obstacle).unwrap();
    let (sender, mut answers) = server.insert().await;
    for message in [hello(), trajectory(0)] {
        sender.send(message).await.unwrap();
    }
    let status = end(&mut answers).await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("free space on the disk of the replay log"), "{status}");
    assert_eq!(status.metadata().get(transport::RETRY_AFTER).unwrap(), "1000");
    assert_eq!(server.stats().await.trajectories, 0);

    std::fs::remove_dir(&obstacle).unwrap();
    assert_eq!(inserted(&server.insert_all([0, 0]).await), [true, false]);
    server.stop().await;
    let server = serve(directory.path()).await;
    assert_eq!(server.stats().await.trajectories_inserted_total, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_trajectory_acknowledged_before_its_sync_survives_a_stop() {
    for ack in [Ack::Memory, Ack::Flushed] {
        let directory = tempfile::tempdir().unwrap();
        // The interval is long enough that the only sync during the test is the last sync.
        let early = |replay: &mut ReplaySection| (replay.ack, replay.fsync_ms) = (ack, 1000);
        let server = serve_with(directory.path(), early).await;
        assert_eq!(inserted(&server.insert_all([0, 1]).await), [true, true]);
        server.stop().await;
        let server = serve_with(directory.path(), early).await;
        assert_eq!(server.stats().await.trajectories_inserted_total, 2, "{ack:?}");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_or_is_of_a_newer_program_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    server.insert_all([0]).await;
    server.stop().await;
    let segment = directory.path().join("replay").join(crate::log::SegmentNumber(2).file_name());
    let newer = [&b"zfreplay"[..], &200_u32.to_le_bytes(), &[0; 36]].concat();
    std::fs::write(&segment, newer.repeat(2)).unwrap();
    let error = started(directory.path()).await.unwrap_err();
    assert!(format!("{error:#}").contains("has format 200, this program reads format 3"), "{error:#}");
    std::fs::remove_file(&segment).unwrap();

    std::fs::create_dir(&segment).unwrap();
    let error = started(directory.path()).await.unwrap_err();
    assert!(format!("{error:#}").contains("cannot read the replay log's file 00000000000000000002.log"), "{error:#}");
    std::fs::remove_dir(&segment).unwrap();

    let mut permissions = std::fs::metadata(directory.path().join("replay")).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(directory.path().join("replay"), permissions.clone()).unwrap();
    // As root, the directory is writable and the start succeeds.
    if let Err(error) = started(directory.path()).await {
        assert!(format!("{error:#}").contains("is not writable"), "{error:#}");
    }
    permissions.set_mode(0o755);
    std::fs::set_permissions(directory.path().join("replay"), permissions).unwrap();
    let server = serve(directory.path()).await;
    assert_eq!(server.stats().await.trajectories, 1);
    server.stop().await;
}

async fn started(directory: &Path) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.run.directory = directory.to_owned();
    let listener = service::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let drain = Drain::new();
    let running = start(config.settings().unwrap(), listener, drain.clone()).await?;
    drain.start();
    running.finished().await
}
