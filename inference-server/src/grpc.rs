//! The inference service: convert, call, convert. The legal order of messages is [`proto::inference::order`]'s.
//!
//! Streams are driven by the connection that reads them; nothing is spawned, so nothing outlives its client.

mod cached;
mod evaluate;
mod stats;
mod traced;

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::Stream;
use proto::convert;
use proto::inference::{SearchQuery, v1};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::config::Settings;
use crate::engine::Handle;
use crate::metrics;
use crate::search::{self, Searches};
use cached::Cached;
use evaluate::EvaluateStream;

#[cfg(test)]
mod tests;

/// A stream of answers, as tonic expects it.
pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves what answers behind a handle.
#[derive(Debug, Clone)]
pub(crate) struct InferenceService {
    handle: Handle,
    cached: Cached,
    searches: Searches,
    drain: CancellationToken,
    asks_max: usize,
    streams_max: usize,
    streams: Arc<Semaphore>,
    clients: Arc<AtomicU64>,
}

impl InferenceService {
    /// Serves until `drain` fires.
    #[must_use]
    pub(crate) fn new(settings: &Settings, handle: Handle, drain: CancellationToken) -> Self {
        let section = &settings.inference;
        Self {
            cached: Cached::new(handle.clone(), section.cache_positions),
            searches: Searches::new(
                handle.clone(),
                settings.game,
                settings.search.clone(),
                settings.searches.clone(),
                drain.clone(),
            ),
            handle,
            drain,
            asks_max: section.asks_max,
            streams_max: section.streams_max,
            streams: Arc::new(Semaphore::new(section.streams_max)),
            clients: Arc::default(),
        }
    }

    /// A place among the open streams.
    fn stream(&self) -> Result<OpenStream, Status> {
        let most = self.streams_max;
        let full =
            |_| Status::resource_exhausted(format!("{most} streams are open, as many as inference.streams_max allows"));
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(full)?;
        metrics::stream_opened();
        Ok(OpenStream { _permit: permit })
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
        let permit = self.stream()?;
        let client = self.clients.fetch_add(1, Ordering::Relaxed);
        let stream = EvaluateStream::new(
            request.into_inner(),
            self.cached.clone(),
            client,
            self.asks_max,
            self.drain.clone(),
            permit,
        );
        Ok(Response::new(stream.answers()))
    }

    async fn stats(&self, request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        let v1::StatsRequest {} = request.into_inner();
        let streams = self.streams_max - self.streams.available_permits();
        Ok(Response::new(stats::of(&self.handle, self.cached.hits(), streams).into()))
    }

    async fn select_move(
        &self,
        request: Request<v1::SelectMoveRequest>,
    ) -> Result<Response<v1::SelectMoveResponse>, Status> {
        let client = client_of(&request);
        let query = SearchQuery::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let mut reports = self.searches.start(query, None, client)?;
        let report = reports.recv().await.ok_or_else(|| Status::internal("the search has ended without a word"))??;
        let best = report.moves.first().cloned().ok_or_else(|| Status::internal("the search has seen no move"))?;
        Ok(Response::new(convert::selected_to_wire(&best, report)))
    }

    async fn analyse(&self, request: Request<v1::AnalyseRequest>) -> Result<Response<Self::AnalyseStream>, Status> {
        let client = client_of(&request);
        let asked = convert::analyse_from_wire(request.into_inner());
        let (query, interval) = asked.map_err(|invalid| convert::status(&invalid))?;
        let reports = self.searches.start(query, search::interval(interval), client)?;
        let reports = futures::stream::unfold(reports, async |mut reports| {
            let report = reports.recv().await?;
            Some((report.map(v1::Analysis::from), reports))
        });
        Ok(Response::new(Box::pin(reports)))
    }
}

/// A client's place, until it is dropped.
pub(crate) struct OpenStream {
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::stream_closed();
    }
}

/// Returns the client id of single requests in the queue: a connection is a client.
pub(crate) fn client_of<T>(request: &Request<T>) -> u64 {
    // Apart from the numbers of streams, which count from 0.
    const OF_CONNECTIONS: u64 = 1 << 63;
    static HASHES: std::sync::OnceLock<RandomState> = std::sync::OnceLock::new();
    HASHES.get_or_init(RandomState::new).hash_one(request.remote_addr()) | OF_CONNECTIONS
}
