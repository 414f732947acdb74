//! The gRPC handlers of the replay service: each converts the request, calls the table service and converts the
//! result. [`proto::replay::order`] defines the legal message orders.
//!
//! The connection that reads a stream also drives it. No task is spawned, so no task outlives the client.

mod insert;
mod listing;
mod sample;

use std::pin::Pin;
use std::sync::Arc;

use experience::{Limits, Trajectory, TrajectoryId};
use futures::Stream;
use proto::convert::{self, Invalid, invalid};
use proto::replay::{
    Choice, ItemPriority, ListOrder, ListQuery, PriorityUpdate, Quarantine, Report, Revisable, ReviseRefusal,
    SearchQuery, Suspect, UpdatedPriorities, change_from_wire, choice_to_wire, revision_from_wire, v1,
};
use replay::ItemKey;
use run_file::replay::{MAIN, Settings, TableIndex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use transport::security::Caller;

use crate::clients::Clients;
use crate::insert_stream::{draining, exhausted};
use crate::leases::Actors;
use crate::log::{EncodedTrajectory, UnixMillis};
use crate::quota::Quota;
use crate::table_service::{Command, Ended, Handle, Refusal, Search};
use crate::{metrics, storage};

/// Maximum number of concurrent reanalysis calls, each of which holds a trajectory and a log record in memory.
const REVISION_CALLS_MAX: usize = 128;

/// Serves the tables of a [`Handle`] over gRPC.
#[derive(Debug, Clone)]
pub struct ReplayService {
    settings: Arc<Settings>,
    handle: Handle,
    drain: CancellationToken,
    lists: Arc<Semaphore>,
    searches: Arc<Semaphore>,
    revisions: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    clients: Arc<Clients>,
    quota: Quota,
    actors: Actors,
}

/// A response stream of the type that tonic expects.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl ReplayService {
    /// Creates a service that runs until `drain` fires and tracks leases in `actors`.
    pub fn new(settings: Settings, handle: Handle, actors: Actors, drain: CancellationToken) -> Self {
        let [lists, searches] = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
        let streams = Arc::new(Semaphore::new(settings.streams_max));
        let quota = Quota::new(settings.actor_inserts_per_second_max);
        let revisions = Arc::new(Semaphore::new(REVISION_CALLS_MAX));
        let clients = Arc::default();
        let settings = Arc::new(settings);
        Self { settings, handle, drain, lists, searches, revisions, streams, clients, quota, actors }
    }

    /// Acquires a permit for an open stream.
    fn stream(&self) -> Result<OwnedSemaphorePermit, Status> {
        let most = self.settings.streams_max;
        let full = |_| exhausted(format!("too many streams (limit {most}, replay.streams_max)"));
        Arc::clone(&self.streams).try_acquire_owned().map_err(full)
    }

    /// Acquires a permit for a reanalysis call.
    fn revision(&self) -> Result<OwnedSemaphorePermit, Status> {
        let full = |_| exhausted(format!("too many concurrent reanalysis calls (limit {REVISION_CALLS_MAX})"));
        Arc::clone(&self.revisions).try_acquire_owned().map_err(full)
    }

    /// Returns the table with this name; the main table if the name is empty.
    fn table(&self, name: &str) -> Result<TableIndex, Status> {
        let name = if name.is_empty() { MAIN } else { name };
        let index = self.settings.tables.iter().position(|table| table.name == name).map(TableIndex);
        index.ok_or_else(|| {
            // The requested name may have any length.
            let name: String = name.chars().take(64).collect();
            let names: Vec<&str> = self.settings.tables.iter().map(|table| table.name.as_str()).collect();
            Status::not_found(format!("unknown table {name:?}; tables are {}", names.join(", ")))
        })
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
        let address = request.remote_addr().map_or_else(String::new, |address| address.to_string());
        let (permit, caller) = (self.stream()?, Caller::of(&request));
        let stream = insert::InsertCall::new(request.into_inner(), self.clone(), caller, address, permit);
        Ok(Response::new(stream.answers()))
    }

    async fn sample(
        &self,
        request: Request<Streaming<v1::SampleRequest>>,
    ) -> Result<Response<Self::SampleStream>, Status> {
        let permit = self.stream()?;
        let stream = sample::SampleStream::new(request.into_inner(), self.clone(), permit);
        Ok(Response::new(stream.answers()))
    }

    async fn stats(&self, request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        let table = self.table(&request.into_inner().table)?;
        let stats = self.handle.request(|reply| Command::Stats(table, reply)).await?;
        Ok(Response::new(stats.into()))
    }

    async fn actors(&self, request: Request<v1::ActorsRequest>) -> Result<Response<v1::ActorsResponse>, Status> {
        let (caller, mut list) = (Caller::of(&request), self.actors.list(Instant::now().into_std()));
        list.actors.retain(|actor| caller.sees_actor(actor.actor));
        Ok(Response::new(list))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let query = ListQuery::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let table = self.table(&query.table)?;
        // One list at a time: the list of a large table needs memory for all ids, and takes longer than the table
        // service may be blocked.
        let turn = Arc::clone(&self.lists).acquire_owned().await.map_err(|_| draining())?;
        let held = self.handle.request(|reply| Command::Held(table, reply)).await?;
        let ids = tokio::task::spawn_blocking(move || list(held, &query)).await;
        let ids = ids.map_err(|_| Status::internal("cannot list trajectories"))?;
        Ok(Response::new(listing::send(ids, turn)))
    }

    async fn search(&self, request: Request<v1::SearchRequest>) -> Result<Response<v1::SearchResponse>, Status> {
        let query = SearchQuery::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let table = self.table(&query.table)?;
        let mut search = Box::new(Search::new(query).map_err(|invalid| convert::status(&invalid))?);
        // One search at a time: a large table takes many slices, each of which delays the table service. When a client
        // leaves, the search stops with this call.
        let _turn = self.searches.acquire().await.map_err(|_| draining())?;
        while !search.is_complete() {
            search = self.handle.request(|reply| Command::Search(table, search, reply)).await?;
        }
        Ok(Response::new(search.page().into()))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let missing = || convert::status(&invalid("trajectory", "is missing"));
        let id = request.into_inner().trajectory.ok_or_else(missing)?.into();
        let located = self.handle.request(|reply| Command::Get(id, reply)).await?.ok_or(Refusal::NotHeld(id))?;
        Ok(Response::new(located.into()))
    }

    async fn quarantine(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineResponse>, Status> {
        let quarantine = Quarantine::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let Quarantine { suspect, reason } = quarantine;
        let items = self.handle.request(|reply| Command::Quarantine(suspect, reply)).await??;
        tracing::warn!(?suspect, reason, items, "trajectories put into quarantine");
        Ok(Response::new(v1::QuarantineResponse { items }))
    }

    async fn release(&self, request: Request<v1::ReleaseRequest>) -> Result<Response<v1::ReleaseResponse>, Status> {
        let suspect = Suspect::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let items = self.handle.request(|reply| Command::Release(suspect, reply)).await??;
        tracing::warn!(?suspect, items, "trajectories released from quarantine");
        Ok(Response::new(v1::ReleaseResponse { items }))
    }

    async fn update_priorities(
        &self,
        request: Request<v1::UpdatePrioritiesRequest>,
    ) -> Result<Response<v1::UpdatePrioritiesResponse>, Status> {
        let update = PriorityUpdate::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let table = self.table(&update.table)?;
        let item = |ItemPriority { trajectory, ply, priority }| (ItemKey { trajectory, ply }, priority);
        let priorities = update.priorities.into_iter().map(item).collect();
        let update = self.handle.request(|reply| Command::UpdatePriorities(table, priorities, reply)).await??;
        let replay::PriorityUpdate { updated, unknown, unused } = update;
        Ok(Response::new(UpdatedPriorities { updated, unknown, unused }))
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureResponse>, Status> {
        let change = change_from_wire(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let table = self.table(&change.table)?;
        let settings = change.settings;
        let settings = self.handle.request(|reply| Command::Configure(table, settings, reply)).await??;
        Ok(Response::new(v1::ConfigureResponse { settings }))
    }

    async fn choose(&self, request: Request<v1::ChooseRequest>) -> Result<Response<v1::ChooseResponse>, Status> {
        let Choice { table, older_than } = request.into_inner().try_into().map_err(|e| convert::status(&e))?;
        let table = self.table(&table)?;
        let _permit = self.revision()?;
        let chosen = self.handle.request(|reply| Command::Choose(table, older_than, reply)).await?;
        Ok(Response::new(choice_to_wire(chosen)))
    }

    async fn revise(&self, request: Request<v1::ReviseRequest>) -> Result<Response<v1::ReviseResponse>, Status> {
        let _permit = self.revision()?;
        let (request, limits) = (request.into_inner(), self.settings.limits);
        // Checking and compressing a long episode takes milliseconds, which must not block a thread that drives
        // sockets.
        let encoded = tokio::task::spawn_blocking(move || encoded_revision(request, limits)).await;
        let (revised, content, at) = encoded.map_err(|_| Status::internal("cannot read a revision"))??;
        let revising = self.handle.request(|reply| Command::Revise { revised, content, at, reply });
        Ok(Response::new(v1::ReviseResponse { revision: revising.await?? }))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let report = Report::try_from(request.into_inner()).map_err(|invalid| convert::status(&invalid))?;
        let Report { trajectory: id, ply, reason } = report;
        let held = self.handle.request(|reply| Command::Report(id, reply)).await?;
        // A trajectory that violates the rules of the game indicates a faulty actor or disk, which an operator must
        // investigate.
        tracing::error!(trajectory = %id, ply, reason, held, "trajectory reported and excluded from sampling");
        Ok(Response::new(v1::ReportResponse { held }))
    }
}

/// Checks a revision and encodes the record for the log.
fn encoded_revision(
    request: v1::ReviseRequest,
    limits: Limits,
) -> Result<(Revisable, EncodedTrajectory, UnixMillis), Status> {
    let revised = revision_from_wire(request, limits).map_err(|invalid| {
        metrics::count_revision_refused(ReviseRefusal::Invalid);
        convert::status(&invalid)
    })?;
    let (at, revision) = (UnixMillis::now(), revised.revision + 1);
    let content = storage::encode_revision(&revised.trajectory, revision, at);
    Ok((revised, content.map_err(|error| Status::internal(error.to_string()))?, at))
}

/// Returns the ids for `query` from the held trajectories, newest first.
fn list(held: Vec<Trajectory>, query: &ListQuery) -> Vec<TrajectoryId> {
    let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
    let mut ids: Vec<TrajectoryId> = match query.order {
        ListOrder::Newest => held.iter().map(|trajectory| trajectory.id()).collect(),
        ListOrder::ASCENDING => {
            let ids = held.iter().map(|trajectory| trajectory.id());
            let mut ids: Vec<_> = ids.filter(|&id| query.after.is_none_or(|after| id > after)).collect();
            ids.sort_unstable();
            ids
        }
        ListOrder::Surprising => {
            // Trajectories that were never searched, or are scored by rewards, have no surprise and sort last.
            let surprise = |trajectory: &Trajectory| trajectory.surprise().unwrap_or(-1.0);
            let mut ids: Vec<_> = held.into_iter().map(|trajectory| (surprise(&trajectory), trajectory.id())).collect();
            // The sort is stable: among equal trajectories the newest comes first.
            ids.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            ids.into_iter().map(|(_, id)| id).collect()
        }
    };
    ids.truncate(limit);
    ids
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::NotHeld(_) => Self::not_found(message),
            Refusal::NotDurable(_) | Refusal::TooMany { .. } => Self::resource_exhausted(message),
            Refusal::Priority(_) => Self::invalid_argument(message),
            Refusal::Setting(invalid) => convert::status(&invalid),
            Refusal::OtherEpisode(Invalid { field, reason }) => {
                convert::status(&invalid(format!("trajectory.{field}"), reason))
            }
            Refusal::StaleRevision { .. } => Self::aborted(message),
            Refusal::OlderWeights { .. } => Self::failed_precondition(message),
            Refusal::TooManyRevisions(_) | Refusal::OverMemory { .. } | Refusal::RevisionNotStored(_) => {
                exhausted(message)
            }
            Refusal::Draining => draining(),
        }
    }
}

/// Converts the error to the status of a draining server, since the table service stops once the server has drained.
impl From<Ended> for Status {
    fn from(Ended: Ended) -> Self {
        draining()
    }
}

#[cfg(test)]
mod tests;
