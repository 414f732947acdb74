use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use training::{Layout, Numbers, TrainingBatch, UnrolledBatch};
use weights::{Activation, Architecture, BlockKind, Design, HeadKind, NormKind};

/// An architecture without optional parts.
pub(crate) fn plain(height: usize, width: usize) -> Architecture {
    Architecture::plain("plain", [3, height, width], 5, [12, 2])
}

/// An architecture with all optional parts, and sizes that fill no register.
pub(crate) fn complete() -> Architecture {
    Architecture { squeeze_excitation: 5, global_pooling: 3, channels: 11, blocks: 3, ..plain(3, 4) }
}

/// An architecture with all optional parts and convolutions that suit matrix tiles.
pub(crate) fn tiled() -> Architecture {
    Architecture { channels: 32, ..complete() }
}

/// An architecture with all optional parts and another activation.
pub(crate) fn activated(activation: Activation) -> Architecture {
    Architecture { design: Design { activation, ..Design::default() }, ..complete() }
}

/// An architecture with all optional parts in bottleneck blocks.
pub(crate) fn bottleneck(activation: Activation) -> Architecture {
    Architecture {
        design: Design { activation, block: BlockKind::Bottleneck, ..Design::default() },
        channels: 14,
        ..complete()
    }
}

/// Networks with attention blocks, alone and after residual blocks, and with norms of single positions, followed by
/// every option.
pub(crate) fn of_positions() -> Vec<Architecture> {
    let attention = |attention, attention_heads| Design { attention, attention_heads, ..Design::default() };
    let layer = Design { norm: NormKind::Layer, ..Design::default() };
    let group = Design { norm: NormKind::Group, activation: Activation::Mish, ..attention(1, 2) };
    let wide = Architecture { channels: 16, ..complete() };
    vec![
        Architecture { design: Design { activation: Activation::Gelu, ..attention(2, 3) }, blocks: 0, ..plain(3, 5) },
        Architecture { design: attention(1, 11), ..complete() },
        // Heads and cells that fill more than one register.
        Architecture { design: attention(1, 2), blocks: 1, channels: 40, ..plain(4, 5) },
        Architecture { design: layer, ..complete() },
        Architecture { design: Design { activation: Activation::Silu, ..layer }, ..plain(5, 1) },
        Architecture { design: group, ..wide.clone() },
        Architecture { design: Design { block: BlockKind::Bottleneck, ..group }, channels: 32, blocks: 3, ..wide },
    ]
}

/// A network with pooled heads, `of_cell` actions per cell of the board and `others` more.
pub(crate) fn pooled([height, width]: [usize; 2], of_cell: usize, others: usize) -> Architecture {
    Architecture {
        game: format!("pooled-{height}x{width}"),
        actions: of_cell * height * width + others,
        blocks: 1,
        design: Design { heads: HeadKind::Pooled, ..Design::default() },
        ..plain(height, width)
    }
}

/// Networks with pooled heads, with and without options, with one or more actions per cell, and with and without
/// further actions. In the last network convolutions, attention and hidden units suit matrix tiles.
pub(crate) fn pooled_heads() -> Vec<Architecture> {
    let wide = pooled([4, 3], 1, 1);
    let design = Design { attention: 1, attention_heads: 2, norm: NormKind::Layer, ..wide.design };
    let complete = Architecture { squeeze_excitation: 5, global_pooling: 3, blocks: 3, ..pooled([3, 4], 3, 2) };
    vec![
        pooled([2, 5], 1, 0),
        Architecture { blocks: 0, ..pooled([3, 1], 3, 1) },
        // The same number of actions per cell as in chess.
        pooled([3, 2], 73, 0),
        Architecture { design: Design { activation: Activation::Mish, ..complete.design }, ..complete },
        Architecture { channels: 32, ..wide.clone() },
        Architecture { design, channels: 32, ..wide },
    ]
}

/// Random positions: some actions are illegal, the last position has no policy target, planes hold arbitrary numbers.
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

/// Parameters with trained-looking norms and large outputs of pooling and excitation.
pub(crate) fn numbers(layout: &Layout, seed: u64) -> Numbers {
    let mut numbers = Numbers::initial(layout, seed);
    let weights = layout.decayed();
    for (index, parameter) in numbers.parameters.iter_mut().enumerate() {
        let small = ((index * 37 % 101) as f32 / 101.0 - 0.4) / 2.0;
        *parameter += if index < weights { small / 5.0 } else { small };
    }
    numbers
}

/// An architecture for vector observations.
pub(crate) fn vectors() -> Architecture {
    Architecture { planes: 4, channels: 19, blocks: 2, ..plain(1, 1) }
}

/// Random positions and steps: every fifth state has no policy target and every fourth no value target; every third
/// next observation and every sixth chance event have no weight.
pub(crate) fn unrolled(architecture: &Architecture, positions: usize, steps: usize, seed: u64) -> UnrolledBatch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let observation = planes * height * width;
    let mut draw = |len: usize| -> Vec<f32> { (0..len).map(|_| rng.random_range(-1.0..1.0)).collect() };
    let states = positions * (steps + 1);
    let logits = draw(states * actions);
    let policies = logits.chunks(actions).flat_map(|row| {
        let sum: f32 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / sum).collect::<Vec<_>>()
    });
    let policies = policies.collect();
    let every = |count: usize, nth: usize| (0..count).map(|index| f32::from(u8::from(index % nth > 0))).collect();
    UnrolledBatch {
        unroll_steps: steps,
        observations: draw(positions * observation).into_iter().collect(),
        actions: (0..positions * steps).map(|index| (index * 7 % actions) as u16).collect(),
        policies,
        policy_weights: every(states, 5),
        values: draw(states).into_iter().map(|value| 4.0 * value).collect(),
        value_weights: every(states, 4),
        rewards: draw(positions * steps),
        next_observations: draw(positions * steps * observation).into_iter().collect(),
        next_weights: every(positions * steps, 3),
        chance_weights: every(positions * steps, 6),
        importance: (0..positions).map(|row| 1.0 / (1 + row % 3) as f32).collect(),
    }
}
