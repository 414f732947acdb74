use std::collections::BTreeMap;

use experience::{Invalid, TrajectoryId};
use tonic::{Code, Status};
use transport::{Channel, InvalidEndpoint, channel};

use super::convert::{operator, table};
use super::{
    Actors, ListOrder, ListQuery, Located, MAIN_TABLE, PriorityUpdate, Quarantine, Report, SearchPage, SearchQuery,
    ServerStats, Suspect, TableChange, TableStats, UpdatedPriorities, client, v1,
};
use crate::convert;

/// Inspects and changes the tables of a server. Each call sends one request and does not retry.
#[derive(Debug, Clone)]
pub struct Inspector {
    client: v1::replay_client::ReplayClient<Channel>,
}

/// A reason why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The request was not sent, because the endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// The server rejected the request, or the connection failed.
    #[error("the replay server rejected the call")]
    Status(#[from] Status),
    /// The response violates the protocol.
    #[error("invalid response from the replay server")]
    Answer(#[from] Invalid),
}

impl RequestError {
    /// Returns true if no server responded.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Status(status) if status.code() == Code::Unavailable)
    }

    /// Returns true if the server refused the request, so that nothing has changed.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Status(status) if status.code() == Code::InvalidArgument)
    }

    /// Explains the error in a sentence, for readers who know no status codes.
    #[must_use]
    pub fn explained(&self) -> String {
        let status = match self {
            Self::Endpoint(error) => return format!("The address of the replay server is invalid: {error}."),
            Self::Answer(invalid) => return format!("The replay server sent an invalid response: {invalid}."),
            Self::Status(status) => status,
        };
        let what = match status.code() {
            Code::Unavailable => "The replay server is not available",
            Code::DeadlineExceeded | Code::Cancelled => "The replay server did not finish the request",
            Code::Unimplemented => "The replay server is too old for this request",
            Code::ResourceExhausted => "The replay server is busy",
            Code::PermissionDenied | Code::Unauthenticated => "The replay server rejects the credentials of the run",
            _ => "The replay server rejected the request",
        };
        if status.message().is_empty() { format!("{what}.") } else { format!("{what}: {}.", status.message()) }
    }
}

impl Inspector {
    /// Creates an inspector, which connects with the first request.
    ///
    /// # Errors
    /// [`InvalidEndpoint`].
    pub fn new(endpoint: &str) -> Result<Self, InvalidEndpoint> {
        Ok(Self { client: client(channel(endpoint)?) })
    }

