//! Requests of the Open Inference Protocol to a server with a small network.

use std::sync::OnceLock;

use game::{Game as _, Spec};
use games::tic_tac_toe::TicTacToe;
use half::{bf16, f16};
use inference_server::open_inference::OpenInference;
use network_cpu::{KernelPreference, KernelVariant};
use prost::Message as _;
use proto::open_inference::v2::grpc_inference_service_server::GrpcInferenceService as _;
use proto::open_inference::v2::infer_parameter::ParameterChoice;
use proto::open_inference::v2::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use proto::open_inference::v2::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use run_file::inference::{Config, Settings};
use service::{Drain, Readiness};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

#[path = "../../tests/tests/random_weights.rs"]
mod random_weights;

/// Maximum bytes of a status text, which is a header.
const STATUS_BYTES_MAX: usize = 4 << 10;
/// Exclusive upper bound on the bytes of a timeout header.
const TIMEOUT_BYTES_MAX: u8 = 12;

/// Checks that any bytes are a request or are refused. An accepted request in any datatype must have the same result as
/// a naive reading of the tensors in raw float32.
///
/// The timeout header comes first, with a one-byte length prefix.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&length, rest)) = bytes.split_first() else { return };
    let (timeout, message) = rest.split_at(rest.len().min((length % TIMEOUT_BYTES_MAX).into()));
    let Ok(message) = ModelInferRequest::decode(message) else { return };
    let mut request = Request::new(message.clone());
    if let Ok(timeout) = std::str::from_utf8(timeout).unwrap_or_default().parse() {
        request.metadata_mut().insert("grpc-timeout", timeout);
    }
    let server = server();
    let response = match server.infer(request) {
        Ok(response) => response,
        Err(status) => {
            let expected = [Code::InvalidArgument, Code::NotFound, Code::DeadlineExceeded];
            assert!(expected.contains(&status.code()), "{status:?}");
            assert!(status.message().len() <= STATUS_BYTES_MAX, "{status:?}");
            return;
        }
    };
    assert_eq!((response.id.as_str(), response.model_name.as_str()), (message.id.as_str(), server.spec.name.as_str()));
    let (observations, legal) = naive(&message, &server.spec);
    let answer = numbers(&response);
    is_plausible(&answer, &legal, server.spec.actions);
    let canonical = canonical(&message, &observations, &legal, &server.spec);
    let again = server.infer(Request::new(canonical)).expect("the same positions were accepted before");
    let bits = |answer: &[(String, Vec<f32>)]| -> Vec<(String, Vec<u32>)> {
        answer.iter().map(|(name, numbers)| (name.clone(), numbers.iter().map(|x| x.to_bits()).collect())).collect()
    };
    assert_eq!(bits(&numbers(&again)), bits(&answer), "the same positions have two answers");
}

/// A server of tic-tac-toe with random weights, which runs until the process exits.
struct Server {
    runtime: Runtime,
    service: OpenInference,
    spec: Spec,
    _weights: tempfile::TempDir,
    _running: inference_server::Running,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("the system has a thread");
        let spec = TicTacToe::new().spec().clone();
        let weights = tempfile::tempdir().expect("the system has a folder for temporary files");
        let manifest = random_weights::Published::random(&spec, 1, 1).write(weights.path());
        let mut config = Config::default();
        config.run.game.clone_from(&spec.name);
        config.inference.weights = manifest.display().to_string();
        config.inference.threads = 1;
        config.inference.kernel = KernelPreference::Only(KernelVariant::PortableF32);
        let settings: Settings = config.settings().expect("the settings are valid");
        let running = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            inference_server::start(settings, listener, Readiness::starting(), Drain::new()).await
        });
        let running = running.expect("the server starts");
        let service = OpenInference::new(running.handle.clone(), CancellationToken::new());
        Server { runtime, service, spec, _weights: weights, _running: running }
    })
}

impl Server {
    fn infer(&self, request: Request<ModelInferRequest>) -> Result<ModelInferResponse, tonic::Status> {
        self.runtime.block_on(self.service.model_infer(request)).map(tonic::Response::into_inner)
    }
}

