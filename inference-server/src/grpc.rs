//! The inference service: converts requests, calls the engine and converts answers. [`proto::inference::order`]
//! defines the legal order of messages.
//!
//! The connection that reads a stream also drives it. No task is spawned, so no work outlives the client.

mod cached;
mod evaluate;

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cached::Cached;
use evaluate::{EvaluateStream, OpenStream};
use futures::Stream;
use futures::stream::FuturesUnordered;
use proto::convert;
use proto::inference::order::EvaluateOrder;
use proto::inference::{SearchQuery, analyse_from_wire, v1};
use run_file::inference::Settings;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::engine::Handle;
use crate::search::{INTERVAL_DEFAULT, Searches};

#[cfg(test)]
mod tests;

/// A response stream of the type that tonic expects.
pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The gRPC service, which evaluates with an engine.
#[derive(Debug, Clone)]
pub(crate) struct InferenceService {
    settings: Arc<Settings>,
    cached: Cached,
    searches: Searches,
    drain: CancellationToken,
    streams: Arc<Semaphore>,
    clients: Arc<AtomicU64>,
}

impl InferenceService {
    /// Creates a service that accepts calls until `drain` fires.
    #[must_use]
    pub(crate) fn new(settings: Arc<Settings>, handle: Handle, drain: CancellationToken) -> Self {
        Self {
            cached: Cached::new(handle.clone(), settings.inference.cache_positions),
            streams: Arc::new(Semaphore::new(settings.inference.streams_max)),
            searches: Searches::new(handle, Arc::clone(&settings), drain.clone()),
            settings,
            drain,
            clients: Arc::default(),
        }
    }
}

#[tonic::async_trait]
impl v1::inference_server::Inference for InferenceService {
    type EvaluateStream = Answers<v1::EvaluateResponse>;
    type AnalyseStream = Answers<v1::Analysis>;

    async fn evaluate(
        &self,
        request: Request<Streaming<v1::EvaluateRequest>>,
    ) -> Result<Response<Self::EvaluateStream>, Status> {
        let most = self.settings.inference.streams_max;
        let full = |_| Status::resource_exhausted(format!("too many streams (limit {most}, inference.streams_max)"));
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(full)?;
        let stream = EvaluateStream {
            inbound: request.into_inner(),
            order: EvaluateOrder::default(),
            cached: self.cached.clone(),
            client: self.clients.fetch_add(1, Ordering::Relaxed),
            requests_max: self.settings.inference.requests_max,
            drain: self.drain.clone(),
            in_flight: FuturesUnordered::new(),
            has_ended: false,
            _open: OpenStream::new(permit),
        };
        Ok(Response::new(Box::pin(stream.answers())))
    }

    async fn stats(&self, request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        let v1::StatsRequest {} = request.into_inner();
        let (model, counts) = (self.cached.handle.model(), self.cached.handle.counts());
        let explanation = counts.explain(model.as_ref().map_or(1, |model| model.batch_max));
        let (game, versions, evaluator) =
            model.map(|model| (model.game, model.versions, model.evaluator.to_string())).unwrap_or_default();
        let streams = self.settings.inference.streams_max - self.streams.available_permits();
        Ok(Response::new(v1::StatsResponse {
            game,
            versions,
            evaluator,
            requests: counts.requests,
            positions: counts.positions,
            cached_positions: self.cached.hits(),
            rejected_requests: counts.rejected,
            failed_requests: counts.failed,
            batches: counts.by_batch_size,
            streams: u32::try_from(streams).unwrap_or(u32::MAX),
            waiting_positions: counts.waiting_positions as u64,
            explanation,
        }))
    }

    async fn select_move(
        &self,
        request: Request<v1::SelectMoveRequest>,
    ) -> Result<Response<v1::SelectMoveResponse>, Status> {
        let client = client_of(&request);
        let query = SearchQuery::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let mut reports = self.searches.start(query, None, client)?;
        let report = reports.recv().await.ok_or_else(|| Status::internal("the search ended without a report"))??;
        let best = report.moves.first().ok_or_else(|| Status::internal("the search found no move"))?;
        let (r#move, action) = (best.r#move.clone(), best.action);
        Ok(Response::new(v1::SelectMoveResponse { r#move, action, analysis: Some(report) }))
    }

    async fn analyse(&self, request: Request<v1::AnalyseRequest>) -> Result<Response<Self::AnalyseStream>, Status> {
        let client = client_of(&request);
        let converted = analyse_from_wire(request.into_inner());
        let (query, interval) = converted.map_err(|invalid| convert::status(&invalid))?;
        let reports = self.searches.start(query, Some(interval.unwrap_or(INTERVAL_DEFAULT)), client)?;
        let reports = futures::stream::unfold(reports, async |mut reports| {
            let report = reports.recv().await?;
            Some((report, reports))
        });
        Ok(Response::new(Box::pin(reports)))
    }
}

/// Returns the client number of single requests and of searches: each connection counts as one client.
pub(crate) fn client_of<T>(request: &Request<T>) -> u64 {
    // The offset separates these numbers from the numbers of streams, which count from 0.
    const OF_CONNECTIONS: u64 = 1 << 63;
    static HASHES: std::sync::OnceLock<RandomState> = std::sync::OnceLock::new();
    HASHES.get_or_init(RandomState::new).hash_one(request.remote_addr()) | OF_CONNECTIONS
}
