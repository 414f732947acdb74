use std::ops::Range;

use crate::Path;
use crate::buffer::{Buffer, Store};
use crate::matrix::{Gradient, GradientPart, Weights};
use crate::shape::evenly;
use crate::stored::Operand;
use crate::threads::Threads;

/// Parts in which sums are added to a gradient.
const ADDED_PARTS: usize = 8;

/// Weight gradient for one use of a layer, before addition to the gradient of all parameters.
#[derive(Debug)]
pub(crate) struct WeightSums {
    gradient: Gradient,
    place: Range<usize>,
    outputs: usize,
    sums: Buffer,
}

impl WeightSums {
    /// Reserves the sums over `positions` positions, in a step with `largest` positions in the largest micro-batch.
    pub(crate) fn new(weights: &Weights, positions: usize, largest: usize, path: Path, store: &mut Store) -> Self {
        let (gradient, place) = weights.gradient(positions, path);
        let sums = store.take(gradient.sums(), Self::capacity(weights, largest, path));
        Self { gradient, place, outputs: weights.shape.outputs, sums }
    }

    /// Returns the length of the sums over `largest` positions or one less, the possible sizes of micro-batches.
    pub(crate) fn capacity(weights: &Weights, largest: usize, path: Path) -> usize {
        let sums = |positions: usize| weights.gradient(positions, path).0.sums();
        sums(largest).max(sums(largest.saturating_sub(1).max(1)))
    }

    /// Splits the computation into parts for threads, for inputs `[B, H, W, in]` and output gradients
    /// `[B, H, W, out]`.
    pub(crate) fn parts<'a>(&'a mut self, x: Operand<'a>, of_y: Operand<'a>) -> Vec<GradientPart<'a>> {
        self.gradient.parts(x, of_y, &mut self.sums)
    }

    /// Adds the weight gradient to the gradient of all parameters, `[P]`.
    pub(crate) fn add(self, gradient: &mut [f32], threads: &mut Threads, store: &mut Store) {
        let Self { gradient: of_weights, place, outputs, sums } = self;
        let rows: Vec<_> = evenly(outputs, outputs.div_ceil(ADDED_PARTS)).collect();
        let of_output = place.len() / outputs;
        let mut rest = &mut gradient[place];
        let mut blocks = Vec::with_capacity(rows.len());
        for rows in rows {
            let (block, others) = rest.split_at_mut(rows.len() * of_output);
            rest = others;
            blocks.push((rows, block));
        }
        threads.each(blocks, |(rows, block)| of_weights.add(&sums, rows, block));
        store.give(sums);
    }
}
