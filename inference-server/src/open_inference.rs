//! Serves the Open Inference Protocol, for clients from other projects: converts requests, calls the engine and
//! converts answers.
//!
//! The model is the game, and the model versions are the weights versions. Tensors are read (`request`) and written
//! (`response`) by name; `tensors` lists them. The connection that reads a stream also drives it. No task is spawned,
//! so abandoned requests of a client leave the queue.

mod description;
mod request;
mod response;
mod statistics;
mod tensors;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use proto::convert;
use proto::open_inference::v2;
use proto::open_inference::v2::grpc_inference_service_server::GrpcInferenceService;
use proto::open_inference::v2::infer_parameter::ParameterChoice;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::engine::{EvalRequest, Handle, Model};
use crate::grpc::{Answers, client_of};
use crate::rejection::Rejection;
use request::InferInputs;
use statistics::Statistics;

/// Maximum number of requests on one stream that are computed concurrently, enough to fill a batch with single
/// positions. Further requests wait in the stream's window.
const STREAM_IN_FLIGHT_MAX: usize = 64;

/// Header with which a client requests a status instead of an error among the responses of a stream.
const STATUS_HEADER: &str = "triton_grpc_error";

/// Parameter that marks the last response to a request on a stream.
const FINAL_PARAMETER: &str = "triton_final_response";

/// The gRPC service of the protocol, which evaluates with an engine.
#[derive(Debug, Clone)]
pub struct OpenInference {
    engine: Handle,
    drain: CancellationToken,
    statistics: Arc<Statistics>,
}

/// A request whose tensors have been read.
struct Prepared {
    model: Model,
    version: Option<u64>,
    inputs: InferInputs,
    deadline: Option<Instant>,
    client: u64,
    read: Duration,
}

/// The client and the deadline of a request.
#[derive(Debug, Clone, Copy)]
struct Caller {
    client: u64,
    deadline: Option<Instant>,
}

impl Caller {
    fn of<T>(request: &Request<T>) -> Self {
        Self { client: client_of(request), deadline: transport::deadline::of(request.metadata(), Instant::now()) }
    }
}

impl OpenInference {
    /// Creates a service that is not ready and takes no messages of streams once `drain` fires.
    #[must_use]
    pub fn new(engine: Handle, drain: CancellationToken) -> Self {
        Self { engine, drain, statistics: Arc::default() }
    }

    /// Reads the request at once; the tensors of the message take no memory while the positions wait.
    fn infer(
        &self,
        request: v2::ModelInferRequest,
        caller: Caller,
    ) -> impl Future<Output = Result<v2::ModelInferResponse, Status>> + Send + use<> {
        let prepared = self.prepare(&request, caller);
        let (service, id) = (self.clone(), { request }.id);
        async move { Ok(v2::ModelInferResponse { id, ..service.finish(prepared?).await? }) }
    }

    fn prepare(&self, request: &v2::ModelInferRequest, caller: Caller) -> Result<Prepared, Status> {
        let start = Instant::now();
        let (model, version) = description::resolve(self.engine.model(), &request.model_name, &request.model_version)?;
        let timeout = request::timeout_us(&request.parameters).map_err(|invalid| convert::status(&invalid))?;
        let inputs = request::read(request, &model).map_err(|invalid| convert::status(&invalid))?;
        let deadline = transport::deadline::earlier(caller.deadline, timeout, start);
        Ok(Prepared { model, version, inputs, deadline, client: caller.client, read: start.elapsed() })
    }

    async fn finish(&self, prepared: Prepared) -> Result<v2::ModelInferResponse, Status> {
        let Prepared { model, version, inputs, deadline, client, read } = prepared;
        let InferInputs { batch, outputs, form } = inputs;
        let batch = Arc::new(batch);
        let evaluation = EvalRequest { client, version, batch: Arc::clone(&batch), deadline };
        // The weights are held from here on: the times belong to the version that evaluates.
        let held = self.engine.resident(version);
        let answer = self.engine.evaluate_with(held.clone(), evaluation, None).await?;
        let start = Instant::now();
        let response = response::write(&answer.predictions, &batch, &outputs, form, model.actions);
        let written = start.elapsed();
        self.statistics.converted(read, written);
        if let Some(version) = held {
            version.triton.converted(read, written);
        }
        Ok(v2::ModelInferResponse { model_name: model.game, model_version: answer.version.to_string(), ..response })
    }

    /// Returns one message of a stream. An error is a message too, unless `end_on_error` is set.
    fn infer_in_stream(
        &self,
        request: Result<v2::ModelInferRequest, Status>,
        caller: Caller,
        end_on_error: bool,
    ) -> impl Future<Output = Result<v2::ModelStreamInferResponse, Status>> + Send + use<> {
        // The tensors are omitted, since they are not needed again.
        let echo = |request: &v2::ModelInferRequest| v2::ModelInferResponse {
            model_name: request.model_name.clone(),
            model_version: request.model_version.clone(),
            id: request.id.clone(),
            ..v2::ModelInferResponse::default()
        };
        let started = request.map(|request| (echo(&request), self.infer(request, caller)));
        async move {
            // After an unreadable message, the stream cannot continue.
            let (echo, response) = started?;
            let (error_message, mut response) = match response.await {
                Ok(response) => (String::new(), response),
                Err(status) if end_on_error => return Err(status),
                Err(status) => (status.message().to_owned(), echo),
            };
            let yes = v2::InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
            response.parameters.insert(FINAL_PARAMETER.to_owned(), yes);
            Ok(v2::ModelStreamInferResponse { error_message, infer_response: Some(response) })
        }
    }

