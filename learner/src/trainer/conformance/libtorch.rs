//! The contract as tests of libtorch, which trains every model.

use network_torch::{Device, Network};
use training::UnrolledBatch;

use super::*;

const LIBTORCH: Backend = Backend { trainer: || libtorch(Model::Alphazero), ..KERNELS };

const MUZERO: Backend = Backend {
    trainer: || libtorch(Model::muzero(5)),
    examples: || Examples::Unrolled(unrolled()),
    not_finite: || Examples::Unrolled(UnrolledBatch { rewards: vec![f32::NAN, 0.0], ..unrolled() }),
};

const RETURNS: Backend = Backend {
    trainer: || libtorch(Model::AlphazeroReturns { support: 5 }),
    examples: || Examples::Unrolled(returns()),
    not_finite: || Examples::Unrolled(UnrolledBatch { values: vec![f32::NAN], ..returns() }),
};

/// MuZero with the switches of EfficientZero.
const EFFICIENTZERO: Backend = Backend {
    trainer: || {
        let settings = TrainerSettings { consistency_loss_weight: 2.0, ..TrainerSettings::default() };
        libtorch_with(Model::muzero_with_value_prefix(5), settings)
    },
    ..MUZERO
};

const STOCHASTIC_MUZERO: Backend = Backend {
    trainer: || libtorch(Model::StochasticMuzero { support: 5, codes: 3 }),
    not_finite: || {
        let next_observations = [f32::NAN; 2 * 2 * 9].into_iter().collect();
        Examples::Unrolled(UnrolledBatch { next_observations, ..unrolled() })
    },
    ..MUZERO
};

fn libtorch(model: Model) -> Box<dyn Trainer> {
    libtorch_with(model, TrainerSettings::default())
}

fn libtorch_with(model: Model, settings: TrainerSettings) -> Box<dyn Trainer> {
    let architecture = architecture(model);
    let network = Network::to_train(&architecture, &settings, Device::Cpu, 1).unwrap();
    Box::new(network_torch::Trainer::new(network, settings).unwrap())
}

#[test]
fn libtorch_keeps_the_contract_of_trainers_for_every_model() {
    keep_the_contract(&[LIBTORCH, RETURNS, MUZERO, EFFICIENTZERO, STOCHASTIC_MUZERO]);
}
