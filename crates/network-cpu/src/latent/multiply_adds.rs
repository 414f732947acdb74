//! Multiply-adds of a MuZero network.

use network::{LatentLayers, Layer, LayerKind};
use weights::Architecture;

/// Multiply-adds of an initial and of a recurrent inference; a one-hot action costs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentMultiplyAdds {
    /// From an observation to the latent state and its predictions.
    pub initial: usize,
    /// From a latent state and an action to the next state and its predictions; 0 without dynamics.
    pub recurrent: usize,
}

impl LatentMultiplyAdds {
    /// Counts the multiply-adds of a network. Convolutions count products with cells of the board, not with the
    /// padding.
    pub(crate) fn of(architecture: &Architecture, layers: &LatentLayers) -> Self {
        let sum = |names: &[&str]| {
            let counts = |layer: &&Layer| names.iter().any(|name| layer.name.starts_with(name));
            layers.iter().filter(counts).map(|layer| of_layer(architecture, layer)).sum()
        };
        Self {
            initial: sum(&["representation", "policy", "value"]),
            recurrent: match layers.dynamics {
                Some(_) => sum(&["dynamics", "policy", "value", "reward"]),
                None => 0,
            },
        }
    }
}

fn of_layer(architecture: &Architecture, layer: &Layer) -> usize {
    let &Architecture { channels, height, width, .. } = architecture;
    // The action is one of the inputs, as a vector or as planes.
    let inputs = match layer.name.as_str() {
        "dynamics.action" => 0,
        "dynamics.input" if layer.kind == LayerKind::Dense => channels,
        _ => layer.inputs,
    };
    let pairs = match layer.kind {
        // Along a side of n cells, a kernel of side 3 forms 3n - 2 pairs: an output cell and an input cell.
        LayerKind::Convolution { side: 3, .. } => (3 * height - 2) * (3 * width - 2),
        LayerKind::Convolution { .. } => height * width,
        LayerKind::Linear | LayerKind::Dense => 1,
        LayerKind::PreNormed | LayerKind::Pointwise | LayerKind::Offsets => {
            unreachable!("networks of latent states have no attention blocks")
        }
    };
    inputs * layer.outputs * pairs
}

#[cfg(test)]
mod tests {
    use weights::Model;

    use super::*;

    #[test]
    fn a_dense_network_multiplies_its_matrices_and_no_action() {
        let architecture = Architecture {
            game: "any".to_owned(),
            planes: 4,
            height: 1,
            width: 1,
            actions: 3,
            channels: 32,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
            design: weights::Design::default(),
            model: Model::Muzero { support: 5 },
        };
        let counted = LatentMultiplyAdds::of(&architecture, &LatentLayers::new(&architecture).unwrap());
        let (block, policy, scalar) = (2 * 32 * 32, 32 * 64 + 64 * 3, 32 * 64 + 64 * 11);
        assert_eq!(counted.initial, 4 * 32 + block + policy + scalar);
        assert_eq!(counted.recurrent, 32 * 32 + block + policy + 2 * scalar);
    }
}
