//! Formats of operation inputs under each device kind's rules, with the CPU as a stand-in.

use tch::{Device, Kind, Tensor};
use weights::Architecture;

use super::{
    networks::{assert_close, batch, complete, numbers, observations, pooled, seasoned, small},
    recorder::{Operation, Recorded, is_channels_last, recorded},
};
use crate::{
    DeviceRules, Network, Trainer,
    folded::Folded,
    layout,
    losses::{losses, tests::targets},
    tower::{Mode, forward},
};
use training::{Decay, Losses, Optimiser, Precision, Trainer as _, TrainerSettings};

/// Networks with every kind of block and head, one with a single plane: single-plane observations look alike in both
/// formats.
fn architectures() -> [Architecture; 4] {
    let [pooled, _] = pooled();
    [small(), complete(), Architecture { planes: 1, ..complete() }, pooled]
}

fn network(architecture: &Architecture, rules: DeviceRules) -> Network {
    seasoned(architecture, 31).with_rules(rules)
}

fn settings(optimiser: Optimiser) -> TrainerSettings {
    TrainerSettings { optimiser, learning_rate: 1e-3, warm_up_steps: 0, decay: Decay::Constant, ..Default::default() }
}

fn no_channels_last(record: &[Recorded]) {
    for operation in [Operation::Convolution, Operation::Matrix] {
        assert!(record.iter().any(|recorded| recorded.operation == operation), "no {operation:?} was recorded");
    }
    for recorded in record {
        for map in recorded.maps() {
            let (size, stride) = (map.size(), map.stride());
            assert!(!is_channels_last(map), "{:?} with {size:?} and strides {stride:?}", recorded.operation);
            assert!(map.is_contiguous(), "{:?} with {size:?} and strides {stride:?}", recorded.operation);
        }
        for matrix in recorded.tensors.iter().filter(|tensor| tensor.dim() == 2) {
            assert!(matrix.is_contiguous(), "{:?} with {matrix:?}", recorded.operation);
        }
    }
}

fn trained(architecture: &Architecture, rules: DeviceRules, optimiser: Optimiser) -> (Vec<f64>, Trainer) {
    crate::set_threads(1);
    let mut trainer = Trainer::new(network(architecture, rules), settings(optimiser)).unwrap();
    let losses = (0..5).map(|seed| trainer.step(&batch(architecture, 9, seed).into()).unwrap().total).collect();
    (losses, trainer)
}

#[test]
fn under_the_rules_of_mps_training_gives_the_losses_and_parameters_of_the_cpu() {
    let momentum = Optimiser::Sgd { momentum: 0.9 };
    // With the usual epsilon AdamW turns rounding errors of gradients near zero into whole steps.
    let adamw = Optimiser::AdamW { betas: [0.9, 0.999], epsilon: 1e-3 };
    for architecture in architectures() {
        for optimiser in [momentum, adamw] {
            let (expected_losses, expected) = trained(&architecture, DeviceRules::CPU, optimiser);
            let (losses, trainer) = trained(&architecture, DeviceRules::MPS, optimiser);
            assert_close(&losses, &expected_losses, 1e-5);
            let [got, expected] = [trainer, expected]
                .map(|trainer| [&trainer.network().flat_parameters, &trainer.network().flat_statistics].map(numbers));
            assert_close(&got[0], &expected[0], 1e-5);
            assert_close(&got[1], &expected[1], 1e-5);
        }
    }
}

#[test]
fn under_the_rules_of_mps_a_training_step_is_channels_first_and_float32_throughout() {
    for architecture in architectures() {
        let mut trainer = Trainer::new(network(&architecture, DeviceRules::MPS), settings(Optimiser::adamw())).unwrap();
        let (outcome, record) = recorded(|| trainer.step(&batch(&architecture, 9, 5).into()));
        outcome.unwrap();
        no_channels_last(&record);
        assert!(record.iter().any(|recorded| recorded.operation == Operation::BatchNorm));
        for recorded in &record {
            assert_eq!(recorded.kinds(), [Kind::Float; 3], "{:?}", recorded.operation);
        }
    }
}

