use network::{AttentionBlock, Layer, LayerKind};
use training::{Memory, ModelLayers, Precision, Recompute, TrainerSettings};
use weights::Architecture;

use crate::Network;

/// Activations per block: the outputs of both convolutions, and of the operations after each.
const OF_BLOCK: usize = 4;

/// Estimates the memory of training steps on one board, with `batch` positions and `unroll_steps` unroll steps.
///
/// The state is exact. Activations are the tensors that libtorch keeps for the backward pass, the output of each
/// convolution and norm, plus the activations of one more layer for gradients; the scratch memory of running
/// operators is unknown.
pub(crate) fn memory(
    network: &Network,
    board: &Architecture,
    settings: &TrainerSettings,
    [batch, unroll_steps]: [usize; 2],
) -> Memory {
    let bytes = match settings.precision {
        Precision::F32 => 4,
        Precision::Bf16 | Precision::F16 => 2,
    };
    let positions = settings.micro_batch_of(batch);
    let numbers = activations(&network.layers, board, settings.recompute, unroll_steps);
    let state = Memory::of_state(&network.layout, settings);
    let lowered = if settings.precision == Precision::F32 { 0 } else { state.parameters / 4 * bytes };
    Memory { packed_weights: lowered, activations: positions * numbers * bytes, ..state }
}

/// Returns the numbers of a position that are kept at the same time.
fn activations(layers: &ModelLayers, architecture: &Architecture, recompute: Recompute, unroll_steps: usize) -> usize {
    let cells = architecture.height * architecture.width;
    let of_layer = |layer: &Layer| match layer.kind {
        LayerKind::Convolution { .. } => 2 * cells * layer.outputs,
        LayerKind::PreNormed => cells * (layer.inputs + 2 * layer.outputs),
        LayerKind::Pointwise => 2 * cells * layer.outputs,
        // Scores of pairs of cells, and shares.
        LayerKind::Offsets => 2 * cells * cells * layer.outputs,
        LayerKind::Linear | LayerKind::Dense => 2 * layer.outputs,
    };
    match layers {
        ModelLayers::Alphazero(layers) => {
            let attention: usize = layers.attention.iter().flat_map(AttentionBlock::layers).map(of_layer).sum();
            let all = layers.iter().map(of_layer).sum::<usize>() - attention;
            let (output, blocks) = (cells * architecture.channels, architecture.blocks);
            let of_blocks = match recompute {
                Recompute::None => OF_BLOCK * blocks,
                Recompute::Blocks => {
                    let segment = Recompute::segment_blocks(blocks);
                    blocks.div_ceil(segment) + OF_BLOCK * segment.min(blocks)
                }
            };
            let of_attention = match (recompute, layers.attention.len()) {
                (Recompute::Blocks, blocks @ 1..) => {
                    let segment = Recompute::segment_blocks(blocks);
                    blocks.div_ceil(segment) * output + attention / blocks * segment.min(blocks)
                }
                _ => attention,
            };
            all - OF_BLOCK * blocks * output + (of_blocks + OF_BLOCK) * output + of_attention
        }
        // Every layer is used at most once for each state.
        ModelLayers::Muzero { latent, .. } => latent.iter().map(of_layer).sum::<usize>() * (unroll_steps + 1),
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;
    use training::{Precision, Recompute, TrainerSettings};
    use weights::Architecture;

    use super::memory;
    use crate::Network;

    #[test]
    fn fewer_activations_and_smaller_micro_batches_lower_the_estimate() {
        let architecture =
            Architecture { squeeze_excitation: 4, ..Architecture::plain("any", [3, 9, 9], 82, [32, 34]) };
        let network = Network::new(&architecture, Device::Cpu, 1).unwrap();
        let of = |settings: TrainerSettings| memory(&network, &architecture, &settings, [256, 0]).activations;
        let all = of(TrainerSettings::default());
        // z and y of each convolution in stem, blocks and heads, a few numbers, and four for gradients.
        let plane = 256 * 81 * 4;
        assert!(all > plane * 32 * (2 + 4 * 34) && all < plane * 32 * (2 + 4 * 34 + 4 + 8), "{all}");
        assert_eq!(of(TrainerSettings { micro_batch: 64, ..TrainerSettings::default() }), all / 4);
        assert_eq!(of(TrainerSettings { precision: Precision::Bf16, ..TrainerSettings::default() }), all / 2);
        let recomputed = of(TrainerSettings { recompute: Recompute::Blocks, ..TrainerSettings::default() });
        assert!(3 * recomputed < all, "{recomputed} of {all}");
    }
}
