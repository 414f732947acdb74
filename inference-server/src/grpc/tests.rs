use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evaluators::Chosen;
use game::{Action, Game as _, ObservationShape};
use games::tic_tac_toe::TicTacToe;
use inference::{Attributes, Batch, Error, Evaluator, Hashing, Predictions};
use parking_lot::{Condvar, Mutex};
use proto::inference::v1::evaluate_request::Message;
use proto::inference::v1::inference_client::InferenceClient;
use proto::inference::{EvalError, Evaluations, EvaluationsSettings, Hello, RejectReason, v1};
use run_file::inference::{Config, InferenceSection};
use service::{Drain, Health, Readiness};
use tonic::Code;
use transport::security::Security;
use weights::Manifest;

use crate::Running;
use crate::server::start_on;

mod search;

/// Time limit of every wait.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server with pseudo-random answers, equal for equal positions.
struct Server {
    running: Running,
    publisher: proto::weights::Publisher,
    readiness: Readiness,
    drain: Drain,
    _learner: tokio::task::JoinHandle<Result<(), tonic::transport::Error>>,
}

/// A simulated device, which the evaluators of the first version share.
#[derive(Clone, Default)]
struct Device {
    state: Arc<(Mutex<DeviceState>, Condvar)>,
}

#[derive(Clone, Copy, Default)]
struct DeviceState {
    /// Number of batches that the device still computes; `None` for any number.
    batches: Option<usize>,
    time_per_position: Duration,
}

impl Device {
    fn set(&self, state: DeviceState) {
        *self.state.0.lock() = state;
        self.state.1.notify_all();
    }

    fn limit(&self, batches: usize) {
        self.set(DeviceState { batches: Some(batches), ..DeviceState::default() });
    }

    fn compute(&self, positions: usize) {
        let (state, changed) = &*self.state;
        let mut state = state.lock();
        while state.batches == Some(0) {
            changed.wait(&mut state);
        }
        state.batches = state.batches.map(|batches| batches - 1);
        let time = state.time_per_position * u32::try_from(positions).unwrap();
        drop(state);
        // The device computes for this time; nothing waits for an event by it.
        std::thread::sleep(time);
    }
}

struct OnDevice {
    device: Device,
    evaluator: Hashing,
}

impl Evaluator for OnDevice {
    fn attributes(&self) -> Attributes {
        self.evaluator.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        if self.evaluator.attributes().weights_version == 1 {
            self.device.compute(batch.len());
        }
        self.evaluator.evaluate(batch, predictions)
    }
}

/// Waits until `condition` is true.
async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it comes before the deadline")
}

fn shape() -> ObservationShape {
    TicTacToe::new().spec().observation
}

fn hello() -> Hello {
    let spec = TicTacToe::new().spec().clone();
    Hello { name: "test".into(), game: spec.name, shape: spec.observation, actions: spec.actions }
}

/// Returns a version with weights that never build a network.
fn published(version: u64) -> (weights::Manifest, bytes::Bytes) {
    let spec = TicTacToe::new().spec().clone();
    let shape = spec.observation;
    let bytes = bytes::Bytes::from(format!("version {version}"));
    let architecture =
        weights::Architecture::plain(spec.name, [shape.planes, shape.height, shape.width], spec.actions, [8, 1]);
    let manifest = weights::Manifest::of(&bytes, weights::WeightsVersion(version), 0, architecture);
    (manifest, bytes)
}

impl Server {
    async fn start(change: impl FnOnce(&mut InferenceSection)) -> Self {
        Self::start_on(Device::default(), change).await
    }

    async fn start_on(device: Device, change: impl FnOnce(&mut InferenceSection)) -> Self {
        let (readiness, drain) = (Readiness::starting(), Drain::new());
        let bind = async || service::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (listener, learner) = (bind().await, bind().await);
        let (service, publisher) = proto::weights::WeightsService::new(2);
        let mut config = Config::default();
        config.run.game = "tic_tac_toe".into();
        config.inference.learner = format!("http://{}", learner.local_addr().unwrap());
        change(&mut config.inference);
        let learner = tokio::spawn(proto::weights::serve(service, None, Security::default(), learner, drain.token()));
        let build = move |manifest: &Manifest, _: &Bytes| -> Result<Box<dyn Evaluator>, evaluators::Error> {
            Ok(Box::new(OnDevice { device: device.clone(), evaluator: Hashing::new(shape(), manifest.version.0) }))
        };
        let running = start_on(
            config.settings().unwrap(),
            Chosen { backend: Arc::new(build), threads: 2 },
            Security::default(),
            listener,
            readiness.clone(),
            Health::default(),
            drain.clone(),
        )
        .await;
        Self { running: running.unwrap(), publisher, readiness, drain, _learner: learner }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.running.address)
    }

    fn publish(&self, version: u64) {
        let (manifest, bytes) = published(version);
        self.publisher.publish(manifest, bytes).unwrap();
    }

    async fn client(&self) -> InferenceClient<transport::Channel> {
        InferenceClient::new(transport::channel(&self.endpoint()).unwrap())
    }

    fn evaluations(&self) -> Evaluations {
        Evaluations::start(EvaluationsSettings { endpoint: self.endpoint(), hello: hello() }).unwrap()
    }

    async fn stats(&self) -> v1::StatsResponse {
        within(self.client().await.stats(v1::StatsRequest {})).await.unwrap().into_inner()
    }

    async fn stop(self) {
        self.drain.start();
        within(self.running.finished()).await.unwrap();
    }
}

