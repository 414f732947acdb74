//! Measures initial and recurrent inference of MuZero networks on one core, beside the peak rate of its multiply-adds.
//!
//! `cargo run --release -p network-cpu --example latent [-- VARIANT]`

#![allow(clippy::expect_used, reason = "what cannot be measured ends the example")]
#![allow(clippy::disallowed_methods, reason = "time is what it measures")]
#![allow(clippy::disallowed_macros, clippy::print_stdout, reason = "it prints what it measures")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use game::{Action, ObservationShape};
use inference::{Batch, LatentModel, LatentPredictions, Slot, Unroll};
use network::{LatentLayers, Layer, LayerKind};
use network_cpu::{KernelVariant, LatentEvaluator, LatentNetwork, fastest_first};
use weights::{Architecture, Model, WeightsVersion};

const BATCHES: [u32; 6] = [1, 8, 64, 256, 1024, 4096];
/// The time over which a call is repeated; the fastest of it counts.
const TIME: Duration = Duration::from_millis(60);

fn main() {
    let named = std::env::args().nth(1).map(|name| name.parse::<KernelVariant>().expect("a variant"));
    let variants = named.map_or_else(|| fastest_first(&mut Instant::now), |variant| vec![variant]);
    for variant in variants.into_iter().filter(|variant| *variant != KernelVariant::PortableF32) {
        let peak = peak(variant);
        println!("{variant}: {:.1} G multiply-adds/s at most", peak / 1e9);
        for units in [64, 128, 256, 512] {
            measure(variant, peak, &architecture([4, 1, 1], units, 1));
        }
        measure(variant, peak, &architecture([2, 6, 7], 64, 4));
        measure(variant, peak, &architecture([2, 3, 3], 32, 2));
    }
}

fn architecture([planes, height, width]: [usize; 3], channels: usize, blocks: usize) -> Architecture {
    Architecture {
        game: "any".to_owned(),
        planes,
        height,
        width,
        actions: 7,
        channels,
        blocks,
        squeeze_excitation: 0,
        global_pooling: 0,
        model: Model::muzero(25),
    }
}

fn measure(variant: KernelVariant, peak: f64, architecture: &Architecture) {
    let &Architecture { planes, height, width, channels, blocks, .. } = architecture;
    let (of_initial, of_recurrent) = multiply_adds(architecture);
    println!(
        "[{planes}, {height}, {width}], {channels} units or channels, {blocks} blocks, {of_initial} and {of_recurrent} \
         multiply-adds:\n{:>7} {:>12} {:>14} {:>7} {:>13} {:>14} {:>7}",
        "batch", "initial us", "per second", "of peak", "recurrent us", "per second", "of peak"
    );
    let Ok(network) = LatentNetwork::random(architecture, 1, variant) else {
        return println!("not supported");
    };
    let mut evaluator = LatentEvaluator::new(Arc::new(network), WeightsVersion(1));
    let mut predictions = LatentPredictions::default();
    for batch in BATCHES {
        let mut observations = Batch::new(ObservationShape { planes, height, width });
        (0..batch).for_each(|i| observations.push(&[Action(0), Action(2)], |cells| cells[0] = i as f32 / 100.0));
        // Every tree has room for 33 nodes, and the nodes of a batch are of as many trees.
        evaluator.reserve(33 * batch as usize).expect("memory");
        let roots: Vec<Slot> = (0..batch).map(|tree| Slot(tree * 33)).collect();
        let initial = fastest(|| evaluator.initial(&observations, &roots, &mut predictions).expect("an answer"));
        let mut node = 0;
        let mut steps = Vec::new();
        let recurrent = fastest(|| {
            let step = |tree: u32| {
                let (from, to) = (Slot(tree * 33 + node % 32), Slot(tree * 33 + node % 32 + 1));
                Unroll { from, action: Action((tree % 7) as u16), to }
            };
            steps.clear();
            steps.extend((0..batch).map(step));
            node += 1;
            evaluator.recurrent(&steps, &mut predictions).expect("an answer");
        });
        let line = [(initial, of_initial), (recurrent, of_recurrent)].map(|(took, multiply_adds)| {
            let rate = f64::from(batch) / took.as_secs_f64();
            let share = 100.0 * rate * multiply_adds as f64 / peak;
            format!("{:>12.1} {rate:>14.0} {share:>6.0}%", took.as_secs_f64() * 1e6)
        });
        println!("{batch:>7} {} {}", line[0], line[1]);
    }
}

/// Multiply-adds of an initial and of a recurrent inference; a one-hot action costs none.
fn multiply_adds(architecture: &Architecture) -> (usize, usize) {
    let layers = LatentLayers::new(architecture).expect("an architecture");
    let of = |layer: &Layer| {
        // The action is one of the inputs, in a vector or as planes.
        let inputs = match layer.name.as_str() {
            "dynamics.action" => 0,
            "dynamics.input" if layer.kind == LayerKind::Dense => architecture.channels,
            _ => layer.inputs,
        };
        let sides = |side: usize| {
            if side == 3 {
                [architecture.height, architecture.width].map(|n| 3 * n - 2)
            } else {
                [architecture.height, architecture.width]
            }
        };
        let pairs = match layer.kind {
            LayerKind::Convolution { side } => sides(side).into_iter().product(),
            LayerKind::Linear | LayerKind::Dense => 1,
        };
        inputs * layer.outputs * pairs
    };
    let sum = |names: &[&str]| {
        let counts = |layer: &&Layer| names.iter().any(|name| layer.name.starts_with(name));
        layers.iter().filter(counts).map(of).sum()
    };
    (sum(&["representation", "policy", "value"]), sum(&["dynamics", "policy", "value", "reward"]))
}

/// Multiply-adds per second in registers.
fn peak(variant: KernelVariant) -> f64 {
    let burst = || {
        let begun = Instant::now();
        let multiply_adds = variant.burst(100_000);
        multiply_adds as f64 / begun.elapsed().as_secs_f64()
    };
    (0..20).map(|_| burst()).fold(0.0, f64::max)
}

/// The shortest duration of a call.
fn fastest(mut call: impl FnMut()) -> Duration {
    let begun = Instant::now();
    let mut best = Duration::MAX;
    while begun.elapsed() < TIME || best == Duration::MAX {
        let before = Instant::now();
        call();
        best = best.min(before.elapsed());
    }
    best
}
