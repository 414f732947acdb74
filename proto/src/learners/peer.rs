use std::time::Duration;

use bytes::Bytes;
use tonic::{Code, Response, Status};
use transport::deadline::with_timeout;
use transport::{Channel, InvalidEndpoint, channel};

use super::v1::learners_client::LearnersClient;
use super::{Candidate, Look, Roster, Secret, v1};
use crate::convert::Invalid;

/// Another learner. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Peer {
    client: LearnersClient<Channel>,
}

/// A reason why a learner gave no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The learner cannot be reached, or coordinates no group.
    #[error("{reason}")]
    Away {
        /// Human-readable reason, from the status of the call.
        reason: String,
    },
    /// The learner does not respond in time.
    #[error("no response in time")]
    Late,
    /// The learner rejected this learner as a candidate.
    #[error("{reason}")]
    Refused {
        /// Human-readable reason, from the status of the call.
        reason: String,
    },
}

impl Peer {
    /// Returns the learner that listens at `endpoint`; the first question opens a connection.
    ///
    /// # Errors
    /// [`InvalidEndpoint`].
    pub fn new(endpoint: &str) -> Result<Self, InvalidEndpoint> {
        Ok(Self { client: LearnersClient::new(channel(endpoint)?) })
    }

    /// Requests the learner's current activity.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn look(&self, timeout: Duration) -> Result<Look, PeerError> {
        let mut client = self.client.clone();
        let look = answered(client.look(with_timeout(v1::LookRequest {}, timeout)), timeout).await?;
        Ok(Look::try_from(look)?)
    }

    /// Requests a place in the learner's next group, and waits until the list of members is complete.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn join(&self, candidate: &Candidate, timeout: Duration) -> Result<Roster, PeerError> {
        let mut client = self.client.clone();
        let request = with_timeout(v1::JoinRequest::from(candidate), timeout);
        Ok(Roster::try_from(answered(client.join(request), timeout).await?)?)
    }

    /// Leaves an address for the other members, with the coordinator of the group.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn set_address(
        &self,
        Secret(secret): Secret,
        key: &str,
        address: Bytes,
        timeout: Duration,
    ) -> Result<(), PeerError> {
        let message = v1::SetAddressRequest { secret: secret.to_vec().into(), key: key.to_owned(), address };
        let mut client = self.client.clone();
        let v1::SetAddressResponse {} = answered(client.set_address(with_timeout(message, timeout)), timeout).await?;
        Ok(())
    }

    /// Returns an address left by a group member, as soon as it is present.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn get_address(&self, Secret(secret): Secret, key: &str, timeout: Duration) -> Result<Bytes, PeerError> {
        let message = v1::GetAddressRequest { secret: secret.to_vec().into(), key: key.to_owned() };
        let mut client = self.client.clone();
        let v1::GetAddressResponse { address } =
            answered(client.get_address(with_timeout(message, timeout)), timeout).await?;
        Ok(address)
    }
}

/// Returns the response to a call; waits at most `timeout`.
async fn answered<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
    timeout: Duration,
) -> Result<T, PeerError> {
    Ok(tokio::time::timeout(timeout, call).await.map_err(|_| PeerError::Late)??.into_inner())
}

impl From<Invalid> for PeerError {
    fn from(invalid: Invalid) -> Self {
        Self::Refused { reason: invalid.to_string() }
    }
}

impl From<Status> for PeerError {
    fn from(status: Status) -> Self {
        let reason = status.message().to_owned();
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled => Self::Late,
            Code::Unavailable => Self::Away { reason },
            _ => Self::Refused { reason },
        }
    }
}