/// The gradient of an operation's output is the backward pass's input.
#[test]
fn under_the_rules_of_mps_gradients_are_channels_first() {
    for architecture in architectures() {
        let network = network(&architecture, DeviceRules::MPS);
        let positions = batch(&architecture, 9, 6);
        let (logits, record) =
            recorded(|| forward(&network, &observations(&architecture, &positions), Kind::Float, Mode::Training));
        let weights = Losses { policy: 1.0, value: 1.0, ..Losses::ZERO };
        let total = losses(&logits.unwrap(), &targets(&positions, Kind::Float), &weights).unwrap().scalars.total;
        let outputs: Vec<&Tensor> = record.iter().map(|recorded| &recorded.tensors[2]).collect();
        let gradients = Tensor::run_backward(&[total], &outputs, false, false);
        let maps: Vec<&Tensor> = gradients.iter().filter(|gradient| gradient.dim() == 4).collect();
        assert!(maps.len() > 10);
        for gradient in maps {
            assert!(!is_channels_last(gradient), "{:?} with strides {:?}", gradient.size(), gradient.stride());
            assert!(gradient.is_contiguous(), "{:?} with strides {:?}", gradient.size(), gradient.stride());
        }
    }
}

/// Returns the logits `[B, A + 3]` of the folded network, and the operations.
fn folded(architecture: &Architecture, rules: DeviceRules, precision: Precision) -> (Vec<f64>, Vec<Recorded>) {
    let folded = Folded::new(&network(architecture, rules), precision).unwrap();
    let batch = batch(architecture, 6, 7);
    let mut staged = vec![0.0; batch.observations.len()];
    let cells = architecture.height * architecture.width;
    layout::channels_last(&batch.observations.to_floats(), architecture.planes, cells, &mut staged);
    let (logits, record) = recorded(|| folded.forward(&Tensor::from_slice(&staged), 6).unwrap());
    (numbers(&logits), record)
}

#[test]
fn under_the_rules_of_mps_the_folded_network_is_channels_first_and_answers_alike() {
    for architecture in architectures() {
        for (precision, tolerance) in [(Precision::F32, 1e-5), (Precision::Bf16, 0.05)] {
            let (expected, _) = folded(&architecture, DeviceRules::CPU, precision);
            let (logits, record) = folded(&architecture, DeviceRules::MPS, precision);
            assert_close(&logits, &expected, tolerance);
            no_channels_last(&record);
            assert!(record.iter().all(|recorded| recorded.kinds() == [crate::rules::kind(precision); 3]));
        }
    }
}

#[test]
fn under_the_rules_of_cpu_and_cuda_every_convolution_is_channels_last() {
    for rules in [DeviceRules::CPU, DeviceRules::cuda(None)] {
        for architecture in architectures() {
            let of_inference =
                [Precision::Bf16, Precision::F16].map(|precision| folded(&architecture, rules, precision).1);
            let mut trainer = Trainer::new(network(&architecture, rules), settings(Optimiser::adamw())).unwrap();
            let (outcome, of_training) = recorded(|| trainer.step(&batch(&architecture, 9, 5).into()));
            outcome.unwrap();
            let maps = of_inference.iter().flatten().chain(&of_training).flat_map(Recorded::maps);
            let mut count = 0;
            for map in maps {
                assert!(is_channels_last(map), "{:?} with strides {:?}", map.size(), map.stride());
                count += 1;
            }
            assert!(count > 30, "{count} tensors were recorded");
        }
    }
}

#[test]
fn under_the_rules_of_cuda_planes_are_padded_to_eight_and_the_answers_stay() {
    for architecture in [small(), Architecture { planes: 9, ..complete() }] {
        let (expected, _) = folded(&architecture, DeviceRules::CPU, Precision::F32);
        let (logits, record) = folded(&architecture, DeviceRules::cuda(None), Precision::F32);
        assert_close(&logits, &expected, 1e-5);
        let padded = i64::try_from(architecture.planes.next_multiple_of(8)).unwrap();
        let [observations, weight, _] = &record[0].tensors;
        assert_eq!((observations.size()[1], weight.size()[1]), (padded, padded));
    }
}

/// `contiguous` alone would leave channels-last strides if a dimension has size 1.
#[test]
fn weights_of_one_cell_and_observations_of_one_plane_are_rearranged_too() {
    let rules = DeviceRules::MPS;
    for shape in [[5, 4, 1, 1], [5, 1, 3, 3], [1, 4, 3, 3]] {
        let [a, b, c, d] = shape;
        let channels_last =
            Tensor::arange(a * b * c * d, (Kind::Float, Device::Cpu)).view([a, c, d, b]).permute([0, 3, 1, 2]);
        let arranged = rules.memory_format.arrange(&channels_last).unwrap();
        assert!(!is_channels_last(&arranged), "{shape:?} has strides {:?}", arranged.stride());
        assert_eq!(numbers(&arranged), numbers(&channels_last));
        let back = DeviceRules::CPU.memory_format.arrange(&arranged).unwrap();
        assert_eq!(numbers(&back), numbers(&channels_last));
    }
}
