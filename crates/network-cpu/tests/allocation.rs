//! An evaluator allocates nothing per call.
//!
//! There is one test, because the allocator counts for the whole process.

#![allow(clippy::unwrap_used, reason = "what cannot be computed ends the test")]

#[path = "../../search/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use std::sync::Arc;

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, LatentModel, LatentPredictions, Predictions, Slot, Unroll};
use network_cpu::{KernelVariant, LatentEvaluator, LatentNetwork, Tower, TowerEvaluator};
use weights::{Architecture, Model, WeightsVersion};

#[test]
fn a_warm_evaluator_allocates_nothing() {
    towers(weights::Design::default());
    let attention = weights::Design { attention: 2, attention_heads: 2, ..weights::Design::default() };
    towers(weights::Design { norm: weights::NormKind::Layer, ..attention });
    towers(weights::Design { norm: weights::NormKind::Group, ..attention });
    towers(weights::Design { heads: weights::HeadKind::Pooled, ..weights::Design::default() });
    let with_chance = Model::StochasticMuzero { support: 20, codes: 7 };
    for model in [Model::Muzero { support: 20 }, with_chance] {
        latent_states(ObservationShape { planes: 4, height: 1, width: 1 }, 64, 1_100, model);
        latent_states(ObservationShape { planes: 2, height: 3, width: 3 }, 32, 70, model);
    }
}

fn towers(design: weights::Design) {
    // One action per cell and one without a cell.
    let plain = Architecture::plain("test", [2, 6, 7], 43, [32, 3]);
    let architecture = Architecture { squeeze_excitation: 8, global_pooling: 8, design, ..plain };
    let mut batch = Batch::new(ObservationShape { planes: 2, height: 6, width: 7 });
    for position in 0..70 {
        batch.push(&[Action(0), Action(3)], |cells| cells[position % 84] = 1.0);
    }
    for path in KernelVariant::ALL.into_iter().chain(KernelVariant::INT8).filter(|path| path.is_available()) {
        if path.is_int8() && !design.is_default() {
            continue;
        }
        let tower = Arc::new(Tower::random(&architecture, 1, path).unwrap());
        let mut evaluator = TowerEvaluator::new(tower, WeightsVersion(1));
        let mut predictions = Predictions::new();
        evaluator.evaluate(&batch, &mut predictions).unwrap();
        let before = allocations();
        evaluator.evaluate(&batch, &mut predictions).unwrap();
        assert_eq!(allocations() - before, 0, "{path}");
    }
}

/// Computes states and steps from them, once to grow the buffers and once more with fewer.
fn latent_states(shape: ObservationShape, channels: usize, states: u32, model: Model) {
    let ObservationShape { planes, height, width } = shape;
    let plain = Architecture::plain("test", [planes, height, width], 7, [channels, 1]);
    let architecture = Architecture { squeeze_excitation: 8, model, ..plain };
    let mut batch = Batch::new(shape);
    (0..states).for_each(|state| batch.push(&[Action(0), Action(3)], |cells| cells[0] = state as f32));
    let to: Vec<Slot> = (0..states).map(Slot).collect();
    let step = |state: u32| Unroll { from: Slot(state), action: Action(state as u16 % 7), to: Slot(states + state) };
    let steps: Vec<Unroll> = (0..states).map(step).collect();
    for path in KernelVariant::ALL.into_iter().filter(|path| path.is_available()) {
        let network = Arc::new(LatentNetwork::random(&architecture, 1, path).unwrap());
        let mut evaluator = LatentEvaluator::new(network, WeightsVersion(1));
        evaluator.reserve(2 * states as usize).unwrap();
        let mut predictions = LatentPredictions::default();
        evaluator.initial(&batch, &to, &mut predictions).unwrap();
        let before = allocations();
        evaluator.initial(&batch, &to, &mut predictions).unwrap();
        evaluator.recurrent(&steps, &mut predictions).unwrap();
        evaluator.recurrent(&steps[..5], &mut predictions).unwrap();
        if evaluator.codes() > 0 {
            evaluator.act(&steps, &mut predictions).unwrap();
        }
        evaluator.reserve(10).unwrap();
        assert_eq!(allocations() - before, 0, "{path}");
    }
}
