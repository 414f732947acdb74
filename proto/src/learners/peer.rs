use std::time::Duration;

use bytes::Bytes;
use tonic::{Code, Request};
use transport::{Channel, InvalidEndpoint, channel};

use super::v1::learners_client::LearnersClient;
use super::{Candidate, Look, Roster, Secret, v1};

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
    /// The learner accepts no candidate like this learner.
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

    /// Asks for the learner's current activity.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn look(&self, timeout: Duration) -> Result<Look, PeerError> {
        let request = with_deadline(v1::LookRequest {}, timeout);
        let mut client = self.client.clone();
        let answered =
            tokio::time::timeout(timeout, client.look(request)).await.map_err(|_| late())?.map_err(PeerError::from)?;
        Look::try_from(answered.into_inner()).map_err(|error| PeerError::Refused { reason: error.to_string() })
    }

    /// Asks for a place in the learner's next group, and waits until the roll is closed.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn join(&self, candidate: &Candidate, timeout: Duration) -> Result<Roster, PeerError> {
        let request = with_deadline(v1::JoinRequest::from(candidate), timeout);
        let mut client = self.client.clone();
        let answered =
            tokio::time::timeout(timeout, client.join(request)).await.map_err(|_| late())?.map_err(PeerError::from)?;
        Roster::try_from(answered.into_inner()).map_err(|error| PeerError::Refused { reason: error.to_string() })
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
        let set = client.set_address(with_deadline(message, timeout));
        tokio::time::timeout(timeout, set).await.map_err(|_| late())?.map_err(PeerError::from)?;
        Ok(())
    }

    /// Returns an address left by a group member, as soon as it is present.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn get_address(&self, Secret(secret): Secret, key: &str, timeout: Duration) -> Result<Bytes, PeerError> {
        let message = v1::GetAddressRequest { secret: secret.to_vec().into(), key: key.to_owned() };
        let mut client = self.client.clone();
        let get = client.get_address(with_deadline(message, timeout));
        let answered = tokio::time::timeout(timeout, get).await.map_err(|_| late())?.map_err(PeerError::from)?;
        Ok(answered.into_inner().address)
    }
}

fn with_deadline<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}

fn late() -> PeerError {
    PeerError::Late
}

impl From<tonic::Status> for PeerError {
    fn from(status: tonic::Status) -> Self {
        let reason = status.message().to_owned();
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled => Self::Late,
            Code::Unavailable => Self::Away { reason },
            _ => Self::Refused { reason },
        }
    }
}