    /// Returns the size and counters of the main table.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn stats(&self) -> Result<TableStats, RequestError> {
        Ok(self.stats_of(MAIN_TABLE).await?.table)
    }

    /// Returns size and counters of a table, and the names of all tables.
    ///
    /// # Errors
    /// [`RequestError`]; an unknown table is `NOT_FOUND`.
    pub async fn stats_of(&self, table: &str) -> Result<ServerStats, RequestError> {
        let request = v1::StatsRequest { table: table.to_owned() };
        Ok(self.client.clone().stats(request).await?.into_inner().try_into()?)
    }

    /// Returns the actors that insert into the server, and recently lost actors.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn actors(&self) -> Result<Actors, RequestError> {
        Ok(table::checked_actors(self.client.clone().actors(v1::ActorsRequest {}).await?.into_inner())?)
    }

    /// Returns the ids of the trajectories in a table. `limit` also bounds the memory that this client uses for the
    /// ids.
    ///
    /// # Errors
    /// [`RequestError`]; ids beyond the limit, or out of ascending order, make the response invalid.
    pub async fn list(&self, query: ListQuery) -> Result<Vec<TrajectoryId>, RequestError> {
        let mut stream = self.client.clone().list(v1::ListRequest::from(query.clone())).await?.into_inner();
        let mut ids: Vec<TrajectoryId> = Vec::new();
        while let Some(id) = stream.message().await? {
            let id = id.into();
            check_next(&ids, id, &query)?;
            ids.push(id);
        }
        Ok(ids)
    }

    /// Returns one page of a search. The query with [`SearchPage::next`] as the cursor returns the next page.
    ///
    /// # Errors
    /// [`RequestError`]; `INVALID_ARGUMENT` for a cursor of another order. A page beyond the limit of the query is an
    /// invalid response.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchPage, RequestError> {
        let limit = query.limit;
        let page = self.client.clone().search(v1::SearchRequest::from(query)).await?.into_inner();
        convert::at_most("found", page.found.len(), "entries", limit)?;
        Ok(page.try_into()?)
    }

    /// Returns a trajectory and the tables that hold it; `None` if there are none.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn get(&self, id: TrajectoryId) -> Result<Option<Located>, RequestError> {
        let request = v1::GetRequest { trajectory: Some(id.into()) };
        match self.client.clone().get(request).await {
            Ok(response) => Ok(Some(response.into_inner().try_into()?)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Excludes a trajectory, or all trajectories of an actor, from sampling until release. Returns the number of
    /// items that left the sampling of the main table, once the quarantine is durable.
    ///
    /// # Errors
    /// [`RequestError`]; `NOT_FOUND` for a trajectory that no table holds, `RESOURCE_EXHAUSTED` if the log accepts no
    /// writes now.
    pub async fn quarantine(&self, quarantine: Quarantine) -> Result<u64, RequestError> {
        Ok(self.client.clone().quarantine(v1::QuarantineRequest::from(quarantine)).await?.into_inner().items)
    }

    /// Reverts a quarantine or a report. Returns the number of items that re-entered the sampling of the main table.
    ///
    /// # Errors
    /// The errors of [`Inspector::quarantine`].
    pub async fn release(&self, suspect: Suspect) -> Result<u64, RequestError> {
        Ok(self.client.clone().release(v1::ReleaseRequest::from(suspect)).await?.into_inner().items)
    }

    /// Updates the priorities of items: all or none.
    ///
    /// # Errors
    /// [`RequestError`]; `RESOURCE_EXHAUSTED` if the queue of the log is full.
    pub async fn update_priorities(&self, update: PriorityUpdate) -> Result<UpdatedPriorities, RequestError> {
        let request = v1::UpdatePrioritiesRequest::from(update);
        Ok(self.client.clone().update_priorities(request).await?.into_inner())
    }

    /// Changes the settings of a table while it serves, and returns the settings in force, by key.
    ///
    /// # Errors
    /// [`RequestError`]; `INVALID_ARGUMENT` for a value out of range, `RESOURCE_EXHAUSTED` if the log accepts no writes
    /// now.
    pub async fn configure(&self, change: TableChange) -> Result<BTreeMap<String, String>, RequestError> {
        let response = self.client.clone().configure(change).await?.into_inner();
        Ok(operator::checked_settings(response.settings)?)
    }

    /// Excludes a trajectory from sampling. Returns true if the table held it.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn report(&self, report: Report) -> Result<bool, RequestError> {
        let v1::ReportResponse { held } =
            self.client.clone().report(v1::ReportRequest::from(report)).await?.into_inner();
        Ok(held)
    }
}

/// Checks that `id` may follow `ids`.
fn check_next(ids: &[TrajectoryId], id: TrajectoryId, query: &ListQuery) -> Result<(), Invalid> {
    let &ListQuery { order, after, limit, .. } = query;
    if limit.is_some_and(|limit| ids.len() as u64 >= limit.get()) {
        return Err(convert::invalid("id", format!("{id} exceeds the limit of {} ids", ids.len())));
    }
    let ascends = ids.last().copied().or(after).is_none_or(|before| id > before);
    if order == ListOrder::ASCENDING && !ascends {
        return Err(convert::invalid("id", format!("{id} does not ascend")));
    }
    Ok(())
}

/// Returns the size and counters of the main table of the server at `endpoint`.
///
/// # Errors
/// [`RequestError`].
pub async fn stats(endpoint: &str) -> Result<TableStats, RequestError> {
    Inspector::new(endpoint)?.stats().await
}

