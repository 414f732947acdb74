use bytes::Bytes;
use game::ObservationShape;
use proto::open_inference::v2::infer_parameter::ParameterChoice;

use super::*;

/// Returns a model with planes of 1×2×2 and three actions, small enough to write out the tensors.
fn model() -> Model {
    Model {
        game: "tiny".to_owned(),
        shape: ObservationShape { planes: 1, height: 2, width: 2 },
        actions: 3,
        versions: vec![1],
        newest: 1,
        batch_max: 2,
        positions_max: 4,
        evaluator: "scripted".into(),
    }
}

const TWO: [f32; 8] = [0.0, 1.0, 0.5, 0.25, 1.0, 0.0, 0.0, 1.0];

fn tensor(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor { name: name.into(), datatype: datatype.into(), shape: shape.to_vec(), ..Default::default() }
}

fn floats(numbers: &[f32]) -> Bytes {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn raw(inputs: Vec<(InferInputTensor, Bytes)>) -> ModelInferRequest {
    let (inputs, raw_input_contents) = inputs.into_iter().unzip();
    ModelInferRequest { inputs, raw_input_contents, ..Default::default() }
}

/// Returns a valid request of two positions with raw contents; the middle action of the second position is illegal.
fn good() -> ModelInferRequest {
    raw(vec![
        (tensor("observations", "FP32", &[2, 1, 2, 2]), floats(&TWO)),
        (tensor("legal", "BOOL", &[2, 3]), Bytes::from_static(&[1, 1, 1, 1, 0, 1])),
    ])
}

/// Returns the same request with contents as lists.
fn good_typed() -> ModelInferRequest {
    let mut observations = tensor("observations", "FP32", &[2, 1, 2, 2]);
    observations.contents = Some(InferTensorContents { fp32_contents: TWO.to_vec(), ..Default::default() });
    let mut legal = tensor("legal", "BOOL", &[2, 3]);
    let flags = vec![true, true, true, true, false, true];
    legal.contents = Some(InferTensorContents { bool_contents: flags, ..Default::default() });
    ModelInferRequest { inputs: vec![observations, legal], ..Default::default() }
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(choice) }
}

fn actions(batch: &Batch, i: usize) -> Vec<u16> {
    batch.legal(i).iter().map(|action| action.0).collect()
}

#[test]
fn raw_and_typed_contents_mean_the_same() {
    for (request, form) in [(good(), Form::Raw), (good_typed(), Form::Typed)] {
        let inputs = read(&request, &model()).unwrap();
        assert_eq!(inputs.form, form);
        assert_eq!(inputs.batch.observations(), TWO);
        assert_eq!((actions(&inputs.batch, 0), actions(&inputs.batch, 1)), (vec![0, 1, 2], vec![0, 2]));
        assert_eq!(inputs.outputs, Output::ALL);
    }
}

#[test]
fn without_the_legal_tensor_every_action_counts() {
    let mut request = good();
    request.inputs.pop();
    request.raw_input_contents.pop();
    let inputs = read(&request, &model()).unwrap();
    assert_eq!((actions(&inputs.batch, 0), actions(&inputs.batch, 1)), (vec![0, 1, 2], vec![0, 1, 2]));
}

#[test]
fn inputs_come_in_any_order() {
    let mut request = good();
    request.inputs.reverse();
    request.raw_input_contents.reverse();
    assert_eq!(read(&request, &model()).unwrap().batch.observations(), TWO);
}

