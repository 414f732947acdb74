//! Tensors out.

use inference::Predictions;
use proto::open_inference::v2::model_infer_response::InferOutputTensor;
use proto::open_inference::v2::{InferTensorContents, ModelInferResponse};

use super::request::{Form, Legal, dim};
use crate::engine::Model;

/// The tensors that a model answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Priors `[B, A]` that sum to one over the actions that count; 0 for all others.
    Priors,
    /// Chances of a win, a draw and a loss for the player to move, `[B, 3]`.
    Wdl,
    /// Win − loss, in −1 to 1, `[B, 1]`.
    Value,
}

impl Output {
    pub(super) const ALL: [Self; 3] = [Self::Priors, Self::Wdl, Self::Value];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Priors => "priors",
            Self::Wdl => "wdl",
            Self::Value => "value",
        }
    }

    /// Its shape without the batch dimension.
    pub(super) fn dims(self, model: &Model) -> Vec<i64> {
        vec![dim(self.width(model.actions))]
    }

    /// Numbers of one position.
    const fn width(self, actions: usize) -> usize {
        match self {
            Self::Priors => actions,
            Self::Wdl => 3,
            Self::Value => 1,
        }
    }

    /// Its numbers, row-major.
    fn numbers(self, predictions: &Predictions, legal: &Legal, actions: usize) -> Vec<f32> {
        let positions = 0..predictions.len();
        match self {
            Self::Priors => priors(predictions, legal, actions),
            Self::Wdl => positions
                .flat_map(|i| {
                    let wdl = predictions.value(i);
                    [wdl.win, wdl.draw, wdl.loss]
                })
                .collect(),
            Self::Value => positions.map(|i| predictions.value(i).value()).collect(),
        }
    }
}

/// Priors `[B, A]`: predictions have them of the actions that count alone.
fn priors(predictions: &Predictions, legal: &Legal, actions: usize) -> Vec<f32> {
    let mut dense = vec![0.0; predictions.len() * actions];
    for (i, row) in dense.chunks_exact_mut(actions).enumerate() {
        match legal {
            Legal::All => row.iter_mut().zip(predictions.priors(i)).for_each(|(number, &prior)| *number = prior),
            Legal::Flags(flags) => {
                let flags = &flags[i * actions..][..actions];
                let counting = row.iter_mut().zip(flags).filter(|(_, flag)| **flag).map(|(number, _)| number);
                counting.zip(predictions.priors(i)).for_each(|(number, &prior)| *number = prior);
            }
        }
    }
    dense
}

/// What goes back: the wanted outputs in the form in which the inputs came. Names, version and id are the caller's.
pub(super) fn write(
    predictions: &Predictions,
    legal: &Legal,
    outputs: &[Output],
    form: Form,
    actions: usize,
) -> ModelInferResponse {
    let mut response = ModelInferResponse::default();
    for &output in outputs {
        let numbers = output.numbers(predictions, legal, actions);
        let mut tensor = InferOutputTensor {
            name: output.name().to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![dim(predictions.len()), dim(output.width(actions))],
            ..InferOutputTensor::default()
        };
        match form {
            Form::Raw => {
                let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
                response.raw_output_contents.push(bytes.into());
            }
            Form::Typed => {
                tensor.contents =
                    Some(InferTensorContents { fp32_contents: numbers, ..InferTensorContents::default() });
            }
        }
        response.outputs.push(tensor);
    }
    response
}

#[cfg(test)]
mod tests;
