//! Measures the training speed of this machine: `cargo run --release -p network-torch --example throughput`.
//!
//! Prints one line per network, batch size and number of threads, with the median of a few repetitions.
//! `zerofleet bench hardware` measures evaluation.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock and prints"
)]

use std::time::{Duration, Instant};

use network_torch::{Device, Network, Trainer, TrainingPrecision};
use training::{Examples, Precision, Trainer as _, TrainerSettings, TrainingBatch};
use weights::Architecture;

fn main() {
    network_torch::keep_memory();
    let auto = TrainingPrecision::Auto;
    println!("{}", network_torch::choose_training_precision(auto, Device::Cpu, &mut Instant::now).unwrap());
    for blocks in [4, 6] {
        let architecture = Architecture::plain("connect_four", [2, 6, 7], 7, [64, blocks]);
        for threads in [1, 2] {
            network_torch::set_threads(threads);
            for positions in [256, 512] {
                for precision in [Precision::F32, Precision::Bf16] {
                    let rate = training(&architecture, positions, precision);
                    println!(
                        "{blocks}x64 {threads} threads train {precision} batch {positions:4}: {rate:8.0} positions/s"
                    );
                }
            }
        }
    }
}

/// Returns positions per second.
fn training(architecture: &Architecture, positions: usize, precision: Precision) -> f64 {
    let settings = TrainerSettings { precision, ..TrainerSettings::default() };
    let mut trainer = Trainer::new(Network::new(architecture, Device::Cpu, 0).unwrap(), settings).unwrap();
    let batch = Examples::Positions(TrainingBatch {
        observations: (0..positions * 84).map(|i| f32::from(u8::from(i % 5 == 0))).collect(),
        policies: vec![1.0 / 7.0; positions * 7],
        legal: vec![1; positions * 7],
        wdl: [1.0, 0.0, 0.0].repeat(positions),
        policy_weights: vec![1.0; positions],
        ..TrainingBatch::default()
    });
    rate(positions, || {
        trainer.step(&batch).unwrap();
    })
}

/// Returns positions per second of the median repetition within 0.3 s.
fn rate(positions: usize, mut once: impl FnMut()) -> f64 {
    once();
    once();
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < Duration::from_millis(300) {
        let start = Instant::now();
        once();
        took.push(start.elapsed().as_secs_f64());
    }
    took.sort_by(f64::total_cmp);
    positions as f64 / took[took.len() / 2]
}