#[test]
fn observations_come_in_every_datatype() {
    let ones = [0.0, 1.0, 1.0, 0.0];
    let halves: Bytes = ones.into_iter().flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect();
    let brains: Bytes = ones.into_iter().flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect();
    let bytes = Bytes::from_static(&[0, 1, 1, 0]);
    for (datatype, contents) in
        [("FP32", floats(&ones)), ("FP16", halves), ("BF16", brains), ("UINT8", bytes.clone()), ("BOOL", bytes)]
    {
        let request = raw(vec![(tensor("observations", datatype, &[1, 1, 2, 2]), contents)]);
        assert_eq!(read(&request, &model()).unwrap().batch.observations(), ones, "{datatype}");
    }
    let unsigned = InferTensorContents { uint_contents: vec![0, 1, 1, 0], ..Default::default() };
    let flags = InferTensorContents { bool_contents: vec![false, true, true, false], ..Default::default() };
    for (datatype, contents) in [("UINT8", unsigned), ("BOOL", flags)] {
        let mut observations = tensor("observations", datatype, &[1, 1, 2, 2]);
        observations.contents = Some(contents);
        let request = ModelInferRequest { inputs: vec![observations], ..Default::default() };
        assert_eq!(read(&request, &model()).unwrap().batch.observations(), ones, "{datatype}");
    }
}

#[test]
fn the_most_positions_of_a_large_board_fit_a_message() {
    let shape = ObservationShape { planes: 4, height: 19, width: 19 };
    let model = Model { shape, actions: 361, positions_max: 4096, ..model() };
    let most = positions_max(&model);
    let bytes = most * (shape.len() * 4 + 361);
    assert!((MESSAGE_BYTES_MAX - 16_384..MESSAGE_BYTES_MAX).contains(&bytes), "{most} positions of {bytes} bytes");
}

#[test]
fn every_batch_size_up_to_the_limit_is_taken() {
    for positions in 1..=4 {
        let observations = tensor("observations", "UINT8", &[positions, 1, 2, 2]);
        let contents = Bytes::from(vec![1; 4 * positions as usize]);
        let inputs = read(&raw(vec![(observations, contents)]), &model()).unwrap();
        assert_eq!(inputs.batch.len(), positions as usize);
    }
}

#[test]
fn requested_outputs_keep_their_order_and_unknown_parameters_are_ignored() {
    let mut request = good();
    let ignored = parameter(ParameterChoice::StringParam("x".into()));
    request.parameters.insert("sequence_id".into(), ignored.clone());
    request.inputs[0].parameters.insert("binary_data_size".into(), ignored);
    request.outputs =
        ["value", "priors"].map(|name| InferRequestedOutputTensor { name: name.into(), ..Default::default() }).into();
    assert_eq!(read(&request, &model()).unwrap().outputs, [Output::Value, Output::Priors]);
}

/// A change to a valid request, the field to be named by the error, and a word that the error must contain.
type Illegal = (fn(&mut ModelInferRequest), &'static str, &'static str);

fn check_refused(good: &ModelInferRequest, cases: &[Illegal]) {
    for (index, (spoil, field, word)) in cases.iter().enumerate() {
        let mut request = good.clone();
        spoil(&mut request);
        let error = read(&request, &model()).map(|inputs| inputs.batch.len()).unwrap_err();
        assert_eq!(error.field, *field, "case {index}: {error}");
        assert!(error.reason.contains(word), "case {index}: `{error}` does not contain `{word}`");
    }
}

