use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use training::{Examples, Observations, UnrolledBatch};
use weights::{Architecture, Model};

use crate::learner::random_batch;

/// Random positions for a network, unrolled over `steps` steps, which depend on the seed alone.
pub(super) fn random(architecture: &Architecture, positions: usize, steps: usize, seed: u64) -> Examples {
    match architecture.model {
        Model::Alphazero => Examples::Positions(random_batch(architecture, positions, seed)),
        _ => Examples::Unrolled(unrolled(architecture, positions, steps, seed)),
    }
}

fn unrolled(architecture: &Architecture, positions: usize, steps: usize, seed: u64) -> UnrolledBatch {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (observation, states) = (planes * height * width, positions * (steps + 1));
    let mut bits =
        |count: usize| -> Observations { (0..count).map(|_| f32::from(u8::from(rng.random_bool(0.3)))).collect() };
    let (observations, next_observations) = (bits(positions * observation), bits(positions * steps * observation));
    let actions_of_steps = (0..positions * steps).map(|_| rng.random_range(0..actions) as u16).collect();
    UnrolledBatch {
        unroll_steps: steps,
        observations,
        actions: actions_of_steps,
        policies: vec![1.0 / actions as f32; states * actions],
        policy_weights: vec![1.0; states],
        values: (0..states).map(|_| rng.random_range(-1.0..1.0)).collect(),
        value_weights: vec![1.0; states],
        rewards: (0..positions * steps).map(|_| rng.random_range(-1.0..1.0)).collect(),
        next_observations,
        next_weights: vec![1.0; positions * steps],
        chance_weights: vec![1.0; positions * steps],
        importance: Vec::new(),
    }
}
