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
use training::Layout;
use weights::Architecture;

use crate::Path;
use crate::activation::{Activation, Kept};
use crate::buffer::{Buffer, Store};
use crate::convolution::rows_max;
use crate::losses::{Sums, Targets};
use crate::matrix::{Matrix, Weights};
use crate::norm::{Combination, GradientSums, Moments, Norm};
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
pub(crate) struct Convolution {
    pub(crate) weights: Weights,
    scale: Range<usize>,
    shift: Range<usize>,
    mean: Range<usize>,
    variance: Range<usize>,
}

/// Rows of a batch that are run through the network together.
#[derive(Debug, Clone)]
pub(crate) struct MicroBatch<'a> {
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
    pub(crate) fn new(layer: &Layer, [height, width]: [usize; 2], layout: &Layout, path: Path) -> Self {
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

    /// The norm of a batch that consists of `parts`.
    pub(crate) fn norm(&self, parts: &[Moments], parameters: &[f32]) -> Norm {
        Norm::new(parts, &parameters[self.scale.clone()], &parameters[self.shift.clone()])
    }

    /// Moves the running statistics `[S]`.
    pub(crate) fn update(&self, norm: &Norm, statistics: &mut [f32]) {
        // The places of mean and variance do not overlap, in either order.
        let mut mean = statistics[self.mean.clone()].to_vec();
        norm.update(&mut mean, &mut statistics[self.variance.clone()]);
        statistics[self.mean.clone()].copy_from_slice(&mean);
    }

    /// Adds the gradients of the norm and returns that of its input.
    pub(crate) fn combination(&self, norm: &Norm, parts: &[GradientSums], gradient: &mut [f32]) -> Combination {
        let mut of_scale = gradient[self.scale.clone()].to_vec();
        let combination = norm.combination(parts, &mut of_scale, &mut gradient[self.shift.clone()]);
        gradient[self.scale.clone()].copy_from_slice(&of_scale);
        combination
    }
}

#[cfg(test)]
mod tests {
    use network::Layers;
    use training::{Layout, Numbers, Precision, TrainingBatch};
    use weights::Architecture;

    use super::{Changes, MicroBatch, Tower, Workshop};
    use crate::Path;
    use crate::buffer::Store;
    use crate::losses::{Sums, Targets};
    use crate::reference::{assert_tensors_close, reference};
    use crate::tests::networks::{batch, complete, numbers, plain};
    use crate::threads::Threads;

    const VALUE_LOSS_WEIGHT: f64 = 0.7;

    struct Results {
        sums: Sums,
        gradient: Vec<f32>,
        statistics: Vec<f32>,
    }

    fn layout(architecture: &Architecture) -> (Layers, Layout) {
        let layers = Layers::new(architecture).unwrap();
        let layout = Layout::new(layers.tensors(), std::iter::empty());
        (layers, layout)
    }

    fn pass(
        architecture: &Architecture,
        numbers: &Numbers,
        batch: &TrainingBatch,
        path: Path,
        threads: usize,
    ) -> Results {
        let (layers, layout) = layout(architecture);
        let mut workshop = Workshop { path, threads: Threads::new(threads).unwrap(), store: Store::default() };
        let mut tower = Tower::new(architecture, &layers, &layout, path);
        tower.pack(&numbers.parameters, &mut workshop.threads);
        let positions = batch.policy_weights.len();
        let micro_batch = MicroBatch { targets: Targets::new(batch, VALUE_LOSS_WEIGHT), rows: 0..positions };
        let mut results = None;
        // The second pass uses the memory of the first again.
        for _ in 0..2 {
            let mut gradient = vec![0.0; numbers.parameters.len()];
            let mut statistics = numbers.statistics.clone();
            let mut value_errors = vec![0.0; positions];
            let mut changes =
                Changes { statistics: &mut statistics, gradient: &mut gradient, value_errors: &mut value_errors };
            let sums = tower.pass(&mut workshop, &numbers.parameters, &micro_batch, &mut changes, &mut || {});
            results = Some(Results { sums, gradient, statistics });
        }
        results.unwrap()
    }

    fn cases() -> Vec<(Architecture, usize)> {
        vec![
            (complete(), 7),
            (complete(), 13),
            (plain(1, 1), 6),
            (plain(6, 7), 3),
            (plain(1, 5), 1),
            // Enough channels for minimal filtering.
            (Architecture { blocks: 1, channels: 43, ..plain(6, 7) }, 3),
            (Architecture { blocks: 0, actions: 1, planes: 1, ..plain(2, 2) }, 9),
            (Architecture { blocks: 1, channels: 3, actions: 26, ..plain(5, 5) }, 4),
            (Architecture { blocks: 1, channels: 4, actions: 362, planes: 2, ..plain(19, 19) }, 2),
        ]
    }

    #[test]
    fn losses_gradients_and_statistics_agree_with_float64() {
        for (architecture, positions) in cases() {
            let (_, layout) = layout(&architecture);
            let numbers = numbers(&layout, 3);
            let mut batch = batch(&architecture, positions, 5);
            batch.importance = (0..positions).map(|row| 1.0 / (1 + row % 3) as f32).collect();
            let expected = reference(&architecture, &layout, &numbers, &batch, VALUE_LOSS_WEIGHT);
            for path in Path::ALL.into_iter().filter(|path| path.is_available() && path.precision() == Precision::F32) {
                let what = format!("{path}, {positions} positions of {architecture:?}");
                let got = pass(&architecture, &numbers, &batch, path, 2);
                let losses = [(got.sums.policy, expected.policy), (got.sums.value, expected.value)];
                assert!(
                    losses.iter().all(|(got, expected)| (got - expected).abs() < 1e-5 * (1.0 + expected)),
                    "{what}: {losses:?}"
                );
                // Parameters whose gradient is zero by symmetry have the rounding errors of their terms.
                assert_tensors_close(&what, &layout.parameters, &got.gradient, &expected.gradient, [1e-4, 1e-2]);
                assert_tensors_close(&what, &layout.statistics, &got.statistics, &expected.statistics, [1e-5, 1e-2]);
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let wide = Architecture { channels: 40, ..plain(6, 7) };
        for (architecture, positions) in [(complete(), 61), (wide, 40)] {
            let (_, layout) = layout(&architecture);
            let (numbers, batch) = (numbers(&layout, 3), batch(&architecture, positions, 5));
            let results = [1, 2, 3, 7].map(|threads| pass(&architecture, &numbers, &batch, Path::widest(), threads));
            for other in &results[1..] {
                assert_eq!(results[0].gradient, other.gradient, "{architecture:?}");
                assert_eq!((results[0].sums, &results[0].statistics), (other.sums, &other.statistics));
            }
        }
    }
}
