use prost::bytes::Bytes;

use super::*;
use crate::open_inference::v2::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::open_inference::v2::{InferParameter, InferTensorContents, ModelInferRequest};

fn parts(request: &ModelInferRequest) -> usize {
    let mut parts = 0;
    let _ = count(&request.encode_to_vec(), &REQUEST, &mut parts);
    parts
}

fn input() -> InferInputTensor {
    let contents = InferTensorContents { fp32_contents: vec![0.5; 1000], ..Default::default() };
    InferInputTensor {
        name: "observations".into(),
        datatype: "FP32".into(),
        shape: vec![1, 1000],
        contents: Some(contents),
        ..Default::default()
    }
}

#[test]
fn a_large_request_of_few_parts_passes() {
    let request = ModelInferRequest {
        model_name: "connect_four".into(),
        inputs: vec![input(), input()],
        raw_input_contents: vec![Bytes::from(vec![0x2a; 1 << 20])],
        ..Default::default()
    };
    // The name; two inputs with name, datatype, shape, contents and one list; the raw contents, not looked into.
    assert_eq!(parts(&request), 1 + 2 * 6 + 1);
    check(&request.encode_to_vec()).unwrap();
}

#[test]
fn what_has_too_many_parts_anywhere_is_refused() {
    let many = PARTS_MAX + 1;
    let parameters = || (0..many).map(|key| (key.to_string(), InferParameter::default())).collect();
    let bytes_contents = vec![Bytes::new(); many];
    let contents = Some(InferTensorContents { bytes_contents, ..Default::default() });
    let output = InferRequestedOutputTensor { parameters: parameters(), ..Default::default() };
    for (what, request) in [
        ("inputs", ModelInferRequest { inputs: vec![InferInputTensor::default(); many], ..Default::default() }),
        ("outputs", ModelInferRequest { outputs: vec![Default::default(); many], ..Default::default() }),
        ("raw contents", ModelInferRequest { raw_input_contents: vec![Bytes::new(); many], ..Default::default() }),
        ("parameters", ModelInferRequest { parameters: parameters(), ..Default::default() }),
        (
            "lists of an input",
            ModelInferRequest {
                inputs: vec![InferInputTensor { contents, ..Default::default() }],
                ..Default::default()
            },
        ),
        (
            "parameters of an input",
            ModelInferRequest {
                inputs: vec![InferInputTensor { parameters: parameters(), ..Default::default() }],
                ..Default::default()
            },
        ),
        ("parameters of an output", ModelInferRequest { outputs: vec![output], ..Default::default() }),
    ] {
        let status = check(&request.encode_to_vec()).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{what}");
    }
}

#[test]
fn parts_behind_a_group_are_not_overlooked() {
    // Field 100 as a group that ends at once, then inputs.
    let mut message = vec![0xa3, 0x06, 0xa4, 0x06];
    message.extend([0x2a, 0x00].repeat(PARTS_MAX + 1));
    assert!(check(&message).is_err());
}

#[test]
fn a_message_cut_short_is_left_to_the_decoder() {
    let whole = ModelInferRequest { inputs: vec![input()], ..Default::default() }.encode_to_vec();
    for len in 0..whole.len() {
        check(&whole[..len]).unwrap();
    }
    check(&[0xff; 64]).unwrap();
}
