//! The beginning of a training with given weights, such as weights of another board. Start with [`begin_with`].

use std::collections::HashMap;
use std::fmt;

use weights::{Architecture, Design, Model};

use crate::checkpoint::{self, State};
use crate::{Entry, Error, Layout, ModelLayers, MomentFormat, Numbers, Trainer, TrainerSettings};

/// Maximum number of new tensors to list by name.
const LISTED_MAX: usize = 12;

/// The tensors of a network that begins with given weights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Number of tensors of the network.
    pub tensors: usize,
    /// Tensors that keep the initial values, with the shape: `policy.output.weight [37, 1152]`.
    pub new: Vec<String>,
    /// Number of matrices and convolutions of the tower that are taken.
    tower: usize,
}

/// Writes the number of tensors that are taken, and the new tensors.
impl fmt::Display for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensors, new, .. } = self;
        write!(f, "taken: {} of {tensors} tensors", tensors - new.len())?;
        if new.is_empty() {
            return Ok(());
        }
        write!(f, "; new: {}", new[..new.len().min(LISTED_MAX)].join(", "))?;
        match new.len().saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Replaces the weights of a new `trainer` for the network `to` by the weights in the file `bytes` of the network
/// `from`, as [`adopt`] does. The average becomes a copy of the result, so that the first published version has it.
///
/// # Errors
/// As for [`adopt`], and errors of [`Trainer::files`] and [`Trainer::load`]; the trainer is then unchanged.
pub fn begin_with(
    trainer: &mut dyn Trainer,
    settings: &TrainerSettings,
    [from, to]: [&Architecture; 2],
    bytes: &[u8],
) -> Result<Adopted, Error> {
    let layout = settings.layers(to)?.layout();
    // Checkpoint files store moments in float32, and a new trainer has moments of zero.
    let mut state = State::read(&layout, settings.optimiser, MomentFormat::F32, &trainer.files()?)?;
    let adopted = adopt([from, to], bytes, &layout, &mut state.network)?;
    state.average = state.network.clone();
    trainer.load(&state.files(&layout, settings.optimiser)?)?;
    Ok(adopted)
}

/// Replaces each tensor in `numbers`, the numbers of the network `to` with this layout, by the tensor with the same
/// name and shape in the file `bytes` of the network `from`. All other tensors stay as they are.
///
/// # Errors
/// [`Error::InitialWeights`] if the networks have different models or compute with different layers, or if no tensor
/// of the tower fits; [`Error::Network`] if the file does not hold the tensors of `from`.
pub fn adopt(
    [from, to]: [&Architecture; 2],
    bytes: &[u8],
    layout: &Layout,
    numbers: &mut Numbers,
) -> Result<Adopted, Error> {
    check(from, to)?;
    let given = ModelLayers::new(from)?.layout();
    let Numbers { parameters, statistics } = checkpoint::read(&given, bytes)?;
    let mut adopted = Adopted::default();
    adopted.take(&given.parameters, &parameters, &layout.parameters, &mut numbers.parameters);
    adopted.take(&given.statistics, &statistics, &layout.statistics, &mut numbers.statistics);
    if adopted.tower == 0 {
        let [of_weights, of_network] = [from, to].map(size);
        let reason = format!(
            "no tensor of the tower has the same shape in {of_weights} and in {of_network}; set network.blocks and \
             network.channels as in the weights"
        );
        return Err(Error::InitialWeights { reason });
    }
    Ok(adopted)
}

/// Checks that tensors of equal names have equal meanings in both networks.
fn check(from: &Architecture, to: &Architecture) -> Result<(), Error> {
    let parts = |Architecture { model, design: Design { activation, block, norm, .. }, .. }: &Architecture| {
        let (activation, block, norm) = (activation.name(), block.name(), norm.name());
        [("model", kind(*model)), ("activation", activation), ("block", block), ("norm", norm)]
    };
    for ((key, given), (_, wanted)) in parts(from).into_iter().zip(parts(to)) {
        if given != wanted {
            let reason = format!("network.{key} is {wanted}, but the weights have {given}");
            return Err(Error::InitialWeights { reason });
        }
    }
    Ok(())
}

/// Returns the name of the kind of a model.
const fn kind(model: Model) -> &'static str {
    match model {
        Model::Alphazero => "alphazero",
        Model::AlphazeroReturns { .. } => "alphazero with returns",
        Model::Muzero { .. } => "muzero",
        Model::StochasticMuzero { .. } => "stochastic_muzero",
    }
}

fn size(Architecture { blocks, channels, .. }: &Architecture) -> String {
    format!("{blocks} blocks of {channels} channels")
}

