//! An evaluator allocates nothing per call.
//!
//! The test is alone in its process, because the allocator counts for the whole process.

#[path = "../../search/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use std::sync::Arc;

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, Predictions};
use network_cpu::{KernelVariant, Tower, TowerEvaluator};
use weights::{Architecture, WeightsVersion};

#[test]
fn a_warm_evaluator_allocates_nothing() {
    let architecture = Architecture {
        game: "test".to_owned(),
        planes: 2,
        height: 6,
        width: 7,
        actions: 7,
        channels: 32,
        blocks: 3,
        squeeze_excitation: 8,
        global_pooling: 8,
        model: weights::Model::Alphazero,
    };
    let mut batch = Batch::new(ObservationShape { planes: 2, height: 6, width: 7 });
    for position in 0..70 {
        batch.push(&[Action(0), Action(3)], |cells| cells[position % 84] = 1.0);
    }
    for path in KernelVariant::ALL.into_iter().chain(KernelVariant::INT8).filter(|path| path.is_available()) {
        let tower = Arc::new(Tower::random(&architecture, 1, path).unwrap());
        let mut evaluator = TowerEvaluator::new(tower, WeightsVersion(1));
        let mut predictions = Predictions::new();
        evaluator.evaluate(&batch, &mut predictions).unwrap();
        let before = allocations();
        evaluator.evaluate(&batch, &mut predictions).unwrap();
        assert_eq!(allocations() - before, 0, "{path}");
    }
}
