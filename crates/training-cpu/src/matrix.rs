use std::ops::Range;

use network::{Layer, Role};
use training::{Layout, Precision};

use crate::Path;
use crate::buffer::Buffer;
use crate::convolution::Packed;
use crate::filtering::{Filtered, FilteredGradient, FilteredPart};
use crate::norm::Moments;
use crate::shape::Shape;
use crate::stored::{Operand, Stored, StoredMut};
#[cfg(target_arch = "x86_64")]
use crate::tiles::{self, Tiled, TiledGradient, TiledPart};
use crate::weight_gradient::{Part, WeightGradient};

/// Weights of a convolution or matrix: the range within the parameters, and the packed forms for one step.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) shape: Shape,
    /// Path of the products; differs from the path of the graph if the layer went back to float32.
    pub(crate) path: Path,
    pub(crate) place: Range<usize>,
    forward: Kernel,
    transposed: Kernel,
}

/// Convolution algorithm with packed weights.
#[derive(Debug)]
pub(crate) enum Kernel {
    /// Direct sum of all products.
    Direct(Packed),
    /// Minimal filtering.
    Filtered(Filtered),
    /// Matrix tiles.
    #[cfg(target_arch = "x86_64")]
    Tiled(Tiled),
}

/// Minimum channels for minimal filtering: with fewer the additions dominate (measured on 6×7 with AVX2).
const FILTERED_INPUTS_MIN: usize = 40;
/// The same for bfloat16 products, which gain less.
const FILTERED_INPUTS_MIN_BF16: usize = 96;

/// Weight gradient, by convolution algorithm.
#[derive(Debug)]
pub(crate) enum Gradient {
    /// Direct sum of all products.
    Direct(WeightGradient),
    /// Minimal filtering.
    Filtered(FilteredGradient),
    /// Matrix tiles.
    #[cfg(target_arch = "x86_64")]
    Tiled(TiledGradient),
}

