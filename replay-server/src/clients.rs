//! The shares of the clients that insert: how much of the server each may take, however many streams it opens.

use std::sync::Arc;

use proto::security::SharedByKey;
use tokio::sync::Semaphore;

use crate::insert_stream::INSERT_CREDIT;
use crate::table_service::IN_LOG_MAX;

/// The unanswered trajectories of one client over all its streams: those of three commits, which keep the log busy.
/// Before the log, clients share the server in proportion to their unanswered trajectories.
pub(crate) const CLIENT_CREDIT: usize = IN_LOG_MAX + IN_LOG_MAX / 2;

/// The messages of one client that are handled before those of others have their turn, over all its streams.
const MESSAGES_PER_TURN: usize = INSERT_CREDIT as usize / 2;

/// The messages of one stream that are handled in a turn without credentials, which is without clients to be fair to.
const ANONYMOUS_MESSAGES_PER_TURN: usize = 32;

/// The clients with open streams: the holders of tokens or certificates.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: SharedByKey<Arc<str>, Client>,
    /// Held by each client as well.
    all: Arc<()>,
}

/// A client, which all its streams hold, and nothing else.
#[derive(Debug)]
struct Client {
    /// A trajectory takes one until it is answered.
    credits: Arc<Semaphore>,
    all: Arc<()>,
}

/// The share of one stream in what its client may take.
#[derive(Debug)]
pub(crate) struct Share {
    /// `None` without credentials.
    client: Option<Arc<Client>>,
}

impl Clients {
    /// Returns the share of a new stream of the client with this name.
    pub(crate) fn share(&self, name: Option<&Arc<str>>) -> Share {
        let new = || Client { credits: Arc::new(Semaphore::new(CLIENT_CREDIT)), all: Arc::clone(&self.all) };
        Share { client: name.map(|name| self.open.get_or_make(Arc::clone(name), new)) }
    }
}

impl Share {
    /// Returns the credits of the client; `None` without a limit.
    pub(crate) fn credits(&self) -> Option<Arc<Semaphore>> {
        self.client.as_ref().map(|client| Arc::clone(&client.credits))
    }

    /// Returns the number of messages to handle before other streams have their turn. Decoding takes most of the time
    /// of a busy server, so that equal turns of streams would give the server to the client with the most of them. A
    /// client alone has full turns, since short ones cost.
    pub(crate) fn messages_per_turn(&self) -> usize {
        match &self.client {
            None => ANONYMOUS_MESSAGES_PER_TURN,
            // The other reference is that of `Clients`.
            Some(client) if Arc::strong_count(&client.all) == 2 => MESSAGES_PER_TURN,
            Some(client) => (MESSAGES_PER_TURN / Arc::strong_count(client)).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_equal_turns_whatever_the_number_of_their_streams_and_one_alone_has_full_turns() {
        let clients = Clients::default();
        let [many, one]: [Arc<str>; 2] = ["many".into(), "one".into()];
        let streams: Vec<Share> = (0..64).map(|_| clients.share(Some(&many))).collect();
        assert!(streams.iter().all(|stream| stream.messages_per_turn() == MESSAGES_PER_TURN));
        let other = clients.share(Some(&one));
        assert!(streams.iter().all(|stream| stream.messages_per_turn() == MESSAGES_PER_TURN / 64));
        assert_eq!(other.messages_per_turn(), MESSAGES_PER_TURN);
        drop(other);
        assert_eq!(streams[0].messages_per_turn(), MESSAGES_PER_TURN);
        assert_eq!(clients.share(None).messages_per_turn(), ANONYMOUS_MESSAGES_PER_TURN);
    }
}
