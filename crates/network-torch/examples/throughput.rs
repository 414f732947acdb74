//! Measures how fast this machine trains and evaluates: `cargo run --release -p network-torch --example throughput`.
//!
//! One line per network, batch size and number of threads; the median of a few repetitions.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock and prints"
)]

use std::time::{Duration, Instant};

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, Predictions};
use network_torch::{
    Device, LibtorchEvaluator, Network, Precision, PrecisionPreference, TowerPreference, Trainer, TrainerSettings,
    TrainingBatch,
};
use weights::{Architecture, WeightsVersion};

fn main() {
    network_torch::keep_memory();
    println!("{}", network_torch::choose_precision(PrecisionPreference::Auto, Device::Cpu, &mut Instant::now));
    for blocks in [4, 6] {
        let architecture = Architecture {
            game: "connect_four".into(),
            planes: 2,
            height: 6,
            width: 7,
            actions: 7,
            channels: 64,
            blocks,
            squeeze_excitation: 0,
            global_pooling: 0,
        };
        for threads in [1, 2] {
            network_torch::set_threads(threads);
            for positions in [256, 512] {
                let libtorch = TowerPreference::Libtorch;
                let (f32, bf16) = (Precision::F32, Precision::Bf16);
                for (precision, tower) in [(f32, libtorch), (bf16, libtorch), (bf16, TowerPreference::Auto)] {
                    let (who, rate) = training(&architecture, positions, precision, tower);
                    println!(
                        "{blocks}x64 {threads} threads train {precision} {who} batch {positions:4}: {rate:8.0} positions/s"
                    );
                }
            }
        }
        network_torch::set_threads(1);
        for positions in [8, 32, 64, 128, 256, 512] {
            let rate = evaluating(&architecture, positions);
            println!("{blocks}x64 1 thread evaluate bf16 batch {positions:4}: {rate:8.0} evaluations/s");
        }
        for positions in [64, 128, 256] {
            let rate: f64 = std::thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(|| evaluating(&architecture, positions)));
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            println!("{blocks}x64 2 evaluators of one thread bf16 batch {positions:4}: {rate:8.0} evaluations/s");
        }
    }
}

/// Prints the kernel of stem and tower, and positions per second.
fn training(
    architecture: &Architecture,
    positions: usize,
    precision: Precision,
    tower: TowerPreference,
) -> (&'static str, f64) {
    let settings = TrainerSettings { precision, tower, ..TrainerSettings::default() };
    let mut trainer = Trainer::new(Network::new(architecture, Device::Cpu, 0).unwrap(), settings).unwrap();
    let batch = TrainingBatch {
        observations: (0..positions * 84).map(|i| f32::from(u8::from(i % 5 == 0))).collect(),
        policies: vec![1.0 / 7.0; positions * 7],
        legal: vec![1.0; positions * 7],
        wdl: [1.0, 0.0, 0.0].repeat(positions),
        policy_weights: vec![1.0; positions],
        importance: Vec::new(),
    };
    let who = if trainer.trains_by_hand() { "by hand" } else { "libtorch" };
    let rate = rate(positions, Duration::from_millis(300), || {
        trainer.step(&batch).unwrap();
    });
    (who, rate)
}

fn evaluating(architecture: &Architecture, positions: usize) -> f64 {
    let network = Network::new(architecture, Device::Cpu, 0).unwrap();
    let mut evaluator = LibtorchEvaluator::from_network(&network, WeightsVersion(1), Precision::Bf16).unwrap();
    let mut batch = Batch::new(ObservationShape { planes: 2, height: 6, width: 7 });
    let legal: Vec<Action> = (0..7).map(Action).collect();
    for _ in 0..positions {
        batch.push(&legal, |planes| planes[3] = 1.0);
    }
    let mut predictions = Predictions::new();
    rate(positions, Duration::from_millis(150), || evaluator.evaluate(&batch, &mut predictions).unwrap())
}

/// Positions per second of the median repetition within `budget`.
fn rate(positions: usize, budget: Duration, mut once: impl FnMut()) -> f64 {
    once();
    once();
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < budget {
        let start = Instant::now();
        once();
        took.push(start.elapsed().as_secs_f64());
    }
    took.sort_by(f64::total_cmp);
    positions as f64 / took[took.len() / 2]
}
