//! Small networks and batches for the tests of this crate.

use ::network::Role;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};
use weights::{Activation, Architecture, BlockKind, Board, Design, HeadKind, Model, NormKind};

use crate::Network;
use training::{TrainingBatch, UnrolledBatch};

/// A network small enough to compute by hand: 2 planes of 3×3, 4 actions, 2 channels, 1 block.
pub(crate) fn tiny() -> Architecture {
    Architecture::plain("tiny", [2, 3, 3], 4, [2, 1])
}

/// A network as for Connect Four, but with few channels.
pub(crate) fn small() -> Architecture {
    Architecture::plain("small", [2, 6, 7], 7, [16, 2])
}

/// A network with squeeze-and-excitation in three blocks and global pooling in the last, on a board that is not
/// square.
pub(crate) fn complete() -> Architecture {
    Architecture { squeeze_excitation: 8, global_pooling: 4, ..Architecture::plain("complete", [2, 3, 4], 5, [16, 3]) }
}

/// The network with every option and another activation.
pub(crate) fn activated(activation: Activation) -> Architecture {
    Architecture { design: Design { activation, ..Design::default() }, ..complete() }
}

/// The network with every option in bottleneck blocks.
pub(crate) fn bottleneck() -> Architecture {
    Architecture { design: Design { block: BlockKind::Bottleneck, ..Design::default() }, ..complete() }
}

/// A transformer: attention blocks without residual blocks, on a board that is not square.
pub(crate) fn attentive() -> Architecture {
    let design = Design { activation: Activation::Gelu, attention: 2, attention_heads: 4, ..Design::default() };
    Architecture { blocks: 0, squeeze_excitation: 0, global_pooling: 0, design, ..complete() }
}

/// Networks with attention blocks after residual blocks and with norms of single positions, followed by every option.
pub(crate) fn of_positions() -> Vec<Architecture> {
    let behind = Design { attention: 1, attention_heads: 2, ..Design::default() };
    let layer = Design { norm: NormKind::Layer, ..Design::default() };
    let group = Design { norm: NormKind::Group, activation: Activation::Mish, ..behind };
    let wide = Architecture { channels: 32, ..complete() };
    let narrow = Design { block: BlockKind::Bottleneck, ..group };
    vec![
        attentive(),
        Architecture { design: behind, ..complete() },
        Architecture { design: layer, ..complete() },
        Architecture { design: Design { activation: Activation::Silu, ..layer }, squeeze_excitation: 0, ..complete() },
        Architecture { design: group, ..complete() },
        Architecture { design: narrow, ..wide },
    ]
}

/// Networks with pooled heads on boards that are not square: with three actions per cell and one more, and with one
/// action per cell alone.
pub(crate) fn pooled() -> [Architecture; 2] {
    let design = Design { heads: HeadKind::Pooled, ..Design::default() };
    let smooth = Design { activation: Activation::Mish, norm: NormKind::Layer, ..design };
    [
        Architecture { design, actions: 3 * 12 + 1, ..complete() },
        Architecture { design: smooth, height: 5, width: 3, actions: 15, blocks: 1, ..complete() },
    ]
}

/// The network on a board of this size.
pub(crate) fn on(architecture: &Architecture, [height, width]: [usize; 2]) -> Architecture {
    let [of_cell, others] = architecture.board().actions_of_cells();
    let observation = [architecture.planes, height, width];
    let game = format!("{}-{height}x{width}", architecture.game);
    architecture.on(Board { game: &game, observation, actions: of_cell * height * width + others }).unwrap()
}

/// A dense MuZero network: vectors of 5 numbers, 3 actions, 6 units, 1 block.
pub(crate) fn dense() -> Architecture {
    let model = Model::Muzero { support: 4 };
    Architecture { game: "dense".into(), planes: 5, height: 1, width: 1, actions: 3, channels: 6, model, ..tiny() }
}

/// A residual MuZero network with every option, on a board that is not square.
pub(crate) fn residual() -> Architecture {
    let model = Model::Muzero { support: 4 };
    Architecture { game: "residual".into(), channels: 5, squeeze_excitation: 3, global_pooling: 2, model, ..complete() }
}

/// AlphaZero networks of returns that correspond to these MuZero networks: without dynamics and reward.
pub(crate) fn of_returns() -> [Architecture; 2] {
    [dense(), residual()].map(|muzero| Architecture { model: Model::AlphazeroReturns { support: 4 }, ..muzero })
}

/// The same networks with chance, with 3 codes.
pub(crate) fn stochastic() -> [Architecture; 2] {
    [dense(), residual()]
        .map(|muzero| Architecture { model: Model::StochasticMuzero { support: 4, codes: 3 }, ..muzero })
}

/// A network with nothing at the initial value, so that no term goes untested: scales and variances near one, shifts
/// and means near zero, weights as drawn.
pub(crate) fn seasoned(architecture: &Architecture, seed: u64) -> Network {
    season(Network::new(architecture, Device::Cpu, seed).unwrap(), seed)
}

/// The same with the heads of the consistency loss.
pub(crate) fn seasoned_with_consistency(architecture: &Architecture, seed: u64) -> Network {
    season(Network::with_consistency(architecture, Device::Cpu, seed).unwrap(), seed)
}