fn batch(seed: usize, positions: usize) -> Batch {
    let mut batch = Batch::new(shape());
    for position in 0..positions {
        let legal: Vec<Action> =
            (0..9).filter(|action| !(usize::from(*action) + seed).is_multiple_of(4)).map(Action).collect();
        batch.push(&legal, |planes| {
            let bits = seed * 31 + position;
            planes.iter_mut().enumerate().for_each(|(i, number)| *number = ((bits >> (i % 13)) & 1) as f32);
        });
    }
    batch
}

fn assert_answers(predictions: &Predictions, batch: &Batch, version: u64) {
    let mut expected = Predictions::new();
    Hashing::new(shape(), version).evaluate(batch, &mut expected).unwrap();
    assert_eq!(predictions.len(), expected.len());
    for i in 0..expected.len() {
        for (got, expected) in predictions.priors(i).iter().zip(expected.priors(i)) {
            assert!((got - expected).abs() < 1e-3, "position {i}: {got} instead of {expected}");
        }
        assert!((predictions.value(i) - expected.value(i)).abs() < 2e-3);
    }
}

#[tokio::test]
async fn requests_of_many_clients_are_answered_as_the_evaluator_answers() {
    let server = Server::start(|_| {}).await;
    server.publish(1);
    let clients: Vec<Evaluations> = (0..3).map(|_| server.evaluations()).collect();
    let mut tasks = Vec::new();
    for seed in 0..60 {
        let client = clients[seed % 3].clone();
        tasks.push(tokio::spawn(async move {
            client.up().await;
            let batch = batch(seed % 20, 1 + seed % 7);
            let answered = client.evaluate(&batch, None, None).await.unwrap();
            assert_eq!(answered.version, 1);
            assert_answers(&answered.predictions, &batch, 1);
        }));
    }
    for task in tasks {
        within(task).await.unwrap();
    }
    // Concurrent requests for a position may be evaluated twice; a later request is not.
    let again = batch(0, 1);
    assert_answers(&within(clients[1].evaluate(&again, None, None)).await.unwrap().predictions, &again, 1);
    let stats = server.stats().await;
    assert_eq!((stats.game.as_str(), stats.versions.as_slice(), stats.streams), ("tic_tac_toe", &[1][..], 3));
    assert!(stats.cached_positions >= 1, "{stats:?}");
    drop(clients);
    server.stop().await;
}

#[tokio::test]
async fn a_caller_gets_the_version_it_names_or_the_newest() {
    let server = Server::start(|section| section.versions_kept = 2).await;
    server.publish(1);
    let client = server.evaluations();
    within(client.up()).await;
    let batch = batch(1, 3);
    // A request waits for a version that is not loaded yet.
    let ahead = {
        let (client, batch) = (client.clone(), batch.clone());
        tokio::spawn(async move { client.evaluate(&batch, Some(2), None).await })
    };
    server.publish(2);
    assert_answers(&within(ahead).await.unwrap().unwrap().predictions, &batch, 2);
    for (requested_version, answers) in [(Some(1), 1), (None, 2), (Some(2), 2)] {
        let answered = within(client.evaluate(&batch, requested_version, None)).await.unwrap();
        assert_eq!(answered.version, answers);
        assert_answers(&answered.predictions, &batch, answers);
    }
    server.publish(3);
    assert_eq!(within(client.evaluate(&batch, Some(3), None)).await.unwrap().version, 3);
    let gone = within(client.evaluate(&batch, Some(1), None)).await;
    assert!(matches!(gone, Err(EvalError::Rejected(rejection)) if rejection.reason == RejectReason::Version));
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_client_of_another_game_is_refused_with_the_served_game() {
    let server = Server::start(|_| {}).await;
    server.publish(1);
    let hello = Hello { game: "hex-11".into(), ..hello() };
    let status = first_status(&server, vec![Message::Hello(hello.into())]).await;
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("hex-11") && status.message().contains("tic_tac_toe"), "{}", status.message());
    server.stop().await;
}

/// Returns the number of malformed requests: `ZEROFLEET_MALFORMED`, or a small default.
fn malformed_requests() -> u64 {
    std::env::var("ZEROFLEET_MALFORMED").ok().and_then(|requests| requests.parse().ok()).unwrap_or(200)
}

