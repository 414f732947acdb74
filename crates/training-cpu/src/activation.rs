//! The operations between a batch norm and the next convolution. Each reads the input z of the norm instead of its
//! output n, which is nowhere in memory.

mod apply;
mod excite;
pub(crate) mod narrow;
mod pool;
mod rectify;

use network::with_function;
use training::Layout;

pub(crate) use apply::{Apply, OfApply};
pub(crate) use rectify::Rectify;

use crate::Path;
use crate::matrix::Matrix;
use crate::norm::Norm;
use crate::stored::{Stored, StoredMut};

/// The operation between a batch norm with output n and the next convolution, whose input is y; f is the activation of
/// the network.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a network has few")]
pub(crate) enum Activation {
    /// `y = f(n)`, or with a skip connection `f(n + skip)`.
    Plain,
    /// Global pooling (Wu 2019, section 3.3), then f: with `v = [mean of f(n[:G]), max of f(n[:G])]` over the cells,
    /// `y = f([n[:G], n[G:] + W v + b])`.
    Pooled(Matrix),
    /// Squeeze-and-excitation (Hu et al. 2018) and a skip connection: with `t = W₂ relu(W₁ [mean of n] + b₁) + b₂`,
    /// `y = f(sigmoid(t[:C]) · n + t[C:] + skip)`.
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

/// What f was applied to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before<'a> {
    pub(crate) normed: Normed<'a>,
    pub(crate) skip: Option<&'a [f32]>,
    /// As [`Kept`] holds them after the forward pass.
    pub(crate) terms: &'a [f32],
}

/// What an activation does to n before the skip connection, the same in all cells of a position.
#[derive(Debug, Clone, Copy)]
enum Shifts<'a> {
    None,
    /// Terms that are added to the last channels, `[B, C − G]`.
    Last(&'a [f32]),
    /// Scales and then shifts, `[B, 2C]`.
    Scaled(&'a [f32]),
}

impl Shifts<'_> {
    /// Writes the slope and the constant by which z of each channel becomes what the skip connection is added to.
    #[inline(always)]
    fn line(self, normed: Normed<'_>, position: usize, line: &mut [[f32; 2]]) {
        let channels = line.len();
        let (slope, constant) = (&normed.norm.slope[..channels], &normed.norm.constant[..channels]);
        for c in 0..channels {
            line[c] = [slope[c], constant[c]];
        }
        match self {
            Self::None => {}
            Self::Last(terms) => {
                let shifted = terms.len() / (normed.z.len() / normed.position());
                let terms = &terms[position * shifted..][..shifted];
                line[channels - shifted..].iter_mut().zip(terms).for_each(|(line, term)| line[1] += term);
            }
            Self::Scaled(terms) => {
                let (scale, shift) = terms[2 * channels * position..][..2 * channels].split_at(channels);
                for c in 0..channels {
                    line[c] = [slope[c] * scale[c], constant[c] * scale[c] + shift[c]];
                }
            }
        }
    }
}

