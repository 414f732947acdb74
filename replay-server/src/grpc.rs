//! The replay service: convert, call, convert. Legal orders of messages are [`proto::replay::order`]'s.
//!
//! Streams are driven by the connection that reads them; nothing is spawned, so nothing outlives its client.

mod insert;
mod sample;

use std::pin::Pin;

use futures::Stream;
use proto::convert;
use proto::replay::{ListQuery, Report, v1};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::config::{Settings, TableIndex};
use crate::keeper::{Command, Ended, Handle};

/// Trajectories that one actor may have unanswered: a commit's worth.
pub const INSERT_CREDIT: u32 = 64;

/// Serves the table behind a handle.
#[derive(Debug, Clone)]
pub struct ReplayService {
    settings: Settings,
    handle: Handle,
    drain: CancellationToken,
}

/// What a stream of answers is to tonic.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl ReplayService {
    /// Serves until `drain` fires.
    pub fn new(settings: Settings, handle: Handle, drain: CancellationToken) -> Self {
        Self { settings, handle, drain }
    }
}

#[tonic::async_trait]
impl v1::replay_server::Replay for ReplayService {
    type InsertStream = Answers<v1::InsertResponse>;
    type SampleStream = Answers<v1::SampleResponse>;
    type ListStream = Answers<v1::TrajectoryId>;

    async fn insert(
        &self,
        request: Request<Streaming<v1::InsertRequest>>,
    ) -> Result<Response<Self::InsertStream>, Status> {
        let stream =
            insert::InsertStream::new(request.into_inner(), &self.settings, self.handle.clone(), self.drain.clone());
        Ok(Response::new(stream.answers()))
    }

    async fn sample(
        &self,
        request: Request<Streaming<v1::SampleRequest>>,
    ) -> Result<Response<Self::SampleStream>, Status> {
        let stream =
            sample::SampleStream::new(request.into_inner(), &self.settings, self.handle.clone(), self.drain.clone());
        Ok(Response::new(stream.answers()))
    }

    async fn stats(&self, _request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        let stats = self.handle.ask(|reply| Command::Stats { table: TableIndex::MAIN, reply }).await.map_err(ended)?;
        Ok(Response::new(v1::StatsResponse { table: Some(stats.into()) }))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let ListQuery { after, limit } = request.into_inner().into();
        let ids = self
            .handle
            .ask(|reply| Command::List { table: TableIndex::MAIN, after, limit, reply })
            .await
            .map_err(ended)?;
        let ids = ids.into_iter().map(|id| Ok(v1::TrajectoryId::from(id)));
        Ok(Response::new(Box::pin(futures::stream::iter(ids))))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let report = Report::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let Report { trajectory: id, ply, reason } = report;
        let held = self.handle.ask(|reply| Command::Report { id, reply }).await.map_err(ended)?;
        // A trajectory that breaks the rules means a broken actor or disk: a human must look.
        tracing::error!(trajectory = %id, ply, reason, held, "a trajectory was reported and taken out of sampling");
        Ok(Response::new(v1::ReportResponse { held }))
    }
}

fn ended(_: Ended) -> Status {
    draining()
}

/// What every stream and call says when the server goes.
fn draining() -> Status {
    Status::unavailable("the replay server is shutting down")
}

#[cfg(test)]
mod tests;
