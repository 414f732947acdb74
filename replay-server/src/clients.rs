//! The shares of the clients that insert: how much of the server each may take, however many streams it opens.

use std::sync::Arc;

use proto::security::{Caller, SharedByKey};
use tokio::sync::Semaphore;

use crate::insert_stream::INSERT_CREDIT;
use crate::table_service::IN_LOG_MAX;

/// The unanswered trajectories of one client over all its streams: those of three commits, which keep the log busy.
/// Before the log, clients share the server in proportion to their unanswered trajectories.
pub(crate) const CLIENT_CREDIT: usize = IN_LOG_MAX + IN_LOG_MAX / 2;

/// The messages of one client that are handled before those of others have their turn, over all its streams.
const MESSAGES_PER_TURN: usize = INSERT_CREDIT as usize / 2;

/// The messages of one stream that are handled in a turn where clients cannot be told apart.
const ANONYMOUS_MESSAGES_PER_TURN: usize = 32;

/// The clients with open streams: the holders of tokens or certificates.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: SharedByKey<Arc<str>, Credits>,
}

/// The credits of a client. A trajectory takes one until it is answered.
#[derive(Debug)]
struct Credits(Arc<Semaphore>);

/// The share of one stream in what its client may take.
#[derive(Debug)]
pub(crate) struct Share {
    /// Held by all streams of the client, and by nothing else; `None` without credentials.
    client: Option<Arc<Credits>>,
}

impl Clients {
    /// Returns the share of a new stream of `caller`.
    pub(crate) fn share(&self, caller: &Caller) -> Share {
        let credits = || Credits(Arc::new(Semaphore::new(CLIENT_CREDIT)));
        Share { client: caller.name().map(|name| self.open.get_or_make(Arc::clone(name), credits)) }
    }
}

impl Share {
    /// Returns the credits of the client; `None` without a limit.
    pub(crate) fn credits(&self) -> Option<Arc<Semaphore>> {
        self.client.as_ref().map(|client| Arc::clone(&client.0))
    }

    /// Returns the number of messages to handle before other streams have their turn. Decoding takes most of the time
    /// of a busy server, so that equal turns would give the server to the client with the most streams.
    pub(crate) fn messages_per_turn(&self) -> usize {
        match &self.client {
            None => ANONYMOUS_MESSAGES_PER_TURN,
            Some(client) => (MESSAGES_PER_TURN / Arc::strong_count(client)).max(1),
        }
    }
}
