//! Growth of a network during training: more blocks or channels, with initially equal outputs (Net2Net, Chen et al.
//! 2016).

use std::collections::HashMap;

use network::{AttentionBlock, Layers, NormKind, Role};
use weights::{Activation, Architecture, Design, Model};

use crate::checkpoint::State;
use crate::moments::Moment;
use crate::{Entry, Error, ModelLayers, MomentFormat, Numbers};

/// Returns the training state of `from`, converted to the larger network `to`, which initially computes the same
/// outputs.
///
/// - New blocks follow the old blocks. The scale γ of the last norm is 0, so that a new block adds nothing to the
///   input, and the final ReLU leaves the input unchanged. Any other activation would change the input, so a network
///   with another activation cannot grow in blocks.
/// - New attention blocks follow the old attention blocks. Matrices and biases that add to the input are 0.
/// - New channels, and new hidden units of squeeze-and-excitation, follow the old channels and units. Incoming weights
///   are initialised from `seed`; old outputs have weights of 0 for the new channels.
/// - New parameters have zero moments, and averages equal to the network. Moments are float32, as in files.
///
/// # Errors
/// [`Error::Growth`] if a dimension shrinks, or if `to` differs in a way that would change the outputs.
pub fn grow(from: &Architecture, to: &Architecture, state: &State, seed: u64) -> Result<State, Error> {
    check(from, to)?;
    let [old, new] = [from, to].map(|architecture| ModelLayers::new(architecture).map(|layers| layers.layout()));
    let (old, new) = (old?, new?);
    let mut fresh = Numbers::initial(&new, seed);
    let layers = Layers::new(to)?;
    // Biases of a new network are already 0.
    let scales = layers.blocks[from.blocks..].iter().map(|block| block.last().tensor_name(Role::NormScale));
    let attention = layers.attention[from.design.attention..].iter().flat_map(AttentionBlock::added);
    for name in scales.chain(attention.map(|layer| layer.tensor_name(Role::Linear))) {
        fresh.parameters[new.parameter(&name)].fill(0.0);
    }
    let numbers = |numbers: &Numbers| Numbers {
        parameters: transplant(&old.parameters, &numbers.parameters, &new.parameters, fresh.parameters.clone()),
        statistics: transplant(&old.statistics, &numbers.statistics, &new.statistics, fresh.statistics.clone()),
    };
    let moment = |moment: &Moment| {
        let fresh = vec![0.0; fresh.parameters.len()];
        let numbers = transplant(&old.parameters, &moment.to_floats(), &new.parameters, fresh);
        Moment::of(moment.kind, MomentFormat::F32, numbers)
    };
    let mut grown = state.clone();
    grown.network = numbers(&state.network);
    grown.average = numbers(&state.average);
    grown.moments = state.moments.iter().map(moment).collect();
    Ok(grown)
}

/// Checks that network `from` can grow to `to` with unchanged outputs.
fn check(from: &Architecture, to: &Architecture) -> Result<(), Error> {
    let refused = |reason: String| Err(Error::Growth { reason });
    if from.model != Model::Alphazero {
        return refused(
            "a MuZero network rescales states over all channels, so added channels would change them".into(),
        );
    }
    let other = Architecture {
        channels: from.channels,
        blocks: from.blocks,
        squeeze_excitation: from.squeeze_excitation,
        design: Design { attention: from.design.attention, attention_heads: from.design.attention_heads, ..to.design },
        ..to.clone()
    };
    if other != *from {
        return refused("only blocks, channels, squeeze_excitation and attention may differ".into());
    }
    for (what, old, new) in [
        ("channels", from.channels, to.channels),
        ("blocks", from.blocks, to.blocks),
        ("squeeze_excitation", from.squeeze_excitation, to.squeeze_excitation),
        ("attention", from.design.attention, to.design.attention),
    ] {
        if new < old {
            return refused(format!("{what} {old} cannot become {new}"));
        }
    }
    if from.squeeze_excitation == 0 && to.squeeze_excitation > 0 && from.blocks > 0 {
        return refused("squeeze_excitation in blocks without it would change the block outputs".into());
    }
    let Design { attention, attention_heads: heads, .. } = from.design;
    if attention > 0 && heads != to.design.attention_heads {
        return refused(format!("attention_heads {heads} cannot become {}", to.design.attention_heads));
    }
    if from.channels != to.channels && (from.design.norm == NormKind::Layer || attention > 0) {
        return refused("a layer norm is over all channels, so added channels would change the output".into());
    }
    let activation = to.design.activation;
    if to.blocks > from.blocks && activation != Activation::Relu {
        return refused(format!(
            "an added block applies {activation} once more and changes the output; add only channels or attention"
        ));
    }
    Ok(())
}