/// Reads the tensors of an accepted request: all observations, and the flags of all actions.
fn naive(request: &ModelInferRequest, spec: &Spec) -> (Vec<f32>, Vec<bool>) {
    let tensor = |name: &str| {
        let index = request.inputs.iter().position(|input| input.name == name)?;
        let InferInputTensor { datatype, contents, .. } = &request.inputs[index];
        Some(match (contents, request.raw_input_contents.get(index)) {
            (None, Some(raw)) => raw_numbers(datatype, raw),
            (Some(contents), _) => typed_numbers(contents),
            (None, None) => panic!("an accepted tensor has contents"),
        })
    };
    let observations = tensor("observations").expect("an accepted request has observations");
    let positions = observations.len() / spec.observation.len();
    assert!(positions > 0 && observations.len() == positions * spec.observation.len(), "{}", observations.len());
    assert!(observations.iter().all(|number| (0.0..=1.0).contains(number)), "{observations:?}");
    let legal = tensor("legal").map(|numbers| numbers.iter().map(|number| *number != 0.0).collect());
    let legal = legal.unwrap_or_else(|| vec![true; positions * spec.actions]);
    assert_eq!(legal.len(), positions * spec.actions);
    (observations, legal)
}

fn raw_numbers(datatype: &str, raw: &[u8]) -> Vec<f32> {
    let pairs = || raw.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    match datatype {
        "FP32" => raw.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect(),
        "FP16" => pairs().map(|pair| f16::from_le_bytes(pair).to_f32()).collect(),
        "BF16" => pairs().map(|pair| bf16::from_le_bytes(pair).to_f32()).collect(),
        "UINT8" | "BOOL" => raw.iter().map(|&byte| f32::from(byte)).collect(),
        other => panic!("{other} was accepted"),
    }
}

fn typed_numbers(contents: &InferTensorContents) -> Vec<f32> {
    let InferTensorContents { bool_contents, uint_contents, fp32_contents, .. } = contents;
    let flags = bool_contents.iter().map(|&flag| f32::from(u8::from(flag)));
    let unsigned = uint_contents.iter().map(|&number| number as f32);
    flags.chain(unsigned).chain(fp32_contents.iter().copied()).collect()
}

/// Returns the same positions as raw float32 and flags.
fn canonical(request: &ModelInferRequest, observations: &[f32], legal: &[bool], spec: &Spec) -> ModelInferRequest {
    let positions = (legal.len() / spec.actions) as i64;
    let shape = spec.observation;
    let dims = [positions, shape.planes as i64, shape.height as i64, shape.width as i64];
    let raw: Vec<u8> = observations.iter().flat_map(|number| number.to_le_bytes()).collect();
    let flags: Vec<u8> = legal.iter().map(|&flag| u8::from(flag)).collect();
    ModelInferRequest {
        model_name: request.model_name.clone(),
        model_version: request.model_version.clone(),
        inputs: vec![input("observations", "FP32", &dims), input("legal", "BOOL", &[positions, spec.actions as i64])],
        outputs: request.outputs.clone(),
        raw_input_contents: vec![raw.into(), flags.into()],
        ..ModelInferRequest::default()
    }
}

/// Returns the numbers of each output, and checks the output shapes.
fn numbers(response: &ModelInferResponse) -> Vec<(String, Vec<f32>)> {
    let outputs = response.outputs.iter().enumerate().map(|(index, output)| {
        let numbers = match &output.contents {
            Some(contents) => contents.fp32_contents.clone(),
            None => raw_numbers("FP32", &response.raw_output_contents[index]),
        };
        assert_eq!(output.shape.iter().product::<i64>(), numbers.len() as i64, "{}", output.name);
        (output.name.clone(), numbers)
    });
    outputs.collect()
}

/// Checks that priors are probabilities of the legal actions, and that values follow from the outcome probabilities.
fn is_plausible(answer: &[(String, Vec<f32>)], legal: &[bool], actions: usize) {
    let is_one = |sum: f32| (sum - 1.0).abs() < 1e-3;
    for (name, numbers) in answer {
        match name.as_str() {
            "priors" => {
                assert_eq!(numbers.len(), legal.len());
                assert!(numbers.iter().zip(legal).all(|(prior, legal)| *legal || *prior == 0.0), "{numbers:?}");
                assert!(numbers.chunks(actions).all(|row| is_one(row.iter().sum())), "{numbers:?}");
            }
            "wdl" => assert!(numbers.chunks(3).all(|row| is_one(row.iter().sum())), "{numbers:?}"),
            "value" => assert!(numbers.iter().all(|value| (-1.0..=1.0).contains(value)), "{numbers:?}"),
            other => panic!("there is no output {other}"),
        }
    }
}

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    let (name, datatype) = (name.to_owned(), datatype.to_owned());
    InferInputTensor { name, datatype, shape: shape.to_vec(), ..InferInputTensor::default() }
}

