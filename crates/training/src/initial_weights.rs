//! The beginning of a training with given weights, such as weights of another board. Start with [`begin_with`].

use std::collections::HashMap;
use std::fmt;

use network::Role;
use weights::{Architecture, Design, HeadKind, Model};

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
/// name and shape in the file `bytes` of the network `from`. All other tensors stay as they are, and on a board of
/// another height or width also the tensors that belong to cells of one board.
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
    let mut given = ModelLayers::new(from)?.layout();
    let Numbers { parameters, statistics } = checkpoint::read(&given, bytes)?;
    if [from.height, from.width] != [to.height, to.width] {
        given.parameters.retain(|entry| !is_of_board(entry, from.design.heads));
    }
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
    let scoring = |architecture: &Architecture| match architecture.model {
        Model::Alphazero => Some("the outcome"),
        Model::AlphazeroReturns { .. } => Some("rewards"),
        Model::Muzero { .. } | Model::StochasticMuzero { .. } => None,
    };
    if let [Some(given), Some(wanted)] = [from, to].map(scoring)
        && given != wanted
    {
        let (of_weights, game) = (&from.game, &to.game);
        let reason = format!("{game} is scored by {wanted}, but the game of the weights, {of_weights}, by {given}");
        return Err(Error::InitialWeights { reason });
    }
    let have_attention = from.design.attention.min(to.design.attention) > 0;
    let parts = |architecture: &Architecture| {
        let Design { activation, block, norm, attention_heads, .. } = architecture.design;
        [
            ("model", architecture.model.name().to_owned()),
            ("activation", activation.to_string()),
            ("block", block.to_string()),
            ("norm", norm.to_string()),
            ("attention_heads", if have_attention { attention_heads.to_string() } else { String::new() }),
        ]
    };
    for ((key, given), (_, wanted)) in parts(from).into_iter().zip(parts(to)) {
        if given != wanted {
            let reason = format!("network.{key} is {wanted}, but the weights have {given}");
            return Err(Error::InitialWeights { reason });
        }
    }
    Ok(())
}

/// Returns whether the numbers of a tensor belong to cells of one board, as in flattened heads, planes for actions and
/// offsets between cells. On a board with another height or width, such as 4×9 and 6×6, an equal shape has another
/// meaning.
fn is_of_board(entry: &Entry, heads: HeadKind) -> bool {
    let (layer, role) = (entry.tensor.layer(), entry.tensor.role);
    let is_hidden = layer.ends_with(".hidden") && role.is_weight() && !entry.is_of_tower();
    let is_flattened = heads == HeadKind::Flattened && (layer == "policy.output" || is_hidden);
    is_flattened || layer.ends_with(".action") || role == Role::Offsets
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
    use weights::{Activation, NormKind};

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
    fn tensors_of_cells_are_new_on_a_board_of_as_many_cells_in_another_shape() {
        let on = |[height, width]: [usize; 2], design, model| Architecture {
            height,
            width,
            actions: 36,
            squeeze_excitation: 0,
            design,
            model,
            ..of_side(6)
        };
        let attention = Design { attention: 1, attention_heads: 2, ..Design::default() };
        let pooled = Design { heads: HeadKind::Pooled, ..attention };
        let flattened = ["policy.output.weight [36, 1152]", "value.hidden.weight [64, 1152]"];
        let offsets = "attention.0.position.offsets [2, 119]";
        let of_action = ["dynamics.action.weight [144, 36]", "dynamics.action.bias [144]"];
        let muzero = [of_action[0], flattened[0], flattened[1], "reward.hidden.weight [64, 1152]", of_action[1]];
        for (design, model, expected) in [
            (attention, Model::Alphazero, [&flattened[..], &[offsets, "policy.output.bias [36]"]].concat()),
            (pooled, Model::Alphazero, vec![offsets]),
            (Design::default(), Model::Muzero { support: 3 }, [&muzero[..], &["policy.output.bias [36]"]].concat()),
        ] {
            let (adopted, _) = adopted(&on([4, 9], design, model), &on([9, 4], design, model)).unwrap();
            let (mut new, mut expected) = (adopted.new, expected);
            new.sort();
            expected.sort_unstable();
            assert_eq!(new, expected, "{model:?}");
        }
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
        let of_heads = |attention_heads| with(Design { attention: 1, attention_heads, ..Design::default() });
        for (to, reason) in [
            (
                Architecture { model: Model::AlphazeroReturns { support: 3 }, game: "2048".to_owned(), ..of_side(3) },
                "2048 is scored by rewards, but the game of the weights, any-3, by the outcome",
            ),
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
        let error = adopted(&of_heads(2), &of_heads(3)).unwrap_err();
        assert!(error.ends_with("network.attention_heads is 3, but the weights have 2"), "{error}");
        assert!(adopted(&of_side(3), &of_heads(3)).is_ok(), "attention is new");
        let (layout, mut numbers) = initial(&of_side(3), 2);
        let before = numbers.clone();
        let error = adopt([&of_side(3), &of_side(3)], b"{}", &layout, &mut numbers).unwrap_err();
        assert!(matches!(error, Error::Network(network::Error::Format(_))), "{error}");
        assert_eq!(numbers, before);
    }
}