#[tokio::test]
async fn malformed_requests_end_only_their_own_stream() {
    let server = Server::start(|_| {}).await;
    server.publish(1);
    let good = server.evaluations();
    within(good.up()).await;
    let mut state = 11_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for round in 0..malformed_requests() {
        let request = v1::EvalRequest {
            id: round,
            version: random(3) as u64,
            positions: u32::try_from(random(5)).unwrap(),
            timeout_us: 0,
            observations: match random(3) {
                0 => None,
                1 => Some(v1::eval_request::Observations::Bits(vec![255; random(12)].into())),
                _ => Some(v1::eval_request::Observations::Floats(vec![255; random(160)].into())),
            },
            legal: vec![0; random(9)].into(),
            trace: "not a traceparent".to_owned(),
        };
        let messages = match random(3) {
            0 => vec![Message::Request(request)],
            1 => vec![Message::Hello(hello().into()), Message::Request(request)],
            _ => vec![Message::Hello(v1::Hello { planes: 0, ..hello().into() })],
        };
        let status = first_status(&server, messages).await;
        assert!(matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition), "round {round}: {status:?}");
    }
    let status = first_status(&server, vec![Message::Hello(v1::Hello { planes: 0, ..hello().into() })]).await;
    assert!(status.message().contains("planes"), "{status:?}");
    let batch = batch(5, 2);
    assert_answers(&within(good.evaluate(&batch, None, None)).await.unwrap().predictions, &batch, 1);
    assert_eq!(server.stats().await.streams, 1);
    drop(good);
    server.stop().await;
}

/// Returns the status that ends a stream of `messages`.
async fn first_status(server: &Server, messages: Vec<Message>) -> tonic::Status {
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let mut messages = messages.into_iter().map(|message| v1::EvaluateRequest { message: Some(message) });
    requests.send(messages.next().unwrap()).await.unwrap();
    let receiver = futures::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let mut client = server.client().await;
    let mut replies = match within(client.evaluate(receiver)).await {
        Ok(replies) => replies.into_inner(),
        Err(status) => return status,
    };
    loop {
        match within(replies.message()).await {
            Ok(Some(_)) => {
                // After the welcome, the remaining messages may be sent.
                for message in messages.by_ref() {
                    requests.send(message).await.unwrap();
                }
            }
            Ok(None) => panic!("the stream ended well"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn streams_over_the_limit_are_refused_until_another_ends() {
    let server = Server::start(|section| section.streams_max = 1).await;
    server.publish(1);
    let first = server.evaluations();
    within(first.up()).await;
    let status = first_status(&server, vec![Message::Hello(hello().into())]).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(first);
    let second = server.evaluations();
    within(second.up()).await;
    drop(second);
    server.stop().await;
}

#[tokio::test]
async fn weights_of_another_game_do_not_take_the_place_of_those_that_answer() {
    let server = Server::start(|_| {}).await;
    server.publish(1);
    let client = server.evaluations();
    within(client.up()).await;
    let (mut manifest, bytes) = published(2);
    manifest.architecture.game = "connect_four".into();
    server.publisher.publish(manifest, bytes).unwrap();
    server.publish(3);
    let batch = batch(2, 1);
    assert_eq!(within(client.evaluate(&batch, Some(3), None)).await.unwrap().version, 3);
    assert_eq!(server.stats().await.versions, [1, 3]);
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_cannot_use_the_only_weights_is_not_ready_for_this_reason() {
    let server = Server::start(|_| {}).await;
    let (mut manifest, bytes) = published(1);
    manifest.architecture.game = "connect_four".into();
    server.publisher.publish(manifest, bytes).unwrap();
    until(|| server.readiness.reason().is_some_and(|reason| reason.starts_with("weights v1 cannot be used"))).await;
    server.publish(2);
    until(|| server.readiness.reason().is_none()).await;
    server.stop().await;
}

#[tokio::test]
async fn requests_that_wait_when_the_server_drains_are_answered() {
    let device = Device::default();
    let server = Server::start_on(device.clone(), |section| section.batch_max = 5).await;
    server.publish(1);
    let client = server.evaluations();
    within(client.up()).await;
    device.limit(0);
    let calls: Vec<_> = (0..7)
        .map(|seed| {
            let client = client.clone();
            tokio::spawn(async move { client.evaluate(&batch(seed, 5), None, None).await })
        })
        .collect();
    // Two threads have a batch each.
    until(|| server.running.handle.counts().waiting_positions == 25).await;
    server.drain.start();
    device.set(DeviceState::default());
    for (seed, call) in calls.into_iter().enumerate() {
        assert_answers(&within(call).await.unwrap().unwrap().predictions, &batch(seed, 5), 1);
    }
    within(server.running.finished()).await.unwrap();
}

#[tokio::test]
async fn evaluations_fail_once_the_server_has_drained() {
    let server = Server::start(|_| {}).await;
    server.publish(1);
    let client = Arc::new(server.evaluations());
    within(client.up()).await;
    server.stop().await;
    assert!(matches!(within(client.evaluate(&batch(1, 1), None, None)).await, Err(EvalError::Away)));
}
