//! The task that all stream clients share: it opens one stream after another, with growing delays in between.
//!
//! A [`Client`] defines the work on a stream and reports when no work is left; [`Reconnecting`] owns the task and
//! stops it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Status};

pub use crate::backoff::{Backoff, entropy};
use crate::channel::{Channel, InvalidEndpoint, channel};

/// A client that uses one stream at a time.
pub trait Client: Send + 'static {
    /// Name of the streams in the log.
    const STREAM: &'static str;

    /// Endpoint of the server.
    fn endpoint(&self) -> Arc<str>;

    /// Runs one stream from opening to closing; returns `Ok` if no work is left. Progress that justifies a quick
    /// reconnection resets `backoff`.
    fn stream(&mut self, channel: Channel, backoff: &mut Backoff) -> impl Future<Output = Result<(), Broken>> + Send;

    /// Records that a stream broke; another will be opened.
    fn broke(&mut self, broken: &Broken);

    /// Resolves once no work is left, so that the task does not wait for an unreachable server. Cancel-safe.
    fn finished(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// A reason why a stream closed.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The stream was not opened, because the endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// The server or the connection failed.
    #[error(transparent)]
    Status(#[from] Status),
    /// A message from the server is invalid, either in itself or after the earlier messages.
    #[error(transparent)]
    Invalid(Box<dyn Error + Send + Sync>),
    /// This client closed the stream, to use another server.
    #[error("switched to another server")]
    Moved,
    /// The server closed the stream without an error.
    #[error("the server closed the stream")]
    Ended,
}

impl Broken {
    /// Closes a stream because of an invalid message.
    pub fn invalid(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Invalid(Box::new(error))
    }

    /// Returns true for an error that retries do not resolve, so that a person must act.
    fn is_mistake(&self) -> bool {
        match self {
            Self::Status(status) => matches!(
                status.code(),
                Code::InvalidArgument
                    | Code::FailedPrecondition
                    | Code::Unimplemented
                    | Code::Unauthenticated
                    | Code::PermissionDenied
            ),
            Self::Moved | Self::Ended => false,
            Self::Endpoint(_) | Self::Invalid(_) => true,
        }
    }
}

/// The task of a client. Dropping the handle stops the task.
#[derive(Debug)]
pub struct Reconnecting<C> {
    task: JoinHandle<C>,
    stop: DropGuard,
}

impl<C: Client> Reconnecting<C> {
    /// Starts the task; `rng` draws the jitter of the delays. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(client: C, rng: ChaCha8Rng) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(client, Backoff::new(rng), stop.clone()));
        Self { task, stop: stop.drop_guard() }
    }

    /// Closes the current stream and returns the client.
    pub async fn stop(self) -> C {
        self.finish(std::future::ready(())).await
    }

    /// Waits until no work is left, at most until `deadline` resolves, and returns the client.
    pub async fn finish(self, deadline: impl Future<Output = ()>) -> C {
        let Self { mut task, stop } = self;
        let finished = tokio::select! {
            biased;
            joined = &mut task => Some(joined),
            () = deadline => None,
        };
        drop(stop);
        let joined = match finished {
            Some(joined) => joined,
            None => task.await,
        };
        joined.expect("the task of a client does not panic")
    }
}

/// Waits until `moment`, or forever if it is `None`.
pub async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn run<C: Client>(mut client: C, backoff: Backoff, stop: CancellationToken) -> C {
    let _ = stop.run_until_cancelled(reconnect(&mut client, backoff)).await;
    client
}

/// Opens one stream after another until no work is left.
async fn reconnect<C: Client>(client: &mut C, mut backoff: Backoff) {
    while let Err(broken) = open(client, &mut backoff).await {
        let delay = backoff.delay();
        log_break::<C>(&client.endpoint(), &broken, delay);
        client.broke(&broken);
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = client.finished() => return,
        }
    }
}

async fn open<C: Client>(client: &mut C, backoff: &mut Backoff) -> Result<(), Broken> {
    let channel = channel(&client.endpoint())?;
    client.stream(channel, backoff).await
}

