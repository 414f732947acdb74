//! Fetches stored trajectories from the replay servers in advance, and sends new searches to the source server.
//! Requests go to all servers in turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proto::replay::{Choice, MAIN_TABLE, RequestError, Revisable, Revised, Reviser};
use proto::weights::Published;
use service::Drain;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use transport::servers::{Server, Servers};

use crate::metrics;

/// Maximum number of trajectories fetched in advance: few, because other actors may revise them meanwhile.
const STORED_MAX: usize = 2;
/// Maximum number of new searches waiting to be sent.
const SEARCHED_MAX: usize = 16;
/// Time between two requests after no server had a trajectory to search.
const NOTHING_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two requests after a failure.
const FAILED_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time to wait for responses to new searches before exit.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(1);

/// The latest weights, `None` before the first.
type Weights = watch::Receiver<Option<Arc<Published>>>;

/// A trajectory to search again.
pub(crate) struct Stored {
    pub(crate) reviser: Reviser,
    pub(crate) revisable: Revisable,
}

/// A trajectory with new searches, and the revision of the searches to replace.
pub(crate) struct Searched {
    pub(crate) reviser: Reviser,
    pub(crate) revisable: Revisable,
    /// Number of searched positions.
    pub(crate) positions: usize,
}

/// The channels that connect the searching thread to the exchange tasks.
pub(crate) struct Desk {
    pub(crate) stored: mpsc::Receiver<Stored>,
    pub(crate) searched: mpsc::Sender<Searched>,
}

/// The exchange tasks of one thread.
pub(crate) struct Exchange {
    fetching: JoinHandle<()>,
    sending: JoinHandle<()>,
}

impl Exchange {
    /// Starts the tasks. Must be called on a tokio runtime.
    pub(crate) fn start(servers: Servers, weights: Weights, drain: &Drain) -> (Self, Desk) {
        let (stored_sender, stored) = mpsc::channel(STORED_MAX);
        let (searched, searched_receiver) = mpsc::channel(SEARCHED_MAX);
        let fetch = Fetch { servers, weights, revisers: BTreeMap::new(), turn: 0, has_failed: false };
        let fetching = drain.token().run_until_cancelled_owned(fetch.run(stored_sender));
        let exchange = Self {
            fetching: tokio::spawn(async move {
                let _ = fetching.await;
            }),
            sending: tokio::spawn(send(searched_receiver, drain.clone())),
        };
        (exchange, Desk { stored, searched })
    }

    /// Waits for the tasks, which stop once the process drains.
    pub(crate) async fn join(self) {
        for task in [self.fetching, self.sending] {
            if let Err(error) = task.await {
                tracing::error!(%error, "reanalysis task failed");
            }
        }
    }
}

struct Fetch {
    servers: Servers,
    weights: Weights,
    /// Clients by endpoint.
    revisers: BTreeMap<Arc<str>, Reviser>,
    /// Number of requests so far.
    turn: usize,
    /// True while requests fail: logs the first failure and the recovery.
    has_failed: bool,
}

impl Fetch {
    /// Fetches a trajectory whenever there is room, forever.
    async fn run(mut self, stored: mpsc::Sender<Stored>) {
        while let Ok(permit) = stored.reserve().await {
            match self.next().await {
                Ok(Some(stored)) => permit.send(stored),
                Ok(None) => {
                    drop(permit);
                    tokio::time::sleep(NOTHING_INTERVAL).await;
                }
                Err(error) => {
                    drop(permit);
                    metrics::reanalysis_refused("failed", 1);
                    if !std::mem::replace(&mut self.has_failed, true) {
                        let error = service::chain(&error.into());
                        tracing::warn!(
                            error,
                            "cannot fetch stored trajectories; reanalysis waits, self-play continues"
                        );
                    }
                    tokio::time::sleep(FAILED_INTERVAL).await;
                }
            }
        }
    }

    /// Asks each server in turn for a trajectory that the latest weights have not searched; returns `None` if no server
    /// has any.
    async fn next(&mut self) -> Result<Option<Stored>, RequestError> {
        let newest = self.weights.borrow().as_ref().map(|published| published.manifest.version);
        let Some(older_than) = newest.filter(|version| version.0 > 0) else { return Ok(None) };
        let set = self.servers.current();
        self.revisers.retain(|endpoint, _| set.iter().any(|server| server.endpoint == *endpoint));
        for _ in 0..set.len() {
            let server = &set[self.turn % set.len()];
            self.turn = self.turn.wrapping_add(1);
            let reviser = self.reviser(server)?;
            let choice = Choice { table: MAIN_TABLE.to_owned(), older_than };
            let chosen = reviser.choose(choice).await?;
            if std::mem::take(&mut self.has_failed) {
                tracing::info!("fetching stored trajectories again");
            }
            if let Some(revisable) = chosen {
                return Ok(Some(Stored { reviser, revisable }));
            }
        }
        Ok(None)
    }

    fn reviser(&mut self, server: &Server) -> Result<Reviser, RequestError> {
        if let Some(reviser) = self.revisers.get(&server.endpoint) {
            return Ok(reviser.clone());
        }
        let reviser = Reviser::new(&server.endpoint)?;
        self.revisers.insert(Arc::clone(&server.endpoint), reviser.clone());
        Ok(reviser)
    }
}

/// Sends new searches until the channel closes; after the drain only for a short time.
async fn send(mut searched: mpsc::Receiver<Searched>, drain: Drain) {
    let sending = async {
        while let Some(Searched { reviser, revisable, positions }) = searched.recv().await {
            let id = revisable.trajectory.id();
            match reviser.revise(revisable).await {
                Ok(Revised::Replaced(_)) => metrics::revised(positions),
                Ok(Revised::Refused(refusal, reason)) => {
                    metrics::reanalysis_refused(refusal.name(), 1);
                    tracing::debug!(%id, refusal = refusal.name(), reason, "the replay server refused a revision");
                }
                Err(error) => {
                    metrics::reanalysis_refused("failed", 1);
                    tracing::debug!(%id, error = service::chain(&error.into()), "no response to the sent revision");
                }
            }
        }
    };
    let deadline = async {
        drain.wait().await;
        tokio::time::sleep(LAST_ANSWERS_MAX).await;
    };
    tokio::select! {
        () = sending => {}
        () = deadline => {}
    }
}
