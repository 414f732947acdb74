//! Measures training steps of both backends on this CPU in turns: `cargo run --release -p learner --example
//! training_step`, with the number of turns as an argument.
//!
//! Prints one line per network, batch size and number of threads: the fastest and the median step of each backend in
//! float32, and the ratios libtorch to kernels. Other busy processes make libtorch's threads wait for each other.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints")]

use std::time::Instant;

use network_torch::{Device, Network};
use training::{Examples, TrainerSettings, TrainingBatch, TrainingKernel, UnrolledBatch};
use weights::{Architecture, Model};

/// Blocks, channels, height, width and actions of AlphaZero networks.
const ALPHAZERO: [[usize; 5]; 3] = [[4, 64, 6, 7, 7], [6, 64, 6, 7, 7], [6, 128, 9, 9, 82]];
/// The same of MuZero networks.
const MUZERO: [[usize; 5]; 3] = [[2, 64, 1, 1, 2], [4, 256, 1, 1, 4], [2, 64, 6, 7, 7]];
/// Steps that a MuZero network is unrolled.
const STEPS: usize = 5;

fn main() {
    network_torch::keep_memory();
    let turns = std::env::args().nth(1).map_or(7, |turns| turns.parse().unwrap());
    let alphazero = ALPHAZERO.map(|network| (network, Model::Alphazero));
    let networks = alphazero.into_iter().chain(MUZERO.map(|network| (network, Model::muzero(25))));
    for ([blocks, channels, height, width, actions], model) in networks {
        let architecture = Architecture {
            game: "any".into(),
            planes: 2,
            height,
            width,
            actions,
            channels,
            blocks,
            squeeze_excitation: 0,
            global_pooling: 0,
            model,
        };
        for (threads, positions) in [(1, 256), (1, 1024), (2, 256), (2, 1024)] {
            let [libtorch, kernels] = measure(&architecture, threads, positions, turns);
            let of = |seconds: &[f64]| [seconds[0], seconds[seconds.len() / 2]].map(|seconds| seconds * 1e3);
            let (libtorch, kernels) = (of(&libtorch), of(&kernels));
            println!(
                "{model:?}, {blocks}x{channels}@{height}x{width}, {threads} threads, batch {positions}: libtorch {:.1} and {:.1} ms, \
                 kernels {:.1} and {:.1} ms, ratios {:.2} and {:.2}",
                libtorch[0],
                libtorch[1],
                kernels[0],
                kernels[1],
                libtorch[0] / kernels[0],
                libtorch[1] / kernels[1]
            );
        }
    }
}

/// Returns the seconds of the steps of libtorch and of the kernels, in ascending order.
fn measure(architecture: &Architecture, threads: usize, positions: usize, turns: usize) -> [Vec<f64>; 2] {
    network_torch::set_threads(threads);
    let settings = TrainerSettings { tower: TrainingKernel::Libtorch, ..TrainerSettings::default() };
    let network = Network::to_train(architecture, &settings, Device::Cpu, 0).unwrap();
    let mut libtorch = network_torch::Trainer::new(network, settings.clone()).unwrap();
    let mut kernels = training_cpu::Trainer::new(architecture, settings, 0, threads).unwrap();
    let examples = examples(architecture, positions);
    let mut seconds = [Vec::new(), Vec::new()];
    // The first two turns allocate memory.
    for turn in 0..turns + 2 {
        let begun = Instant::now();
        libtorch.step(&examples).unwrap();
        let between = Instant::now();
        kernels.queue(&examples, &mut Instant::now).unwrap();
        kernels.collect().unwrap().unwrap();
        let took = [between.duration_since(begun), between.elapsed()];
        if turn >= 2 {
            seconds.iter_mut().zip(took).for_each(|(seconds, took)| seconds.push(took.as_secs_f64()));
        }
    }
    seconds.iter_mut().for_each(|seconds| seconds.sort_by(f64::total_cmp));
    seconds
}

fn examples(architecture: &Architecture, positions: usize) -> Examples {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    if architecture.model.has_dynamics() {
        return unrolled(architecture, positions);
    }
    Examples::Positions(TrainingBatch {
        observations: (0..positions * planes * height * width).map(|cell| f32::from(u8::from(cell % 5 == 0))).collect(),
        policies: vec![1.0 / actions as f32; positions * actions],
        legal: vec![1; positions * actions],
        wdl: [1.0, 0.0, 0.0].repeat(positions),
        policy_weights: vec![1.0; positions],
        importance: Vec::new(),
    })
}

fn unrolled(architecture: &Architecture, positions: usize) -> Examples {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let (observation, states) = (planes * height * width, positions * (STEPS + 1));
    Examples::Unrolled(UnrolledBatch {
        unroll_steps: STEPS,
        observations: (0..positions * observation).map(|cell| f32::from(u8::from(cell % 5 == 0))).collect(),
        actions: vec![0; positions * STEPS],
        policies: vec![1.0 / actions as f32; states * actions],
        policy_weights: vec![1.0; states],
        values: vec![1.0; states],
        value_weights: vec![1.0; states],
        rewards: vec![0.5; positions * STEPS],
        ..UnrolledBatch::default()
    })
}