/// Returns requests in every datatype, raw and typed, with and without flags, outputs and timeouts.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let spec = TicTacToe::new().spec().clone();
    let shape = spec.observation;
    let dims = |positions: i64| [positions, shape.planes as i64, shape.height as i64, shape.width as i64];
    let count = shape.len();
    let ones: Vec<u8> = (0..count).map(|index| (index % 3 == 0).into()).collect();
    let request = |inputs: Vec<InferInputTensor>, raw: Vec<Vec<u8>>| ModelInferRequest {
        model_name: spec.name.clone(),
        id: "7".to_owned(),
        inputs,
        raw_input_contents: raw.into_iter().map(Into::into).collect(),
        ..ModelInferRequest::default()
    };
    let raw = |datatype: &str, bytes: Vec<u8>| request(vec![input("observations", datatype, &dims(1))], vec![bytes]);
    let typed = |datatype: &str, contents| {
        let observations = InferInputTensor { contents: Some(contents), ..input("observations", datatype, &dims(1)) };
        request(vec![observations], Vec::new())
    };
    let legal = || input("legal", "BOOL", &[2, spec.actions as i64]);
    let flags = |index: usize| index.is_multiple_of(2);
    let typed_legal = InferInputTensor {
        contents: Some(InferTensorContents {
            bool_contents: (0..2 * spec.actions).map(flags).collect(),
            ..InferTensorContents::default()
        }),
        ..legal()
    };
    let floats: Vec<f32> = (0..2 * count).map(|index| index as f32 / (2 * count) as f32).collect();
    let bytes = |floats: &[f32]| -> Vec<u8> { floats.iter().flat_map(|number| number.to_le_bytes()).collect() };
    let two = InferInputTensor {
        contents: Some(InferTensorContents { fp32_contents: floats.clone(), ..InferTensorContents::default() }),
        ..input("observations", "FP32", &dims(2))
    };
    let raw_flags = (0..2 * spec.actions).map(|index| u8::from(flags(index))).collect();
    let output = |name: &str| InferRequestedOutputTensor { name: name.to_owned(), ..Default::default() };
    let timeout = |microseconds| {
        let parameter = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(microseconds)) };
        [("timeout".to_owned(), parameter)].into()
    };
    let halves: Vec<u8> = ones.iter().flat_map(|&one| f16::from_f32(one.into()).to_le_bytes()).collect();
    let brains: Vec<u8> = ones.iter().flat_map(|&one| bf16::from_f32(one.into()).to_le_bytes()).collect();
    let unsigned = ones.iter().map(|&one| one.into()).collect();
    let booleans = ones.iter().map(|&one| one == 1).collect();
    let messages = vec![
        raw("FP32", bytes(&floats[..count])),
        raw("FP16", halves),
        raw("BF16", brains),
        raw("UINT8", ones.clone()),
        raw("BOOL", ones),
        typed("FP32", InferTensorContents { fp32_contents: floats[..count].to_vec(), ..Default::default() }),
        typed("UINT8", InferTensorContents { uint_contents: unsigned, ..Default::default() }),
        typed("BOOL", InferTensorContents { bool_contents: booleans, ..Default::default() }),
        ModelInferRequest {
            outputs: vec![output("value"), output("priors")],
            ..request(vec![two, typed_legal], Vec::new())
        },
        ModelInferRequest {
            model_version: "1".to_owned(),
            parameters: timeout(50_000_000),
            ..request(vec![legal(), input("observations", "FP32", &dims(2))], vec![raw_flags, bytes(&floats)])
        },
    ];
    let plain = messages.iter().map(|message| [&[0], message.encode_to_vec().as_slice()].concat());
    let timed = messages.iter().take(1).map(|message| [b"\x0399S", message.encode_to_vec().as_slice()].concat());
    plain.chain(timed).collect()
}