fn season(network: Network, seed: u64) -> Network {
    let mut rng = ChaCha8Rng::seed_from_u64(seed + 1);
    let _guard = tch::no_grad_guard();
    let begins_even = |role| !matches!(role, Role::Convolution | Role::Linear);
    for entry in network.layout.parameters.iter().filter(|entry| begins_even(entry.tensor.role)) {
        jiggle(&mut network.tensor(&entry.tensor.name).shallow_clone(), &mut rng);
    }
    for entry in &network.layout.statistics {
        jiggle(&mut network.tensor(&entry.tensor.name).shallow_clone(), &mut rng);
    }
    network
}

fn jiggle(tensor: &mut Tensor, rng: &mut ChaCha8Rng) {
    let noise: Vec<f32> = (0..tensor.numel()).map(|_| rng.random_range(-0.4..0.4)).collect();
    let _ = tensor.f_add_(&Tensor::from_slice(&noise).view_as(tensor)).unwrap();
}

/// `positions` random observations with random targets; action 0 is illegal in every second row, and every third row
/// has no policy target.
pub(crate) fn batch(architecture: &Architecture, positions: usize, seed: u64) -> TrainingBatch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut batch = TrainingBatch::default();
    for position in 0..positions {
        let cells = architecture.planes * architecture.height * architecture.width;
        batch.observations.extend((0..cells).map(|_| f32::from(u8::from(rng.random_bool(0.4)))));
        let legal: Vec<f32> =
            (0..architecture.actions).map(|action| f32::from(u8::from(action > 0 || position % 2 == 0))).collect();
        batch.policies.extend(shares(legal.iter().map(|legal| legal * rng.random_range(0.1..1.0)).collect()));
        batch.legal.extend(legal.iter().map(|&legal| u8::from(legal > 0.0)));
        batch.wdl.extend(shares((0..3).map(|_| rng.random_range(0.0..1.0)).collect()));
        batch.policy_weights.push(if position % 3 == 2 { 0.0 } else { 1.0 });
    }
    batch
}

/// `positions` random observations with the targets of `steps` steps after each; in every third row the episode ends
/// after the first step.
pub(crate) fn unrolled_batch(architecture: &Architecture, positions: usize, steps: usize, seed: u64) -> UnrolledBatch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut batch = UnrolledBatch { unroll_steps: steps, ..UnrolledBatch::default() };
    let actions = u16::try_from(architecture.actions).unwrap();
    for position in 0..positions {
        let cells = architecture.planes * architecture.height * architecture.width;
        batch.observations.extend((0..cells).map(|_| rng.random_range(-1.0..1.0)));
        for step in 0..=steps {
            let is_absorbing = position % 3 == 2 && step > 1;
            batch.policies.extend(shares((0..actions).map(|_| rng.random_range(0.1..1.0)).collect()));
            batch.policy_weights.push(if is_absorbing { 0.0 } else { 1.0 });
            batch.values.push(if is_absorbing { 0.0 } else { rng.random_range(-9.0..9.0) });
            batch.value_weights.push(1.0);
            if step > 0 {
                batch.actions.push(rng.random_range(0..actions));
                batch.rewards.push(if is_absorbing { 0.0 } else { rng.random_range(-2.0..2.0) });
            }
        }
    }
    if architecture.model.codes() > 0 {
        let cells = architecture.planes * architecture.height * architecture.width;
        batch.next_observations.extend((0..positions * steps * cells).map(|_| rng.random_range(-1.0..1.0)));
        let is_absorbing = |i: usize| (i / steps) % 3 == 2 && !i.is_multiple_of(steps);
        batch.chance_weights = (0..positions * steps).map(|i| if is_absorbing(i) { 0.0 } else { 1.0 }).collect();
        batch.next_weights = batch.chance_weights.clone();
    }
    batch
}

/// The batch with random observations after each action; in every third row the episode ends after the first step.
pub(crate) fn with_next_observations(architecture: &Architecture, batch: UnrolledBatch, seed: u64) -> UnrolledBatch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let cells = architecture.planes * architecture.height * architecture.width;
    let steps = batch.unroll_steps;
    let weight = |at| if (at / steps) % 3 == 2 && at % steps > 0 { 0.0 } else { 1.0 };
    let weights: Vec<f32> = (0..batch.actions.len()).map(weight).collect();
    UnrolledBatch {
        next_observations: (0..batch.actions.len() * cells).map(|_| rng.random_range(-1.0..1.0)).collect(),
        next_weights: weights.clone(),
        chance_weights: weights,
        ..batch
    }
}

fn shares(values: Vec<f32>) -> Vec<f32> {
    let sum: f32 = values.iter().sum();
    values.into_iter().map(|value| value / sum).collect()
}

/// Returns the observations of `batch` as a tensor `[B, C, H, W]`.
pub(crate) fn observations(architecture: &Architecture, batch: &TrainingBatch) -> Tensor {
    let size = |n: usize| i64::try_from(n).unwrap();
    let shape = [-1, size(architecture.planes), size(architecture.height), size(architecture.width)];
    Tensor::from_slice(&batch.observations.to_floats()).view(shape)
}

/// Returns all numbers of a tensor as float64, in logical order.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::<f64>::try_from(tensor.detach().to_kind(Kind::Double).contiguous().view([-1])).unwrap()
}

/// Fails with the first pair that differs by more than `tolerance`.
pub(crate) fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= tolerance, "number {i} is {got}, expected {expected} ± {tolerance}");
    }
}
