use std::collections::HashMap;
use std::ops::Range;

use network::{AttentionBlock, Block, Layer, LayerKind, NormKind, Role};
use training::Layout;

use crate::Path;
use crate::activation::Activation;
use crate::attention::Attention;
use crate::matrix::{Matrix, Weights};
use crate::norm::{Combination, GradientSums, Moments, Norm};
use crate::position_norm::PositionNorm;
use crate::shape::Shape;
use crate::threads::Threads;

/// Layers of a graph with weights packed for one step. Each layer is packed once, however often it is used.
#[derive(Debug)]
pub(crate) struct LayerSet {
    layout: Layout,
    board: [usize; 2],
    path: Path,
    pub(super) matrices: Vec<Matrix>,
    pub(super) dense: Vec<DenseLayer>,
    pub(super) convolutions: Vec<Convolution>,
    pub(super) activations: Vec<Activation>,
    pub(super) attentions: Vec<Attention>,
    /// Norms of single positions.
    pub(super) position_norms: Vec<PositionNorm>,
    /// Index of each layer by name, within the list of the same kind.
    indices: HashMap<String, usize>,
}

/// A matrix with layer norm.
#[derive(Debug)]
pub(super) struct DenseLayer {
    pub(super) weights: Weights,
    pub(super) scale: Range<usize>,
    pub(super) shift: Range<usize>,
}

/// A convolution with norm.
#[derive(Debug)]
pub(super) struct Convolution {
    pub(super) weights: Weights,
    scale: Range<usize>,
    shift: Range<usize>,
    /// Running statistics of a batch norm; empty with a norm of single positions.
    mean: Range<usize>,
    variance: Range<usize>,
    /// Index of the norm of single positions, if there is one.
    pub(super) position_norm: Option<usize>,
}

impl LayerSet {
    /// Creates an empty set for a network with parameters in `layout`.
    pub(crate) fn new(layout: Layout, board: [usize; 2], path: Path) -> Self {
        Self {
            layout,
            board,
            path,
            matrices: Vec::new(),
            dense: Vec::new(),
            convolutions: Vec::new(),
            activations: Vec::new(),
            attentions: Vec::new(),
            position_norms: Vec::new(),
            indices: HashMap::new(),
        }
    }

    /// Returns the index of a matrix with bias.
    pub(super) fn matrix(&mut self, layer: &Layer) -> usize {
        *self.indices.entry(layer.name.clone()).or_insert_with(|| {
            self.matrices.push(Matrix::new(layer, &self.layout, self.path));
            self.matrices.len() - 1
        })
    }

    /// Returns the index of a matrix with bias for each cell.
    pub(super) fn cell_matrix(&mut self, layer: &Layer) -> usize {
        self.matrices.push(Matrix::of_cells(layer, self.board, &self.layout, self.path));
        self.matrices.len() - 1
    }

    /// Returns the index of the layer norm before a per-cell matrix.
    pub(super) fn pre_norm(&mut self, layer: &Layer) -> usize {
        let parameters = [Role::NormScale, Role::NormShift].map(|role| self.layout.parameter(&layer.tensor_name(role)));
        let cells = self.board[0] * self.board[1];
        self.position_norms.extend(PositionNorm::of(NormKind::Layer, cells, parameters));
        self.position_norms.len() - 1
    }

    /// Returns the index of a block's attention.
    pub(super) fn attention(&mut self, block: &AttentionBlock) -> usize {
        self.attentions.push(Attention::new(block, self.board, &self.layout));
        self.attentions.len() - 1
    }

    /// Returns the index of a dense layer.
    pub(super) fn dense(&mut self, layer: &Layer) -> usize {
        *self.indices.entry(layer.name.clone()).or_insert_with(|| {
            let shape = Shape::matrix(layer.inputs, layer.outputs);
            self.dense.push(DenseLayer {
                weights: Weights::new(layer, Role::Linear, shape, &self.layout, self.path),
                scale: self.layout.parameter(&layer.tensor_name(Role::NormScale)),
                shift: self.layout.parameter(&layer.tensor_name(Role::NormShift)),
            });
            self.dense.len() - 1
        })
    }

    /// Returns the index shared by a convolution and the activation after it, which `activation` makes.
    fn convolution(&mut self, layer: &Layer, activation: impl FnOnce(&Layout, Path) -> Activation) -> usize {
        *self.indices.entry(layer.name.clone()).or_insert_with(|| {
            let mut convolution = Convolution::new(layer, self.board, &self.layout, self.path);
            let LayerKind::Convolution { norm, .. } = layer.kind else { unreachable!("the layer is a convolution") };
            let parameters = [convolution.scale.clone(), convolution.shift.clone()];
            if let Some(norm) = PositionNorm::of(norm, self.board[0] * self.board[1], parameters) {
                self.position_norms.push(norm);
                convolution.position_norm = Some(self.position_norms.len() - 1);
            }
            self.convolutions.push(convolution);
            self.activations.push(activation(&self.layout, self.path));
            self.convolutions.len() - 1
        })
    }

