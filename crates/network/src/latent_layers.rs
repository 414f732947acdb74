use weights::{Architecture, Model, NormKind};

use crate::layers::{Block, Layer, check};
use crate::{ACTION_PLANES, ChanceLayers, Error, HEAD_CHANNELS, VALUE_HIDDEN};

/// Layers of a MuZero network (Schrittwieser et al. 2020): representation, dynamics and prediction heads. An
/// AlphaZero network of returns has the same layers without dynamics and reward.
///
/// A latent state is the output of a trunk, rescaled to `[0, 1]`: `(x − min) / (max − min + 1e-5)` over all elements
/// of the state. The heads read latent states: policy logits `[A]`, and logits of value and reward over the 2n + 1
/// atoms of the support. The reward is read from the state after the action.
///
/// With vector observations `[P, 1, 1]` the network is dense with H = `channels` hidden units. A dense layer is a
/// matrix, layer norm, and ReLU. Representation: `[P]` to `[H]`, then blocks of two dense layers, with the block
/// input added before the last ReLU. Dynamics: the same on `[H + A]`, a latent state and the action as a one-hot
/// vector. Heads: a dense layer to 64, then a matrix.
///
/// With other observations `[P, H, W]` the network is residual with C = `channels`. The trunks are the stem and
/// blocks of [`Layers`](crate::Layers). The dynamics stem takes `[C + 4, H, W]`: a latent state, and four planes that
/// a matrix computes from the one-hot action, so that an action that names a cell can mark it. The heads are as in
/// [`Layers`](crate::Layers), with the reward head like the value head.
///
/// Layers are called `representation.input`, `representation.block.I.first`, `representation.block.I.second` and the
/// same with `dynamics`; `dynamics.action` maps actions to planes; `policy`, `value` and `reward` are convolutions,
/// and `policy.hidden`, `policy.output` and so on dense and linear.
///
/// In Stochastic MuZero the dynamics lead from afterstates to states, with a chance code in place of the action;
/// [`ChanceLayers`] lead to afterstates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatentLayers {
    /// Observations to latent states.
    pub representation: Trunk,
    /// Latent states to policy logits `[A]`.
    pub policy: Head,
    /// Latent states to logits of the value `[2n + 1]`.
    pub value: Head,
    /// Layers of a step; `None` in an AlphaZero network, where the search steps by the rules.
    pub dynamics: Option<DynamicsLayers>,
    /// Additional layers of Stochastic MuZero.
    pub chance: Option<ChanceLayers>,
}

/// Layers of a step from one latent state to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DynamicsLayers {
    /// States and actions, or afterstates and chance codes, to the next states.
    pub transition: Transition,
    /// Latent states to logits of the reward `[2n + 1]`.
    pub reward: Head,
}

/// Layers from a latent state and an action, or a chance code, to a latent state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// One-hot actions `[A]`, or chance codes `[M]`, to planes `[4 · H · W]`; only in a residual network.
    pub action: Option<Layer>,
    /// `[state, action]` to the next state.
    pub trunk: Trunk,
}

/// Part of a network that computes a latent state before the rescaling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trunk {
    /// Trunk of vectors.
    Dense {
        /// First layer, to H units.
        input: Layer,
        /// Pairs of layers that keep H units.
        blocks: Vec<[Layer; 2]>,
    },
    /// Trunk of planes.
    Residual {
        /// First convolution, to C channels.
        stem: Layer,
        /// Blocks that keep C channels.
        blocks: Vec<Block>,
    },
}

/// Layers of a prediction head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// 1×1 convolution, in a residual network only.
    pub convolution: Option<Layer>,
    /// Features to hidden units; none in a residual policy head. Dense in a dense network, otherwise linear with
    /// ReLU.
    pub hidden: Option<Layer>,
    /// Features or hidden units to logits.
    pub output: Layer,
}

