//! Tests of the service on a live server, with a generated client and evaluators with known results.

use std::sync::mpsc;
use std::time::Duration;

use evaluator_doubles::{Fault, Faulty};
use game::{Action, Game as _, ObservationShape};
use inference::{Attributes, Batch, Error, Evaluator, Hashing, Predictions, Wdl};
use proto::open_inference::v2::grpc_inference_service_client::GrpcInferenceServiceClient;
use proto::open_inference::v2::model_infer_request::InferInputTensor;
use service::{Drain, Health};
use tokio::net::TcpListener;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use transport::security::Security;
use weights::{Architecture, Manifest, WeightsVersion};

use super::*;
use crate::engine::Engine;
use crate::queue::QueueSettings;
use crate::versions::{Version, Versions};

const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };
const ACTIONS: usize = 9;
/// Maximum number of positions in an engine batch.
const BATCH_MAX: usize = 16;
const MODEL: &str = "tic_tac_toe";
/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A live server on port 0 with a connected client and one evaluating thread.
struct Server {
    client: GrpcInferenceServiceClient<Channel>,
    versions: Arc<Versions>,
    engine: Engine,
    handle: Handle,
    drain: Drain,
    serving: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn without_weights() -> Self {
        let (versions, drain) = (Arc::new(Versions::new(4)), Drain::new());
        let queue = QueueSettings { batch_max: BATCH_MAX, delay: Duration::ZERO, waiting_max: 1000, evaluators: 1 };
        let (engine, handle) =
            Engine::start(Arc::clone(&versions), queue, PATIENCE, &drain, &Health::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = proto::open_inference::service(OpenInference::new(handle.clone(), drain.token()));
        let incoming = transport::incoming(listener, 64, Security::default());
        let (ended, served) = (drain.clone(), transport::server(&Security::default()).add_service(service));
        let serving = tokio::spawn(async move {
            served.serve_with_incoming_shutdown(incoming, async move { ended.wait().await }).await.unwrap();
        });
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let client = GrpcInferenceServiceClient::new(channel).max_encoding_message_size(usize::MAX);
        Self { client, versions, engine, handle, drain, serving }
    }

    /// Starts a server with versions 1 and 3, each a different pseudo-random function.
    async fn hashing() -> Self {
        let server = Self::without_weights().await;
        for version in [1, 3] {
            server.add(version, Hashing::new(SHAPE, version));
        }
        server
    }

    fn add(&self, version: u64, evaluator: impl Evaluator + 'static) {
        let spec = games::TicTacToe::new().spec().clone();
        let architecture = Architecture::plain(spec.name, [SHAPE.planes, SHAPE.height, SHAPE.width], ACTIONS, [8, 1]);
        let version = WeightsVersion(version);
        let manifest = Manifest::of(b"", version, 0, architecture);
        self.versions.add(Version::new(manifest, vec![Box::new(evaluator)]));
    }

    async fn end(self) {
        self.drain.start();
        self.handle.drain();
        drop(self.client);
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap();
        self.engine.join().unwrap();
    }
}

/// An evaluator that blocks until released, then works like [`Hashing`].
struct Held {
    inner: Hashing,
    held: mpsc::Receiver<()>,
}

/// Returns an evaluator that waits until the sender is dropped.
fn held(version: u64) -> (mpsc::Sender<()>, Held) {
    let (hold, held) = mpsc::channel();
    (hold, Held { inner: Hashing::new(SHAPE, version), held })
}

impl Evaluator for Held {
    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        // The wait fails when the sender is dropped.
        let _ = self.held.recv();
        self.inner.evaluate(batch, predictions)
    }
}

/// Polls `condition` until it holds.
async fn until(condition: impl Fn() -> bool) {
    let looking = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap();
}

/// Returns observations that differ with `seed`, and legal-action flags, in which `seed % ACTIONS` is never legal.
fn positions(seed: usize, count: usize) -> (Vec<f32>, Vec<bool>) {
    let observations = (0..count * SHAPE.len()).map(|i| ((i + seed) % 7) as f32 / 7.0).collect();
    (observations, (0..count * ACTIONS).map(|i| i % ACTIONS != seed % ACTIONS).collect())
}

fn request(seed: usize, count: usize) -> v2::ModelInferRequest {
    let (observations, legal) = positions(seed, count);
    let tensor = |name: &str, datatype: &str, dims: &[i64]| InferInputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: [&[count as i64], dims].concat(),
        ..Default::default()
    };
    let bytes: Vec<u8> = observations.into_iter().flat_map(f32::to_le_bytes).collect();
    let flags: Vec<u8> = legal.into_iter().map(u8::from).collect();
    v2::ModelInferRequest {
        model_name: MODEL.into(),
        id: seed.to_string(),
        inputs: vec![tensor("observations", "FP32", &[2, 3, 3]), tensor("legal", "BOOL", &[9])],
        raw_input_contents: vec![bytes.into(), flags.into()],
        ..Default::default()
    }
}

