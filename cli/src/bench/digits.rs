//! Numbers and times with as many digits as people read.

/// Three digits at least.
pub(super) fn number(value: f64) -> String {
    let decimals =
        [(100.0, 0), (10.0, 1)].into_iter().find(|(from, _)| value >= *from).map_or(2, |(_, decimals)| decimals);
    format!("{value:.decimals$}")
}

/// Three digits or more, in microseconds, milliseconds or seconds.
pub(super) fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", number(us)),
        us if us < 999.5e3 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_three_digits() {
        assert_eq!([1234.5, 99.94, 4.567, 0.0123].map(number), ["1234", "99.9", "4.57", "0.01"]);
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        assert_eq!(
            [1.234, 56.78, 999.0, 12_345.0, 2_500_000.0].map(time),
            ["1.23 µs", "56.8 µs", "999 µs", "12.3 ms", "2.50 s"]
        );
    }
}
