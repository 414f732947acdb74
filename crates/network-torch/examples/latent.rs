//! Measures how fast a device evaluates and trains dense MuZero networks:
//! `cargo run --release -p network-torch --example latent [cpu|cuda|mps]`.
//!
//! Prints for each hidden size and precision the time of a call of initial and recurrent inference by batch, and of a
//! training step of 256 positions and 5 steps after each; the median of a few repetitions. On the CPU one thread
//! evaluates, as in an actor, and all threads train.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock and prints"
)]

use std::time::{Duration, Instant};

use game::{Action, ObservationShape};
use inference::{Batch, LatentModel, LatentPredictions, Slot, Unroll};
use network_torch::{
    Device, DevicePreference, DeviceRules, Examples, LibtorchLatent, Network, Precision, Purpose, Trainer,
    TrainerSettings, UnrolledBatch, choose_device, device_name,
};
use weights::{Architecture, Model, WeightsVersion};

/// The time that one number is measured for.
const TIME: Duration = Duration::from_millis(150);
const ACTIONS: usize = 6;
const PLANES: usize = 8;

fn main() {
    network_torch::keep_memory();
    let preference = match std::env::args().nth(1).as_deref() {
        None | Some("cpu") => DevicePreference::Cpu,
        Some("mps") => DevicePreference::Mps,
        _ => DevicePreference::Cuda(0),
    };
    let device = choose_device(preference, Purpose::Inference).unwrap().device;
    let rules = DeviceRules::of(device);
    for precision in [Precision::F32, Precision::Bf16] {
        for hidden in [64, 128, 256, 512] {
            let architecture = dense(hidden);
            if rules.permits(precision, Purpose::Inference) {
                network_torch::set_threads(1);
                for batch in [1, 4, 16, 64, 256, 1024, 4096] {
                    let [initial, recurrent] = inference(&architecture, device, precision, batch);
                    let rate = batch as f64 * 1e6 / recurrent;
                    println!(
                        "{} {precision} hidden {hidden:3} batch {batch:4}: initial {initial:8.1} us, \
                         recurrent {recurrent:8.1} us, {rate:9.0} steps/s",
                        device_name(device)
                    );
                }
            }
            if rules.permits(precision, Purpose::Training) {
                network_torch::set_threads(std::thread::available_parallelism().unwrap().get());
                let step = training(&architecture, device, precision);
                println!("{} {precision} hidden {hidden:3}: training step {:8.0} us", device_name(device), step);
            }
        }
    }
}

fn dense(hidden: usize) -> Architecture {
    Architecture {
        game: "any".into(),
        planes: PLANES,
        height: 1,
        width: 1,
        actions: ACTIONS,
        channels: hidden,
        blocks: 1,
        squeeze_excitation: 0,
        global_pooling: 0,
        model: Model::Muzero { support: 20 },
    }
}

/// Microseconds of a call of initial and of recurrent inference.
fn inference(architecture: &Architecture, device: Device, precision: Precision, rows: usize) -> [f64; 2] {
    let network = Network::new(architecture, device, 0).unwrap();
    let mut model = LibtorchLatent::from_network(&network, WeightsVersion(1), precision).unwrap();
    model.reserve(2 * rows).unwrap();
    let mut batch = Batch::new(ObservationShape { planes: PLANES, height: 1, width: 1 });
    let legal: Vec<Action> = (0..6).map(Action).collect();
    for row in 0..rows {
        batch.push(&legal, |numbers| numbers.fill(row as f32 / rows as f32));
    }
    let slot = |row: usize| Slot(u32::try_from(row).unwrap());
    let to: Vec<Slot> = (0..rows).map(slot).collect();
    let step = |row: usize| Unroll { from: slot(row), action: legal[row % ACTIONS], to: slot(rows + row) };
    let steps: Vec<Unroll> = (0..rows).map(step).collect();
    let mut predictions = LatentPredictions::default();
    let initial = microseconds(|| model.initial(&batch, &to, &mut predictions).unwrap());
    [initial, microseconds(|| model.recurrent(&steps, &mut predictions).unwrap())]
}

/// Microseconds of a training step of 256 positions and 5 steps after each.
fn training(architecture: &Architecture, device: Device, precision: Precision) -> f64 {
    let (positions, unroll_steps) = (256, 5);
    let states = positions * (unroll_steps + 1);
    let settings = TrainerSettings { precision, ..TrainerSettings::muzero() };
    let mut trainer = Trainer::new(Network::new(architecture, device, 0).unwrap(), settings).unwrap();
    let examples = Examples::Unrolled(UnrolledBatch {
        unroll_steps,
        observations: (0..positions * PLANES).map(|i| (i as f32).sin()).collect(),
        actions: (0..positions * unroll_steps).map(legal_action).collect(),
        policies: vec![1.0 / ACTIONS as f32; states * ACTIONS],
        policy_weights: vec![1.0; states],
        values: (0..states).map(|i| (i as f32).cos()).collect(),
        value_weights: vec![1.0; states],
        rewards: vec![1.0; positions * unroll_steps],
        ..UnrolledBatch::default()
    });
    microseconds(|| {
        trainer.step(&examples).unwrap();
    })
}

fn legal_action(i: usize) -> u16 {
    u16::try_from(i % ACTIONS).unwrap()
}

/// The median time of a call.
fn microseconds(mut call: impl FnMut()) -> f64 {
    (0..3).for_each(|_| call());
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < TIME {
        let start = Instant::now();
        call();
        took.push(start.elapsed());
    }
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e6
}