impl LatentLayers {
    /// Returns the layers of an architecture.
    ///
    /// # Errors
    /// The same as [`check`], and [`Error::Model`] for an AlphaZero architecture that predicts win, draw and loss.
    pub fn new(architecture: &Architecture) -> Result<Self, Error> {
        check(architecture)?;
        let Some(support) = architecture.model.support() else { return Err(Error::Model { expected: "muzero" }) };
        let &Architecture { planes, height, width, actions, .. } = architecture;
        let chance = match architecture.model {
            Model::StochasticMuzero { codes, .. } => Some(ChanceLayers::new(architecture, codes)),
            Model::Alphazero | Model::AlphazeroReturns { .. } | Model::Muzero { .. } => None,
        };
        let with_hidden = Head::with_hidden(architecture, "policy", actions);
        let policy = match is_vector(architecture) {
            true => with_hidden,
            false => {
                let output = Layer::linear("policy.output", height * width * HEAD_CHANNELS, actions);
                Head { hidden: None, output, ..with_hidden }
            }
        };
        // Chance chooses a code where a player chooses an action.
        let choices = chance.as_ref().map_or(actions, |chance| chance.code.output.outputs);
        Ok(Self {
            representation: Trunk::of(architecture, "representation", planes),
            policy,
            value: Head::with_hidden(architecture, "value", 2 * support + 1),
            dynamics: architecture.model.has_dynamics().then(|| DynamicsLayers {
                transition: Transition::of(architecture, "dynamics", choices),
                reward: Head::with_hidden(architecture, "reward", 2 * support + 1),
            }),
            chance,
        })
    }

    /// Iterates over all layers, from the observation to the outputs.
    pub fn iter(&self) -> impl Iterator<Item = &Layer> {
        let dynamics = self.dynamics.as_ref();
        let transition = dynamics.into_iter().flat_map(|dynamics| dynamics.transition.layers());
        let heads = [&self.policy, &self.value].into_iter().chain(dynamics.map(|dynamics| &dynamics.reward));
        self.representation
            .layers()
            .into_iter()
            .chain(transition)
            .chain(heads.flat_map(Head::layers))
            .chain(self.chance.iter().flat_map(ChanceLayers::layers))
    }
}

impl Transition {
    /// Returns the layers of a checked architecture; `choices` counts the actions, or the chance codes.
    pub(crate) fn of(architecture: &Architecture, name: &str, choices: usize) -> Self {
        let &Architecture { height, width, channels, .. } = architecture;
        let (action, beside) = match is_vector(architecture) {
            true => (None, choices),
            false => {
                let planes = ACTION_PLANES * height * width;
                (Some(Layer::linear(&format!("{name}.action"), choices, planes)), ACTION_PLANES)
            }
        };
        Self { action, trunk: Trunk::of(architecture, name, channels + beside) }
    }

    /// Iterates over the layers in order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.action.iter().chain(self.trunk.layers())
    }
}

/// Returns true if the observations of an architecture are vectors, so that a MuZero network is dense.
#[must_use]
pub fn is_vector(architecture: &Architecture) -> bool {
    architecture.height * architecture.width == 1
}

impl Trunk {
    /// Returns the trunk of an architecture, dense or residual, with this number of input units or planes.
    pub(crate) fn of(architecture: &Architecture, name: &str, inputs: usize) -> Self {
        match is_vector(architecture) {
            true => Self::dense(name, inputs, architecture.channels, architecture.blocks),
            false => Self::residual(name, architecture, inputs),
        }
    }

    fn dense(name: &str, inputs: usize, units: usize, blocks: usize) -> Self {
        let block = |index: usize| {
            ["first", "second"].map(|part| Layer::dense(&format!("{name}.block.{index}.{part}"), units, units))
        };
        Self::Dense {
            input: Layer::dense(&format!("{name}.input"), inputs, units),
            blocks: (0..blocks).map(block).collect(),
        }
    }

    fn residual(name: &str, architecture: &Architecture, inputs: usize) -> Self {
        let block = |index| Block::named(&format!("{name}.block.{index}"), architecture, index);
        Self::Residual {
            stem: Layer::convolution(&format!("{name}.input"), (3, NormKind::Batch), inputs, architecture.channels),
            blocks: (0..architecture.blocks).map(block).collect(),
        }
    }

    /// Returns the layers in order.
    #[must_use]
    pub fn layers(&self) -> Vec<&Layer> {
        match self {
            Self::Dense { input, blocks } => std::iter::once(input).chain(blocks.iter().flatten()).collect(),
            Self::Residual { stem, blocks } => {
                std::iter::once(stem).chain(blocks.iter().flat_map(Block::layers)).collect()
            }
        }
    }
}

