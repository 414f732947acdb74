use std::collections::HashSet;

use network::{Entry, LatentLayers, Layer, Layers, NORM_EPSILON, Role, Tensor};
use weights::{Activation, BlockKind, Design, HeadKind, NormKind};

use super::*;

/// Returns an architecture with every part that is not a choice between kinds.
fn complete() -> Architecture {
    Architecture {
        game: "any".to_owned(),
        planes: 3,
        height: 3,
        width: 4,
        actions: 14,
        channels: 32,
        blocks: 3,
        squeeze_excitation: 8,
        global_pooling: 4,
        design: Design { attention: 2, attention_heads: 4, ..Design::default() },
        model: Model::Alphazero,
    }
}

/// Returns an architecture with latent states, for observations of this height.
fn latent(height: usize, model: Model) -> Architecture {
    Architecture { height, width: height, design: Design::default(), model, ..complete() }
}

/// Returns architectures that together have every part of a network.
fn architectures() -> Vec<Architecture> {
    let design = complete().design;
    let mut designs = vec![design, Design { heads: HeadKind::Pooled, ..design }];
    designs.extend(Activation::ALL.map(|activation| Design { activation, ..Design::default() }));
    designs.extend(NormKind::ALL.map(|norm| Design { norm, block: BlockKind::Bottleneck, ..design }));
    let alphazero = designs.into_iter().map(|design| Architecture { design, ..complete() });
    let models = [
        Model::AlphazeroReturns { support: 5 },
        Model::Muzero { support: 5 },
        Model::StochasticMuzero { support: 5, codes: 6 },
    ];
    let latent = models.into_iter().flat_map(|model| [1, 3].map(|height| latent(height, model)));
    alphazero.chain(latent).collect()
}

fn tensors(architecture: &Architecture) -> Vec<Tensor> {
    match architecture.model {
        Model::Alphazero => Layers::new(architecture).unwrap().tensors().collect(),
        _ => LatentLayers::new(architecture).unwrap().iter().flat_map(Layer::tensors).collect(),
    }
}

/// Returns values of a tensor that differ from element to element, and are above 0 for variances.
fn values(tensor: &Tensor) -> Vec<f32> {
    let least = if tensor.role == Role::NormVariance { 0.5 } else { -0.5 };
    (0..tensor.numel()).map(|index| (index % 17) as f32 / 17.0 + least).collect()
}

fn file(tensors: &[Tensor]) -> Vec<u8> {
    network::write(tensors.iter().map(|tensor| Entry::tensor("", tensor, &values(tensor)))).unwrap()
}

/// Returns the graph of each model of an architecture, by file name.
fn graphs(architecture: &Architecture) -> Vec<(&'static str, messages::Graph)> {
    let models = models(architecture, &file(&tensors(architecture))).unwrap();
    let graph = |(name, bytes): (&'static str, Vec<u8>)| {
        let model = messages::Model::decode(&bytes[..]).unwrap();
        assert_eq!(model.encode_to_vec(), bytes, "{name}");
        assert_eq!((model.ir_version, model.opset_import[0].version), (8, 17), "{name}");
        (name, model.graph.unwrap())
    };
    models.into_iter().map(graph).collect()
}

fn constant(graph: &messages::Graph, name: &str) -> (Vec<i64>, Vec<f32>) {
    let tensor = graph.initializer.iter().find(|tensor| tensor.name == name);
    let tensor = tensor.unwrap_or_else(|| panic!("no constant {name}"));
    let values = tensor.raw_data.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk)).collect();
    (tensor.dims.clone(), values)
}

fn names(values: &[messages::ValueInfo]) -> Vec<&str> {
    values.iter().map(|value| value.name.as_str()).collect()
}

#[test]
fn every_node_reads_earlier_values_and_every_name_is_unique() {
    for architecture in architectures() {
        for (file, graph) in graphs(&architecture) {
            let context = format!("{file} of {architecture:?}");
            let mut known = HashSet::new();
            let constants = graph.initializer.iter().map(|tensor| tensor.name.as_str());
            for name in names(&graph.input).into_iter().chain(constants) {
                assert!(known.insert(name), "{name} twice in {context}");
            }
            for node in &graph.node {
                for input in &node.input {
                    assert!(known.contains(input.as_str()), "{} reads {input} in {context}", node.name);
                }
                for output in &node.output {
                    assert!(known.insert(output), "{output} twice in {context}");
                }
            }
            let missing: Vec<_> = names(&graph.output).into_iter().filter(|name| !known.contains(name)).collect();
            assert_eq!(missing, [""; 0], "{context}");
            let nodes: HashSet<_> = graph.node.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(nodes.len(), graph.node.len(), "{context}");
        }
    }
}

#[test]
fn constants_have_the_number_of_elements_of_the_shape() {
    for architecture in architectures() {
        for (file, graph) in graphs(&architecture) {
            for tensor in &graph.initializer {
                let element: usize = if tensor.data_type == 7 { 8 } else { 4 };
                let elements: i64 = tensor.dims.iter().product();
                assert_eq!(tensor.raw_data.len(), element * elements as usize, "{} in {file}", tensor.name);
            }
        }
    }
}

