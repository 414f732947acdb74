//! The operations between a batch norm and the next convolution. Each reads the input z of the norm instead of its
//! output n, which is nowhere in memory.

mod excite;
mod pool;
mod rectify;

use training::Layout;

pub(crate) use rectify::Rectify;

use crate::Path;
use crate::matrix::Matrix;
use crate::norm::Norm;

/// The operation between a batch norm with output n and the next convolution, whose input is y.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a network has few")]
pub(crate) enum Activation {
    /// `y = relu(n)`, or with a skip connection `relu(n + skip)`.
    Relu,
    /// Global pooling (Wu 2019, section 3.3), then ReLU: with `v = [mean of relu(n[:G]), max of relu(n[:G])]` over the
    /// cells, `y = relu([n[:G], n[G:] + W v + b])`.
    Pooled(Matrix),
    /// Squeeze-and-excitation (Hu et al. 2018) and a skip connection: with `t = W₂ relu(W₁ [mean of n] + b₁) + b₂`,
    /// `y = relu(sigmoid(t[:C]) · n + t[C:] + skip)`.
    Excited {
        /// W₁ `[S, C]`.
        hidden: Matrix,
        /// W₂ `[2C, S]`.
        output: Matrix,
    },
}

/// The numbers of each position that an activation keeps for its gradient.
#[derive(Debug, Default)]
pub(crate) struct Kept<T> {
    /// What the cells of a channel are squeezed to: `[B, 2G]`, `[B, C]`.
    pub(crate) squeezed: T,
    /// `[B, S]`.
    pub(crate) hidden: T,
    /// What is added to cells, and for excitation before it the sigmoid that they are multiplied by: `[B, C − G]`,
    /// `[B, 2C]`.
    pub(crate) terms: T,
    /// The gradient of the hidden units before ReLU.
    pub(crate) of_hidden: T,
    /// The gradient of the terms, for excitation before the sigmoid.
    pub(crate) of_terms: T,
}

/// A batch norm and its input for some positions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Normed<'a> {
    pub(crate) norm: &'a Norm,
    /// `[B, H, W, C]`.
    pub(crate) z: &'a [f32],
    /// H · W.
    pub(crate) cells: usize,
}

impl Normed<'_> {
    fn channels(&self) -> usize {
        self.norm.mean.len()
    }

    /// H · W · C.
    fn position(&self) -> usize {
        self.cells * self.channels()
    }
}

impl Activation {
    /// The matrices of the activation.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let [first, second] = match self {
            Self::Relu => [None, None],
            Self::Pooled(pooling) => [Some(pooling), None],
            Self::Excited { hidden, output } => [Some(hidden), Some(output)],
        };
        first.into_iter().chain(second)
    }

    /// The same matrices.
    pub(crate) fn matrices_mut(&mut self) -> impl Iterator<Item = &mut Matrix> {
        let [first, second] = match self {
            Self::Relu => [None, None],
            Self::Pooled(pooling) => [Some(pooling), None],
            Self::Excited { hidden, output } => [Some(hidden), Some(output)],
        };
        first.into_iter().chain(second)
    }

    /// Numbers of each position in the order of [`Kept`].
    pub(crate) fn sizes(&self) -> Kept<usize> {
        match self {
            Self::Relu => Kept::default(),
            Self::Pooled(pooling) => {
                let shape = pooling.weights.shape;
                Kept { squeezed: shape.inputs, terms: shape.outputs, of_terms: shape.outputs, ..Kept::default() }
            }
            Self::Excited { hidden, output } => {
                let (hidden, terms) = (hidden.weights.shape, output.weights.shape.outputs);
                let units = hidden.outputs;
                Kept { squeezed: hidden.inputs, hidden: units, terms, of_hidden: units, of_terms: terms }
            }
        }
    }

    /// Writes y from the norm and the skip connection, `[B, H, W, C]` each.
    pub(crate) fn forward(
        &self,
        path: Path,
        parameters: &[f32],
        normed: Normed<'_>,
        skip: Option<&[f32]>,
        kept: &mut Kept<&mut [f32]>,
        y: &mut [f32],
    ) {
        match self {
            Self::Relu => path.run(rectify::Forward { normed, skip, y }),
            Self::Pooled(pooling) => {
                path.run(pool::Squeeze { normed, squeezed: kept.squeezed, y });
                pooling.apply(parameters, kept.squeezed, kept.terms);
                path.run(pool::Forward { normed, terms: kept.terms, y });
            }
            Self::Excited { hidden, output } => {
                path.run(excite::Squeeze { normed, squeezed: kept.squeezed });
                hidden.apply(parameters, kept.squeezed, kept.hidden);
                kept.hidden.iter_mut().for_each(|unit| *unit = rectify::relu(*unit));
                output.apply(parameters, kept.hidden, kept.terms);
                path.run(excite::Forward { normed, skip, terms: kept.terms, y });
            }
        }
    }

    /// Turns the gradient of y, which [`Rectify`] has zeroed where y is zero and which then is that of the skip
    /// connection, into that of n, and keeps the gradients of the matrices' outputs. `of_n` is the place of the result
    /// where both differ, which [`changes_skip`](Self::changes_skip) states, and empty elsewhere.
    pub(crate) fn backward(
        &self,
        path: Path,
        normed: Normed<'_>,
        y: &[f32],
        of_y: &mut [f32],
        kept: &mut Kept<&mut [f32]>,
        of_n: &mut [f32],
    ) {
        match self {
            Self::Relu => {}
            Self::Pooled(pooling) => {
                path.run(pool::SumTerms { normed, of_y, of_terms: kept.of_terms });
                let mut of_squeezed = vec![0.0; kept.squeezed.len()];
                pooling.weights.transposed(kept.of_terms, &mut of_squeezed);
                path.run(pool::Backward { normed, squeezed: kept.squeezed, of_squeezed: &of_squeezed, y, of_y });
            }
            Self::Excited { hidden, output } => {
                path.run(excite::SumTerms { normed, terms: kept.terms, of_y, of_terms: kept.of_terms });
                output.weights.transposed(kept.of_terms, kept.of_hidden);
                for (of_hidden, hidden) in kept.of_hidden.iter_mut().zip(&*kept.hidden) {
                    *of_hidden = rectify::passed(*of_hidden, *hidden);
                }
                let mut of_squeezed = vec![0.0; kept.squeezed.len()];
                hidden.weights.transposed(kept.of_hidden, &mut of_squeezed);
                path.run(excite::Backward { normed, terms: kept.terms, of_squeezed: &of_squeezed, of_y, of_n });
            }
        }
    }

    /// Returns whether the gradients of n and of the skip connection differ.
    pub(crate) fn changes_skip(&self) -> bool {
        matches!(self, Self::Excited { .. })
    }

    /// The matrices of the layers of a block.
    pub(crate) fn of_first(block: &network::Block, layout: &Layout, path: Path) -> Self {
        block.pooling.as_ref().map_or(Self::Relu, |pooling| Self::Pooled(Matrix::new(pooling, layout, path)))
    }

    /// The matrices of the layers of a block.
    pub(crate) fn of_second(block: &network::Block, layout: &Layout, path: Path) -> Self {
        block.excitation.as_ref().map_or(Self::Relu, |excitation| Self::Excited {
            hidden: Matrix::new(&excitation.hidden, layout, path),
            output: Matrix::new(&excitation.output, layout, path),
        })
    }
}