impl Head {
    /// Returns a head with hidden units, dense or residual as the architecture.
    pub(crate) fn with_hidden(architecture: &Architecture, name: &str, outputs: usize) -> Self {
        let &Architecture { height, width, channels, .. } = architecture;
        let name_of_hidden = format!("{name}.hidden");
        let (convolution, hidden) = match is_vector(architecture) {
            true => (None, Layer::dense(&name_of_hidden, channels, VALUE_HIDDEN)),
            false => (
                Some(Layer::convolution(name, (1, NormKind::Batch), channels, HEAD_CHANNELS)),
                Layer::linear(&name_of_hidden, height * width * HEAD_CHANNELS, VALUE_HIDDEN),
            ),
        };
        let output = Layer::linear(&format!("{name}.output"), VALUE_HIDDEN, outputs);
        Self { convolution, hidden: Some(hidden), output }
    }

    /// Iterates over the layers in order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.convolution.iter().chain(&self.hidden).chain(std::iter::once(&self.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn architecture(height: usize) -> Architecture {
        Architecture {
            model: Model::Muzero { support: 10 },
            ..Architecture::plain("any", [4, height, height], 2, [16, 1])
        }
    }

    fn shapes(architecture: &Architecture, part: &str) -> Vec<(String, Vec<usize>)> {
        let layers = LatentLayers::new(architecture).unwrap();
        let tensors = layers.iter().flat_map(Layer::tensors).filter(|tensor| tensor.role.is_weight());
        tensors.filter(|tensor| tensor.name.contains(part)).map(|tensor| (tensor.name, tensor.shape)).collect()
    }

    #[test]
    fn a_network_of_vectors_is_dense_and_takes_the_action_beside_the_state() {
        let expected: [(&str, &[usize]); 3] = [
            ("dynamics.input.weight", &[16, 18]),
            ("dynamics.block.0.first.weight", &[16, 16]),
            ("dynamics.block.0.second.weight", &[16, 16]),
        ];
        let expected: Vec<_> = expected.map(|(name, shape)| (name.to_owned(), shape.to_vec())).into();
        assert_eq!(shapes(&architecture(1), "dynamics"), expected);
        assert_eq!(shapes(&architecture(1), "reward.output"), [("reward.output.weight".to_owned(), vec![21, 64])]);
    }

    #[test]
    fn a_network_of_planes_is_residual_and_takes_the_action_as_planes() {
        let expected: [(&str, &[usize]); 4] = [
            ("dynamics.action.weight", &[4 * 9, 2]),
            ("dynamics.input.convolution.weight", &[16, 20, 3, 3]),
            ("dynamics.block.0.first.convolution.weight", &[16, 16, 3, 3]),
            ("dynamics.block.0.second.convolution.weight", &[16, 16, 3, 3]),
        ];
        let expected: Vec<_> = expected.map(|(name, shape)| (name.to_owned(), shape.to_vec())).into();
        assert_eq!(shapes(&architecture(3), "dynamics"), expected);
    }

    #[test]
    fn an_alphazero_network_of_returns_is_a_muzero_network_without_dynamics_and_reward() {
        for height in [1, 3] {
            let muzero = architecture(height);
            let returns = Architecture { model: Model::AlphazeroReturns { support: 10 }, ..muzero.clone() };
            let mut expected = shapes(&muzero, "");
            expected.retain(|(name, _)| !name.starts_with("dynamics") && !name.starts_with("reward"));
            assert_eq!(shapes(&returns, ""), expected);
        }
    }

    #[test]
    fn an_alphazero_architecture_has_no_latent_layers() {
        let alphazero = Architecture { model: Model::Alphazero, ..architecture(3) };
        assert_eq!(LatentLayers::new(&alphazero).unwrap_err(), Error::Model { expected: "muzero" });
    }

    #[test]
    fn names_of_tensors_differ() {
        let muzero = [1, 3].map(architecture);
        let stochastic = muzero
            .clone()
            .map(|muzero| Architecture { model: Model::StochasticMuzero { support: 10, codes: 8 }, ..muzero });
        for architecture in muzero.into_iter().chain(stochastic) {
            let layers = LatentLayers::new(&architecture).unwrap();
            let mut names: Vec<_> = layers.iter().flat_map(Layer::tensors).map(|tensor| tensor.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
