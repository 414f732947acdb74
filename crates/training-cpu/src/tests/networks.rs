use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use training::TrainingBatch;
use weights::{Architecture, Model};

/// An architecture without optional parts.
pub(crate) fn plain(height: usize, width: usize) -> Architecture {
    Architecture {
        game: "plain".into(),
        planes: 3,
        height,
        width,
        actions: 5,
        channels: 12,
        blocks: 2,
        squeeze_excitation: 0,
        global_pooling: 0,
        model: Model::Alphazero,
    }
}

/// An architecture with all optional parts and sizes that fill no register.
pub(crate) fn complete() -> Architecture {
    Architecture { squeeze_excitation: 5, global_pooling: 3, channels: 11, blocks: 3, ..plain(3, 4) }
}

/// Random positions: some actions are illegal, the last position has no policy target, planes hold any numbers.
pub(crate) fn batch(architecture: &Architecture, positions: usize, seed: u64) -> TrainingBatch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let observations: Vec<f32> =
        (0..positions * planes * height * width).map(|_| rng.random_range(-1.0..1.0)).collect();
    let mut batch = TrainingBatch { observations: observations.into_iter().collect(), ..TrainingBatch::default() };
    for position in 0..positions {
        let legal: Vec<u8> = (0..actions).map(|action| u8::from(action % 3 != position % 3)).collect();
        let policy: Vec<f32> = legal.iter().map(|&legal| f32::from(legal) * rng.random_range(0.1..1.0)).collect();
        let sum: f32 = policy.iter().sum();
        batch.policies.extend(policy.iter().map(|share| share / sum.max(0.1)));
        batch.legal.extend(legal);
        batch.wdl.extend([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]][position % 3]);
        batch.policy_weights.push(if position + 1 == positions && positions > 1 { 0.0 } else { 1.0 });
    }
    batch
}