impl Adopted {
    /// Copies the tensors that fit from the buffer `given` to the buffer `numbers`.
    fn take(&mut self, from: &[Entry], given: &[f32], to: &[Entry], numbers: &mut [f32]) {
        let from: HashMap<&str, &Entry> = from.iter().map(|entry| (entry.tensor.name.as_str(), entry)).collect();
        self.tensors += to.len();
        for entry in to {
            let Entry { tensor, .. } = entry;
            match from.get(tensor.name.as_str()).filter(|found| found.tensor.shape == tensor.shape) {
                Some(found) => {
                    numbers[entry.range()].copy_from_slice(&given[found.range()]);
                    self.tower += usize::from(entry.is_of_tower() && tensor.role.is_weight());
                }
                None => self.new.push(format!("{} {:?}", tensor.name, tensor.shape)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weights::{Activation, HeadKind, NormKind};

    use super::*;

    fn of_side(side: usize) -> Architecture {
        Architecture {
            game: format!("any-{side}"),
            planes: 2,
            height: side,
            width: side,
            actions: side * side,
            channels: 6,
            blocks: 2,
            squeeze_excitation: 3,
            global_pooling: 0,
            design: Design::default(),
            model: Model::Alphazero,
        }
    }

    fn initial(architecture: &Architecture, seed: u64) -> (Layout, Numbers) {
        let layout = ModelLayers::new(architecture).unwrap().layout();
        let numbers = Numbers::initial(&layout, seed);
        (layout, numbers)
    }

    /// Returns the outcome for networks with different seeds, with the numbers given and the numbers afterwards.
    fn adopted(from: &Architecture, to: &Architecture) -> Result<(Adopted, [(Layout, Numbers); 2]), String> {
        let ((given_layout, given), (layout, mut numbers)) = (initial(from, 1), initial(to, 2));
        let bytes = checkpoint::write(&given_layout, &given.parameters, &given.statistics).unwrap();
        let adopted = adopt([from, to], &bytes, &layout, &mut numbers).map_err(|error| error.to_string())?;
        Ok((adopted, [(given_layout, given), (layout, numbers)]))
    }

    #[test]
    fn every_tensor_of_an_equal_network_is_taken() {
        for model in [Model::Alphazero, Model::Muzero { support: 3 }, Model::AlphazeroReturns { support: 3 }] {
            let architecture = Architecture { model, squeeze_excitation: 0, ..of_side(3) };
            let (adopted, [(_, given), (_, numbers)]) = adopted(&architecture, &architecture).unwrap();
            assert_eq!((adopted.new.len(), &given), (0, &numbers), "{model:?}");
            assert_eq!(adopted.to_string(), format!("taken: {0} of {0} tensors", adopted.tensors));
        }
    }

    #[test]
    fn on_another_board_heads_over_all_cells_are_new_and_stem_and_tower_are_taken() {
        let (adopted, [(old, given), (new, numbers)]) = adopted(&of_side(5), &of_side(6)).unwrap();
        let expected = ["policy.output.weight [36, 1152]", "value.hidden.weight [64, 1152]", "policy.output.bias [36]"];
        assert_eq!(adopted.new, expected);
        for name in ["stem.convolution.weight", "block.1.second.norm.bias", "value.output.weight"] {
            assert_eq!(given.parameters[old.parameter(name)], numbers.parameters[new.parameter(name)], "{name}");
        }
        let name = "block.1.first.norm.variance";
        assert_eq!(given.statistics[old.statistic(name)], numbers.statistics[new.statistic(name)]);
        let (_, before) = initial(&of_side(6), 2);
        let output = new.parameter("policy.output.weight");
        assert_eq!(before.parameters[output.clone()], numbers.parameters[output], "new tensors stay random");
        let text = adopted.to_string();
        assert!(
            text.ends_with(
                "tensors; new: policy.output.weight [36, 1152], value.hidden.weight [64, 1152], policy.output.bias [36]"
            ),
            "{text}"
        );
    }

    #[test]
    fn pooled_heads_fit_every_board_and_further_blocks_are_new() {
        let pooled =
            |side| Architecture { design: Design { heads: HeadKind::Pooled, ..Design::default() }, ..of_side(side) };
        assert_eq!(adopted(&pooled(5), &pooled(6)).unwrap().0.new.len(), 0);
        let deeper = Architecture { blocks: 4, ..of_side(5) };
        let (adopted, _) = adopted(&of_side(5), &deeper).unwrap();
        assert!(adopted.new.iter().all(|name| name.starts_with("block.2.") || name.starts_with("block.3.")));
        assert!(adopted.to_string().ends_with(&format!(" and {} more", adopted.new.len() - LISTED_MAX)));
    }

    #[test]
    fn other_models_layers_and_towers_are_refused_with_the_reason() {
        let with = |design| Architecture { design, ..of_side(3) };
        for (to, reason) in [
            (
                Architecture { model: Model::Muzero { support: 3 }, ..of_side(3) },
                "network.model is muzero, but the weights have alphazero",
            ),
            (with(Design { activation: Activation::Mish, ..Design::default() }), "network.activation is mish, but"),
            (with(Design { norm: NormKind::Layer, ..Design::default() }), "network.norm is layer, but"),
            (Architecture { channels: 8, ..of_side(3) }, "in 2 blocks of 6 channels and in 2 blocks of 8 channels"),
        ] {
            let error = adopted(&of_side(3), &to).unwrap_err();
            assert!(error.starts_with("the weights do not suit the network: ") && error.contains(reason), "{error}");
        }
        let (layout, mut numbers) = initial(&of_side(3), 2);
        let before = numbers.clone();
        let error = adopt([&of_side(3), &of_side(3)], b"{}", &layout, &mut numbers).unwrap_err();
        assert!(matches!(error, Error::Network(network::Error::Format(_))), "{error}");
        assert_eq!(numbers, before);
    }
}
