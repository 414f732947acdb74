//! Recommendations in words.

use super::speeds::{Kind, Recommended, Win};
use crate::digits::time;
use crate::report::in_unit;

/// Describes the setting to use, and from where on an accelerator is worth it.
pub(super) fn in_words(kind: Kind, recommended: Option<&Recommended>, wins: &[Win]) -> String {
    let Some(Recommended { setting, size, per_second, latency_us }) = recommended else {
        return "Nothing was measured.".to_owned();
    };
    let (at, speed, metric) = (at(kind, *size), in_unit(*per_second, kind.unit()), kind.metric());
    let first = format!("Use {setting} at {at}: {speed} {metric}, {} from call to answer.", time(*latency_us));
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
mod tests {
    use network_torch::{Device, Precision};

    use super::super::recommend;
    use super::super::testing::{libtorch, settings};
    use super::*;

    #[test]
    fn a_recommendation_says_what_to_use_and_where_an_accelerator_begins_to_win() {
        let settings = settings();
        let (recommended, wins) = (recommend::recommended(&settings), recommend::wins(&settings));
        assert_eq!(
            in_words(Kind::Network, recommended.as_ref(), &wins),
            "Use cuda libtorch bf16 at batch 1024: 200000 evaluations/s, 5.12 ms from call to answer. \
         From batch 64 on, cuda is faster than the CPU."
        );
    }

    #[test]
    fn sizes_and_speeds_are_told_as_their_workload_counts_them() {
        let setting = libtorch(Device::Cpu, Precision::F32);
        let recommended = Recommended { setting, size: 4096, per_second: 2.5e11, latency_us: 275_000.0 };
        let said = |kind| in_words(kind, Some(&recommended), &[]);
        let product = said(Kind::MatrixProduct);
        assert!(
            product.starts_with("Use cpu libtorch f32, 1 thread at side 4096: 250.00 G multiply-adds/s, 275 ms"),
            "{product}"
        );
        assert!(said(Kind::VectorOperation).contains("at 4096 elements: 250 GB/s bytes/s"));
        assert!(said(Kind::Network).ends_with(" There is no accelerator to compare with the CPU."));
    }

    #[test]
    fn an_accelerator_that_never_wins_is_said_to() {
        let recommended = Recommended {
            setting: libtorch(Device::Cpu, Precision::F32),
            size: 1,
            per_second: 1000.0,
            latency_us: 1000.0,
        };
        let wins = [Win { device: "mps".to_owned(), from: None }];
        let said = in_words(Kind::Network, Some(&recommended), &wins);
        assert!(said.ends_with(" At the largest batch measured, mps is not faster than the CPU."), "{said}");
    }

    #[test]
    fn where_nothing_was_measured_nothing_is_advised() {
        assert_eq!(in_words(Kind::Network, None, &[]), "Nothing was measured.");
    }
}
