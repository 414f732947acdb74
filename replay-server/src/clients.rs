//! Divides the server among the inserting clients, and limits what each client may use, however many streams it opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use transport::security::SharedByKey;

use crate::insert_stream::INSERT_CREDIT;
use crate::table_service::IN_LOG_MAX;

/// Maximum number of unanswered trajectories of one client over all streams: three commits, which keep the log busy.
/// Before the log, clients share the server in proportion to unanswered trajectories.
pub(crate) const CLIENT_CREDIT: usize = IN_LOG_MAX + IN_LOG_MAX / 2;

/// Number of messages that one client may send, over all streams, before the other clients have a turn.
const MESSAGES_PER_TURN: usize = INSERT_CREDIT as usize / 2;

/// Number of trajectory bytes that count as one more message, so that large trajectories do not lengthen a turn.
const BYTES_PER_MESSAGE: usize = 4 << 10;

/// Number of messages in a turn of a stream without credentials, for which no client is known.
const ANONYMOUS_MESSAGES_PER_TURN: usize = 32;

/// Clients with open streams: the holders of tokens or certificates.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: SharedByKey<Arc<str>, Client>,
    /// A reference that each client also holds, to count the clients.
    all: Arc<()>,
}

/// A client, held by all streams of the client and by nothing else.
#[derive(Debug)]
struct Client {
    /// One credit per unanswered trajectory. `None` without a limit.
    credits: Option<Arc<Semaphore>>,
    /// The permit of the stream that has the client's turn. Streams wait for the permit in order.
    turn: Arc<Semaphore>,
    /// Number of messages handled in this turn, over all streams.
    handled: AtomicUsize,
    messages_per_turn: usize,
    all: Arc<()>,
}

/// One stream's part in what the client may use.
#[derive(Debug)]
pub(crate) struct Share {
    client: Arc<Client>,
    /// The client's turn, while this stream has it.
    turn: Option<OwnedSemaphorePermit>,
    /// True once the client has used up the messages of a turn.
    is_turn_over: bool,
}

impl Clients {
    /// Registers a new stream of the client `name`; a stream without a name counts as a separate client.
    pub(crate) fn share(&self, name: Option<&Arc<str>>) -> Share {
        let client = |credits, messages_per_turn, all| {
            let (turn, handled) = (Arc::new(Semaphore::new(1)), AtomicUsize::new(0));
            Client { credits, turn, handled, messages_per_turn, all }
        };
        let named = || client(Some(Arc::new(Semaphore::new(CLIENT_CREDIT))), MESSAGES_PER_TURN, Arc::clone(&self.all));
        let client = match name {
            Some(name) => self.open.get_or_make(Arc::clone(name), named),
            None => Arc::new(client(None, ANONYMOUS_MESSAGES_PER_TURN, Arc::default())),
        };
        Share { client, turn: None, is_turn_over: false }
    }
}

impl Share {
    /// Returns the credits of the client; `None` without a limit.
    pub(crate) fn credits(&self) -> Option<Arc<Semaphore>> {
        self.client.credits.clone()
    }

    /// Waits until no other stream of the client has the turn, as long as there are other clients. Decoding takes
    /// most of the time on a busy server, so turns of streams would give the server to the client with the most
    /// streams. The streams of a sole client are decoded by all threads. Cancel-safe.
    pub(crate) async fn begin_turn(&mut self) {
        // `Clients` holds one reference.
        if self.turn.is_none() && Arc::strong_count(&self.client.all) > 2 {
            self.turn = Arc::clone(&self.client.turn).acquire_owned().await.ok();
        }
    }

    /// Returns true while this stream has the turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Counts a message with a trajectory of `bytes` bytes.
    pub(crate) fn handled(&mut self, bytes: usize) {
        let messages = 1 + bytes / BYTES_PER_MESSAGE;
        if self.client.handled.fetch_add(messages, Ordering::Relaxed) + messages >= self.client.messages_per_turn {
            self.client.handled.store(0, Ordering::Relaxed);
            self.is_turn_over = true;
        }
    }

    /// Lets other tasks run and then passes the turn on, if the client has used up the messages of the turn. The
    /// order matters, since tokio at once runs the stream that is woken.
    pub(crate) async fn pause(&mut self) {
        if std::mem::take(&mut self.is_turn_over) {
            yield_now().await;
            self.end_turn();
        }
    }

    /// Passes the turn to the next stream of the client.
    pub(crate) fn end_turn(&mut self) {
        self.turn = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::task::JoinSet;

    use super::*;

    /// Starts streams that always have a message; returns the handled messages of each stream.
    fn busy(streams: &mut JoinSet<()>, shares: Vec<Share>) -> Vec<Arc<AtomicUsize>> {
        let start = |mut share: Share| {
            let handled = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&handled);
            streams.spawn(async move {
                loop {
                    share.begin_turn().await;
                    share.handled(0);
                    count.fetch_add(1, Ordering::Relaxed);
                    share.pause().await;
                }
            });
            handled
        };
        shares.into_iter().map(start).collect()
    }

    #[tokio::test]
    async fn clients_have_equal_turns_whatever_the_number_of_their_streams() {
        let (clients, mut streams) = (Clients::default(), JoinSet::new());
        let shares = |name: &str, count| (0..count).map(|_| clients.share(Some(&name.into()))).collect();
        let [many, one] = [shares("many", 64), shares("one", 1)].map(|shares| busy(&mut streams, shares));
        let turns = |handled: &Arc<AtomicUsize>| handled.load(Ordering::Relaxed) / MESSAGES_PER_TURN;
        while turns(&one[0]) < 100 {
            yield_now().await;
        }
        let turns: Vec<usize> = many.iter().map(turns).collect();
        assert!((99..=101).contains(&turns.iter().sum::<usize>()), "{turns:?} beside 100");
        assert!(turns.iter().all(|turns| (1..=2).contains(turns)), "{turns:?}");
    }

    #[test]
    fn streams_wait_for_each_other_only_beside_another_client() {
        let clients = Clients::default();
        let [mut first, mut second, mut nameless] =
            [Some("many"), Some("many"), None].map(|name| clients.share(name.map(Into::into).as_ref()));
        let begin = |share: &mut Share| share.begin_turn().now_or_never().is_some();
        assert!(begin(&mut first) && begin(&mut second) && begin(&mut nameless));
        let mut other = clients.share(Some(&"one".into()));
        assert!(begin(&mut first) && !begin(&mut second) && begin(&mut other) && begin(&mut nameless));
        first.end_turn();
        assert!(begin(&mut second) && !begin(&mut first));
        drop(other);
        assert!(begin(&mut first));
    }

    #[test]
    fn large_trajectories_make_turns_short() {
        let mut share = Clients::default().share(Some(&"one".into()));
        let mut is_over_after = |bytes| {
            share.handled(bytes);
            std::mem::take(&mut share.is_turn_over)
        };
        let half = MESSAGES_PER_TURN / 2 * BYTES_PER_MESSAGE;
        assert!(!is_over_after(half) && is_over_after(half) && !is_over_after(BYTES_PER_MESSAGE - 1));
    }
}
