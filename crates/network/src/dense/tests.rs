use tch::Device;

use super::{DenseNetwork, DenseShape};
use crate::{
    Precision,
    testing::{assert_close, numbers},
};

const SHAPE: DenseShape = DenseShape { inputs: 5, hidden: 8, actions: 3 };

fn evaluated(precision: Precision, observations: &[f32]) -> Vec<f64> {
    let network = DenseNetwork::new(SHAPE, Device::Cpu, precision, 3).unwrap();
    let mut answers = vec![9.0; 2];
    network.evaluate(observations, &mut answers).unwrap();
    answers.into_iter().map(f64::from).collect()
}

fn observations(positions: usize) -> Vec<f32> {
    (0..positions * SHAPE.inputs).map(|i| (i % 7) as f32 / 7.0 - 0.3).collect()
}

/// The same by hand, from the weights.
fn by_hand(observation: &[f32]) -> Vec<f64> {
    let network = DenseNetwork::new(SHAPE, Device::Cpu, Precision::F32, 3).unwrap();
    let mut x: Vec<f64> = observation.iter().map(|&x| f64::from(x)).collect();
    for layer in [&network.hidden[0], &network.hidden[1], &network.output] {
        let weight = numbers(&layer.weight);
        let is_last = std::ptr::eq(layer, &raw const network.output);
        x = weight
            .chunks_exact(x.len())
            .map(|row| row.iter().zip(&x).map(|(weight, x)| weight * x).sum::<f64>())
            .map(|sum| if is_last { sum } else { sum.max(0.0) })
            .collect();
    }
    x
}

#[test]
fn answers_are_policy_and_value_of_every_observation() {
    let observations = observations(4);
    let expected: Vec<f64> = observations.chunks_exact(SHAPE.inputs).flat_map(by_hand).collect();
    assert_eq!(expected.len(), 4 * (SHAPE.actions + 1));
    assert_close(&evaluated(Precision::F32, &observations), &expected, 1e-5);
    assert_close(&evaluated(Precision::Bf16, &observations), &expected, 0.1);
}

#[test]
fn an_empty_batch_has_empty_answers() {
    assert_eq!(evaluated(Precision::F32, &[]), [0.0; 0]);
}

#[test]
fn half_an_observation_is_refused() {
    let network = DenseNetwork::new(SHAPE, Device::Cpu, Precision::F32, 3).unwrap();
    let error = network.evaluate(&observations(2)[..7], &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "the batch has 7 numbers in `observations`, expected 10");
}

#[test]
fn a_width_that_no_layer_has_is_named() {
    let network = |shape| DenseNetwork::new(shape, Device::Cpu, Precision::F32, 1).unwrap_err().to_string();
    assert!(network(DenseShape { hidden: 0, ..SHAPE }).contains("hidden units 0"));
    assert!(network(DenseShape { inputs: 100_000, ..SHAPE }).contains("inputs 100000"));
}
