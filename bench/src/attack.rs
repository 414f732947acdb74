//! Hostile clients of a server, in a separate process: `zerofleet-bench attack`, which `bench hostile` starts.
//!
//! Each kind repeats one behaviour as fast as it can until standard input closes. The process responds like a script:
//! once after the start of the attack, and then to each request with the number of hostile requests.

use std::future::poll_fn;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::weights::WeightsVersion;
use anyhow::{Context, bail};
use bytes::{BufMut as _, Bytes, BytesMut};
use experience::{Step, StepKind, Trajectory, TrajectoryId};
use futures::stream::{self, StreamExt as _};
use game::{Action, Outcome};
use http_body_util::{BodyExt as _, StreamBody};
use inference::Batch;
use proto::inference::{Evaluations, EvaluationsSettings};
use proto::replay::v1::insert_request::Message;
use proto::replay::v1::replay_client::ReplayClient;
use proto::replay::{Origin, v1};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::client::GrpcService as _;
use tonic::codegen::http;

use crate::hostile::weights;
use crate::inference::hello;
use crate::network::random_positions;
use crate::own_process::{self, words};
use crate::replay::games::Games;
use crate::replay::load::writer;
use crate::script::{self, Script};

/// Subcommand with which this program starts itself as hostile clients.
pub const COMMAND: &str = "attack";
/// Source address of silent connections, different from that of honest clients.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Attempted silent connections; more than a server accepts from one address.
const SILENT: usize = 256;
/// Number of half-sent messages.
const HALF_SENT: usize = 1_024;
/// Announced size of a half-sent message.
const HALF_SENT_BYTES: usize = 4 << 20;
/// Writers of trajectories without items.
const WRITERS: u64 = 4;
/// Maximum forged trajectories buffered in a stream.
const AHEAD: usize = 256;
/// Requests for a future version in flight, and positions per request.
const FUTURE: (u64, usize) = (256, 8);
/// Maximum wait for a response of the hostile clients.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a failed attempt is repeated.
const RETRY: Duration = Duration::from_millis(20);

/// The behaviour of hostile clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Connections that send nothing.
    Silent,
    /// Messages without the second half.
    HalfSent,
    /// Trajectories with random actors, epochs and sequence numbers.
    ForgedIds,
    /// Trajectories without a full search.
    NoItems,
    /// Evaluation requests for a future weights version that is never published.
    FutureVersions,
}

/// Options of the hidden command `zerofleet-bench attack`.
#[derive(Debug, Clone, clap::Args, serde::Serialize)]
pub struct Args {
    /// Behaviour of the clients.
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// Endpoint of the attacked server.
    #[arg(long)]
    pub endpoint: String,
    /// File with the token of the client.
    #[arg(long)]
    pub token: PathBuf,
    /// Number of concurrent streams with forged ids.
    #[arg(long)]
    pub forged_streams: u64,
    /// Seed of random ids and games.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Attacks until standard input closes, and responds to each request with the number of hostile requests so far.
///
/// # Errors
/// An endpoint is invalid, a token cannot be read, or a hostile client exits.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    service::descriptors::raise_limit();
    let section = service::SecuritySection { token_file: args.token.clone(), ..service::SecuritySection::default() };
    transport::security::use_credentials(&section)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let _on_it = runtime.enter();
    let count = Arc::new(AtomicU64::new(0));
    let mut attackers = attackers(args, &count)?;
    script::answer(out, json!({}), |_| {
        if let Some(ended) = attackers.try_join_next() {
            bail!("hostile client stopped: {ended:?}");
        }
        Ok(count.load(Ordering::Relaxed))
    })
}

fn attackers(args: &Args, count: &Arc<AtomicU64>) -> anyhow::Result<JoinSet<()>> {
    let (endpoint, games, mut tasks) = (args.endpoint.clone(), Games::new(args.seed), JoinSet::new());
    let count = || Arc::clone(count);
    match args.kind {
        Kind::Silent => {
            let address: SocketAddr = endpoint.trim_start_matches("http://").parse().context("parse --endpoint")?;
            (0..SILENT).for_each(|_| drop(tasks.spawn(stay_silent(address, count()))));
        }
        Kind::HalfSent => {
            for _ in 0..HALF_SENT {
                tasks.spawn(send_half(transport::channel(&endpoint)?, count()));
            }
        }
        Kind::ForgedIds => {
            for stream in 0..args.forged_streams {
                let client = ReplayClient::new(transport::channel(&endpoint)?);
                tasks.spawn(forge(client, games.clone(), ChaCha8Rng::seed_from_u64(args.seed ^ stream), count()));
            }
        }
        Kind::NoItems => {
            (0..WRITERS).for_each(|actor| drop(tasks.spawn(insert_nothing(endpoint.clone(), actor + 1_000, count()))));
        }
        Kind::FutureVersions => {
            let architecture = weights()?.manifest.architecture;
            let client = Evaluations::start(EvaluationsSettings { endpoint, hello: hello(&architecture) })?;
            for caller in 0..FUTURE.0 {
                let batch = random_positions(&architecture, caller, FUTURE.1);
                tasks.spawn(request_a_future_version(client.clone(), batch, count()));
            }
        }
    }
    Ok(tasks)
}