/// Copies the old tensors to the larger buffer `fresh`. Weights from new inputs to old outputs are set to 0; all other
/// new numbers keep the values in `fresh`.
fn transplant(from: &[Entry], numbers: &[f32], to: &[Entry], mut fresh: Vec<f32>) -> Vec<f32> {
    let old: HashMap<&str, &Entry> = from.iter().map(|entry| (entry.tensor.name.as_str(), entry)).collect();
    for entry in to {
        let Some(before) = old.get(entry.tensor.name.as_str()) else { continue };
        let ([outputs, inputs], [new_outputs, new_inputs]) = (sides(before), sides(entry));
        let rows = numbers[before.range()].chunks_exact(before.len / outputs).enumerate();
        let width = entry.len / new_outputs;
        for (output, row) in rows {
            let place = entry.offset + row_of(entry, output, [outputs, new_outputs]) * width;
            for (tap, of_tap) in row.chunks_exact(inputs).enumerate() {
                let to = &mut fresh[place + tap * new_inputs..][..new_inputs];
                to.fill(0.0);
                to[..inputs].copy_from_slice(of_tap);
            }
        }
    }
    fresh
}

/// Returns the number of outputs and inputs of a tensor, which is stored as `[outputs, taps, inputs]`.
fn sides(entry: &Entry) -> [usize; 2] {
    match entry.tensor.shape[..] {
        [outputs, inputs, ..] => [outputs, inputs],
        _ => [entry.len, 1],
    }
}

/// Returns the row of an old output in the larger tensor. In squeeze-and-excitation, channel scales precede channel
/// shifts, so the rows of shifts move.
fn row_of(entry: &Entry, output: usize, [old, new]: [usize; 2]) -> usize {
    let is_shift = entry.tensor.name.contains(".excitation.output.") && output >= old / 2;
    if is_shift { output - old / 2 + new / 2 } else { output }
}

#[cfg(test)]
mod tests {
    use weights::{BlockKind, Design, HeadKind};

    use crate::moments::MomentKind;

    use super::*;
    use crate::Layout;

    fn small() -> Architecture {
        Architecture {
            game: "small".into(),
            planes: 2,
            height: 3,
            width: 3,
            actions: 9,
            channels: 6,
            blocks: 3,
            squeeze_excitation: 3,
            global_pooling: 2,
            design: Design::default(),
            model: Model::Alphazero,
        }
    }

    fn with_attention(attention: usize, attention_heads: usize) -> Design {
        Design { attention, attention_heads, ..Design::default() }
    }

    fn layout(architecture: &Architecture) -> Layout {
        ModelLayers::new(architecture).unwrap().layout()
    }

    /// Returns a state in which all numbers differ.
    fn state(architecture: &Architecture) -> State {
        let layout = layout(architecture);
        let numbered = |entries: &[Entry], first: usize| -> Vec<f32> {
            let of_entry = |entry: &Entry| {
                let numbers = (first + entry.offset..).take(entry.len).map(|number| number as f32);
                numbers.chain(std::iter::repeat_n(0.0, entry.padding())).collect::<Vec<f32>>()
            };
            entries.iter().flat_map(of_entry).collect()
        };
        let numbers = |first| Numbers {
            parameters: numbered(&layout.parameters, first),
            statistics: numbered(&layout.statistics, first),
        };
        State {
            network: numbers(1),
            average: numbers(2),
            moments: vec![Moment::of(MomentKind::Gradient, MomentFormat::F32, numbered(&layout.parameters, 3))],
            step: 7,
            progress: 0.5,
            averaged_since: None,
            mixed: Default::default(),
        }
    }

