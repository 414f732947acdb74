//! Numbers and times with as many digits as people read.

/// Stands for a value that was not measured.
const UNKNOWN: &str = "–";

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

/// Three digits or so: `0.42`, `7.3`, `812`, `24.1k`, `3.05M`.
pub(crate) fn known_number(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if value.abs() >= 1e6 => format!("{:.2}M", value / 1e6),
        Some(value) if value.abs() >= 1e4 => format!("{:.1}k", value / 1e3),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 || value == 0.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// `71.3 %`.
pub(crate) fn known_percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.1} %", share * 100.0))
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
