//! Positions of no game, for measurements that need observations.

use game::{Action, ObservationShape};
use inference::Batch;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weights::Architecture;

/// Share of an observation's cells that are occupied.
const OCCUPIED: f64 = 0.3;

/// Positions of zeros and ones in which everything is legal.
pub(super) fn random(architecture: &Architecture, seed: u64, positions: usize) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let shape =
        ObservationShape { planes: architecture.planes, height: architecture.height, width: architecture.width };
    let legal: Vec<Action> =
        (0..architecture.actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect();
    let mut batch = Batch::new(shape);
    for _ in 0..positions {
        batch.push(&legal, |planes| planes.fill_with(|| f32::from(rng.random_bool(OCCUPIED))));
    }
    batch
}