#[test]
fn every_illegal_tensor_is_refused_by_name() {
    let cases: &[Illegal] = &[
        // Names and counts of tensors.
        (|r| r.inputs.clear(), "raw_input_contents", "0 inputs"),
        (
            |r| {
                r.inputs.clear();
                r.raw_input_contents.clear();
            },
            "observations",
            "missing",
        ),
        (
            |r| {
                r.inputs.remove(0);
                r.raw_input_contents.remove(0);
            },
            "observations",
            "missing",
        ),
        (|r| r.inputs[1].name = "board".into(), "inputs[1].name", "`board`"),
        (|r| r.inputs[1].name = String::new(), "inputs[1].name", "``"),
        (|r| r.inputs[1] = r.inputs[0].clone(), "observations", "twice"),
        (|r| r.inputs = vec![r.inputs[0].clone(); 3], "inputs", "3 tensors"),
        // Datatypes.
        (|r| r.inputs[0].datatype = "FP64".into(), "observations.datatype", "`FP64`"),
        (|r| r.inputs[0].datatype = "fp32".into(), "observations.datatype", "`fp32`"),
        (|r| r.inputs[0].datatype = String::new(), "observations.datatype", "FP32"),
        (|r| r.inputs[1].datatype = "UINT8".into(), "legal.datatype", "expected BOOL"),
        // Shapes.
        (|r| r.inputs[0].shape.clear(), "observations.shape", "[-1, 1, 2, 2]"),
        (|r| r.inputs[0].shape = vec![2], "observations.shape", "[2]"),
        (|r| r.inputs[0].shape = vec![2, 4], "observations.shape", "[2, 4]"),
        (|r| r.inputs[0].shape = vec![2, 1, 2, 3], "observations.shape", "[2, 1, 2, 3]"),
        (|r| r.inputs[0].shape = vec![2, 1, 2, 2, 1], "observations.shape", "[2, 1, 2, 2, 1]"),
        (|r| r.inputs[0].shape = vec![1; 1 << 20], "observations.shape", "…"),
        (|r| r.inputs[0].shape[0] = 0, "observations.shape", "at least one"),
        (|r| r.inputs[0].shape[0] = -1, "observations.shape", "at least one"),
        (|r| r.inputs[0].shape[0] = i64::MIN, "observations.shape", "at least one"),
        (|r| r.inputs[0].shape[0] = 5, "observations.shape", "the limit is 4"),
        (|r| r.inputs[0].shape[0] = i64::MAX, "observations.shape", "the limit is 4"),
        (|r| r.inputs[1].shape = vec![1, 3], "legal.shape", "observations have 2"),
        (|r| r.inputs[1].shape = vec![i64::MAX, 3], "legal.shape", "observations have 2"),
        (|r| r.inputs[1].shape = vec![2, 4], "legal.shape", "[2, 4]"),
        (|r| r.inputs[1].shape = vec![6], "legal.shape", "[6]"),
        // Raw contents.
        (
            |r| {
                r.raw_input_contents.pop();
            },
            "raw_input_contents",
            "1 entries for 2",
        ),
        (|r| r.raw_input_contents.push(Bytes::new()), "raw_input_contents", "3 entries for 2"),
        (|r| r.raw_input_contents[0] = floats(&TWO[1..]), "observations.raw_input_contents", "28 bytes"),
        (|r| r.raw_input_contents[0] = Bytes::new(), "observations.raw_input_contents", "expected 32"),
        (|r| r.inputs[0].datatype = "FP16".into(), "observations.raw_input_contents", "32 bytes of FP16"),
        (|r| r.raw_input_contents[1] = Bytes::from_static(&[1; 5]), "legal.raw_input_contents", "5 bytes"),
        (|r| r.inputs[0].contents = Some(InferTensorContents::default()), "observations", "raw_input_contents"),
        (|r| r.inputs[1].contents = Some(InferTensorContents::default()), "legal", "raw_input_contents"),
        (|r| r.raw_input_contents.clear(), "observations", "neither"),
        // Elements.
        (
            |r| r.raw_input_contents[0] = floats(&[0.0, 0.0, 0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0]),
            "observations[5]",
            "not finite",
        ),
        (|r| r.raw_input_contents[0] = floats(&[f32::INFINITY; 8]), "observations[0]", "not finite"),
        (|r| r.raw_input_contents[0] = floats(&[1.5; 8]), "observations[0]", "between 0 and 1"),
        (|r| r.raw_input_contents[0] = floats(&[-1.0; 8]), "observations[0]", "between 0 and 1"),
        (|r| r.raw_input_contents[1] = Bytes::from_static(&[1, 1, 1, 1, 2, 1]), "legal[4]", "0 or 1"),
        (|r| r.raw_input_contents[1] = Bytes::from_static(&[1, 1, 1, 0, 0, 0]), "legal", "position 1"),
        // Outputs.
        (|r| r.outputs = vec![wanted("policy")], "outputs[0].name", "`policy`"),
        (|r| r.outputs = vec![wanted("wdl"), wanted("wdl")], "wdl", "twice"),
        (|r| r.outputs = vec![wanted("wdl"); 4], "outputs", "4 tensors"),
        (|r| r.outputs = vec![with(wanted("wdl"), "classification")], "wdl", "classes"),
        (|r| r.outputs = vec![with(wanted("wdl"), "shared_memory_region")], "wdl", "shared memory"),
        (
            |r| drop(r.inputs[0].parameters.insert("shared_memory_region".into(), InferParameter::default())),
            "observations",
            "shared memory",
        ),
    ];
    check_refused(&good(), cases);
}

