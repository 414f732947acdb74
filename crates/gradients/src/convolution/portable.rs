//! Plain Rust: the formula, one position after the other.

use half::bf16;
use half::slice::HalfFloatSliceExt as _;

use super::{SIDE, Shape, TAPS, on_board};

/// One position in float32.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    /// `[H, W, I]`.
    input: Vec<f32>,
    /// `[H, W, O]`.
    gradient: Vec<f32>,
}

impl Workspace {
    /// Lengths fit the shape.
    pub(super) fn compute(&mut self, shape: Shape, input: &[bf16], gradient: &[bf16], weights: &mut [f32]) {
        let cells = shape.height * shape.width;
        self.input.resize(cells * shape.inputs, 0.0);
        self.gradient.resize(cells * shape.outputs, 0.0);
        weights.fill(0.0);
        let positions = input.chunks_exact(cells * shape.inputs).zip(gradient.chunks_exact(cells * shape.outputs));
        for (input, gradient) in positions {
            input.convert_to_f32_slice(&mut self.input);
            gradient.convert_to_f32_slice(&mut self.gradient);
            for tap in 0..TAPS {
                self.add_tap(shape, tap, weights);
            }
        }
    }

    /// Adds what one position contributes to one cell of the kernel.
    fn add_tap(&self, shape: Shape, tap: usize, weights: &mut [f32]) {
        let (down, right) = (tap / SIDE, tap % SIDE);
        for y in on_board(shape.height, down) {
            for x in on_board(shape.width, right) {
                let cell = y * shape.width + x;
                let seen = (y + down - 1) * shape.width + x + right - 1;
                let input = &self.input[seen * shape.inputs..][..shape.inputs];
                let gradient = &self.gradient[cell * shape.outputs..][..shape.outputs];
                for (gradient, weights) in gradient.iter().zip(weights.chunks_exact_mut(TAPS * shape.inputs)) {
                    let weights = &mut weights[tap * shape.inputs..][..shape.inputs];
                    weights.iter_mut().zip(input).for_each(|(sum, input)| *sum += gradient * input);
                }
            }
        }
    }
}
