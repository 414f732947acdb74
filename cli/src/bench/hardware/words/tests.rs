use network::{Device, Precision};

use super::super::testing::{libtorch, report};
use super::*;

#[test]
fn a_recommendation_says_what_to_use_and_where_an_accelerator_begins_to_win() {
    assert_eq!(
        report().workloads[0].in_words,
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
        product.starts_with("Use cpu libtorch f32, 1 thread at side 4096: 250 10⁹ multiply-adds/s, 275 ms"),
        "{product}"
    );
    assert!(said(Kind::VectorOperation).contains("at 4096 elements: 250 GB/s"));
    assert!(said(Kind::Network).ends_with(" There is no accelerator to compare with the CPU."));
}

#[test]
fn an_accelerator_that_never_wins_is_said_to() {
    let recommended =
        Recommended { setting: libtorch(Device::Cpu, Precision::F32), size: 1, per_second: 1000.0, latency_us: 1000.0 };
    let wins = [Win { device: "mps".to_owned(), from: None }];
    let said = in_words(Kind::Network, Some(&recommended), &wins);
    assert!(said.ends_with(" At the largest batch measured, mps is not faster than the CPU."), "{said}");
}

#[test]
fn where_nothing_was_measured_nothing_is_advised() {
    assert_eq!(in_words(Kind::Network, None, &[]), "Nothing was measured.");
}