    /// Returns the index of a convolution followed by norm and activation function alone.
    pub(super) fn rectified(&mut self, layer: &Layer) -> usize {
        self.convolution(layer, |_, _| Activation::Plain)
    }

    /// Returns the indices of a block's convolutions, in order.
    pub(super) fn block(&mut self, block: &Block) -> Vec<usize> {
        let indices = block.convolutions().map(|layer| {
            self.convolution(layer, |layout, path| match layer {
                first if *first == block.first => Activation::of_first(block, layout, path),
                last if last == block.last() => Activation::of_last(block, layout, path),
                _ => Activation::Plain,
            })
        });
        indices.collect()
    }

    /// Iterates over the weights of all layers.
    pub(super) fn weights(&self) -> impl Iterator<Item = &Weights> {
        let matrices = self.activations.iter().flat_map(Activation::matrices).chain(&self.matrices);
        let convolutions = self.convolutions.iter().map(|convolution| &convolution.weights);
        let dense = self.dense.iter().map(|layer| &layer.weights);
        convolutions.chain(dense).chain(matrices.map(|matrix| &matrix.weights))
    }

    fn weights_mut(&mut self) -> impl Iterator<Item = &mut Weights> {
        let matrices = self.activations.iter_mut().flat_map(Activation::matrices_mut).chain(&mut self.matrices);
        let convolutions = self.convolutions.iter_mut().map(|convolution| &mut convolution.weights);
        let dense = self.dense.iter_mut().map(|layer| &mut layer.weights);
        convolutions.chain(dense).chain(matrices.map(|matrix| &mut matrix.weights))
    }

    /// Packs the parameters `[P]` for a step.
    pub(super) fn pack(&mut self, parameters: &[f32], threads: &mut Threads) {
        threads.each(self.weights_mut().collect(), |weights: &mut Weights| weights.pack(parameters));
    }

    /// Switches the weights at these parameter ranges to float32 products.
    pub(super) fn multiply_in_float32(&mut self, places: &[Range<usize>]) {
        let chosen = self.weights_mut().filter(|weights| places.contains(&weights.place));
        chosen.for_each(|weights| weights.multiply_with(Path::widest()));
    }
}

impl Convolution {
    fn new(layer: &Layer, [height, width]: [usize; 2], layout: &Layout, path: Path) -> Self {
        let LayerKind::Convolution { side, norm } = layer.kind else { unreachable!("the layer is a convolution") };
        let statistic = |role| match norm {
            NormKind::Batch => layout.statistic(&layer.tensor_name(role)),
            NormKind::Layer | NormKind::Group => 0..0,
        };
        let shape = Shape { side, height, width, inputs: layer.inputs, outputs: layer.outputs };
        Self {
            weights: Weights::new(layer, Role::Convolution, shape, layout, path),
            scale: layout.parameter(&layer.tensor_name(Role::NormScale)),
            shift: layout.parameter(&layer.tensor_name(Role::NormShift)),
            mean: statistic(Role::NormMean),
            variance: statistic(Role::NormVariance),
            position_norm: None,
        }
    }

    /// Returns the batch norm of a batch with these `parts`.
    pub(super) fn norm(&self, parts: &[Moments], parameters: &[f32]) -> Norm {
        Norm::new(parts, &parameters[self.scale.clone()], &parameters[self.shift.clone()])
    }

    /// Updates the running statistics `[S]`.
    pub(super) fn update(&self, norm: &Norm, statistics: &mut [f32]) {
        // The ranges of mean and variance do not overlap, but either may come first.
        let mut mean = statistics[self.mean.clone()].to_vec();
        norm.update(&mut mean, &mut statistics[self.variance.clone()]);
        statistics[self.mean.clone()].copy_from_slice(&mean);
    }

    /// Adds the gradients of the norm's parameters and returns the combination for the gradient of the input.
    pub(super) fn combination(&self, norm: &Norm, parts: &[GradientSums], gradient: &mut [f32]) -> Combination {
        let mut of_scale = gradient[self.scale.clone()].to_vec();
        let combination = norm.combination(parts, &mut of_scale, &mut gradient[self.shift.clone()]);
        gradient[self.scale.clone()].copy_from_slice(&of_scale);
        combination
    }
}
