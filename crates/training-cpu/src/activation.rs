//! Operations between a batch norm and the next convolution. Each reads the norm's input z; the output n is never
//! stored.

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

/// The operation from the output n of a batch norm to the input y of the next convolution; f is the network's
/// activation function.
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

/// Per-position numbers that an activation keeps for the backward pass.
#[derive(Debug, Default)]
pub(crate) struct Kept<T> {
    /// Channels squeezed over the cells: `[B, 2G]`, `[B, C]`.
    pub(crate) squeezed: T,
    /// `[B, S]`.
    pub(crate) hidden: T,
    /// Terms added to cells, `[B, C − G]`; for excitation the sigmoid scales come first, `[B, 2C]`.
    pub(crate) terms: T,
    /// Gradient of the hidden units before ReLU.
    pub(crate) of_hidden: T,
    /// Gradient of the terms; for excitation before the sigmoid.
    pub(crate) of_terms: T,
}

/// A batch norm with the input for a range of positions.
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

/// Inputs of f, recomputed from the norm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before<'a> {
    pub(crate) normed: Normed<'a>,
    pub(crate) skip: Option<&'a [f32]>,
    /// As [`Kept`] holds them after the forward pass.
    pub(crate) terms: &'a [f32],
}

/// Transform of n before the skip connection, the same in all cells of a position.
#[derive(Debug, Clone, Copy)]
enum Shifts<'a> {
    None,
    /// Terms added to the last channels, `[B, C − G]`.
    Last(&'a [f32]),
    /// Scales first, then shifts, `[B, 2C]`.
    Scaled(&'a [f32]),
}

impl Shifts<'_> {
    /// Writes slope and constant per channel of the map from z to the input of the skip connection.
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
    /// Returns whether the skip connection is the only operation between the norm and f.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Iterates over the matrices of the activation.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let [first, second] = match self {
            Self::Plain => [None, None],
            Self::Pooled(pooling) => [Some(pooling), None],
            Self::Excited { hidden, output } => [Some(hidden), Some(output)],
        };
        first.into_iter().chain(second)
    }

    /// Iterates over the same matrices, mutably.
    pub(crate) fn matrices_mut(&mut self) -> impl Iterator<Item = &mut Matrix> {
        let [first, second] = match self {
            Self::Plain => [None, None],
            Self::Pooled(pooling) => [Some(pooling), None],
            Self::Excited { hidden, output } => [Some(hidden), Some(output)],
        };
        first.into_iter().chain(second)
    }

    /// Returns the numbers per position, in the order of [`Kept`].
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

    /// Adds the gradient of a second use to the gradient of y, and turns the sum into the gradient before f, which is
    /// also the gradient of the skip connection.
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
            // The input of ReLU has the same sign as y.
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

    /// Turns the gradient before f, from [`differentiate`](Self::differentiate), into the gradient of n, and keeps
    /// the gradients of the matrix outputs. `of_n` receives the result if both gradients differ, see
    /// [`changes_skip`](Self::changes_skip), and is empty otherwise.
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

    /// Creates the activation after a block's first convolution.
    pub(crate) fn of_first(block: &network::Block, layout: &Layout, path: Path) -> Self {
        block.pooling.as_ref().map_or(Self::Plain, |pooling| Self::Pooled(Matrix::new(pooling, layout, path)))
    }

    /// Creates the activation after a block's last convolution.
    pub(crate) fn of_last(block: &network::Block, layout: &Layout, path: Path) -> Self {
        block.excitation.as_ref().map_or(Self::Plain, |excitation| Self::Excited {
            hidden: Matrix::new(&excitation.hidden, layout, path),
            output: Matrix::new(&excitation.output, layout, path),
        })
    }
}