/// Returns the results of a version for [`request`]: priors with zeros for illegal actions, and win, draw, loss.
fn expected(version: u64, seed: usize, count: usize) -> (Vec<f32>, Vec<f32>) {
    let (observations, legal) = positions(seed, count);
    let mut batch = Batch::new(SHAPE);
    for (planes, flags) in observations.chunks(SHAPE.len()).zip(legal.chunks(ACTIONS)) {
        let actions: Vec<Action> = (0..9).map(Action).filter(|action| flags[action.index()]).collect();
        batch.push(&actions, |observation| observation.copy_from_slice(planes));
    }
    let mut predictions = Predictions::new();
    Hashing::new(SHAPE, version).evaluate(&batch, &mut predictions).unwrap();
    let (mut priors, mut wdl) = (vec![0.0; count * ACTIONS], Vec::new());
    for i in 0..count {
        for (action, prior) in batch.legal(i).iter().zip(predictions.priors(i)) {
            priors[i * ACTIONS + action.index()] = *prior;
        }
        let Wdl { win, draw, loss } = predictions.wdl()[i];
        wdl.extend([win, draw, loss]);
    }
    (priors, wdl)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

fn check(response: &v2::ModelInferResponse, version: u64, seed: usize, count: usize) {
    assert_eq!((&*response.model_name, &*response.model_version), (MODEL, &*version.to_string()));
    assert_eq!(response.id, seed.to_string());
    let (priors, wdl) = expected(version, seed, count);
    assert_eq!(floats(&response.raw_output_contents[0]), priors);
    assert_eq!(floats(&response.raw_output_contents[1]), wdl);
    let values: Vec<f32> = wdl.chunks(3).map(|wdl| wdl[0] - wdl[2]).collect();
    assert_eq!(floats(&response.raw_output_contents[2]), values);
}

#[tokio::test]
async fn every_batch_size_returns_the_predictions_of_the_evaluator() {
    let mut server = Server::hashing().await;
    for count in (1..=256).chain((257..4095).step_by(97)).chain([4095, 4096]) {
        let response = server.client.model_infer(request(count, count)).await.unwrap().into_inner();
        check(&response, 3, count, count);
    }
    server.end().await;
}

#[tokio::test]
async fn requests_are_answered_by_the_named_version_or_else_the_newest() {
    let mut server = Server::hashing().await;
    for (infer, answers) in [("", 3), ("1", 1), ("3", 3)] {
        let infer = v2::ModelInferRequest { model_version: infer.into(), ..request(5, 2) };
        check(&server.client.model_infer(infer).await.unwrap().into_inner(), answers, 5, 2);
    }
    let gone = v2::ModelInferRequest { model_version: "2".into(), ..request(5, 2) };
    let status = server.client.model_infer(gone).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    server.end().await;
}

#[tokio::test]
async fn many_clients_at_once_get_their_own_answers() {
    let server = Server::hashing().await;
    let requests = (0..200).map(|seed| {
        let mut client = server.client.clone();
        async move { (seed, client.model_infer(request(seed, 1 + seed % 5)).await) }
    });
    for (seed, response) in futures::future::join_all(requests).await {
        check(&response.unwrap().into_inner(), 3, seed, 1 + seed % 5);
    }
    server.end().await;
}

#[tokio::test]
async fn the_server_is_live_but_not_ready_before_the_first_weights() {
    let mut server = Server::without_weights().await;
    let client = &mut server.client;
    assert!(client.server_live(v2::ServerLiveRequest {}).await.unwrap().into_inner().live);
    assert!(!client.server_ready(v2::ServerReadyRequest {}).await.unwrap().into_inner().ready);
    let named = v2::ModelReadyRequest { name: MODEL.into(), version: String::new() };
    assert!(!client.model_ready(named.clone()).await.unwrap().into_inner().ready);
    assert_eq!(client.repository_index(v2::RepositoryIndexRequest::default()).await.unwrap().into_inner().models, []);
    let every = client.model_statistics(v2::ModelStatisticsRequest::default()).await.unwrap();
    assert_eq!(every.into_inner().model_stats, []);
    let status = client.model_infer(request(0, 1)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");

    server.add(1, Hashing::new(SHAPE, 1));
    let client = &mut server.client;
    assert!(client.server_ready(v2::ServerReadyRequest {}).await.unwrap().into_inner().ready);
    assert!(client.model_ready(named).await.unwrap().into_inner().ready);
    check(&client.model_infer(request(0, 1)).await.unwrap().into_inner(), 1, 0, 1);
    server.end().await;
}

#[tokio::test]
async fn a_bad_tensor_is_named_in_the_message_and_in_the_details() {
    let mut server = Server::hashing().await;
    let mut bad = request(0, 2);
    bad.inputs[0].shape[1] = 5;
    let status = server.client.model_infer(bad).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("observations.shape"), "{status}");
    assert!(String::from_utf8_lossy(status.details()).contains("observations.shape"), "{status}");
    server.end().await;
}

#[tokio::test]
async fn a_message_of_very_many_parts_is_refused_before_it_is_taken_apart() {
    let mut server = Server::hashing().await;
    let many = v2::ModelInferRequest { inputs: vec![InferInputTensor::default(); 1 << 20], ..request(0, 1) };
    let status = server.client.model_infer(many).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("more than 256 parts"), "{status}");
    check(&server.client.model_infer(request(0, 1)).await.unwrap().into_inner(), 3, 0, 1);
    server.end().await;
}

