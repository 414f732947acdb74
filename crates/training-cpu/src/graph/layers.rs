use std::collections::HashMap;
use std::ops::Range;

use network::{Block, Layer, Role};
use training::Layout;

use crate::Path;
use crate::activation::Activation;
use crate::matrix::{Matrix, Weights};
use crate::shape::Shape;
use crate::threads::Threads;
use crate::tower::Convolution;

/// The layers of a graph with their weights as packed for one step; each once, however often it is used.
#[derive(Debug)]
pub(crate) struct LayerSet {
    layout: Layout,
    board: [usize; 2],
    path: Path,
    pub(super) matrices: Vec<Matrix>,
    pub(super) dense: Vec<DenseLayer>,
    pub(super) convolutions: Vec<Convolution>,
    pub(super) activations: Vec<Activation>,
    /// The index of each layer among those of its kind.
    indices: HashMap<String, usize>,
}

/// A matrix and its layer norm.
#[derive(Debug)]
pub(super) struct DenseLayer {
    pub(super) weights: Weights,
    pub(super) scale: Range<usize>,
    pub(super) shift: Range<usize>,
}

impl LayerSet {
    /// No layers yet, of a network whose parameters lie in `layout`.
    pub(crate) fn new(layout: Layout, board: [usize; 2], path: Path) -> Self {
        Self {
            layout,
            board,
            path,
            matrices: Vec::new(),
            dense: Vec::new(),
            convolutions: Vec::new(),
            activations: Vec::new(),
            indices: HashMap::new(),
        }
    }

    /// The index of a matrix with bias.
    pub(super) fn matrix(&mut self, layer: &Layer) -> usize {
        *self.indices.entry(layer.name.clone()).or_insert_with(|| {
            self.matrices.push(Matrix::new(layer, &self.layout, self.path));
            self.matrices.len() - 1
        })
    }

    /// The index of a dense layer.
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

    /// The index of a convolution and of the activation behind it, which `activation` makes.
    fn convolution(&mut self, layer: &Layer, activation: impl FnOnce(&Layout, Path) -> Activation) -> usize {
        *self.indices.entry(layer.name.clone()).or_insert_with(|| {
            self.convolutions.push(Convolution::new(layer, self.board, &self.layout, self.path));
            self.activations.push(activation(&self.layout, self.path));
            self.convolutions.len() - 1
        })
    }

    /// The index of a convolution with ReLU.
    pub(super) fn rectified(&mut self, layer: &Layer) -> usize {
        self.convolution(layer, |_, _| Activation::Relu)
    }

    /// The indices of the convolutions of a block.
    pub(super) fn block(&mut self, block: &Block) -> [usize; 2] {
        [
            self.convolution(&block.first, |layout, path| Activation::of_first(block, layout, path)),
            self.convolution(&block.second, |layout, path| Activation::of_second(block, layout, path)),
        ]
    }

    /// Packs the parameters `[P]` for a step.
    pub(super) fn pack(&mut self, parameters: &[f32], threads: &mut Threads) {
        let matrices = self.activations.iter_mut().flat_map(Activation::matrices_mut).chain(&mut self.matrices);
        let convolutions = self.convolutions.iter_mut().map(|convolution| &mut convolution.weights);
        let dense = self.dense.iter_mut().map(|layer| &mut layer.weights);
        let all = convolutions.chain(dense).chain(matrices.map(|matrix| &mut matrix.weights));
        threads.each(all.collect(), |weights: &mut Weights| weights.pack(parameters));
    }
}
