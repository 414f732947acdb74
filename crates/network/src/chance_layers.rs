use weights::Architecture;

use crate::{Head, Layer, Transition, Trunk};

/// Layers of Stochastic MuZero in addition to MuZero (Antonoglou et al. 2022): afterstate dynamics, afterstate
/// predictions, and the chance encoder.
///
/// A latent state and an action give an afterstate, which has the form of a latent state. The afterstate heads give
/// logits of the value `[2n + 1]` and of the chance codes `[M]`. The [dynamics](crate::LatentLayers::dynamics) take
/// an afterstate and a code. The encoder reads the observations before and after a step, concatenated as
/// `[2P, H, W]`, and gives M numbers; the index of the largest is the code. Only training uses it.
///
/// Layer names follow the other trunks and heads: `afterstate.…`, `afterstate.action`, `afterstate_value.…`,
/// `code.…`, `encoder.…` and `encoding.…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChanceLayers {
    /// Latent states and actions to afterstates.
    pub afterstate: Transition,
    /// Afterstates to logits of the value `[2n + 1]`.
    pub value: Head,
    /// Afterstates to logits of the chance codes `[M]`.
    pub code: Head,
    /// Pairs of observations to features in the form of a latent state.
    pub encoder: Trunk,
    /// Features to numbers `[M]`; the index of the largest is the code.
    pub encoding: Head,
}

impl ChanceLayers {
    /// Returns the layers of a checked architecture with latent states.
    pub(crate) fn new(architecture: &Architecture, codes: usize) -> Self {
        let atoms = 2 * architecture.model.support().unwrap_or(1) + 1;
        let head = |name: &str, outputs| Head::with_hidden(architecture, name, outputs);
        Self {
            afterstate: Transition::of(architecture, "afterstate", architecture.actions),
            value: head("afterstate_value", atoms),
            code: head("code", codes),
            encoder: Trunk::of(architecture, "encoder", 2 * architecture.planes),
            encoding: head("encoding", codes),
        }
    }

    /// Iterates over the layers in order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        let heads = [&self.value, &self.code, &self.encoding];
        self.afterstate.layers().chain(self.encoder.layers()).chain(heads.into_iter().flat_map(Head::layers))
    }
}

#[cfg(test)]
mod tests {
    use weights::Model;

    use super::*;
    use crate::LatentLayers;

    fn shapes(height: usize) -> Vec<(String, Vec<usize>)> {
        let architecture = Architecture {
            model: Model::StochasticMuzero { support: 10, codes: 8 },
            ..Architecture::plain("any", [4, height, height], 3, [16, 0])
        };
        let layers = LatentLayers::new(&architecture).unwrap();
        let tensors = layers.iter().flat_map(Layer::tensors).filter(|tensor| tensor.role.is_weight());
        tensors.map(|tensor| (tensor.name, tensor.shape)).collect()
    }

    #[test]
    fn actions_lead_to_afterstates_and_codes_to_states() {
        for (height, expected) in [
            (1, [("afterstate.input.weight", vec![16, 19]), ("dynamics.input.weight", vec![16, 24])]),
            (3, [("afterstate.action.weight", vec![36, 3]), ("dynamics.action.weight", vec![36, 8])]),
        ] {
            for (name, shape) in expected {
                assert!(shapes(height).contains(&(name.to_owned(), shape.clone())), "{name} {shape:?}");
            }
        }
    }

    #[test]
    fn the_encoder_reads_two_observations_and_names_a_code() {
        let shapes = shapes(1);
        assert!(shapes.contains(&("encoder.input.weight".to_owned(), vec![16, 8])), "{shapes:?}");
        for head in ["encoding.output.weight", "code.output.weight"] {
            assert!(shapes.contains(&(head.to_owned(), vec![8, 64])), "{shapes:?}");
        }
        assert!(shapes.contains(&("afterstate_value.output.weight".to_owned(), vec![21, 64])), "{shapes:?}");
    }
}
