use super::operation::{self, Activated, Dense, Operation};
use super::{Graph, Value};
use crate::matrix::{Matrix, Weights};

/// Weights used by an operation; the gradient is computed alongside the next phase.
pub(super) struct WeightUse<'a> {
    pub(super) weights: &'a Weights,
    /// Matrix that owns the weights, if it has a bias.
    pub(super) biased: Option<&'a Matrix>,
    /// Input and output of the product.
    pub(super) x: Value,
    pub(super) y: Value,
}

impl Graph {
    /// Returns the weights used by an operation.
    pub(super) fn weights_of(&self, node: usize) -> Vec<WeightUse<'_>> {
        let layers = &self.layers;
        let of_matrix = |matrix, [x, y]: [Value; 2]| {
            let matrix: &Matrix = matrix;
            WeightUse { weights: &matrix.weights, biased: Some(matrix), x, y }
        };
        match &self.nodes[node].operation {
            Operation::Linear { matrix, x, y, .. } => vec![of_matrix(&layers.matrices[*matrix], [*x, *y])],
            Operation::Dense(Dense { layer, x, z, .. }) => {
                vec![WeightUse { weights: &layers.dense[*layer].weights, biased: None, x: *x, y: *z }]
            }
            Operation::Convolve { convolution, x, z, .. } | Operation::Product { convolution, x, y: z } => {
                vec![WeightUse { weights: &layers.convolutions[*convolution].weights, biased: None, x: *x, y: *z }]
            }
            Operation::Activate(Activated { activation, kept, .. }) => {
                // Each matrix maps one kept value to the next.
                let numbers: Vec<Value> = operation::forward(kept).collect();
                let matrices = layers.activations[*activation].matrices();
                matrices.zip(numbers.windows(2)).map(|(matrix, pair)| of_matrix(matrix, [pair[0], pair[1]])).collect()
            }
            _ => Vec::new(),
        }
    }
}
