//! Computes the deadline of a call from the client's timeout, and stops calls at the deadline.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::metadata::MetadataMap;
use tower_layer::Layer;

/// The header in which a gRPC client states the timeout.
const HEADER: &str = "grpc-timeout";
/// Maximum number of digits in a gRPC timeout.
const DIGITS_MAX: usize = 8;
/// Resolution of tokio's timers.
const TICK: Duration = Duration::from_millis(1);

/// Returns the deadline of a call whose headers arrived at `now`; `None` if the headers have no timeout or an invalid
/// one.
#[must_use]
pub fn of(headers: &MetadataMap, now: Instant) -> Option<Instant> {
    // A timeout beyond the range of the clock sets no deadline.
    now.checked_add(timeout(headers.as_ref())?)
}

/// Returns the earlier of `deadline` and `timeout_us` microseconds after `now`.
#[must_use]
pub fn earlier(deadline: Option<Instant>, timeout_us: Option<u64>, now: Instant) -> Option<Instant> {
    let own = timeout_us.and_then(|us| now.checked_add(Duration::from_micros(us)));
    deadline.into_iter().chain(own).min()
}

/// Returns the request of a call that the server stops after `timeout`.
pub fn with_timeout<T>(message: T, timeout: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(timeout);
    request
}

fn timeout(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(HEADER)?.to_str().ok()?)
}

/// Parses a timeout; `100m` is a hundred milliseconds.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// Stops a call without a response at the deadline, with `DEADLINE_EXCEEDED`, as gRPC requires of servers.
///
/// tonic stops such calls with `CANCELLED`, which clients report as their own cancellation. The timer of this layer
/// starts earlier and is one tick shorter, so tonic's timer never fires first.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines;

impl<S> Layer<S> for Deadlines {
    type Service = Timed<S>;

    fn layer(&self, inner: S) -> Timed<S> {
        Timed { inner }
    }
}

/// A service inside the [`Deadlines`] layer.
#[derive(Debug, Clone)]
pub struct Timed<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Timed<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let timeout = timeout(request.headers());
        let answer = self.inner.call(request);
        let Some(timeout) = timeout else { return Either::Left(answer) };
        // Within one tick both timers could fire at once.
        let Some(timeout) = timeout.checked_sub(TICK).filter(|left| !left.is_zero()) else {
            return Either::Right(Box::pin(std::future::ready(Ok(exceeded()))));
        };
        let answer = tokio::time::timeout(timeout, answer);
        Either::Right(Box::pin(async move { answer.await.unwrap_or_else(|_elapsed| Ok(exceeded())) }))
    }
}

fn exceeded() -> Response<Body> {
    Status::deadline_exceeded("call deadline exceeded").into_http()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tonic::Code;

    use super::*;

    #[test]
    fn every_unit_of_the_header_is_read() {
        for (text, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("99999999S", Duration::from_secs(99_999_999)),
            ("100m", Duration::from_millis(100)),
            ("7u", Duration::from_micros(7)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_malformed_timeout_sets_no_deadline() {
        for text in ["", "S", "5", "5s", "-1S", "+1S", "123456789S", "1 S", "1é", "é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_earlier_deadline_counts() {
        let now = Instant::now();
        let at = |us| Some(now + Duration::from_micros(us));
        assert_eq!(earlier(None, None, now), None);
        assert_eq!(earlier(at(5), None, now), at(5));
        assert_eq!(earlier(None, Some(5), now), at(5));
        assert_eq!(earlier(at(9), Some(5), now), at(5));
        assert_eq!(earlier(at(3), Some(5), now), at(3));
        assert_eq!(earlier(at(3), Some(u64::MAX), now), at(3), "a time beyond the range of the clock is no deadline");
    }

    /// Returns the status of a call with this timeout to a service that responds after `work`, and the time until the
    /// response.
    async fn answer_after(work: Duration, timeout: Option<&str>) -> (Option<Code>, Duration) {
        let service = Deadlines.layer(SlowService(work));
        let mut request = Request::new(Body::empty());
        if let Some(timeout) = timeout {
            request.headers_mut().insert(HEADER, timeout.parse().unwrap());
        }
        let start = tokio::time::Instant::now();
        let Ok(response) = { service }.call(request).await;
        (Status::from_header_map(response.headers()).map(|status| status.code()), start.elapsed())
    }

    #[derive(Clone)]
    struct SlowService(Duration);

    impl Service<Request<Body>> for SlowService {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let work = self.0;
            Box::pin(async move {
                tokio::time::sleep(work).await;
                Ok(Response::new(Body::empty()))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_deadline_exceeded_before_its_timeout_and_others_are_answered() {
        let ms = Duration::from_millis;
        let late = Some(Code::DeadlineExceeded);
        assert_eq!(answer_after(ms(70), Some("50m")).await, (late, ms(49)));
        assert_eq!(answer_after(ms(70), Some("1u")).await, (late, ms(0)));
        assert_eq!(answer_after(ms(70), Some("80m")).await, (None, ms(70)));
        assert_eq!(answer_after(ms(70), None).await, (None, ms(70)));
        assert_eq!(answer_after(ms(70), Some("5s")).await, (None, ms(70)), "a timeout that is invalid in gRPC");
    }
}
