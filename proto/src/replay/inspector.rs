use experience::{Invalid, TrajectoryId};
use tonic::Status;
use tonic::transport::Channel;

use super::{ListQuery, Report, TableStats, client, v1};
use crate::channel::{InvalidEndpoint, channel};
use crate::convert;

/// Looks at a table and reports what is wrong in it: single requests that are not retried.
#[derive(Debug, Clone)]
pub struct Inspector {
    client: v1::replay_client::ReplayClient<Channel>,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It was never sent.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// The server, or the way to it, refused.
    #[error("the replay server refused")]
    Status(#[from] Status),
    /// The answer breaks the protocol.
    #[error("the replay server's answer is invalid")]
    Answer(#[from] Invalid),
}

impl Inspector {
    /// Connects with the first request.
    ///
    /// # Errors
    /// [`InvalidEndpoint`].
    pub fn new(endpoint: &str) -> Result<Self, InvalidEndpoint> {
        Ok(Self { client: client(channel(endpoint)?) })
    }

    /// What the table holds and has done.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn stats(&self) -> Result<TableStats, RequestError> {
        let v1::StatsResponse { table } = self.client.clone().stats(v1::StatsRequest {}).await?.into_inner();
        Ok(convert::required("table", table)?.try_into()?)
    }

    /// The ids that the table holds, ascending. `limit` bounds what is kept in memory here.
    ///
    /// # Errors
    /// [`RequestError`]; ids that do not ascend, or pass the limit, are an invalid answer.
    pub async fn list(&self, query: ListQuery) -> Result<Vec<TrajectoryId>, RequestError> {
        let mut stream = self.client.clone().list(v1::ListRequest::from(query)).await?.into_inner();
        let mut ids: Vec<TrajectoryId> = Vec::new();
        while let Some(id) = stream.message().await? {
            let id = id.into();
            check_next(&ids, id, query)?;
            ids.push(id);
        }
        Ok(ids)
    }

    /// Takes a trajectory out of sampling. Whether the table held it.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn report(&self, report: Report) -> Result<bool, RequestError> {
        let v1::ReportResponse { held } =
            self.client.clone().report(v1::ReportRequest::from(report)).await?.into_inner();
        Ok(held)
    }
}

/// Whether `id` may come after `ids`.
fn check_next(ids: &[TrajectoryId], id: TrajectoryId, ListQuery { after, limit }: ListQuery) -> Result<(), Invalid> {
    if limit.is_some_and(|limit| ids.len() as u64 >= limit.get()) {
        return Err(convert::invalid("id", format!("{id} is over the limit of {} ids", ids.len())));
    }
    if ids.last().copied().or(after).is_some_and(|before| id <= before) {
        return Err(convert::invalid("id", format!("{id} does not ascend")));
    }
    Ok(())
}

/// What the table behind `endpoint` holds and has done.
///
/// # Errors
/// [`RequestError`].
pub async fn stats(endpoint: &str) -> Result<TableStats, RequestError> {
    Inspector::new(endpoint)?.stats().await
}

/// Takes a trajectory out of the sampling of the table behind `endpoint`. Whether the table held it.
///
/// # Errors
/// [`RequestError`].
pub async fn report(endpoint: &str, trajectory: TrajectoryId, ply: usize, reason: &str) -> Result<bool, RequestError> {
    Inspector::new(endpoint)?.report(Report { trajectory, ply, reason: reason.to_owned() }).await
}

#[cfg(test)]
mod tests;
