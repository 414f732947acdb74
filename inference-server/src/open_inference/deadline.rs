//! Deadlines of requests, from the timeouts of clients.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

/// The header with the timeout of a gRPC client.
const HEADER: &str = "grpc-timeout";
/// The maximum number of digits that gRPC allows.
const DIGITS_MAX: usize = 8;

/// Returns the deadline of a client that sent these headers at `now`; `None` without a timeout, or with one that is
/// invalid in gRPC.
pub(super) fn of(headers: &MetadataMap, now: Instant) -> Option<Instant> {
    // A timeout beyond the range of the clock sets no deadline.
    now.checked_add(parse(headers.get(HEADER)?.to_str().ok()?)?)
}

/// Returns the earlier of `deadline` and `timeout_us` microseconds after `now`.
pub(super) fn earlier(deadline: Option<Instant>, timeout_us: Option<u64>, now: Instant) -> Option<Instant> {
    let own = timeout_us.and_then(|us| now.checked_add(Duration::from_micros(us)));
    deadline.into_iter().chain(own).min()
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

#[cfg(test)]
mod tests {
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
}