#[test]
fn inputs_and_outputs_are_those_of_the_model() {
    let of = |architecture: &Architecture| {
        let text = |(file, graph): &(&str, messages::Graph)| {
            format!("{file}: {} -> {}", names(&graph.input).join(", "), names(&graph.output).join(", "))
        };
        graphs(architecture).iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(of(&complete()), ["model.onnx: observations, legal -> policy_logits, priors, wdl, value"]);
    let initial = "initial.onnx: observations -> state, policy_logits, value";
    for height in [1, 3] {
        let of = |model| of(&latent(height, model));
        let returns = of(Model::AlphazeroReturns { support: 5 });
        assert_eq!(returns, ["model.onnx: observations, legal -> policy_logits, priors, value"]);
        let recurrent = "recurrent.onnx: state, action -> next_state, reward, policy_logits, value";
        assert_eq!(of(Model::Muzero { support: 5 }), [initial, recurrent]);
        let afterstate = "afterstate.onnx: state, action -> afterstate, code_logits, value";
        let recurrent = "recurrent.onnx: afterstate, code -> next_state, reward, policy_logits, value";
        assert_eq!(of(Model::StochasticMuzero { support: 5, codes: 6 }), [initial, afterstate, recurrent]);
    }
}

#[test]
fn batch_norms_are_folded_into_convolutions() {
    let graph = graphs(&complete()).remove(0).1;
    let stem = Layers::new(&complete()).unwrap().stem;
    let [weight, gamma, beta, mean, variance] =
        [Role::Convolution, Role::NormScale, Role::NormShift, Role::NormMean, Role::NormVariance]
            .map(|role| values(&stem.tensor(role)));
    let scale = |output: usize| f64::from(gamma[output]) / (f64::from(variance[output]) + NORM_EPSILON).sqrt();
    let (dims, folded) = constant(&graph, "stem.weight");
    assert_eq!(dims, [32, 3, 3, 3]);
    for (index, (&got, &weight)) in folded.iter().zip(&weight).enumerate() {
        let expected = f64::from(weight) * scale(index / 27);
        assert!((f64::from(got) - expected).abs() < 1e-6, "weight {index} is {got}, not {expected}");
    }
    let (_, bias) = constant(&graph, "stem.bias");
    for (output, &got) in bias.iter().enumerate() {
        let expected = f64::from(beta[output]) - f64::from(mean[output]) * scale(output);
        assert!((f64::from(got) - expected).abs() < 1e-6, "bias {output} is {got}, not {expected}");
    }
    assert!(graph.node.iter().all(|node| node.op_type != "BatchNormalization"));
}

#[test]
fn matrices_of_cells_are_transposed_and_all_other_tensors_are_those_of_the_file() {
    let graph = graphs(&complete()).remove(0).1;
    let layers = Layers::new(&complete()).unwrap();
    let qkv = &layers.attention[0].qkv;
    let (dims, transposed) = constant(&graph, "attention.0.qkv.weight");
    assert_eq!(dims, [32, 96]);
    let of_file = values(&qkv.tensor(Role::Linear));
    assert!((0..96 * 32).all(|index| transposed[index % 32 * 96 + index / 32] == of_file[index]));
    let pooling = layers.blocks[2].pooling.as_ref().unwrap();
    assert_eq!(constant(&graph, "block.2.pooling.weight"), (vec![28, 8, 1, 1], values(&pooling.tensor(Role::Linear))));
    let policy = layers.policy_output.tensor(Role::Linear);
    assert_eq!(constant(&graph, "policy.output.weight"), (vec![14, 384], values(&policy)));
}

#[test]
fn a_file_that_does_not_match_the_architecture_is_refused_by_tensor() {
    let mut tensors = tensors(&complete());
    let last = tensors.pop().unwrap();
    let missing = models(&complete(), &file(&tensors)).unwrap_err();
    assert_eq!(missing, Error::Network(network::Error::MissingTensor { name: last.name.clone() }));
    let other = Tensor { name: "sink.weight".to_owned(), ..last.clone() };
    let unknown = models(&complete(), &file(&[tensors, vec![last, other]].concat())).unwrap_err();
    assert_eq!(unknown, Error::Network(network::Error::UnexpectedTensor { name: "sink.weight".to_owned() }));
    let wide = Architecture { width: 97, ..complete() };
    let error = models(&wide, &file(&[])).unwrap_err().to_string();
    assert!(error.contains("width 97"), "{error}");
}

#[test]
fn a_model_beyond_the_limit_of_messages_is_refused_by_name_and_size() {
    let model = graph::Builder::default().model("any");
    let bytes = model.encode_to_vec();
    assert_eq!(encoded("model.onnx", &model, bytes.len()), Ok(bytes.clone()));
    let error = encoded("model.onnx", &model, bytes.len() - 1).unwrap_err();
    assert_eq!(error, Error::Size { file: "model.onnx", bytes: bytes.len(), limit: bytes.len() - 1 });
    assert!(error.to_string().starts_with("model.onnx would have"), "{error}");
}
