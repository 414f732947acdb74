//! The insert credits of each client: how many of its trajectories may be unanswered at a time, over all its streams.

use std::sync::Arc;

use proto::security::{Caller, SharedByKey};
use tokio::sync::Semaphore;

use crate::table_service::IN_LOG_MAX;

/// The unanswered trajectories of one client: those of three commits, which keep the log busy. Clients share the server
/// in proportion to their unanswered trajectories, so that one with many streams leaves others their part.
pub(crate) const CLIENT_CREDIT: usize = IN_LOG_MAX + IN_LOG_MAX / 2;

/// The credits of all clients with open streams. A client is the holder of a token or certificate; without credentials
/// there are no clients to tell apart, and no limit.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    of_clients: SharedByKey<Arc<str>, Semaphore>,
}

impl Credits {
    /// Returns the credits of the client of a stream. A trajectory takes one until it is answered.
    pub(crate) fn of(&self, caller: &Caller) -> Option<Arc<Semaphore>> {
        let client = Arc::clone(caller.name()?);
        Some(self.of_clients.get_or_make(client, || Semaphore::new(CLIENT_CREDIT)))
    }
}