    #[test]
    fn old_numbers_keep_their_places_and_read_new_channels_with_weights_of_zero() {
        let (from, to) = (small(), Architecture { channels: 8, blocks: 5, squeeze_excitation: 4, ..small() });
        let before = state(&from);
        let grown = grow(&from, &to, &before, 1).unwrap();
        let (old, new) = (layout(&from), layout(&to));
        let of = |layout: &Layout, numbers: &[f32], name: &str| numbers[layout.parameter(name)].to_vec();
        let pair = |name: &str| [of(&old, &before.network.parameters, name), of(&new, &grown.network.parameters, name)];
        let [weights, wide] = pair("block.1.first.convolution.weight");
        for (output, row) in wide.chunks_exact(9 * 8).take(6).enumerate() {
            for (tap, inputs) in row.chunks_exact(8).enumerate() {
                assert_eq!(inputs[..6], weights[output * 54 + tap * 6..][..6]);
                assert_eq!(inputs[6..], [0.0; 2]);
            }
        }
        assert!(wide[6 * 72..].iter().all(|weight| *weight != 0.0), "new channels read all channels");
        // Channel scales precede channel shifts.
        let [bias, wide] = pair("block.1.excitation.output.bias");
        assert_eq!((&wide[..6], &wide[8..14]), (&bias[..6], &bias[6..]));
        assert_eq!([wide[6], wide[7], wide[14], wide[15]], [0.0; 4]);
        assert_eq!(of(&new, &grown.network.parameters, "block.4.second.norm.weight"), [0.0; 8]);
        assert_eq!(of(&new, &grown.network.parameters, "block.4.first.norm.weight"), [1.0; 8]);
        assert_eq!(of(&new, &grown.moments[0].to_floats(), "block.4.first.convolution.weight"), vec![0.0; 9 * 64]);
        let [variance, wide] = [(&old, &before), (&new, &grown)]
            .map(|(layout, state)| state.average.statistics[layout.statistic("stem.norm.variance")].to_vec());
        assert_eq!((&wide[..6], &wide[6..]), (&variance[..], &[1.0; 2][..]));
        assert_eq!((grown.step, grown.progress), (7, 0.5));
    }

    #[test]
    fn new_attention_blocks_add_nothing() {
        let (from, to) = (small(), Architecture { design: with_attention(2, 3), ..small() });
        let grown = grow(&from, &to, &state(&from), 1).unwrap();
        let new = layout(&to);
        for name in ["attention.1.output", "attention.0.feed_forward.output"] {
            for part in ["weight", "bias"] {
                let place = new.parameter(&format!("{name}.{part}"));
                assert!(grown.network.parameters[place].iter().all(|number| *number == 0.0), "{name}.{part}");
            }
        }
        let qkv = &grown.network.parameters[new.parameter("attention.0.qkv.weight")];
        assert!(
            qkv.iter().all(|weight| *weight != 0.0),
            "what is added is a function of the position once it is trained"
        );
    }

    #[test]
    fn a_network_grows_into_itself_without_a_change() {
        let mish = Design { activation: Activation::Mish, block: BlockKind::Bottleneck, ..Design::default() };
        let pooled = Design { heads: HeadKind::Pooled, ..Design::default() };
        for design in [Design::default(), mish, with_attention(2, 3), pooled] {
            let architecture = Architecture { design, ..small() };
            let before = state(&architecture);
            assert_eq!(grow(&architecture, &architecture, &before, 1).unwrap(), before);
        }
    }

    #[test]
    fn what_would_change_the_function_is_refused_with_the_reason() {
        let mish = Design { activation: Activation::Mish, ..Design::default() };
        let layer = Design { norm: NormKind::Layer, ..Design::default() };
        let of = |design| Architecture { design, ..small() };
        let refused = |from: Architecture, to: Architecture| {
            grow(&from, &to, &state(&small()), 1).map(drop).unwrap_err().to_string()
        };
        for (from, to, reason) in [
            (small(), Architecture { channels: 5, ..small() }, "channels 6 cannot become 5"),
            (small(), Architecture { blocks: 2, ..small() }, "blocks 3 cannot become 2"),
            (small(), Architecture { global_pooling: 3, ..small() }, "only blocks, channels"),
            (small(), Architecture { design: mish, ..small() }, "only blocks, channels"),
            (Architecture { squeeze_excitation: 0, ..small() }, small(), "squeeze_excitation in blocks"),
            (
                Architecture { design: mish, ..small() },
                Architecture { design: mish, blocks: 4, ..small() },
                "applies mish once more",
            ),
            (Architecture { model: Model::Muzero { support: 5 }, ..small() }, small(), "a MuZero network"),
            (of(with_attention(2, 3)), of(with_attention(1, 3)), "attention 2 cannot become 1"),
            (of(with_attention(2, 3)), of(with_attention(2, 2)), "attention_heads 3 cannot become 2"),
            (
                of(with_attention(2, 3)),
                Architecture { channels: 9, ..of(with_attention(2, 3)) },
                "a layer norm is over all channels",
            ),
            (of(layer), Architecture { channels: 9, ..of(layer) }, "a layer norm is over all channels"),
            (small(), of(layer), "only blocks, channels"),
            (small(), of(Design { heads: HeadKind::Pooled, ..Design::default() }), "only blocks, channels"),
        ] {
            let error = refused(from, to);
            assert!(error.contains(reason), "{error}");
        }
        let wider = Architecture { design: mish, channels: 9, ..small() };
        assert!(grow(&Architecture { design: mish, ..small() }, &wider, &state(&small()), 1).is_ok());
    }
}