/// Sends all requests on a stream at once; returns the responses and the final status.
async fn streamed(
    client: &mut GrpcInferenceServiceClient<Channel>,
    requests: Vec<v2::ModelInferRequest>,
    status_wanted: bool,
) -> (Vec<v2::ModelStreamInferResponse>, Result<(), Status>) {
    let mut request = Request::new(futures::stream::iter(requests));
    if status_wanted {
        request.metadata_mut().insert(STATUS_HEADER, "true".parse().unwrap());
    }
    let mut answers = client.model_stream_infer(request).await.unwrap().into_inner();
    let mut got = Vec::new();
    loop {
        match answers.message().await {
            Ok(Some(answer)) => got.push(answer),
            Ok(None) => return (got, Ok(())),
            Err(status) => return (got, Err(status)),
        }
    }
}

#[tokio::test]
async fn a_stream_answers_in_order_and_shares_batches() {
    let server = Server::without_weights().await;
    let (hold, evaluator) = held(3);
    server.add(3, evaluator);
    let mut client = server.client.clone();
    let requests = (0..300).map(|seed| request(seed, 1)).collect();
    let streaming = tokio::spawn(async move { streamed(&mut client, requests, false).await });
    // The first batch is being evaluated; all other concurrent requests wait for the next batches.
    until(|| server.handle.counts().waiting_positions >= STREAM_IN_FLIGHT_MAX - BATCH_MAX).await;
    drop(hold);
    let (answers, end) = streaming.await.unwrap();
    end.unwrap();
    assert_eq!(answers.len(), 300);
    for (seed, answer) in answers.iter().enumerate() {
        assert_eq!(answer.error_message, "");
        let response = answer.infer_response.as_ref().unwrap();
        check(response, 3, seed, 1);
        let last = response.parameters[FINAL_PARAMETER].parameter_choice.clone();
        assert_eq!(last, Some(ParameterChoice::BoolParam(true)));
    }
    assert!(server.handle.counts().batches < 300, "requests of a stream wait for one another");
    server.end().await;
}

#[tokio::test]
async fn an_error_is_one_answer_of_a_stream_or_its_end_as_the_client_requests() {
    let mut server = Server::hashing().await;
    let unknown = v2::ModelInferRequest { model_name: "chess".into(), ..request(7, 1) };
    let requests = vec![request(6, 1), unknown, request(8, 1)];

    let (answers, end) = streamed(&mut server.client, requests.clone(), false).await;
    end.unwrap();
    let ids: Vec<&str> = answers.iter().map(|answer| &*answer.infer_response.as_ref().unwrap().id).collect();
    assert_eq!(ids, ["6", "7", "8"]);
    assert!(answers[1].error_message.contains("`chess`"), "{}", answers[1].error_message);
    assert!(answers[1].infer_response.as_ref().unwrap().outputs.is_empty());
    check(answers[2].infer_response.as_ref().unwrap(), 3, 8, 1);

    let (answers, end) = streamed(&mut server.client, requests, true).await;
    assert_eq!(answers.len(), 1, "earlier requests are answered");
    assert_eq!(end.unwrap_err().code(), Code::NotFound);
    server.end().await;
}

#[tokio::test]
async fn a_stream_is_answered_and_then_ends_as_unavailable_when_the_server_drains() {
    let mut server = Server::hashing().await;
    let (requests, outgoing) = tokio::sync::mpsc::channel(4);
    let outgoing = futures::stream::unfold(outgoing, async |mut outgoing| Some((outgoing.recv().await?, outgoing)));
    requests.send(request(1, 1)).await.unwrap();
    let mut answers = server.client.model_stream_infer(outgoing).await.unwrap().into_inner();
    check(answers.message().await.unwrap().unwrap().infer_response.as_ref().unwrap(), 3, 1, 1);
    server.drain.start();
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    drop(requests);
    server.end().await;
}

