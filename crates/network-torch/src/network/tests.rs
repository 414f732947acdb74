use std::collections::BTreeSet;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use tch::Device;
use training::Precision;
use weights::Architecture;

use super::Network;
use crate::{
    Error,
    tests::networks::{complete, dense, numbers, of_positions, pooled, residual, seasoned, small, tiny},
};

fn read(bytes: &[u8]) -> Result<Network, Error> {
    Network::from_safetensors(&tiny(), bytes, Device::Cpu)
}

/// Returns the file of a tiny network after `change` to the list of (name, type, shape, bytes).
fn rewritten(change: impl FnOnce(&mut Vec<(String, Dtype, Vec<usize>, Vec<u8>)>)) -> Vec<u8> {
    let bytes = seasoned(&tiny(), 51).to_safetensors().unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| (name, view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        .collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    change(&mut tensors);
    let views =
        tensors.iter().map(|(name, dtype, shape, data)| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn every_tensor_starts_at_a_multiple_of_16_bytes_in_every_precision() {
    let odd = Architecture { channels: 5, ..complete() };
    for architecture in [tiny(), small(), odd, dense(), residual()].into_iter().chain(pooled()).chain(of_positions()) {
        let network = Network::new(&architecture, Device::Cpu, 1).unwrap();
        let lowered = network.lowered(Precision::Bf16, BTreeSet::new()).unwrap().unwrap();
        for network in [&network, &lowered] {
            let tensors = network.parameters.iter().chain(&network.statistics);
            assert!(tensors.clone().count() > 0);
            for (index, tensor) in tensors.enumerate() {
                assert!(tensor.data_ptr().addr().is_multiple_of(16), "tensor {index} of {architecture:?}");
            }
        }
    }
}

#[test]
fn the_seed_alone_decides_a_new_network() {
    let bytes = |seed| Network::new(&small(), Device::Cpu, seed).unwrap().to_safetensors().unwrap();
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

#[test]
fn a_new_muzero_network_has_he_weights_small_outputs_and_neutral_norms() {
    let wide = Architecture { channels: 48, ..dense() };
    let network = Network::new(&wide, Device::Cpu, 3).unwrap();
    let largest = |name: &str| numbers(network.tensor(name)).into_iter().map(f64::abs).fold(0.0, f64::max);
    for (name, fan_in, scale) in [
        ("representation.input.weight", 5.0, 1.0),
        ("dynamics.input.weight", 51.0, 1.0),
        ("dynamics.block.0.second.weight", 48.0, 1.0),
        ("reward.hidden.weight", 48.0, 1.0),
        ("policy.output.weight", 64.0, 0.1),
        ("value.output.weight", 64.0, 0.1),
    ] {
        let bound = scale * (6.0_f64 / fan_in).sqrt();
        assert!((0.9 * bound..=bound).contains(&largest(name)), "{name} reaches {} of {bound}", largest(name));
    }
    assert!(numbers(network.tensor("dynamics.input.norm.weight")).iter().all(|&scale| scale == 1.0));
    assert_eq!(largest("dynamics.input.norm.bias") + largest("value.output.bias"), 0.0);

    let residual = Network::new(&residual(), Device::Cpu, 3).unwrap();
    let planes = numbers(residual.tensor("dynamics.action.weight")).into_iter().map(f64::abs).fold(0.0, f64::max);
    assert!((0.9..=1.0).contains(&planes), "actions reach {planes} in their planes");
}

/// The bounds are from He et al. 2015, by fan-in; 160 draws and more come near them.
#[test]
fn output_weights_of_pooling_and_excitation_start_at_a_tenth_of_the_he_bound() {
    let network = Network::new(&complete(), Device::Cpu, 3).unwrap();
    let largest = |name: &str| numbers(network.tensor(name)).into_iter().map(f64::abs).fold(0.0, f64::max);
    for (name, fan_in, scale) in [
        ("block.2.pooling.weight", 8.0, 0.1),
        ("block.2.excitation.hidden.weight", 16.0, 1.0),
        ("block.2.excitation.output.weight", 8.0, 0.1),
    ] {
        let bound = scale * (6.0_f64 / fan_in).sqrt();
        assert!((0.8 * bound..=bound).contains(&largest(name)), "{name} reaches {} of {bound}", largest(name));
    }
    assert_eq!(largest("block.2.pooling.bias"), 0.0);
    assert_eq!(largest("block.2.excitation.output.bias"), 0.0);
}

#[test]
fn a_written_network_is_read_back_bit_for_bit() {
    for architecture in [tiny(), complete(), dense(), residual()] {
        let bytes = seasoned(&architecture, 51).to_safetensors().unwrap();
        let read = Network::from_safetensors(&architecture, &bytes, Device::Cpu).unwrap();
        assert_eq!(read.to_safetensors().unwrap(), bytes);
    }
}

#[test]
fn convolutions_are_written_as_out_in_height_width() {
    let network = seasoned(&tiny(), 51);
    let bytes = network.to_safetensors().unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor("stem.convolution.weight").unwrap();
    assert_eq!(view.shape(), [2, 2, 3, 3]);
    let number = |index: usize| f32::from_le_bytes(view.data()[4 * index..][..4].try_into().unwrap());
    let weight = network.tensor("stem.convolution.weight");
    // Output 1, input 0, row 2, column 1.
    assert_eq!(f64::from(number(((2 * 3) + 2) * 3 + 1)), weight.double_value(&[1, 0, 2, 1]));
}

#[test]
fn parameters_are_counted_without_running_statistics() {
    let stem_and_block = 3 * (2 * 2 * 9 + 2 * 2);
    let policy = (32 * 2 + 2 * 32) + (4 * 9 * 32 + 4);
    let value = (32 * 2 + 2 * 32) + (64 * 9 * 32 + 64) + (3 * 64 + 3);
    assert_eq!(Network::new(&tiny(), Device::Cpu, 0).unwrap().parameter_count(), stem_and_block + policy + value);
}

#[test]
fn a_missing_an_extra_and_a_misshapen_tensor_are_refused_by_name() {
    let missing = read(&rewritten(|tensors| tensors.retain(|tensor| tensor.0 != "value.norm.mean"))).unwrap_err();
    assert_eq!(missing.to_string(), "tensor `value.norm.mean` is missing");

    let extra = read(&rewritten(|tensors| tensors.push(("spy".into(), Dtype::F32, vec![1], vec![0; 4])))).unwrap_err();
    assert_eq!(extra.to_string(), "tensor `spy` does not belong to this network");

    let misshapen = read(&rewritten(|tensors| {
        let weight = tensors.iter_mut().find(|tensor| tensor.0 == "value.output.weight").unwrap();
        weight.2 = vec![64, 3];
    }));
    let expected = "tensor `value.output.weight` is F32 [64, 3], expected F32 or BF16 [3, 64]";
    assert_eq!(misshapen.unwrap_err().to_string(), expected);

    let mistyped = read(&rewritten(|tensors| tensors[0].1 = Dtype::I32)).unwrap_err();
    assert!(
        matches!(mistyped, Error::Training(training::Error::Network(::network::Error::Shape { .. }))),
        "{mistyped}"
    );
}

#[test]
fn non_finite_numbers_and_negative_variances_are_refused_by_tensor_name() {
    let set = |name: &str, value: f32| {
        let bytes = rewritten(|tensors| {
            let tensor = tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap();
            tensor.3[..4].copy_from_slice(&value.to_le_bytes());
        });
        read(&bytes).unwrap_err().to_string()
    };
    assert_eq!(set("policy.output.weight", f32::NAN), "tensor `policy.output.weight` contains the invalid value NaN");
    assert_eq!(set("stem.norm.mean", f32::INFINITY), "tensor `stem.norm.mean` contains the invalid value inf");
    assert_eq!(set("stem.norm.variance", -1.0), "tensor `stem.norm.variance` contains the invalid value -1");
}

#[test]
fn another_architecture_is_refused() {
    let bytes = seasoned(&tiny(), 51).to_safetensors().unwrap();
    assert!(Network::from_safetensors(&small(), &bytes, Device::Cpu).is_err());

    let bytes = seasoned(&complete(), 51).to_safetensors().unwrap();
    let without = weights::Architecture { global_pooling: 0, ..complete() };
    let error = Network::from_safetensors(&without, &bytes, Device::Cpu).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "tensor `block.2.pooling.bias` does not belong to this network");
}

#[test]
fn truncated_bytes_are_refused_wherever_they_end() {
    let bytes = seasoned(&tiny(), 51).to_safetensors().unwrap();
    for len in (0..bytes.len()).step_by(211) {
        assert!(read(&bytes[..len]).is_err(), "{len} of {} bytes were taken", bytes.len());
    }
}

#[test]
fn a_flipped_byte_never_panics_and_is_refused_in_the_header() {
    let bytes = seasoned(&tiny(), 51).to_safetensors().unwrap();
    let header = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0xff;
        read(&bytes)
    };
    // A digest protects the numbers of a stored or sent file; this test only covers the format. 0xff makes any header
    // byte invalid UTF-8.
    for at in 8..header {
        assert!(flipped(at).is_err(), "byte {at}");
    }
    for at in (0..8).chain((header..bytes.len()).step_by(997)) {
        let _ = flipped(at);
    }
}

#[test]
fn architectures_out_of_range_are_refused_before_memory_is_allocated() {
    let refused = |change: fn(&mut weights::Architecture)| {
        let mut architecture = tiny();
        change(&mut architecture);
        Network::new(&architecture, Device::Cpu, 0).map(drop).unwrap_err().to_string()
    };
    let expected = "invalid channels 18446744073709551615: must be from 1 to 2048";
    assert_eq!(refused(|architecture| architecture.channels = usize::MAX), expected);
    assert!(refused(|architecture| architecture.actions = 0).contains("actions 0"));
    let expected = "invalid blocks 100000: must be from 0 to 256";
    assert_eq!(refused(|architecture| architecture.blocks = 100_000), expected);
    let expected = "invalid squeeze_excitation 2049: must be from 0 to 2048";
    assert_eq!(refused(|architecture| architecture.squeeze_excitation = 2049), expected);
    let expected = "invalid global_pooling 2: must be from 0 to 1";
    assert_eq!(refused(|architecture| architecture.global_pooling = 2), expected);
}
