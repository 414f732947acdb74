use std::collections::VecDeque;
use std::future::pending;

use rand::SeedableRng as _;
use tokio::time::{Instant, sleep};

use super::*;

const NOWHERE: &str = "http://127.0.0.1:0";
/// On the paused clock of a test: when nothing else can happen.
const LATER: Duration = Duration::from_secs(3600);

/// A client whose streams end as it was told; then one lasts.
#[derive(Debug, Default)]
struct Told {
    ends: VecDeque<Result<(), Broken>>,
    endpoint: &'static str,
    /// Whether each stream does something that is worth a quick return.
    progresses: bool,
    is_finished: bool,
    /// When streams were opened.
    opened: Vec<Instant>,
    broke: usize,
}

impl Client for Told {
    const STREAM: &'static str = "told";

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

fn breaking(times: usize) -> Told {
    Told { endpoint: NOWHERE, ends: (0..times).map(|_| Err(Broken::Ended)).collect(), ..Told::default() }
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

async fn after_a_while(client: Told) -> Told {
    Reconnecting::start(client, rng()).finish(sleep(LATER)).await
}

fn waited(client: &Told) -> Vec<Duration> {
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
        // Timers go by the millisecond.
        assert!(waited >= delay && waited <= delay + Duration::from_millis(2), "{waited:?} instead of {delay:?}");
    }
    assert_eq!(client.opened.len(), 13);
}

#[tokio::test(start_paused = true)]
async fn whatever_is_worth_a_quick_return_starts_the_delays_over() {
    let client = after_a_while(Told { progresses: true, ..breaking(12) }).await;
    assert!(waited(&client).iter().all(|waited| *waited < Duration::from_millis(60)), "{:?}", waited(&client));
}

#[tokio::test(start_paused = true)]
async fn a_client_with_nothing_left_to_do_waits_for_no_server() {
    let start = Instant::now();
    let client = after_a_while(Told { is_finished: true, ..breaking(9) }).await;
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
    let client = after_a_while(Told { endpoint: "nowhere", ..Told::default() }).await;
    assert!(client.opened.is_empty() && client.broke > 1, "{client:?}");
}

#[test]
fn what_waiting_may_cure_is_told_apart_from_mistakes() {
    let invalid = || Invalid { field: "game".into(), reason: "is empty".into() };
    for (broken, is_mistake) in [
        (Broken::Ended, false),
        (Status::unavailable("").into(), false),
        (Status::resource_exhausted("").into(), false),
        (Status::unknown("connection reset").into(), false),
        (Status::invalid_argument("game").into(), true),
        (Status::failed_precondition("").into(), true),
        (Status::unimplemented("").into(), true),
        (invalid().into(), true),
        (Fault::Invalid(invalid()).into(), true),
        (AssemblyError::TooLong { size_bytes: 1 }.into(), true),
        (InvalidEndpoint { endpoint: "nowhere".into() }.into(), true),
    ] {
        assert_eq!(broken.is_mistake(), is_mistake, "{broken}");
    }
}