/// Work item of a thread within a weight gradient.
#[derive(Debug)]
pub(crate) enum GradientPart<'a> {
    /// Part of the direct sum.
    Direct(Part<'a>),
    /// Part of minimal filtering.
    Filtered(FilteredPart<'a>),
    /// Part on matrix tiles.
    #[cfg(target_arch = "x86_64")]
    Tiled(TiledPart<'a>),
}

/// Evaluates an expression for the content of any variant of an enum by convolution algorithm.
macro_rules! each {
    ($value:expr, $content:ident => $body:expr) => {
        match $value {
            Self::Direct($content) => $body,
            Self::Filtered($content) => $body,
            #[cfg(target_arch = "x86_64")]
            Self::Tiled($content) => $body,
        }
    };
}

impl Gradient {
    /// Returns the length of the buffer for the sums of all parts.
    pub(crate) fn sums(&self) -> usize {
        each!(self, gradient => gradient.sums())
    }

    /// Splits the gradient into parts, for inputs `[B, H, W, in]` and output gradients `[B, H, W, out]`.
    pub(crate) fn parts<'a>(&'a self, x: Operand<'a>, of_y: Operand<'a>, sums: &'a mut [f32]) -> Vec<GradientPart<'a>> {
        match self {
            Self::Direct(gradient) => {
                gradient.parts(x.floats(), of_y.floats(), sums).into_iter().map(GradientPart::Direct).collect()
            }
            Self::Filtered(gradient) => {
                gradient.parts(x.floats(), of_y.floats(), sums).into_iter().map(GradientPart::Filtered).collect()
            }
            #[cfg(target_arch = "x86_64")]
            Self::Tiled(gradient) => {
                gradient.parts(x.numbers(), of_y.numbers(), sums).into_iter().map(GradientPart::Tiled).collect()
            }
        }
    }

    /// Adds the sums of all parts to the gradient of an output range, `[outputs, taps, in]`.
    pub(crate) fn add(&self, sums: &[f32], outputs: Range<usize>, of_weights: &mut [f32]) {
        each!(self, gradient => gradient.add(sums, outputs, of_weights))
    }
}

impl GradientPart<'_> {
    /// Computes the sums of this part.
    pub(crate) fn compute(self) {
        each!(self, part => part.compute())
    }
}

impl Kernel {
    /// Returns the weight gradient for a batch of `positions`.
    pub(crate) fn gradient(&self, positions: usize, path: Path) -> Gradient {
        match self {
            Self::Direct(packed) => Gradient::Direct(WeightGradient::new(packed.shape(), positions, path)),
            Self::Filtered(filtered) => Gradient::Filtered(FilteredGradient::new(filtered.shape(), positions, path)),
            #[cfg(target_arch = "x86_64")]
            Self::Tiled(tiled) if path == Path::Amx => {
                Gradient::Tiled(TiledGradient::new(tiled.shape(), positions, path))
            }
            // In float32, as the reference of a layer check.
            #[cfg(target_arch = "x86_64")]
            Self::Tiled(tiled) => Gradient::Direct(WeightGradient::new(tiled.shape(), positions, path)),
        }
    }

    /// Chooses the fastest algorithm for a shape.
    pub(crate) fn new(shape: Shape, path: Path) -> Self {
        #[cfg(target_arch = "x86_64")]
        if tiles::suits(shape, path) {
            return Self::Tiled(Tiled::new(shape, path));
        }
        let inputs_min = match path.precision() {
            Precision::F32 => FILTERED_INPUTS_MIN,
            Precision::Bf16 | Precision::F16 => FILTERED_INPUTS_MIN_BF16,
        };
        let is_filtered = shape.side == 3 && shape.inputs.min(shape.outputs) >= inputs_min;
        match is_filtered && shape.height.min(shape.width) > 1 {
            true => Self::Filtered(Filtered::new(shape, path)),
            false => Self::Direct(Packed::new(shape, path)),
        }
    }

    /// Packs weights `[out, taps, in]` for the convolution itself.
    pub(crate) fn pack(&mut self, weights: &[f32]) {
        each!(self, packed => packed.pack(weights))
    }

    /// Packs weights `[out, taps, in]` for the gradient of the convolution's input. The kernel has the transposed
    /// shape: inputs and outputs are swapped, and taps are mirrored.
    pub(crate) fn pack_transposed(&mut self, weights: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        if let Self::Tiled(tiled) = self {
            return tiled.pack_transposed(weights);
        }
        let shape = self.shape();
        let taps = shape.taps();
        let mut transposed = vec![0.0; weights.len()];
        for (input, weights) in weights.chunks_exact(taps * shape.outputs).enumerate() {
            for (tap, weights) in weights.chunks_exact(shape.outputs).enumerate() {
                for (output, weight) in weights.iter().enumerate() {
                    transposed[(output * taps + taps - 1 - tap) * shape.inputs + input] = *weight;
                }
            }
        }
        self.pack(&transposed);
    }

    /// Returns the bytes of the packed weights.
    fn bytes(&self) -> usize {
        each!(self, packed => packed.bytes())
    }

    fn shape(&self) -> Shape {
        each!(self, packed => packed.shape())
    }

    /// Returns whether the kernel also reads and writes activations in bfloat16.
    fn takes_bf16(&self) -> bool {
        !matches!(self, Self::Direct(_) | Self::Filtered(_))
    }

    /// Writes `y` `[B, H, W, out]` from `x` `[B, H, W, in]`; `bias` is `[out]`, for matrices only.
    pub(crate) fn convolve(&self, x: Stored<'_>, bias: Option<&[f32]>, y: StoredMut<'_>) {
        match (self, bias) {
            (Self::Filtered(filtered), None) => filtered.convolve(x.floats(), y.floats()),
            (Self::Direct(packed), bias) => packed.convolve(x.floats(), bias, y.floats()),
            (Self::Filtered(_), Some(_)) => unreachable!("convolutions have no bias"),
            #[cfg(target_arch = "x86_64")]
            (Self::Tiled(tiled), bias) => tiled.convolve(x, bias, y),
        }
    }
}

impl Weights {
    /// Creates the weights of a layer with this shape.
    pub(crate) fn new(layer: &Layer, role: Role, shape: Shape, layout: &Layout, path: Path) -> Self {
        Self {
            shape,
            path,
            place: layout.parameter(&layer.tensor_name(role)),
            forward: Kernel::new(shape, path),
            transposed: Kernel::new(shape.transposed(), path),
        }
    }

    /// Switches products to `path`; the weights must be packed again.
    pub(crate) fn multiply_with(&mut self, path: Path) {
        let Self { shape, path: of_products, forward, transposed, .. } = self;
        *of_products = path;
        (*forward, *transposed) = (Kernel::new(*shape, path), Kernel::new(shape.transposed(), path));
    }

    /// Packs the current parameters `[P]`.
    pub(crate) fn pack(&mut self, parameters: &[f32]) {
        let weights = &parameters[self.place.clone()];
        self.forward.pack(weights);
        self.transposed.pack_transposed(weights);
    }

    /// Returns the bytes of both packed forms.
    pub(crate) fn packed_bytes(&self) -> usize {
        [&self.forward, &self.transposed].map(Kernel::bytes).into_iter().sum()
    }

    /// Returns whether inputs, outputs and the gradients of both may be bfloat16.
    pub(crate) fn take_bf16(&self) -> bool {
        self.forward.takes_bf16()
    }

    /// Writes the outputs of `x`, see [`Kernel::convolve`].
    pub(crate) fn apply(&self, x: Stored<'_>, bias: Option<&[f32]>, y: StoredMut<'_>) {
        self.forward.convolve(x, bias, y);
    }

    /// Writes the outputs of a convolution and returns the output moments.
    pub(crate) fn apply_measured(&self, path: Path, x: Stored<'_>, y: StoredMut<'_>) -> Moments {
        match (&self.forward, y) {
            #[cfg(target_arch = "x86_64")]
            (Kernel::Tiled(tiled), y @ StoredMut::Bf16(_)) => tiled.convolve_measured(x, y),
            (kernel, y) => {
                let y = y.floats();
                kernel.convolve(x, None, StoredMut::F32(y));
                Moments::of(path, y, self.shape.outputs)
            }
        }
    }

    /// Writes the input gradient from the output gradient.
    pub(crate) fn transposed(&self, of_y: Stored<'_>, of_x: StoredMut<'_>) {
        self.transposed.convolve(of_y, None, of_x);
    }

    /// Returns the weight gradient, and the range of the weights within the parameters.
    pub(crate) fn gradient(&self, positions: usize, path: Path) -> (Gradient, Range<usize>) {
        let positions = positions * self.shape.cells() / self.forward.shape().cells();
        (self.forward.gradient(positions, path), self.place.clone())
    }
}

/// A matrix with bias.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) weights: Weights,
    pub(crate) bias: Range<usize>,
}