impl Activation {
    /// Returns whether nothing but a skip connection lies between the norm and f.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// The matrices of the activation.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let [first, second] = match self {
            Self::Plain => [None, None],
            Self::Pooled(pooling) => [Some(pooling), None],
            Self::Excited { hidden, output } => [Some(hidden), Some(output)],
        };
        first.into_iter().chain(second)
    }

    /// The same matrices.
    pub(crate) fn matrices_mut(&mut self) -> impl Iterator<Item = &mut Matrix> {
        let [first, second] = match self {
            Self::Plain => [None, None],
            Self::Pooled(pooling) => [Some(pooling), None],
            Self::Excited { hidden, output } => [Some(hidden), Some(output)],
        };
        first.into_iter().chain(second)
    }

    /// Numbers of each position in the order of [`Kept`].
    pub(crate) fn sizes(&self) -> Kept<usize> {
        match self {
            Self::Plain => Kept::default(),
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
    #[expect(clippy::too_many_arguments, reason = "those of a layer")]
    pub(crate) fn forward(
        &self,
        path: Path,
        function: network::Activation,
        parameters: &[f32],
        normed: Normed<'_>,
        skip: Option<&[f32]>,
        kept: &mut Kept<&mut [f32]>,
        y: &mut [f32],
    ) {
        match self {
            Self::Plain => {
                with_function!(function, function => path.run(rectify::Forward { function, normed, skip, y }))
            }
            Self::Pooled(pooling) => with_function!(function, function => {
                path.run(pool::Squeeze { function, normed, squeezed: kept.squeezed, y });
                pooling.apply(parameters, Stored::F32(kept.squeezed), kept.terms);
                path.run(pool::Forward { function, normed, terms: kept.terms, y });
            }),
            Self::Excited { hidden, output } => {
                path.run(excite::Squeeze { normed, squeezed: kept.squeezed });
                hidden.apply(parameters, Stored::F32(kept.squeezed), kept.hidden);
                kept.hidden.iter_mut().for_each(|unit| *unit = rectify::relu(*unit));
                output.apply(parameters, Stored::F32(kept.hidden), kept.terms);
                with_function!(function, function => {
                    path.run(excite::Forward { function, normed, skip, terms: kept.terms, y });
                });
            }
        }
    }

    /// Adds the gradient of a second use of y to that of y, and turns the sum into the gradient before f, which is that
    /// of the skip connection.
    pub(crate) fn differentiate(
        &self,
        path: Path,
        function: network::Activation,
        before: Before<'_>,
        besides: Option<&[f32]>,
        y: &[f32],
        of_y: &mut [f32],
    ) {
        let Before { normed, skip, terms } = before;
        if function == network::Activation::Relu {
            // The sign of y is that of what it was computed from.
            return path.run(Rectify { besides, y, of_y });
        }
        let shifts = match self {
            Self::Plain => Shifts::None,
            Self::Pooled(_) => Shifts::Last(terms),
            Self::Excited { .. } => Shifts::Scaled(terms),
        };
        with_function!(function, function => {
            path.run(rectify::Differentiate { function, normed, shifts, skip, besides, y, of_y });
        });
    }

    /// Turns the gradient of y, of which [`differentiate`](Self::differentiate) made that before f, into that of n, and
    /// keeps the gradients of the matrices' outputs. `of_n` is the place of the result where both differ, which
    /// [`changes_skip`](Self::changes_skip) states, and empty elsewhere.
    #[expect(clippy::too_many_arguments, reason = "those of a layer")]
    pub(crate) fn backward(
        &self,
        path: Path,
        function: network::Activation,
        normed: Normed<'_>,
        y: &[f32],
        of_y: &mut [f32],
        kept: &mut Kept<&mut [f32]>,
        of_n: &mut [f32],
    ) {
        match self {
            Self::Plain => {}
            Self::Pooled(pooling) => {
                path.run(pool::SumTerms { normed, of_y, of_terms: kept.of_terms });
                let mut of_squeezed = vec![0.0; kept.squeezed.len()];
                pooling.weights.transposed(Stored::F32(kept.of_terms), StoredMut::F32(&mut of_squeezed));
                let (squeezed, of_squeezed) = (&*kept.squeezed, &of_squeezed[..]);
                with_function!(function, function => {
                    path.run(pool::Backward { function, normed, squeezed, of_squeezed, y, of_y });
                });
            }
            Self::Excited { hidden, output } => {
                path.run(excite::SumTerms { normed, terms: kept.terms, of_y, of_terms: kept.of_terms });
                output.weights.transposed(Stored::F32(kept.of_terms), StoredMut::F32(kept.of_hidden));
                for (of_hidden, hidden) in kept.of_hidden.iter_mut().zip(&*kept.hidden) {
                    *of_hidden = rectify::passed(*of_hidden, *hidden);
                }
                let mut of_squeezed = vec![0.0; kept.squeezed.len()];
                hidden.weights.transposed(Stored::F32(kept.of_hidden), StoredMut::F32(&mut of_squeezed));
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
        block.pooling.as_ref().map_or(Self::Plain, |pooling| Self::Pooled(Matrix::new(pooling, layout, path)))
    }

    /// The matrices of the layers of a block.
    pub(crate) fn of_last(block: &network::Block, layout: &Layout, path: Path) -> Self {
        block.excitation.as_ref().map_or(Self::Plain, |excitation| Self::Excited {
            hidden: Matrix::new(&excitation.hidden, layout, path),
            output: Matrix::new(&excitation.output, layout, path),
        })
    }
}