fn log_break<C: Client>(endpoint: &str, broken: &Broken, delay: Duration) {
    let (stream, delay_ms) = (C::STREAM, delay.as_millis());
    if broken.is_mistake() {
        tracing::error!(endpoint, %broken, delay_ms, "{stream} stream broke");
    } else {
        tracing::info!(endpoint, %broken, delay_ms, "{stream} stream broke");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::pending;

    use rand::SeedableRng as _;
    use tokio::time::{Instant, sleep};

    use super::*;

    const NOWHERE: &str = "http://127.0.0.1:0";
    /// A time on the paused clock of a test, after the last event.
    const LATER: Duration = Duration::from_secs(3600);

    /// A client with streams that close as scripted; the stream after the last scripted one stays open.
    #[derive(Debug, Default)]
    struct ScriptedClient {
        ends: VecDeque<Result<(), Broken>>,
        endpoint: &'static str,
        /// True if each stream makes progress that justifies a quick reconnection.
        progresses: bool,
        is_finished: bool,
        /// Opening times of the streams.
        opened: Vec<Instant>,
        broke: usize,
    }

    impl Client for ScriptedClient {
        const STREAM: &'static str = "scripted";

        fn endpoint(&self) -> Arc<str> {
            self.endpoint.into()
        }

        async fn stream(&mut self, _: Channel, backoff: &mut Backoff) -> Result<(), Broken> {
            self.opened.push(Instant::now());
            if self.progresses {
                backoff.reset();
            }
            match self.ends.pop_front() {
                Some(end) => end,
                None => pending().await,
            }
        }

        fn broke(&mut self, _: &Broken) {
            self.broke += 1;
        }

        async fn finished(&mut self) {
            if !self.is_finished {
                pending().await
            }
        }
    }

    fn breaking(times: usize) -> ScriptedClient {
        ScriptedClient {
            endpoint: NOWHERE,
            ends: (0..times).map(|_| Err(Broken::Ended)).collect(),
            ..ScriptedClient::default()
        }
    }

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1)
    }

    async fn after_a_while(client: ScriptedClient) -> ScriptedClient {
        Reconnecting::start(client, rng()).finish(sleep(LATER)).await
    }

    fn waited(client: &ScriptedClient) -> Vec<Duration> {
        client.opened.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn streams_are_opened_until_one_leaves_nothing_to_do() {
        let mut client = breaking(2);
        client.ends.push_back(Ok(()));
        let client = after_a_while(client).await;
        assert_eq!((client.opened.len(), client.broke), (3, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_delays_between_streams_are_those_of_the_rng_that_was_passed_in() {
        let client = after_a_while(breaking(12)).await;
        let mut backoff = Backoff::new(rng());
        for waited in waited(&client) {
            let delay = backoff.delay();
            // Timers have a resolution of one millisecond.
            assert!(waited >= delay && waited <= delay + Duration::from_millis(2), "{waited:?} instead of {delay:?}");
        }
        assert_eq!(client.opened.len(), 13);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_with_progress_starts_the_delays_over() {
        let client = after_a_while(ScriptedClient { progresses: true, ..breaking(12) }).await;
        assert!(waited(&client).iter().all(|waited| *waited < Duration::from_millis(60)), "{:?}", waited(&client));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_nothing_left_to_do_waits_for_no_server() {
        let start = Instant::now();
        let client = after_a_while(ScriptedClient { is_finished: true, ..breaking(9) }).await;
        assert_eq!((client.opened.len(), start.elapsed()), (1, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_deadline_the_stream_under_way_ends_and_the_client_comes_back() {
        let client = after_a_while(breaking(0)).await;
        assert_eq!((client.opened.len(), client.broke), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_waits_for_nothing() {
        let start = Instant::now();
        let _ = Reconnecting::start(breaking(9), rng()).stop().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_endpoint_opens_nothing_and_is_tried_again() {
        let client = after_a_while(ScriptedClient { endpoint: "nowhere", ..ScriptedClient::default() }).await;
        assert!(client.opened.is_empty() && client.broke > 1, "{client:?}");
    }

    #[test]
    fn transient_failures_are_distinguished_from_mistakes() {
        for (broken, is_mistake) in [
            (Broken::Ended, false),
            (Status::unavailable("").into(), false),
            (Status::resource_exhausted("").into(), false),
            (Status::unknown("connection reset").into(), false),
            (Status::invalid_argument("game").into(), true),
            (Status::failed_precondition("").into(), true),
            (Status::unimplemented("").into(), true),
            (Broken::invalid(std::io::Error::other("game is empty")), true),
            (InvalidEndpoint::Malformed { endpoint: "nowhere".into() }.into(), true),
        ] {
            assert_eq!(broken.is_mistake(), is_mistake, "{broken}");
        }
    }
}