/// Excludes a trajectory from sampling at the server at `endpoint`. Returns true if the table held it.
///
/// # Errors
/// [`RequestError`].
pub async fn report(endpoint: &str, trajectory: TrajectoryId, ply: usize, reason: &str) -> Result<bool, RequestError> {
    Inspector::new(endpoint)?.report(Report { trajectory, ply, reason: reason.to_owned() }).await
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use experience::TrajectoryId;
    use tonic::{Code, Status};

    use super::{Inspector, RequestError, check_next, report, stats};
    use crate::replay::{ListQuery, Quarantine, SearchQuery, Suspect, TableStats};
    use crate::scripted::{ReplayScript, trajectory, within};

    fn id(sequence: u64) -> TrajectoryId {
        TrajectoryId { actor: 7, epoch: 3, sequence }
    }

    #[tokio::test]
    async fn stats_are_those_of_the_table() {
        let table = TableStats { items: 12, samples_per_insert: 0.5, ..TableStats::default() };
        let server = ReplayScript::holding(table.clone(), Vec::new()).await;
        assert_eq!(within(stats(&server.endpoint())).await.unwrap(), table);
    }

    #[tokio::test]
    async fn ids_are_listed_above_a_given_id_and_up_to_a_limit() {
        let server = ReplayScript::holding(TableStats::default(), (0..5).map(id).collect()).await;
        let inspector = Inspector::new(&server.endpoint()).unwrap();
        let list = async |after: Option<u64>, limit| {
            let query = ListQuery { after: after.map(id), limit: NonZeroU64::new(limit), ..ListQuery::default() };
            within(inspector.list(query)).await.unwrap()
        };
        assert_eq!(list(None, 0).await, (0..5).map(id).collect::<Vec<_>>());
        assert_eq!(list(Some(1), 2).await, [id(2), id(3)]);
        assert_eq!(list(Some(4), 0).await, []);
    }

    #[tokio::test]
    async fn ids_that_do_not_ascend_are_an_invalid_answer() {
        for ids in [[id(0), id(2), id(1)], [id(0), id(1), id(1)]] {
            let server = ReplayScript::holding(TableStats::default(), ids.into()).await;
            let error =
                within(Inspector::new(&server.endpoint()).unwrap().list(ListQuery::default())).await.unwrap_err();
            assert!(matches!(&error, RequestError::Answer(invalid) if invalid.field == "id"), "{error}");
        }
    }

    #[test]
    fn ids_over_the_requested_limit_are_an_invalid_answer() {
        let query = ListQuery { limit: NonZeroU64::new(2), ..ListQuery::default() };
        assert_eq!(check_next(&[id(0)], id(1), &query), Ok(()));
        let fault = check_next(&[id(0), id(1)], id(2), &query).unwrap_err();
        assert_eq!(fault.to_string(), "id: 7-3-2 exceeds the limit of 2 ids");
    }

    #[tokio::test]
    async fn pages_follow_each_other_by_cursor_and_a_page_over_the_limit_is_an_invalid_answer() {
        let server = ReplayScript::holding(TableStats::default(), (0..5).map(id).collect()).await;
        let inspector = Inspector::new(&server.endpoint()).unwrap();
        let search = async |cursor, limit| {
            within(inspector.search(SearchQuery { cursor, limit, ..SearchQuery::default() })).await
        };
        let (mut sequences, mut cursor) = (Vec::new(), None);
        for (found, is_last) in [(2, false), (2, false), (1, true)] {
            let page = search(cursor, 2).await.unwrap();
            assert_eq!((page.found.len(), page.next.is_none()), (found, is_last));
            sequences.extend(page.found.iter().map(|found| found.id.sequence));
            cursor = page.next;
        }
        assert_eq!(sequences, [0, 1, 2, 3, 4]);
        // The script sends pages of two trajectories, whatever the limit.
        let error = search(None, 1).await.unwrap_err();
        assert!(matches!(&error, RequestError::Answer(invalid) if invalid.field == "found"), "{error}");
    }

    #[tokio::test]
    async fn a_report_returns_whether_the_table_held_the_trajectory() {
        let server = ReplayScript::holding(TableStats::default(), vec![id(1)]).await;
        assert!(within(report(&server.endpoint(), id(1), 3, "the column is full")).await.unwrap());
        assert!(!within(report(&server.endpoint(), id(2), 3, "the column is full")).await.unwrap());
    }

    #[tokio::test]
    async fn getting_an_unknown_trajectory_returns_none_and_quarantining_it_fails() {
        let server = ReplayScript::holding(TableStats::default(), vec![id(1)]).await;
        let inspector = Inspector::new(&server.endpoint()).unwrap();
        assert_eq!(within(inspector.get(id(1))).await.unwrap().unwrap().trajectory, trajectory(1));
        assert_eq!(within(inspector.get(id(2))).await.unwrap(), None);
        let quarantine = |suspect| inspector.quarantine(Quarantine { suspect, reason: "too good".into() });
        assert_eq!(within(quarantine(Suspect::Trajectory(id(1)))).await.unwrap(), 1);
        assert!(within(quarantine(Suspect::Trajectory(id(2)))).await.is_err());
    }

    #[test]
    fn errors_are_explained_in_words() {
        let explained = |code| RequestError::from(Status::new(code, "why")).explained();
        assert_eq!(explained(Code::Unimplemented), "The replay server is too old for this request: why.");
        assert_eq!(explained(Code::ResourceExhausted), "The replay server is busy: why.");
        assert_eq!(explained(Code::Internal), "The replay server rejected the request: why.");
    }

    #[tokio::test]
    async fn an_unreachable_server_and_a_wrong_endpoint_are_different_errors() {
        let away = within(stats("http://127.0.0.1:0")).await.unwrap_err();
        assert!(matches!(away, RequestError::Status(_)), "{away}");
        let wrong = within(stats("127.0.0.1:0")).await.unwrap_err();
        assert!(matches!(wrong, RequestError::Endpoint(_)), "{wrong}");
    }
}
