//! Encodes predictions as tensors.

use inference::{Batch, Predictions};
use proto::open_inference::v2::model_infer_response::InferOutputTensor;
use proto::open_inference::v2::{InferTensorContents, ModelInferResponse};

use super::request::Form;
use super::tensors::{Output, dim};

/// Returns the elements of a tensor, row-major.
fn elements(output: Output, predictions: &Predictions, batch: &Batch, actions: usize) -> Vec<f32> {
    match output {
        Output::Priors => {
            // Predictions have priors of the legal actions only.
            let mut dense = vec![0.0; predictions.len() * actions];
            for (i, row) in dense.chunks_exact_mut(actions).enumerate() {
                for (action, &prior) in batch.legal(i).iter().zip(predictions.priors(i)) {
                    row[action.index()] = prior;
                }
            }
            dense
        }
        Output::Wdl => predictions.wdl().iter().flat_map(|wdl| [wdl.win, wdl.draw, wdl.loss]).collect(),
        Output::Value => (0..predictions.len()).map(|i| predictions.value(i)).collect(),
    }
}

/// Writes the requested outputs in the encoding of the inputs. The caller sets names, version and id.
pub(super) fn write(
    predictions: &Predictions,
    batch: &Batch,
    outputs: &[Output],
    form: Form,
    actions: usize,
) -> ModelInferResponse {
    let mut response = ModelInferResponse::default();
    for &output in outputs {
        let numbers = elements(output, predictions, batch, actions);
        let mut tensor = InferOutputTensor {
            name: output.name().to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![dim(predictions.len()), output.width(actions)],
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
    use game::{Action, ObservationShape};
    use inference::Wdl;

    use super::*;

    /// Returns predictions for two positions with three actions; the middle action of the second position is illegal.
    fn predictions() -> Predictions {
        let mut predictions = Predictions::new();
        predictions.push(&[0.5, 0.25, 0.25], Wdl { win: 0.75, draw: 0.25, loss: 0.0 });
        predictions.push(&[0.125, 0.875], Wdl { win: 0.0, draw: 0.5, loss: 0.5 });
        predictions
    }

    fn batch() -> Batch {
        let mut batch = Batch::new(ObservationShape { planes: 1, height: 1, width: 1 });
        batch.push(&[0, 1, 2].map(Action), |_| {});
        batch.push(&[0, 2].map(Action), |_| {});
        batch
    }

    const PRIORS: [f32; 6] = [0.5, 0.25, 0.25, 0.125, 0.0, 0.875];
    const WDL: [f32; 6] = [0.75, 0.25, 0.0, 0.0, 0.5, 0.5];
    const VALUES: [f32; 2] = [0.75, -0.5];

    #[test]
    fn raw_and_typed_contents_hold_the_same_numbers() {
        let raw = write(&predictions(), &batch(), &Output::ALL, Form::Raw, 3);
        let typed = write(&predictions(), &batch(), &Output::ALL, Form::Typed, 3);
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
    fn only_requested_outputs_are_returned_in_their_order() {
        let response = write(&predictions(), &batch(), &[Output::Value, Output::Wdl], Form::Raw, 3);
        let names: Vec<&str> = response.outputs.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["value", "wdl"]);
        assert_eq!(response.raw_output_contents.len(), 2);
    }

    #[test]
    fn where_every_action_counts_priors_are_as_predicted() {
        let mut predictions = Predictions::new();
        predictions.push(&[0.5, 0.25, 0.25], Wdl::EVEN);
        let response = write(&predictions, &batch(), &[Output::Priors], Form::Typed, 3);
        assert_eq!(response.outputs[0].contents.as_ref().unwrap().fp32_contents, [0.5, 0.25, 0.25]);
    }
}
