//! Units of values, and numbers with a unit as text.

use serde::{Deserialize, Serialize};

/// Unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A plain number.
    Count,
    /// A whole number of positions, rows or elements.
    Size,
    /// Events per second.
    PerSecond,
    /// A share from 0 to 1.
    Share,
    /// A multiple of another value.
    Ratio,
    /// Microseconds.
    Microseconds,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// CPU seconds per second.
    Cores,
}

/// Formats a value for human readers, with the unit.
pub(crate) fn in_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count | Unit::PerSecond | Unit::Cores => number(value),
        Unit::Size => format!("{value:.0}"),
        Unit::Share => format!("{:.1} %", 100.0 * value),
        Unit::Ratio => format!("{value:.2}×"),
        Unit::Microseconds => time(value),
        Unit::Bytes => bytes(value),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
    }
}

/// Formats a number with at least three digits: `0.42`, `7.31`, `812`, `24100`, `3.05 M`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e9 => format!("{:.2} G", value / 1e9),
        _ if size >= 1e6 => format!("{:.2} M", value / 1e6),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a time with three digits or more, in microseconds, milliseconds or seconds.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", number(us)),
        us if us < 999.5e3 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

/// Formats a size with three digits or more, in bytes, kilobytes, megabytes or gigabytes.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 999.5e3 => format!("{} kB", number(bytes / 1e3)),
        bytes if bytes < 999.5e6 => format!("{} MB", number(bytes / 1e6)),
        bytes => format!("{} GB", number(bytes / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_three_digits_and_large_ones_have_a_prefix() {
        let numbers = [12_345.0, 1234.5, 99.94, 4.567, 0.0123, 6.1e6, 4e11].map(number);
        assert_eq!(numbers, ["12345", "1234", "99.9", "4.57", "0.01", "6.10 M", "400.00 G"]);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(
            [1.234, 56.78, 999.0, 12_345.0, 2_500_000.0].map(time),
            ["1.23 µs", "56.8 µs", "999 µs", "12.3 ms", "2.50 s"]
        );
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!([270.4, 50_000.0, 110e6, 2e9].map(bytes), ["270 B", "50.0 kB", "110 MB", "2.00 GB"]);
    }
}