#[test]
fn every_illegal_list_is_refused_by_name() {
    fn contents(request: &mut ModelInferRequest, index: usize) -> &mut InferTensorContents {
        request.inputs[index].contents.as_mut().unwrap()
    }
    let cases: &[Illegal] = &[
        (|r| r.inputs[0].contents = None, "observations", "neither"),
        (|r| r.inputs[1].contents = None, "legal", "neither"),
        (|r| contents(r, 0).fp32_contents.truncate(7), "observations.contents.fp32_contents", "7 elements"),
        (|r| contents(r, 0).fp32_contents.clear(), "observations.contents.fp32_contents", "expected 8"),
        (|r| contents(r, 0).fp64_contents.push(0.0), "observations.contents", "lists other than fp32_contents"),
        (|r| contents(r, 0).bytes_contents.push(Bytes::new()), "observations.contents", "lists other than"),
        (|r| contents(r, 1).int_contents.push(1), "legal.contents", "lists other than bool_contents"),
        (|r| r.inputs[0].datatype = "FP16".into(), "observations.contents", "raw_input_contents only"),
        (|r| r.inputs[0].datatype = "BF16".into(), "observations.contents", "raw_input_contents only"),
        (|r| r.inputs[0].datatype = "UINT8".into(), "observations.contents", "lists other than uint_contents"),
        (
            |r| {
                r.inputs[0].datatype = "UINT8".into();
                *contents(r, 0) = InferTensorContents { uint_contents: vec![256; 8], ..Default::default() };
            },
            "observations[0]",
            "256 is not between 0 and 1",
        ),
        (|r| contents(r, 0).fp32_contents[7] = f32::NEG_INFINITY, "observations[7]", "not finite"),
        (|r| contents(r, 1).bool_contents = vec![false; 6], "legal", "position 0"),
    ];
    check_refused(&good_typed(), cases);
}

fn wanted(name: &str) -> InferRequestedOutputTensor {
    InferRequestedOutputTensor { name: name.into(), ..Default::default() }
}

fn with(mut output: InferRequestedOutputTensor, parameter: &str) -> InferRequestedOutputTensor {
    output.parameters.insert(parameter.into(), InferParameter::default());
    output
}

#[test]
fn no_text_of_the_client_makes_a_long_error() {
    let long = "ß".repeat(1 << 20);
    let cases: [fn(&mut ModelInferRequest, String); 3] = [
        |request, long| request.inputs[0].name = long,
        |request, long| request.inputs[0].datatype = long,
        |request, long| request.outputs = vec![wanted(&long)],
    ];
    for spoil in cases {
        let mut request = good();
        spoil(&mut request, long.clone());
        let error = read(&request, &model()).map(|inputs| inputs.batch.len()).unwrap_err();
        assert!(error.to_string().len() < 512, "{} bytes", error.to_string().len());
    }
}

#[test]
fn a_timeout_is_a_number_of_microseconds() {
    let of = |choice| timeout_us(&[("timeout".to_owned(), parameter(choice))].into());
    assert_eq!(timeout_us(&Parameters::new()), Ok(None));
    assert_eq!(of(ParameterChoice::Int64Param(500)), Ok(Some(500)));
    assert_eq!(of(ParameterChoice::Uint64Param(500)), Ok(Some(500)));
    assert_eq!(of(ParameterChoice::Int64Param(0)), Ok(None));
    for wrong in
        [ParameterChoice::Int64Param(-1), ParameterChoice::StringParam("5".into()), ParameterChoice::BoolParam(true)]
    {
        assert_eq!(of(wrong).unwrap_err().field, "parameters.timeout");
    }
}
