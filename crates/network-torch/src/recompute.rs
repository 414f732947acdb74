//! Trains the tower of AlphaZero networks in segments of blocks, of which only the outputs are kept; what is within a
//! segment is computed again in the backward pass (Chen et al. 2016).

use network::Block;
use tch::{Kind, Tensor};
use training::{Entry, Recompute};

use crate::{
    Error, Network, network as numbers,
    tower::{Mode, Tower},
};

/// The outputs of the segments of a forward pass.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The observations, then the input of each further segment, `[B, F, H, W]`.
    inputs: Vec<Tensor>,
    /// The output of the last one, `[B, F, H, W]`.
    output: Tensor,
}

/// The number of residual blocks of a segment of `network`.
fn segment_blocks(network: &Network) -> usize {
    Recompute::segment_blocks(network.architecture().blocks)
}

impl Segments {
    /// Runs observations `[B, C, H, W]` through stem and tower, and updates the running statistics.
    pub(crate) fn forward(network: &Network, observations: &Tensor, kind: Kind) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let tower = Tower { network, kind, mode: Mode::Training };
        let layers = network.layers.alphazero()?;
        let mut segments = Self { inputs: Vec::new(), output: observations.shallow_clone() };
        for (index, blocks) in layers.blocks.chunks(segment_blocks(network)).enumerate() {
            let output = segment(tower, index, blocks, &segments.output)?;
            segments.inputs.push(std::mem::replace(&mut segments.output, output));
        }
        Ok(segments)
    }

    /// The output of the tower as a leaf of a graph of the heads.
    pub(crate) fn output(&self) -> Result<Tensor, Error> {
        Ok(self.output.f_detach()?.f_set_requires_grad(true)?)
    }

    /// Returns the gradient `[P]` of `loss`, which the heads computed from `x`, [`output`](Self::output).
    pub(crate) fn gradient(self, network: &Network, kind: Kind, x: &Tensor, loss: &Tensor) -> Result<Tensor, Error> {
        let entries = &network.layout.parameters;
        let mut gradients: Vec<Option<Tensor>> = entries.iter().map(|_| None).collect();
        let length = segment_blocks(network);
        let of_heads = indices(entries, |entry| segment_of(entry, length).is_none());
        let mut of_output = differentiate(network, loss, Some(x), &of_heads, &mut gradients)?;
        let tower = Tower { network, kind, mode: Mode::TrainingAgain };
        let blocks = network.layers.alphazero()?.blocks.chunks(length).enumerate();
        for ((index, blocks), input) in blocks.zip(self.inputs).rev() {
            // Observations need no gradient.
            let input = input.f_set_requires_grad(index > 0)?;
            let output = segment(tower, index, blocks, &input)?;
            // The derivative of this sum by the output is the gradient of the output.
            let scalar = output.f_mul(&of_output.expect("segments follow each other"))?.f_sum(None::<Kind>)?;
            let parameters = indices(entries, |entry| segment_of(entry, length) == Some(index));
            of_output = differentiate(network, &scalar, (index > 0).then_some(&input), &parameters, &mut gradients)?;
        }
        let gradients: Option<Vec<Tensor>> = gradients.into_iter().collect();
        numbers::flatten(entries, &gradients.expect("every parameter is one of a segment or a head"))
    }
}

/// Runs a segment, the first one with the stem before it.
fn segment(tower: Tower<'_>, index: usize, blocks: &[Block], x: &Tensor) -> Result<Tensor, Error> {
    match index {
        0 => tower.trunk(&tower.network.layers.alphazero()?.stem, blocks, x),
        _ => tower.blocks(blocks, x.shallow_clone()),
    }
}

/// Keeps the gradients of some parameters and returns that of `x`.
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

/// The segment of a parameter of stem or tower.
fn segment_of(entry: &Entry, length: usize) -> Option<usize> {
    let name = &entry.tensor.name;
    if name.starts_with("stem.") {
        return Some(0);
    }
    let index: usize = name.strip_prefix("block.")?.split('.').next()?.parse().ok()?;
    Some(index / length)
}
