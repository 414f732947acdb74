//! The replay service: convert, call, convert. Legal orders of messages are [`proto::replay::order`]'s.
//!
//! Streams are driven by the connection that reads them; nothing is spawned, so nothing outlives its client.

mod insert;
mod list;
mod quota;
mod sample;
mod table_names;

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use proto::convert::{self, Invalid};
use proto::replay::{
    ItemPriority, ListQuery, Located, PriorityUpdate, Quarantine, Report, Suspect, TableChange, UpdatedPriorities, v1,
};
use replay::ItemKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::config::{InvalidKey, Settings};
use crate::keeper::{Command, Ended, Found, Handle, Refusal};
use crate::leases::Actors;
use quota::Quota;
use table_names::TableNames;

/// Trajectories that one actor may have unanswered: as many as a commit takes, so that one actor alone can fill it.
pub const INSERT_CREDIT: u32 = 256;

/// Serves the table behind a handle.
#[derive(Debug, Clone)]
pub struct ReplayService {
    settings: Settings,
    tables: TableNames,
    handle: Handle,
    drain: CancellationToken,
    lists: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    quota: Quota,
    actors: Actors,
}

/// A stream of answers, as tonic expects it.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl ReplayService {
    /// Serves until `drain` fires, with the leases of `actors`.
    pub fn new(settings: Settings, handle: Handle, actors: Actors, drain: CancellationToken) -> Self {
        let tables = TableNames::of(&settings);
        let (lists, streams) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(settings.streams_max)));
        let quota = Quota::new(settings.actor_inserts_per_second_max);
        Self { settings, tables, handle, drain, lists, streams, quota, actors }
    }

    /// A place among the open streams.
    fn stream(&self) -> Result<OwnedSemaphorePermit, Status> {
        let most = self.settings.streams_max;
        let full = |_| insert::exhausted(format!("{most} streams are open, as many as replay.streams_max allows"));
        Arc::clone(&self.streams).try_acquire_owned().map_err(full)
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
        let peer = insert::Peer {
            address: request.remote_addr().map_or_else(String::new, |address| address.to_string()),
            actors: self.actors.clone(),
            quota: self.quota.clone(),
        };
        let stream = insert::InsertStream::new(
            request.into_inner(),
            &self.settings,
            self.handle.clone(),
            self.drain.clone(),
            peer,
            self.stream()?,
        );
        Ok(Response::new(stream.answers()))
    }

    async fn sample(
        &self,
        request: Request<Streaming<v1::SampleRequest>>,
    ) -> Result<Response<Self::SampleStream>, Status> {
        let stream = sample::SampleStream::new(
            request.into_inner(),
            &self.settings,
            self.tables.clone(),
            self.handle.clone(),
            self.drain.clone(),
            self.stream()?,
        );
        Ok(Response::new(stream.answers()))
    }

    async fn stats(&self, request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        let table = self.tables.named(&request.into_inner().table)?;
        let stats = self.handle.ask(|reply| Command::Stats { table, reply }).await.map_err(ended)?;
        Ok(Response::new(stats.into()))
    }

    async fn actors(&self, _: Request<v1::ActorsRequest>) -> Result<Response<v1::ActorsResponse>, Status> {
        Ok(Response::new(self.actors.told().into()))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let query = ListQuery::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let table = self.tables.named(&query.table)?;
        // One at a time: a list of a large table takes as much memory as its ids, and longer than the table can wait.
        let _turn = self.lists.acquire().await.map_err(|_| draining())?;
        let held = self.handle.ask(|reply| Command::Held { table, reply }).await.map_err(ended)?;
        let ids = tokio::task::spawn_blocking(move || list::ids(held, &query)).await;
        let ids = ids.map_err(|_| Status::internal("cannot list"))?;
        let ids = ids.into_iter().map(|id| Ok(v1::TrajectoryId::from(id)));
        Ok(Response::new(Box::pin(futures::stream::iter(ids))))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let missing = || convert::status(&Invalid { field: "trajectory".to_owned(), reason: "is missing".to_owned() });
        let id = request.into_inner().trajectory.ok_or_else(missing)?.into();
        let found = self.handle.ask(|reply| Command::Get { id, reply }).await.map_err(ended)?;
        let Found { trajectory, tables, inserted, quarantined } =
            found.ok_or_else(|| refused(&Refusal::NotHeld(id)))?;
        let inserted_unix_ms = u64::try_from(inserted.as_millis()).unwrap_or(u64::MAX);
        let located = Located { trajectory, tables, inserted_unix_ms, quarantined };
        Ok(Response::new(located.into()))
    }

    async fn quarantine(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineResponse>, Status> {
        let quarantine = Quarantine::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let Quarantine { suspect, reason } = quarantine;
        let done = self.handle.ask(|reply| Command::Quarantine { suspect, reply }).await.map_err(ended)?;
        let items = done.map_err(|refusal| refused(&refusal))?;
        tracing::warn!(?suspect, reason, items, "put into quarantine");
        Ok(Response::new(v1::QuarantineResponse { items }))
    }

    async fn release(&self, request: Request<v1::ReleaseRequest>) -> Result<Response<v1::ReleaseResponse>, Status> {
        let suspect = Suspect::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let done = self.handle.ask(|reply| Command::Release { suspect, reply }).await.map_err(ended)?;
        let items = done.map_err(|refusal| refused(&refusal))?;
        tracing::warn!(?suspect, items, "released from quarantine");
        Ok(Response::new(v1::ReleaseResponse { items }))
    }

    async fn update_priorities(
        &self,
        request: Request<v1::UpdatePrioritiesRequest>,
    ) -> Result<Response<v1::UpdatePrioritiesResponse>, Status> {
        let update = PriorityUpdate::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let table = self.tables.named(&update.table)?;
        let item = |ItemPriority { trajectory, ply, priority }| (ItemKey { trajectory, ply }, priority);
        let priorities = update.priorities.into_iter().map(item).collect();
        let done = self.handle.ask(|reply| Command::UpdatePriorities { table, priorities, reply }).await;
        let done = done.map_err(ended)?.map_err(|refusal| refused(&refusal))?;
        let replay::PriorityUpdate { updated, unknown, unused } = done;
        Ok(Response::new(UpdatedPriorities { updated, unknown, unused }.into()))
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureResponse>, Status> {
        let change = TableChange::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let table = self.tables.named(&change.table)?;
        let settings = change.settings;
        let done = self.handle.ask(|reply| Command::Configure { table, settings, reply }).await.map_err(ended)?;
        let settings = done.map_err(|refusal| refused(&refusal))?;
        Ok(Response::new(v1::ConfigureResponse { settings: settings.into_iter().collect() }))
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

/// For ever, where there is no such moment.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn refused(refusal: &Refusal) -> Status {
    let said = refusal.to_string();
    match refusal {
        Refusal::NotHeld(_) => Status::not_found(said),
        Refusal::NotDurable(_) | Refusal::TooMany { .. } => Status::resource_exhausted(said),
        Refusal::Priority(_) => Status::invalid_argument(said),
        Refusal::Setting(InvalidKey { key, reason }) => {
            convert::status(&Invalid { field: key.clone(), reason: reason.clone() })
        }
    }
}

fn ended(_: Ended) -> Status {
    draining()
}

/// Returns the status that ends every stream and call when the server drains.
fn draining() -> Status {
    Status::unavailable("the replay server is shutting down")
}

#[cfg(test)]
mod tests;
