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

/// Writes the requested outputs in the form in which the inputs came. Names, version and id are the caller's.
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
mod tests {
    use inference::Wdl;

    use super::*;

    /// Two positions of three actions; the second may not play its middle one.
    fn predictions() -> Predictions {
        let mut predictions = Predictions::new();
        predictions.push(&[0.5, 0.25, 0.25], Wdl { win: 0.75, draw: 0.25, loss: 0.0 });
        predictions.push(&[0.125, 0.875], Wdl { win: 0.0, draw: 0.5, loss: 0.5 });
        predictions
    }

    fn legal() -> Legal {
        Legal::Flags(vec![true, true, true, true, false, true])
    }

    const PRIORS: [f32; 6] = [0.5, 0.25, 0.25, 0.125, 0.0, 0.875];
    const WDL: [f32; 6] = [0.75, 0.25, 0.0, 0.0, 0.5, 0.5];
    const VALUES: [f32; 2] = [0.75, -0.5];

    #[test]
    fn raw_and_typed_contents_hold_the_same_numbers() {
        let raw = write(&predictions(), &legal(), &Output::ALL, Form::Raw, 3);
        let typed = write(&predictions(), &legal(), &Output::ALL, Form::Typed, 3);
        assert!(typed.raw_output_contents.is_empty());
        for (index, (name, shape, numbers)) in
            [("priors", [2, 3], &PRIORS[..]), ("wdl", [2, 3], &WDL), ("value", [2, 1], &VALUES)].into_iter().enumerate()
        {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            assert_eq!(raw.raw_output_contents[index], bytes, "{name}");
            assert_eq!(raw.outputs[index].contents, None);
            assert_eq!(typed.outputs[index].contents.as_ref().unwrap().fp32_contents, numbers, "{name}");
            for response in [&raw, &typed] {
                let tensor = &response.outputs[index];
                assert_eq!((&*tensor.name, &*tensor.datatype, &*tensor.shape), (name, "FP32", &shape[..]));
            }
        }
    }

    #[test]
    fn only_what_is_wanted_goes_back_in_its_order() {
        let response = write(&predictions(), &legal(), &[Output::Value, Output::Wdl], Form::Raw, 3);
        let names: Vec<&str> = response.outputs.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["value", "wdl"]);
        assert_eq!(response.raw_output_contents.len(), 2);
    }

    #[test]
    fn where_every_action_counts_priors_are_as_predicted() {
        let mut predictions = Predictions::new();
        predictions.push(&[0.5, 0.25, 0.25], Wdl::EVEN);
        let response = write(&predictions, &Legal::All, &[Output::Priors], Form::Typed, 3);
        assert_eq!(response.outputs[0].contents.as_ref().unwrap().fp32_contents, [0.5, 0.25, 0.25]);
    }
}
