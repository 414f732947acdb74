use std::time::Duration;

use experience::{Trajectory, WeightsVersion};
use tonic::{Code, Status};
use transport::deadline::with_timeout;
use transport::{Channel, InvalidEndpoint, channel};

use super::{RequestError, client, v1};
use crate::convert;

/// Time limit of one call: far longer than a disk sync, so that a server that does not respond delays nothing for
/// long.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A request for a trajectory to search again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The table with the window to choose from.
    pub table: String,
    /// The weights version for the new searches, above zero. The server returns only a trajectory whose last step was
    /// searched by an earlier version.
    pub older_than: WeightsVersion,
}

/// A trajectory, and the revision of the searches. New searches carry the revision of the searches to replace.
#[derive(Debug, Clone, PartialEq)]
pub struct Revisable {
    /// The trajectory, with stored or new searches.
    pub trajectory: Trajectory,
    /// The revision: 0 for the searches of self-play, one more after each revision.
    pub revision: u64,
}

/// The result of a sent revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revised {
    /// The new searches are durable, and the trajectory now has this revision.
    Replaced(u64),
    /// The server refused the revision, and nothing has changed.
    Refused(ReviseRefusal, String),
}

/// The kinds of refused revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviseRefusal {
    /// The trajectory was revised in the meantime.
    Stale,
    /// No table holds the trajectory any more.
    Evicted,
    /// The new searches were computed with older weights than the stored searches.
    Older,
    /// The revision is invalid, or belongs to another episode.
    Invalid,
    /// The server has no room for the revision now.
    Busy,
}

impl ReviseRefusal {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 5] = [Self::Stale, Self::Evicted, Self::Older, Self::Invalid, Self::Busy];

    /// Returns the name of the kind, for use as a metric label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Evicted => "evicted",
            Self::Older => "older",
            Self::Invalid => "invalid",
            Self::Busy => "busy",
        }
    }

    /// Returns the status code with which the server sends this refusal.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Self::Stale => Code::Aborted,
            Self::Evicted => Code::NotFound,
            Self::Older => Code::FailedPrecondition,
            Self::Invalid => Code::InvalidArgument,
            Self::Busy => Code::ResourceExhausted,
        }
    }

    fn of(code: Code) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code)
    }
}

/// Replaces the searches of stored trajectories on one server. Each call sends one request and does not retry, because
/// a revision may have been stored even if the response was lost.
#[derive(Debug, Clone)]
pub struct Reviser {
    client: v1::replay_client::ReplayClient<Channel>,
}

impl Reviser {
    /// Creates a reviser, which connects with the first request.
    ///
    /// # Errors
    /// [`InvalidEndpoint`].
    pub fn new(endpoint: &str) -> Result<Self, InvalidEndpoint> {
        Ok(Self { client: client(channel(endpoint)?) })
    }

    /// Returns a trajectory to search again; `None` if there is none now.
    ///
    /// # Errors
    /// [`RequestError`]; `UNIMPLEMENTED` with a reason from a server that predates reanalysis.
    pub async fn choose(&self, choice: Choice) -> Result<Option<Revisable>, RequestError> {
        let request = with_timeout(v1::ChooseRequest::from(choice), CALL_TIMEOUT);
        let response = self.client.clone().choose(request).await.map_err(explained)?;
        Ok(super::convert::revise::choice_from_wire(response.into_inner())?)
    }

    /// Sends new searches of a trajectory, with the revision of the searches to replace.
    ///
    /// # Errors
    /// [`RequestError`] if the server cannot be reached, or violates the protocol: the revision may then be stored or
    /// not.
    pub async fn revise(&self, revised: Revisable) -> Result<Revised, RequestError> {
        let expected = revised.revision + 1;
        match self.client.clone().revise(with_timeout(v1::ReviseRequest::from(revised), CALL_TIMEOUT)).await {
            Ok(response) if response.get_ref().revision == expected => Ok(Revised::Replaced(expected)),
            Ok(response) => {
                let reason = format!("is {}, expected {expected}", response.get_ref().revision);
                Err(convert::invalid("revision", reason).into())
            }
            Err(status) => match ReviseRefusal::of(status.code()) {
                Some(refusal) => Ok(Revised::Refused(refusal, status.message().to_owned())),
                None => Err(explained(status).into()),
            },
        }
    }
}

/// Adds the reason to the bare status of a server without the method.
fn explained(status: Status) -> Status {
    match status.code() {
        Code::Unimplemented => Status::unimplemented(
            "the replay server does not support reanalysis; upgrade the server, or set reanalysis.share to 0",
        ),
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use experience::TrajectoryId;

    use super::*;
    use crate::replay::{MAIN_TABLE, TableStats};
    use crate::scripted::{ReplayScript, WeightsScript, trajectory, within};

    fn choice(older_than: u64) -> Choice {
        Choice { table: MAIN_TABLE.to_owned(), older_than: WeightsVersion(older_than) }
    }

    async fn holding(sequences: &[u64]) -> (ReplayScript, Reviser) {
        let ids = sequences.iter().map(|&sequence| TrajectoryId { actor: 7, epoch: 3, sequence }).collect();
        let server = ReplayScript::holding(TableStats::default(), ids).await;
        let reviser = Reviser::new(&server.endpoint()).unwrap();
        (server, reviser)
    }

    #[tokio::test]
    async fn a_trajectory_of_earlier_weights_is_chosen_with_its_revision_if_there_is_one() {
        let (_server, reviser) = holding(&[1]).await;
        let expected = Revisable { trajectory: trajectory(1), revision: 3 };
        assert_eq!(within(reviser.choose(choice(3))).await.unwrap(), Some(expected));
        // The script's trajectories have version 2.
        assert_eq!(within(reviser.choose(choice(2))).await.unwrap(), None);
        within(reviser.choose(choice(0))).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_refused_revision_has_its_reason_and_an_accepted_one_the_next_number() {
        let (_server, reviser) = holding(&[1]).await;
        let revise = async |sequence, revision| {
            within(reviser.revise(Revisable { trajectory: trajectory(sequence), revision })).await.unwrap()
        };
        assert_eq!(revise(1, 3).await, Revised::Replaced(4));
        assert!(matches!(revise(1, 2).await, Revised::Refused(ReviseRefusal::Stale, _)));
        assert!(matches!(revise(2, 3).await, Revised::Refused(ReviseRefusal::Evicted, _)));
    }

    #[tokio::test]
    async fn a_server_without_these_calls_is_named_as_older() {
        let server = WeightsScript::start().await;
        let reviser = Reviser::new(&server.endpoint()).unwrap();
        let chosen = within(reviser.choose(choice(1))).await.unwrap_err();
        let revised = within(reviser.revise(Revisable { trajectory: trajectory(1), revision: 0 })).await.unwrap_err();
        for error in [chosen, revised] {
            let RequestError::Status(status) = error else { panic!("{error}") };
            assert!(status.message().contains("does not support reanalysis"), "{status}");
        }
    }
}
