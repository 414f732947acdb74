//! The network of AlphaZero as segments, each between two barriers of batch norms: statistics need all positions.
//!
//! A segment normalises the output z of a convolution, which gives the input y of the next convolutions, and computes
//! these. Threads compute it by parts of the positions, so that what a part reads and writes stays in their caches. The
//! first segment takes observations as y, the last one before the heads has the convolutions of both heads.

mod backward;
mod forward;
mod heads;

use std::ops::Range;
use std::sync::Arc;

use network::{Layer, LayerKind, Layers, Role};
use training::{Layout, TrainingBatch};
use weights::Architecture;

use crate::Path;
use crate::activation::{Activation, Kept};
use crate::buffer::{Buffer, Store};
use crate::convolution::rows_max;
use crate::losses::{Sums, Targets};
use crate::matrix::{Matrix, Weights};
use crate::norm::{Combination, GradientSums, Norm};
use crate::parts::Parts;
use crate::shape::Shape;
use crate::threads::Threads;

/// The threads of a trainer and the memory that its steps use again.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) path: Path,
    pub(crate) threads: Threads,
    pub(crate) store: Store,
}

/// The layers of an AlphaZero network with their weights as packed for one step.
#[derive(Debug)]
pub(crate) struct Tower {
    path: Path,
    /// H · W.
    cells: usize,
    planes: usize,
    /// Channels of the widest activations.
    channels_max: usize,
    /// Stem, two of each block, policy, value.
    convolutions: Vec<Convolution>,
    /// Those of the segments after the first one.
    activations: Vec<Activation>,
    policy: Matrix,
    value_hidden: Matrix,
    value_output: Matrix,
}

/// A convolution and its batch norm.
#[derive(Debug)]
struct Convolution {
    weights: Weights,
    scale: Range<usize>,
    shift: Range<usize>,
    mean: Range<usize>,
    variance: Range<usize>,
}

/// Rows of a batch that are run through the network together.
#[derive(Debug, Clone)]
pub(crate) struct MicroBatch<'a> {
    pub(crate) batch: &'a TrainingBatch,
    pub(crate) targets: Targets<'a>,
    pub(crate) rows: Range<usize>,
}

/// What a micro-batch adds to a step.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    /// `[S]`: running statistics.
    pub(crate) statistics: &'a mut [f32],
    /// `[P]`.
    pub(crate) gradient: &'a mut [f32],
    /// `[B]` of the micro-batch.
    pub(crate) value_errors: &'a mut [f32],
}

/// What the backward pass of a micro-batch needs of its forward pass.
#[derive(Debug)]
struct Tape {
    parts: Parts,
    /// The input of the convolutions of each segment, `[B, H, W, C]`.
    y: Vec<Buffer>,
    /// The output of each convolution.
    z: Vec<Buffer>,
    norms: Vec<Norm>,
    kept: Vec<Kept<Buffer>>,
}

/// The gradient of a norm's output, and that of its input as a function of it.
#[derive(Debug)]
struct OfNorm {
    gradient: Arc<Buffer>,
    combination: Combination,
}

impl Tower {
    /// The layers of `architecture`, whose parameters lie in `layout`.
    pub(crate) fn new(architecture: &Architecture, layers: &Layers, layout: &Layout, path: Path) -> Self {
        let &Architecture { planes, height, width, channels, .. } = architecture;
        let convolution = |layer: &Layer| Convolution::new(layer, [height, width], layout, path);
        let blocks = layers.blocks.iter().flat_map(|block| [&block.first, &block.second]);
        let all = std::iter::once(&layers.stem).chain(blocks).chain([&layers.policy, &layers.value]);
        let of_blocks = layers
            .blocks
            .iter()
            .flat_map(|block| [Activation::of_first(block, layout, path), Activation::of_second(block, layout, path)]);
        Self {
            path,
            cells: height * width,
            planes,
            channels_max: planes.max(channels),
            convolutions: all.map(convolution).collect(),
            activations: std::iter::once(Activation::Relu).chain(of_blocks).collect(),
            policy: Matrix::new(&layers.policy_output, layout, path),
            value_hidden: Matrix::new(&layers.value_hidden, layout, path),
            value_output: Matrix::new(&layers.value_output, layout, path),
        }
    }