impl Matrix {
    /// Creates the matrix of a linear layer.
    pub(crate) fn new(layer: &Layer, layout: &Layout, path: Path) -> Self {
        let shape = Shape::matrix(layer.inputs, layer.outputs);
        Self {
            weights: Weights::new(layer, Role::Linear, shape, layout, path),
            bias: layout.parameter(&layer.tensor_name(Role::Bias)),
        }
    }

    /// Creates the matrix of a linear layer that is applied to each cell of a board.
    pub(crate) fn of_cells(layer: &Layer, [height, width]: [usize; 2], layout: &Layout, path: Path) -> Self {
        let shape = Shape { height, width, ..Shape::matrix(layer.inputs, layer.outputs) };
        Self {
            weights: Weights::new(layer, Role::Linear, shape, layout, path),
            bias: layout.parameter(&layer.tensor_name(Role::Bias)),
        }
    }

    /// Writes the outputs `[B, out]` of `x` `[B, in]`.
    pub(crate) fn apply(&self, parameters: &[f32], x: Stored<'_>, y: &mut [f32]) {
        self.weights.apply(x, Some(&parameters[self.bias.clone()]), StoredMut::F32(y));
    }

    /// Adds the bias gradient: the sum of `of_y` `[B, out]` over the rows.
    pub(crate) fn add_bias_gradient(&self, of_y: &Buffer, gradient: &mut [f32]) {
        let of_bias = &mut gradient[self.bias.clone()];
        for row in of_y.chunks_exact(of_bias.len()) {
            of_bias.iter_mut().zip(row).for_each(|(of_bias, of_y)| *of_bias += of_y);
        }
    }
}