    fn is_ready(&self) -> bool {
        !self.drain.is_cancelled() && self.engine.model().is_some()
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for OpenInference {
    type ModelStreamInferStream = Answers<v2::ModelStreamInferResponse>;

    async fn server_live(&self, _: Request<v2::ServerLiveRequest>) -> Result<Response<v2::ServerLiveResponse>, Status> {
        Ok(Response::new(v2::ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<v2::ServerReadyRequest>,
    ) -> Result<Response<v2::ServerReadyResponse>, Status> {
        Ok(Response::new(v2::ServerReadyResponse { ready: self.is_ready() }))
    }

    async fn model_ready(
        &self,
        request: Request<v2::ModelReadyRequest>,
    ) -> Result<Response<v2::ModelReadyResponse>, Status> {
        let v2::ModelReadyRequest { name, version } = request.into_inner();
        let known = description::resolve(self.engine.model(), &name, &version).is_ok();
        Ok(Response::new(v2::ModelReadyResponse { ready: known && self.is_ready() }))
    }

    async fn server_metadata(
        &self,
        _: Request<v2::ServerMetadataRequest>,
    ) -> Result<Response<v2::ServerMetadataResponse>, Status> {
        Ok(Response::new(description::server()))
    }

    async fn model_metadata(
        &self,
        request: Request<v2::ModelMetadataRequest>,
    ) -> Result<Response<v2::ModelMetadataResponse>, Status> {
        let v2::ModelMetadataRequest { name, version } = request.into_inner();
        let (model, _) = description::resolve(self.engine.model(), &name, &version)?;
        Ok(Response::new(description::metadata(&model)))
    }

    async fn model_infer(
        &self,
        request: Request<v2::ModelInferRequest>,
    ) -> Result<Response<v2::ModelInferResponse>, Status> {
        // Also while draining: the message of an accepted call may still have been arriving, and the transport soon
        // refuses new calls.
        let caller = Caller::of(&request);
        Ok(Response::new(self.infer(request.into_inner(), caller).await?))
    }

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<v2::ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let caller = Caller::of(&request);
        let end_on_error = request.metadata().get(STATUS_HEADER).is_some_and(|value| value == "true");
        let (service, drain) = (self.clone(), self.drain.clone());
        let answers = request
            .into_inner()
            .take_until(drain.clone().cancelled_owned())
            .map(move |request| service.infer_in_stream(request, caller, end_on_error))
            .buffered(STREAM_IN_FLIGHT_MAX);
        // Earlier requests are answered first; then the client receives the reason why the stream is closed.
        let farewell = futures::stream::once(async move { drain.is_cancelled() })
            .filter_map(async |draining| draining.then(|| Err(Rejection::Draining.into())));
        Ok(Response::new(Box::pin(answers.chain(farewell))))
    }

    async fn model_config(
        &self,
        request: Request<v2::ModelConfigRequest>,
    ) -> Result<Response<v2::ModelConfigResponse>, Status> {
        let v2::ModelConfigRequest { name, version } = request.into_inner();
        let (model, _) = description::resolve(self.engine.model(), &name, &version)?;
        Ok(Response::new(v2::ModelConfigResponse { config: Some(description::config(&model)) }))
    }

    async fn model_statistics(
        &self,
        request: Request<v2::ModelStatisticsRequest>,
    ) -> Result<Response<v2::ModelStatisticsResponse>, Status> {
        let v2::ModelStatisticsRequest { name, version } = request.into_inner();
        let model = self.engine.model();
        // An empty name selects every model, even before there is a model.
        if name.is_empty() && model.is_none() {
            return Ok(Response::new(v2::ModelStatisticsResponse::default()));
        }
        let name = if name.is_empty() { model.as_ref().map_or(name, |model| model.game.clone()) } else { name };
        let (model, version) = description::resolve(model, &name, &version)?;
        let version = version.unwrap_or(model.newest);
        let statistics = self.statistics.of(&self.engine.counts(), &model.game, version);
        Ok(Response::new(v2::ModelStatisticsResponse { model_stats: vec![statistics] }))
    }

    async fn repository_index(
        &self,
        request: Request<v2::RepositoryIndexRequest>,
    ) -> Result<Response<v2::RepositoryIndexResponse>, Status> {
        if !request.into_inner().repository_name.is_empty() {
            return Err(Status::unimplemented("repository_name: must be empty; there is one repository"));
        }
        Ok(Response::new(description::index(self.engine.model().as_ref())))
    }
}

#[cfg(test)]
mod tests;