async fn stay_silent(address: SocketAddr, count: Arc<AtomicU64>) {
    loop {
        let connected = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((ELSEWHERE, 0).into())?;
            let mut stream = socket.connect(address).await?;
            count.fetch_add(1, Ordering::Relaxed);
            // Waits until the server closes the connection.
            while stream.read(&mut [0; 64]).await? > 0 {}
            std::io::Result::Ok(())
        };
        // A refused connection is retried like a closed one.
        let _ = connected.await;
        tokio::time::sleep(RETRY).await;
    }
}

/// Calls `Insert` with the first half of a message, and waits until the server ends the call.
async fn send_half(mut channel: transport::Channel, count: Arc<AtomicU64>) {
    let mut half = BytesMut::new();
    half.put_u8(0);
    half.put_u32(HALF_SENT_BYTES as u32);
    half.put_bytes(0, HALF_SENT_BYTES / 2);
    let half = half.freeze();
    loop {
        let frame: Result<_, tonic::Status> = Ok(http_body::Frame::data(Bytes::clone(&half)));
        let body = StreamBody::new(stream::iter([frame]).chain(stream::pending()));
        let request = http::Request::post("/zerofleet.replay.v1.Replay/Insert")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(body))
            .expect("the parts of the request are valid");
        count.fetch_add(1, Ordering::Relaxed);
        // The response, or an error, arrives when the server ends the call.
        if poll_fn(|context| channel.poll_ready(context)).await.is_ok()
            && let Ok(answer) = channel.call(request).await
        {
            let _ = answer.into_body().collect().await;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Sends trajectories with random ids, over one stream per forged actor, until the server closes the stream.
async fn forge(mut client: ReplayClient<transport::Channel>, games: Games, mut rng: ChaCha8Rng, count: Arc<AtomicU64>) {
    loop {
        let (actor, epoch) = (rng.next_u64(), rng.next_u64() >> 8);
        let (sender, receiver) = tokio::sync::mpsc::channel(AHEAD);
        let request = |message| v1::InsertRequest { message: Some(message), trace: String::new() };
        let origin = Origin { actor, epoch, game: "connect_four".to_owned() };
        let _ = sender.send(request(Message::Hello(origin.into()))).await;
        let requests = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let answers = client.insert(requests).await;
        if let Ok(answers) = answers {
            let mut answers = answers.into_inner();
            let reading = async { while let Ok(Some(_)) = answers.message().await {} };
            let sending = async {
                loop {
                    let forged = games.trajectory(actor, epoch, rng.next_u64());
                    if sender.send(request(Message::Trajectory(forged.into()))).await.is_err() {
                        return;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            tokio::select! { () = reading => (), () = sending => () }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn insert_nothing(endpoint: String, actor: u64, count: Arc<AtomicU64>) {
    let writer = writer(&endpoint, actor, 1, 1_024);
    for sequence in 0.. {
        let fast = StepKind::Fast { value: 0.5 };
        let steps = [0, 1, 2, 3, 4, 5].map(|action| Step {
            action: Action(action),
            reward: 0.0,
            kind: fast.clone(),
            weights_version: WeightsVersion(1),
        });
        let id = TrajectoryId { actor, epoch: 1, sequence };
        let trajectory = Trajectory::of(id, "connect_four", &steps, Outcome::Draw).expect("its steps are valid");
        if writer.insert(trajectory).await.is_err() {
            return;
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

async fn request_a_future_version(client: Evaluations, batch: Batch, count: Arc<AtomicU64>) {
    loop {
        client.up().await;
        count.fetch_add(1, Ordering::Relaxed);
        // The server has only version 1, so that the request is refused or times out.
        let _ = client.evaluate(&batch, Some(2), Some(Duration::from_secs(60))).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Starts this program again as hostile clients, and waits until they attack.
///
/// # Errors
/// The process cannot be started, or exits at once.
pub(crate) fn start(args: &Args) -> anyhow::Result<Script> {
    let command = own_process::command(&[vec![COMMAND.to_owned()], words(args)].concat())?;
    Ok(Script::start::<IgnoredAny>(command, PATIENCE)?.0)
}