#[tokio::test]
async fn a_call_whose_message_arrives_while_the_server_drains_is_answered_and_a_later_call_is_refused() {
    let server = Server::hashing().await;
    let mut client = server.client.clone();
    server.drain.start();
    let service = OpenInference::new(server.handle.clone(), server.drain.token());
    check(&service.model_infer(Request::new(request(0, 1))).await.unwrap().into_inner(), 3, 0, 1);
    server.end().await;
    let status = client.model_infer(request(0, 1)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn compressed_requests_are_answered_and_one_that_decompresses_to_more_than_a_message_is_refused() {
    let mut server = Server::hashing().await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        let mut client = server.client.clone().send_compressed(encoding);
        check(&client.model_infer(request(2, 64)).await.unwrap().into_inner(), 3, 2, 64);
        let (answers, end) = streamed(&mut client, vec![request(1, 3), request(2, 64)], false).await;
        end.unwrap();
        check(answers[1].infer_response.as_ref().unwrap(), 3, 2, 64);
        // A few kilobytes of zeros.
        let bomb = v2::ModelInferRequest { raw_input_contents: vec![vec![0_u8; 20 << 20].into()], ..request(0, 1) };
        let status = client.model_infer(bomb).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        let long = v2::ModelInferRequest { id: "x".repeat(1 << 20), ..request(0, 1) };
        let status = client.model_infer(long).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    check(&server.client.model_infer(request(0, 1)).await.unwrap().into_inner(), 3, 0, 1);
    server.end().await;
}

#[tokio::test]
async fn an_expired_timeout_or_deadline_is_answered_with_an_error() {
    let mut server = Server::without_weights().await;
    let (hold, evaluator) = held(1);
    server.add(1, evaluator);
    let timeout = v2::InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(20_000)) };
    let mut infer = request(0, 1);
    infer.parameters.insert("timeout".into(), timeout);
    let status = server.client.model_infer(infer).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "the parameter: {status}");

    let mut infer = Request::new(futures::stream::iter([request(0, 1)]));
    // The timeout is long enough for the stream to open on a busy machine.
    infer.set_timeout(Duration::from_secs(2));
    let mut answers = server.client.model_stream_infer(infer).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert!(answer.error_message.contains("the deadline passed"), "the header: {}", answer.error_message);
    drop(hold);
    server.end().await;
}

#[tokio::test]
async fn a_failing_evaluator_is_an_internal_error_and_the_next_request_is_answered() {
    let mut server = Server::without_weights().await;
    server.add(1, Faulty::new(SHAPE, Fault::NotFinite, 1));
    server.client.model_infer(request(0, 1)).await.unwrap();
    let status = server.client.model_infer(request(0, 1)).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    server.client.model_infer(request(0, 1)).await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn statistics_count_requests_positions_and_batches() {
    let mut server = Server::hashing().await;
    for count in [1, 2, 3, 4] {
        server.client.model_infer(request(0, count)).await.unwrap();
    }
    let statistics = server.client.model_statistics(v2::ModelStatisticsRequest::default()).await.unwrap().into_inner();
    let [model] = statistics.model_stats.as_slice() else { panic!("one model: {statistics:?}") };
    assert_eq!((&*model.name, &*model.version), (MODEL, "3"));
    assert_eq!((model.inference_count, model.execution_count), (10, 4));
    let times = model.inference_stats.as_ref().unwrap();
    for part in [times.success, times.queue, times.compute_input, times.compute_infer, times.compute_output] {
        assert_eq!(part.unwrap().count, 4);
    }
    assert_eq!(times.fail.unwrap().count, 0);
    assert!(times.compute_infer.unwrap().ns > 0);
    let parts = [times.queue, times.compute_input, times.compute_infer, times.compute_output];
    assert_eq!(times.success.unwrap().ns, parts.map(|part| part.unwrap().ns).iter().sum::<u64>());
    assert!(model.last_inference > 0);
    let sizes: Vec<_> = model.batch_stats.iter().map(|b| (b.batch_size, b.compute_infer.unwrap().count)).collect();
    assert_eq!(sizes, [(1, 1), (2, 1), (4, 2)], "a size counts with the next power of two");
    server.end().await;
}

#[tokio::test]
async fn a_repository_by_name_is_not_offered() {
    let mut server = Server::hashing().await;
    let named = v2::RepositoryIndexRequest { repository_name: "other".into(), ready: false };
    assert_eq!(server.client.repository_index(named).await.unwrap_err().code(), Code::Unimplemented);
    server.end().await;
}
