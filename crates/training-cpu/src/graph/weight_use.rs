use super::operation::{self, Activated, Dense, Operation};
use super::{Graph, Value};
use crate::matrix::{Matrix, Weights};

/// Weights that an operation multiplies by, whose gradient is computed beside the next phase.
pub(super) struct WeightUse<'a> {
    pub(super) weights: &'a Weights,
    /// The matrix of the weights, if it has a bias.
    pub(super) biased: Option<&'a Matrix>,
    /// The input and the output.
    pub(super) x: Value,
    pub(super) y: Value,
}

impl Graph {
    /// The weights of an operation.
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
                // Each matrix reads what is kept before that which it computes.
                let numbers: Vec<Value> = operation::forward(kept).collect();
                let matrices = layers.activations[*activation].matrices();
                matrices.zip(numbers.windows(2)).map(|(matrix, pair)| of_matrix(matrix, [pair[0], pair[1]])).collect()
            }
            _ => Vec::new(),
        }
    }
}
