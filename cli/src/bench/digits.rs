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
mod tests;
