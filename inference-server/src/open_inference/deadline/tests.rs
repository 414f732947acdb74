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
fn what_is_no_time_is_no_deadline() {
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
    assert_eq!(earlier(at(3), Some(u64::MAX), now), at(3), "a time that no clock tells is no bound");
}
