//! Trains stem and blocks of AlphaZero networks in segments of blocks that keep only the output; the backward pass
//! recomputes the inside of a segment (Chen et al. 2016).

use network::{AttentionBlock, Block, Layer, Layers};
use tch::{Kind, Tensor};
use training::{Entry, Recompute};

use crate::{
    Error, Network, network as numbers,
    tower::{Mode, Tower},
};

/// Kept outputs of the segments in a forward pass.
#[derive(Debug)]
pub(crate) struct Segments {
    /// Observations, then the input of each further segment, `[B, F, H, W]`.
    inputs: Vec<Tensor>,
    /// Output of the last segment, `[B, F, H, W]`.
    output: Tensor,
}

/// A segment: the first one starts with the stem, and each has blocks of one kind.
#[derive(Debug, Clone, Copy)]
struct Segment<'a> {
    stem: Option<&'a Layer>,
    blocks: &'a [Block],
    attention: &'a [AttentionBlock],
}

/// Returns the segments of a network in order.
fn segments(layers: &Layers) -> Vec<Segment<'_>> {
    let [of_blocks, of_attention] = [layers.blocks.len(), layers.attention.len()].map(Recompute::segment_blocks);
    let whole = Segment { stem: None, blocks: &[], attention: &[] };
    let blocks = layers.blocks.chunks(of_blocks).map(|blocks| Segment { blocks, ..whole });
    let attention = layers.attention.chunks(of_attention).map(|attention| Segment { attention, ..whole });
    let mut segments: Vec<Segment<'_>> = blocks.chain(attention).collect();
    match segments.first_mut() {
        Some(first) => first.stem = Some(&layers.stem),
        None => segments.push(Segment { stem: Some(&layers.stem), ..whole }),
    }
    segments
}

impl Segments {
    /// Runs observations `[B, C, H, W]` through stem and tower, and updates the running statistics.
    pub(crate) fn forward(network: &Network, observations: &Tensor, kind: Kind) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let tower = Tower { network, kind, mode: Mode::Training };
        let mut kept = Self { inputs: Vec::new(), output: observations.shallow_clone() };
        for segment in segments(network.layers.alphazero()?) {
            let output = segment.forward(tower, &kept.output)?;
            kept.inputs.push(std::mem::replace(&mut kept.output, output));
        }
        Ok(kept)
    }

    /// Returns the output of the tower as a leaf for a graph of the heads.
    pub(crate) fn output(&self) -> Result<Tensor, Error> {
        Ok(self.output.f_detach()?.f_set_requires_grad(true)?)
    }

    /// Returns the gradient `[P]` of `loss`, which the heads computed from `x`, [`output`](Self::output).
    pub(crate) fn gradient(self, network: &Network, kind: Kind, x: &Tensor, loss: &Tensor) -> Result<Tensor, Error> {
        let entries = &network.layout.parameters;
        let mut gradients: Vec<Option<Tensor>> = entries.iter().map(|_| None).collect();
        let segments = segments(network.layers.alphazero()?);
        let of_heads = indices(entries, |entry| !segments.iter().any(|segment| segment.has(entry)));
        let mut of_output = differentiate(network, loss, Some(x), &of_heads, &mut gradients)?;
        let tower = Tower { network, kind, mode: Mode::TrainingAgain };
        for (segment, input) in segments.into_iter().zip(self.inputs).rev() {
            // Observations need no gradient.
            let is_inner = segment.stem.is_none();
            let input = input.f_set_requires_grad(is_inner)?;
            let output = segment.forward(tower, &input)?;
            // The derivative of this sum by the output is the gradient of the output.
            let scalar = output.f_mul(&of_output.expect("segments follow each other"))?.f_sum(None::<Kind>)?;
            let parameters = indices(entries, |entry| segment.has(entry));
            of_output = differentiate(network, &scalar, is_inner.then_some(&input), &parameters, &mut gradients)?;
        }
        let gradients: Option<Vec<Tensor>> = gradients.into_iter().collect();
        numbers::flatten(entries, &gradients.expect("every parameter is one of a segment or a head"))
    }
}

impl Segment<'_> {
    fn forward(self, tower: Tower<'_>, x: &Tensor) -> Result<Tensor, Error> {
        let x = match self.stem {
            Some(stem) => tower.trunk(stem, self.blocks, x)?,
            None => tower.blocks(self.blocks, x.shallow_clone())?,
        };
        tower.attention(self.attention, x)
    }

    /// Returns whether a parameter belongs to the segment.
    fn has(self, entry: &Entry) -> bool {
        let blocks = self.blocks.iter().flat_map(Block::layers);
        let layers = self.stem.into_iter().chain(blocks).chain(self.attention.iter().flat_map(AttentionBlock::layers));
        let mut rests = layers.filter_map(|layer| entry.tensor.name.strip_prefix(layer.name.as_str()));
        rests.any(|rest| rest.starts_with('.'))
    }
}

/// Stores the gradients of `parameters` and returns the gradient of `x`.
fn differentiate(
    network: &Network,
    scalar: &Tensor,
    x: Option<&Tensor>,
    parameters: &[usize],
    gradients: &mut [Option<Tensor>],
) -> Result<Option<Tensor>, Error> {
    let inputs: Vec<&Tensor> = parameters.iter().map(|&index| &network.parameters[index]).chain(x).collect();
    let mut computed = Tensor::f_run_backward(&[scalar], &inputs, false, false)?.into_iter();
    parameters.iter().zip(&mut computed).for_each(|(&index, gradient)| gradients[index] = Some(gradient));
    Ok(computed.next())
}

fn indices(entries: &[Entry], is_chosen: impl Fn(&Entry) -> bool) -> Vec<usize> {
    entries.iter().enumerate().filter(|(_, entry)| is_chosen(entry)).map(|(index, _)| index).collect()
}
