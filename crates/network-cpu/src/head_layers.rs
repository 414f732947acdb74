//! Layers after the convolutions of both heads: matrices over the features of all cells, or pooled heads.

use network::activation::Function as _;
use network::{Activation, HEAD_CHANNELS, VALUE_HIDDEN, mean_scale, with_function};
use weights::HeadKind;

use crate::KernelVariant;
use crate::arrangement::Arrangement;
use crate::folded::{Dense, Folded};
use crate::latent::rows::take_lines;
use crate::multiplier::Multiplier;
use crate::planes::{Board, Layout, Planes};
use crate::pooling::PooledMatrices;
use crate::product::{Output, Product, Run};

/// Packed layers from the features of both heads to policy logits and the hidden units of the value.
#[derive(Debug)]
pub(crate) struct HeadLayers {
    activation: Activation,
    actions: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Matrices over the features of all cells.
    Flattened {
        policy: Product,
        hidden: Product,
    },
    Pooled(Pooled),
}

/// Layers of pooled heads, as defined in [`network::Layers`].
#[derive(Debug)]
struct Pooled {
    path: KernelVariant,
    /// Features of a cell to the logits of the cell's k actions.
    policy: Product,
    /// k, the actions per cell.
    of_cell: usize,
    matrices: PooledMatrices,
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Policy logits, `[positions, stride]`.
    policy: Vec<f32>,
    /// Row length, at least the number of actions.
    stride: usize,
    /// Hidden units of the value, `[positions, 64]`.
    hidden: Vec<f32>,
    /// Action logits of each pixel, for one position or for interleaved positions, `[pixels, padded k]`; with pooled
    /// heads only.
    pixels: Vec<f32>,
    /// Runs of the same pixels in the features.
    runs: Vec<Run>,
}

impl HeadLayers {
    /// Packs the layers for a floating-point path.
    pub(crate) fn new(path: KernelVariant, board: Board, folded: &Folded) -> Self {
        let design = folded.architecture.design;
        let over = |dense: &Dense, board, first| Product::over_cells(path.packing(), dense, board, first);
        let kind = match design.heads {
            HeadKind::Flattened => Kind::Flattened {
                policy: over(&folded.policy, board, 0),
                hidden: over(&folded.hidden, board, HEAD_CHANNELS),
            },
            HeadKind::Pooled => Kind::Pooled(Pooled {
                path,
                policy: over(&folded.policy, Board::new(1, 1), 0),
                of_cell: folded.policy.bias.len(),
                matrices: PooledMatrices {
                    rest: folded.rest.clone(),
                    hidden: folded.hidden.clone(),
                    mean_scale: mean_scale(board.cells()) as f32,
                },
            }),
        };
        Self { activation: design.activation, actions: folded.architecture.actions, kind }
    }

    /// Iterates over all products, in order of computation.
    pub(crate) fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        let (policy, hidden) = match &mut self.kind {
            Kind::Flattened { policy, hidden } => (policy, Some(hidden)),
            Kind::Pooled(pooled) => (&mut pooled.policy, None),
        };
        std::iter::once(policy).chain(hidden)
    }

    pub(crate) fn buffers(&self, arrangements: &[Arrangement]) -> Buffers {
        let most = |number: fn(&Arrangement) -> usize| arrangements.iter().map(number).max().unwrap_or(0);
        let positions = most(|arrangement| arrangement.features.positions);
        let (stride, pixels, padded) = match &self.kind {
            Kind::Flattened { policy, .. } => (policy.padded_outputs(), 0, 0),
            Kind::Pooled(Pooled { policy, .. }) => {
                let pixels = most(|arrangement| arrangement.features.together * arrangement.features.board.pixels());
                (self.actions, pixels, policy.padded_outputs())
            }
        };
        Buffers {
            policy: vec![0.0; positions * stride],
            stride,
            hidden: vec![0.0; positions * VALUE_HIDDEN],
            pixels: vec![0.0; pixels * padded],
            runs: Vec::with_capacity(pixels),
        }
    }

    /// Computes the layers for the first positions in the features of an arrangement.
    pub(crate) fn compute(
        &self,
        multiplier: &Multiplier,
        arrangement: &Arrangement,
        features: &Planes,
        positions: usize,
        buffers: &mut Buffers,
    ) {
        let (policy, hidden) = match &self.kind {
            Kind::Flattened { policy, hidden } => (policy, hidden),
            Kind::Pooled(pooled) => return pooled.compute(multiplier, self.activation, features, positions, buffers),
        };
        let rows = [arrangement.rows(positions)];
        let relu = self.activation == Activation::Relu;
        let multiply = |product, values: &mut [f32], relu| {
            multiplier.multiply(product, features, &rows, Output::Matrix { values, relu }, None);
        };
        multiply(policy, &mut buffers.policy, false);
        multiply(hidden, &mut buffers.hidden, relu);
        if !relu {
            let units = &mut buffers.hidden[..positions * VALUE_HIDDEN];
            with_function!(self.activation, f => units.iter_mut().for_each(|unit| *unit = f.value(*unit)));
        }
    }
}

impl Pooled {
    fn compute(
        &self,
        multiplier: &Multiplier,
        activation: Activation,
        features: &Planes,
        positions: usize,
        buffers: &mut Buffers,
    ) {
        let Buffers { policy, stride, hidden, pixels, runs } = buffers;
        let Layout { board, together, .. } = features.layout;
        for first in (0..positions).step_by(together) {
            // Border pixels are multiplied too, so that the rows are adjacent; the resulting logits are not read.
            let line = features.index(0, first, 0);
            take_lines(self.path, line..line + together * board.pixels(), runs);
            multiplier.multiply(&self.policy, features, runs, Output::Matrix { values: pixels, relu: false }, None);
            for position in first..positions.min(first + together) {
                let logits = &mut policy[position * *stride..][..*stride];
                let (of_cells, others) = logits.split_at_mut(board.cells() * self.of_cell);
                let rows = features.cells(0, position).map(|of_cell| of_cell - line);
                take_logits(pixels, self.policy.padded_outputs(), rows, self.of_cell, of_cells);
                let units = &mut hidden[position * VALUE_HIDDEN..][..VALUE_HIDDEN];
                multiplier.multiply_pooled(activation, features, position, &self.matrices, others, units);
            }
        }
    }
}

/// Copies the first `of_cell` numbers of matrix rows `[rows, padded]`.
fn take_logits(matrix: &[f32], padded: usize, rows: impl Iterator<Item = usize>, of_cell: usize, logits: &mut [f32]) {
    for (row, logits) in rows.zip(logits.chunks_exact_mut(of_cell)) {
        logits.copy_from_slice(&matrix[row * padded..][..of_cell]);
    }
}

impl Buffers {
    /// Returns the policy logits of a position, with padding.
    pub(crate) fn policy(&self, position: usize) -> &[f32] {
        &self.policy[position * self.stride..][..self.stride]
    }

    /// Returns the hidden value units of a position.
    pub(crate) fn hidden(&self, position: usize) -> &[f32] {
        &self.hidden[position * VALUE_HIDDEN..][..VALUE_HIDDEN]
    }
}