    /// Packs the parameters `[P]` for a step.
    pub(crate) fn pack(&mut self, parameters: &[f32], threads: &mut Threads) {
        let heads = [&mut self.policy, &mut self.value_hidden, &mut self.value_output];
        let matrices = self.activations.iter_mut().flat_map(Activation::matrices_mut).chain(heads);
        let convolutions = self.convolutions.iter_mut().map(|convolution| &mut convolution.weights);
        let all = convolutions.chain(matrices.map(|matrix| &mut matrix.weights));
        threads.each(all.collect(), |weights: &mut Weights| weights.pack(parameters));
    }

    /// Runs a micro-batch forward and back with the parameters `[P]` that were packed.
    pub(crate) fn pass(
        &self,
        workshop: &mut Workshop,
        parameters: &[f32],
        batch: &MicroBatch<'_>,
        changes: &mut Changes<'_>,
        forward_ended: &mut dyn FnMut(),
    ) -> Sums {
        let parts = Parts::new(batch.rows.len(), rows_max(self.path), self.cells * self.channels_max);
        let mut tape = Tape { parts, y: Vec::new(), z: Vec::new(), norms: Vec::new(), kept: Vec::new() };
        for segment in 0..=self.last() {
            self.forward(workshop, parameters, batch, segment, &mut tape);
            for convolution in self.outputs(segment) {
                self.convolutions[convolution].update(&tape.norms[convolution], changes.statistics);
            }
        }
        let heads = self.heads(workshop, parameters, batch, &tape, changes);
        forward_ended();
        self.backward(workshop, tape, heads.of_norms, heads.pending, changes.gradient);
        heads.sums
    }

    /// The segment before the heads.
    fn last(&self) -> usize {
        self.activations.len()
    }

    /// The convolutions of a segment. The norm of a later segment is that of the convolution before.
    fn outputs(&self, segment: usize) -> Range<usize> {
        if segment == self.last() { segment..segment + 2 } else { segment..segment + 1 }
    }

    /// Channels of y in a segment.
    fn channels(&self, segment: usize) -> usize {
        self.convolutions[segment].weights.shape.inputs
    }

    /// The segment whose y is added in this one: blocks begin with the odd ones, and end with the next odd one.
    fn skip(segment: usize) -> Option<usize> {
        (segment > 1 && segment % 2 == 1).then(|| segment - 2)
    }
}

impl Convolution {
    fn new(layer: &Layer, [height, width]: [usize; 2], layout: &Layout, path: Path) -> Self {
        let LayerKind::Convolution { side } = layer.kind else { unreachable!("the layer is a convolution") };
        let shape = Shape { side, height, width, inputs: layer.inputs, outputs: layer.outputs };
        Self {
            weights: Weights::new(layer, Role::Convolution, shape, layout, path),
            scale: layout.parameter(&layer.tensor_name(Role::NormScale)),
            shift: layout.parameter(&layer.tensor_name(Role::NormShift)),
            mean: layout.statistic(&layer.tensor_name(Role::NormMean)),
            variance: layout.statistic(&layer.tensor_name(Role::NormVariance)),
        }
    }

    /// Moves the running statistics `[S]`.
    fn update(&self, norm: &Norm, statistics: &mut [f32]) {
        // The places of mean and variance do not overlap, in either order.
        let mut mean = statistics[self.mean.clone()].to_vec();
        norm.update(&mut mean, &mut statistics[self.variance.clone()]);
        statistics[self.mean.clone()].copy_from_slice(&mean);
    }

    /// Adds the gradients of the norm and returns that of its input.
    fn combination(&self, norm: &Norm, parts: &[GradientSums], gradient: &mut [f32]) -> Combination {
        let mut of_scale = gradient[self.scale.clone()].to_vec();
        let combination = norm.combination(parts, &mut of_scale, &mut gradient[self.shift.clone()]);
        gradient[self.scale.clone()].copy_from_slice(&of_scale);
        combination
    }
}

#[cfg(test)]
mod tests;
