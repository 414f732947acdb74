//! Recommendations as people read them.

use super::report::{Kind, Recommended, Win};
use crate::bench::digits::{number, time};

/// What to use, and from where on an accelerator is worth it.
pub(super) fn in_words(kind: Kind, recommended: Option<&Recommended>, wins: &[Win]) -> String {
    let Some(Recommended { setting, size, per_second, latency_us }) = recommended else {
        return "Nothing was measured.".to_owned();
    };
    let (at, speed, unit) = (at(kind, *size), number(kind.in_units(*per_second)), kind.unit());
    let first = format!("Use {setting} at {at}: {speed} {unit}, {} from call to answer.", time(*latency_us));
    let others: String = wins.iter().map(|win| " ".to_owned() + &win_in_words(kind, win)).collect();
    if others.is_empty() { first + " There is no accelerator to compare with the CPU." } else { first + &others }
}

fn win_in_words(kind: Kind, Win { device, from }: &Win) -> String {
    match from {
        Some(size) => format!("From {} on, {device} is faster than the CPU.", at(kind, *size)),
        None => format!("At the largest {} measured, {device} is not faster than the CPU.", kind.sizes()),
    }
}

fn at(kind: Kind, size: usize) -> String {
    match kind {
        Kind::VectorOperation => format!("{size} {}", kind.sizes()),
        Kind::MatrixProduct | Kind::Network => format!("{} {size}", kind.sizes()),
    }
}

#[cfg(test)]
mod tests;
