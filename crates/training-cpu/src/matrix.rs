use std::ops::Range;

use network::{Layer, Role};
use training::Layout;

use crate::Path;
use crate::buffer::Buffer;
use crate::convolution::Packed;
use crate::shape::Shape;
use crate::weight_gradient::WeightGradient;

/// The weights of a convolution or a matrix, their place among the parameters, and their packed forms for one step.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) shape: Shape,
    place: Range<usize>,
    forward: Packed,
    transposed: Packed,
}

impl Weights {
    /// Those of a layer with this shape.
    pub(crate) fn new(layer: &Layer, role: Role, shape: Shape, layout: &Layout, path: Path) -> Self {
        Self {
            shape,
            place: layout.parameter(&layer.tensor_name(role)),
            forward: Packed::new(shape, path),
            transposed: Packed::new(shape.transposed(), path),
        }
    }

    /// Packs the parameters `[P]` as they are now.
    pub(crate) fn pack(&mut self, parameters: &[f32]) {
        let weights = &parameters[self.place.clone()];
        self.forward.pack(weights);
        self.transposed.pack_transposed(weights);
    }

    /// Writes the outputs of `x`, see [`Packed::convolve`].
    pub(crate) fn apply(&self, x: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
        self.forward.convolve(x, bias, y);
    }

    /// Writes the gradient of the input from that of the output.
    pub(crate) fn transposed(&self, of_y: &[f32], of_x: &mut [f32]) {
        self.transposed.convolve(of_y, None, of_x);
    }

    /// The gradient of the weights, and its place among the parameters.
    pub(crate) fn gradient(&self, positions: usize, path: Path) -> (WeightGradient, Range<usize>) {
        (WeightGradient::new(self.shape, positions, path), self.place.clone())
    }
}

/// A matrix with its bias.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) weights: Weights,
    pub(crate) bias: Range<usize>,
}

impl Matrix {
    /// The matrix of a linear layer.
    pub(crate) fn new(layer: &Layer, layout: &Layout, path: Path) -> Self {
        let shape = Shape::matrix(layer.inputs, layer.outputs);
        Self {
            weights: Weights::new(layer, Role::Linear, shape, layout, path),
            bias: layout.parameter(&layer.tensor_name(Role::Bias)),
        }
    }

    /// Writes the outputs `[B, out]` of `x` `[B, in]`.
    pub(crate) fn apply(&self, parameters: &[f32], x: &[f32], y: &mut [f32]) {
        self.weights.apply(x, Some(&parameters[self.bias.clone()]), y);
    }

    /// Adds the gradient of the bias, the sum of `of_y` `[B, out]` over the rows.
    pub(crate) fn add_bias_gradient(&self, of_y: &Buffer, gradient: &mut [f32]) {
        let of_bias = &mut gradient[self.bias.clone()];
        for row in of_y.chunks_exact(of_bias.len()) {
            of_bias.iter_mut().zip(row).for_each(|(of_bias, of_y)| *of_bias += of_y);
        }
    }
}
