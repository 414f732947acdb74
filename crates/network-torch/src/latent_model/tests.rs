/// MuZero networks as tensors by name in float64, also the reference of the CPU kernel.
#[path = "../../../network-cpu/tests/latent_layers/mod.rs"]
mod latent_layers;

use ::network::Head;
use game::{Action, ObservationShape};
use inference::{Batch, LatentModel, LatentPredictions, Slot, Unroll};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};
use weights::{Architecture, Model, WeightsVersion};

use super::{LibtorchLatent, Means};
use crate::{
    DeviceRules, Error, Network, categorical,
    layers::Mode,
    muzero::LatentTower,
    tests::networks::{dense, numbers, of_returns, residual, seasoned, small, stochastic},
};
use inference::Precision;

const SLOTS: usize = 40;
const ROWS: usize = 13;

fn shape(architecture: &Architecture) -> ObservationShape {
    ObservationShape { planes: architecture.planes, height: architecture.height, width: architecture.width }
}

fn model_of(network: &Network, precision: Precision) -> LibtorchLatent {
    let mut model = LibtorchLatent::from_network(network, WeightsVersion(9), precision).unwrap();
    model.reserve(SLOTS).unwrap();
    model
}

/// Limits the rows that run through the network at once.
fn set_chunk(model: &mut LibtorchLatent, rows: usize) {
    let Means::Own { chunk, .. } = &mut model.means else { panic!("the model computes in this thread") };
    *chunk = rows;
}

/// Random observations, with a different illegal action in each.
fn observations(architecture: &Architecture, rows: usize) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(81);
    let mut batch = Batch::new(shape(architecture));
    for row in 0..rows {
        let actions = (0..architecture.actions).filter(|action| row % architecture.actions != *action);
        let legal: Vec<Action> = actions.map(|action| Action(u16::try_from(action).unwrap())).collect();
        batch.push(&legal, |numbers| numbers.fill_with(|| rng.random_range(-1.0..1.0)));
    }
    batch
}

/// Returns the rewards of the steps that led to `states`.
fn rewards(tower: LatentTower<'_>, states: &Tensor) -> Vec<f64> {
    let reward = &tower.dynamics().unwrap().reward;
    numbers(&categorical::value(&tower.head(reward, states).unwrap()).unwrap())
}

/// Returns the results for latent states from the network with batch norms in place: priors over `legal`, values,
/// rewards.
fn expected(
    tower: LatentTower<'_>,
    states: &Tensor,
    rewards: &[f64],
    legal: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<f64>> {
    expected_of(tower, [&tower.layers.policy, &tower.layers.value], states, rewards, legal)
}

/// The same with given heads of policy and value, which differ for afterstates.
fn expected_of(
    tower: LatentTower<'_>,
    [policy, value]: [&Head; 2],
    states: &Tensor,
    rewards: &[f64],
    legal: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<f64>> {
    let policy = numbers(&tower.head(policy, states).unwrap());
    let values = numbers(&categorical::value(&tower.head(value, states).unwrap()).unwrap());
    let rows = policy.chunks(policy.len() / values.len()).enumerate();
    rows.map(|(i, logits)| {
        let exp = |(action, logit): (usize, &f64)| if legal(i, action) { logit.exp() } else { 0.0 };
        let shares: Vec<f64> = logits.iter().enumerate().map(exp).collect();
        let total: f64 = shares.iter().sum();
        shares.iter().map(|share| share / total).chain([values[i], rewards[i]]).collect()
    })
    .collect()
}

fn assert_answers(predictions: &LatentPredictions, expected: &[Vec<f64>], tolerance: f64) {
    assert_eq!(predictions.len(), expected.len());
    for (i, expected) in expected.iter().enumerate() {
        let got = predictions.priors(i).iter().copied().chain([predictions.value(i), predictions.reward(i)]);
        for (got, expected) in got.zip(expected) {
            let off = (f64::from(got) - expected).abs();
            assert!(off <= tolerance * (1.0 + expected.abs()), "answer {i}: {got} instead of {expected}");
        }
    }
}

/// Searches between random slots, and in parallel computes the states themselves in a list.
fn agrees_with_the_network(architecture: &Architecture, rules: DeviceRules, precision: Precision, tolerance: f64) {
    let network = seasoned(architecture, 82).with_rules(rules);
    let tower = LatentTower::new(&network, Kind::Float, Mode::Evaluation).unwrap();
    let mut model = model_of(&network, precision);
    let mut rng = ChaCha8Rng::seed_from_u64(83);
    let mut predictions = LatentPredictions::default();

    let batch = observations(architecture, ROWS);
    let mut free: Vec<u32> = (0..u32::try_from(SLOTS).unwrap()).collect();
    let mut slot = || Slot(free.swap_remove(rng.random_range(0..free.len())));
    let to: Vec<Slot> = (0..ROWS).map(|_| slot()).collect();
    let spare: Vec<Slot> = (0..ROWS).map(|_| slot()).collect();
    model.initial(&batch, &to, &mut predictions).unwrap();
    let [planes, height, width] =
        [architecture.planes, architecture.height, architecture.width].map(|n| i64::try_from(n).unwrap());
    let input = Tensor::from_slice(batch.observations()).view([-1, planes, height, width]);
    let mut states = tower.represent(&input).unwrap();
    let legal = |i: usize, action: usize| batch.legal(i).iter().any(|legal| legal.index() == action);
    assert_answers(&predictions, &expected(tower, &states, &[0.0; ROWS], legal), tolerance);

    // Slots swap roles, so that each step reads states from the previous step and overwrites older states.
    let (mut from, mut to) = (to, spare);
    for _ in 0..4 {
        let actions: Vec<u16> =
            (0..ROWS).map(|_| rng.random_range(0..u16::try_from(architecture.actions).unwrap())).collect();
        let steps: Vec<Unroll> =
            (0..ROWS).map(|i| Unroll { from: from[i], action: Action(actions[i]), to: to[i] }).collect();
        model.recurrent(&steps, &mut predictions).unwrap();
        let taken: Vec<i64> = actions.iter().copied().map(i64::from).collect();
        states = tower.next(&states, &Tensor::from_slice(&taken)).unwrap();
        assert_answers(&predictions, &expected(tower, &states, &rewards(tower, &states), |_, _| true), tolerance);
        std::mem::swap(&mut from, &mut to);
        // Two rows exchange slots, so that the slots are not in order.
        from.swap(2, 7);
        let order = Tensor::from_slice(&[0_i64, 1, 7, 3, 4, 5, 6, 2, 8, 9, 10, 11, 12]);
        states = states.index_select(0, &order);
    }
}

#[test]
fn a_chain_of_steps_through_random_slots_agrees_with_the_unfolded_network() {
    let plain = Architecture { squeeze_excitation: 0, global_pooling: 0, ..residual() };
    for architecture in [dense(), residual(), plain] {
        agrees_with_the_network(&architecture, DeviceRules::CPU, Precision::F32, 1e-5);
    }
}

/// Alternates actions and chance codes, between slots in reverse order, and in parallel computes the states
/// themselves.
fn agrees_with_the_network_with_chance(
    architecture: &Architecture,
    rules: DeviceRules,
    precision: Precision,
    tolerance: f64,
) {
    let network = seasoned(architecture, 92).with_rules(rules);
    let tower = LatentTower::new(&network, Kind::Float, Mode::Evaluation).unwrap();
    let chance = tower.layers.chance.as_ref().unwrap();
    let mut model = model_of(&network, precision);
    // A batch is several chunks, and the last chunk is filled up.
    set_chunk(&mut model, 5);
    let mut predictions = LatentPredictions::default();
    let rows = 0..u32::try_from(ROWS).unwrap();
    let [states_at, afterstates_at] =
        [0, 20].map(|first| rows.clone().map(|row| Slot(first + row)).collect::<Vec<_>>());
    let batch = observations(architecture, ROWS);
    model.initial(&batch, &states_at, &mut predictions).unwrap();
    let [planes, height, width] =
        [architecture.planes, architecture.height, architecture.width].map(|n| i64::try_from(n).unwrap());
    let mut states =
        tower.represent(&Tensor::from_slice(batch.observations()).view([-1, planes, height, width])).unwrap();
    for round in 0..3 {
        let choices = |count: usize| (0..ROWS).map(|row| (5 * row + round) % count).collect::<Vec<_>>();
        let steps = |from: &[Slot], to: &[Slot], choices: &[usize]| {
            let step = |row: usize| Unroll {
                from: from[row],
                action: Action(u16::try_from(choices[row]).unwrap()),
                to: to[ROWS - 1 - row],
            };
            (0..ROWS).map(step).collect::<Vec<_>>()
        };
        let numbered = |choices: &[usize]| {
            Tensor::from_slice(&choices.iter().map(|&choice| i64::try_from(choice).unwrap()).collect::<Vec<_>>())
        };
        let (actions, codes) = (choices(architecture.actions), choices(architecture.model.codes()));
        model.act(&steps(&states_at, &afterstates_at, &actions), &mut predictions).unwrap();
        let afterstates = tower.act(chance, &states, &numbered(&actions)).unwrap();
        let heads = [&chance.code, &chance.value];
        let expected_after = expected_of(tower, heads, &afterstates, &[0.0; ROWS], |_, _| true);
        assert_answers(&predictions, &expected_after, tolerance);

        let afterstates = afterstates.flip([0]);
        model.recurrent(&steps(&afterstates_at, &states_at, &codes), &mut predictions).unwrap();
        let one_hot = numbered(&codes).one_hot(i64::try_from(architecture.model.codes()).unwrap());
        let next = tower.follow(&afterstates, &one_hot).unwrap();
        assert_answers(&predictions, &expected(tower, &next, &rewards(tower, &next), |_, _| true), tolerance);
        states = next.flip([0]);
    }
}

#[test]
fn afterstates_and_the_states_after_them_agree_with_the_unfolded_network() {
    let [dense, residual] = stochastic();
    let plain = Architecture { squeeze_excitation: 0, global_pooling: 0, ..residual.clone() };
    let more_codes = Model::StochasticMuzero { support: 1, codes: 17 };
    let more_codes = Architecture { model: more_codes, ..residual.clone() };
    for architecture in [&dense, &residual, &plain, &more_codes] {
        agrees_with_the_network_with_chance(architecture, DeviceRules::CPU, Precision::F32, 1e-5);
        agrees_with_the_network_with_chance(architecture, DeviceRules::CPU, Precision::Bf16, 0.1);
    }
    let padding = DeviceRules { planes_multiple: 8, ..DeviceRules::CPU };
    for rules in [DeviceRules::MPS, padding] {
        agrees_with_the_network_with_chance(&residual, rules, Precision::F32, 1e-5);
    }
}

#[test]
fn a_network_without_chance_has_no_afterstates() {
    for architecture in [dense(), residual()] {
        let mut model = model_of(&seasoned(&architecture, 93), Precision::F32);
        let step = Unroll { from: Slot(0), action: Action(0), to: Slot(1) };
        let refused = model.act(&[step], &mut LatentPredictions::default());
        assert!(matches!(refused, Err(inference::Error::Backend(_))), "{refused:?}");
    }
}

#[test]
fn a_network_of_returns_values_observations_as_the_unfolded_network_does_and_takes_no_step() {
    for architecture in of_returns() {
        for (rules, precision, tolerance) in [
            (DeviceRules::CPU, Precision::F32, 1e-5),
            (DeviceRules::MPS, Precision::F32, 1e-5),
            (DeviceRules::CPU, Precision::Bf16, 0.1),
        ] {
            let network = seasoned(&architecture, 82).with_rules(rules);
            let tower = LatentTower::new(&network, Kind::Float, Mode::Evaluation).unwrap();
            let mut model = model_of(&network, precision);
            let batch = observations(&architecture, ROWS);
            let to: Vec<Slot> = (0..ROWS as u32).map(Slot).collect();
            let mut predictions = LatentPredictions::default();
            model.initial(&batch, &to, &mut predictions).unwrap();
            let shape = [architecture.planes, architecture.height, architecture.width].map(|n| n as i64);
            let input = Tensor::from_slice(batch.observations()).view([-1, shape[0], shape[1], shape[2]]);
            let states = tower.represent(&input).unwrap();
            let legal = |i: usize, action: usize| batch.legal(i).iter().any(|legal| legal.index() == action);
            assert_answers(&predictions, &expected(tower, &states, &[0.0; ROWS], legal), tolerance);
            let step = Unroll { from: Slot(0), action: Action(0), to: Slot(1) };
            let refused = model.recurrent(&[step], &mut predictions);
            assert!(matches!(refused, Err(inference::Error::Backend(_))), "{refused:?}");
        }
    }
}

#[test]
fn channels_first_and_padded_planes_give_the_same_answers() {
    let padding = DeviceRules { planes_multiple: 8, ..DeviceRules::CPU };
    for rules in [DeviceRules::MPS, padding] {
        agrees_with_the_network(&residual(), rules, Precision::F32, 1e-5);
    }
}

#[test]
fn bf16_stays_near_f32() {
    for architecture in [dense(), residual()] {
        agrees_with_the_network(&architecture, DeviceRules::CPU, Precision::Bf16, 0.1);
    }
}

#[test]
fn several_steps_may_start_from_one_slot_and_their_answers_do_not_depend_on_the_batch() {
    for architecture in [dense(), residual()] {
        let network = seasoned(&architecture, 84);
        let mut model = model_of(&network, Precision::F32);
        let (mut together, mut alone) = (LatentPredictions::default(), LatentPredictions::default());
        model.initial(&observations(&architecture, 1), &[Slot(3)], &mut alone).unwrap();
        let steps: Vec<Unroll> =
            [0, 1, 2].map(|i| Unroll { from: Slot(3), action: Action(i), to: Slot(10 + u32::from(i)) }).into();
        model.recurrent(&steps, &mut together).unwrap();
        for (i, step) in steps.iter().enumerate() {
            model.recurrent(&[Unroll { to: Slot(20), ..*step }], &mut alone).unwrap();
            let expected: Vec<f64> =
                alone.priors(0).iter().copied().chain([alone.value(0), alone.reward(0)]).map(f64::from).collect();
            let got: Vec<f64> = together
                .priors(i)
                .iter()
                .copied()
                .chain([together.value(i), together.reward(i)])
                .map(f64::from)
                .collect();
            crate::tests::networks::assert_close(&got, &expected, 1e-5);
        }
        assert_ne!(together.priors(0), together.priors(1));
    }
}

#[test]
fn a_batch_beyond_a_chunk_is_answered_row_by_row() {
    let network = seasoned(&residual(), 85);
    let mut model = model_of(&network, Precision::F32);
    set_chunk(&mut model, 4);
    let mut whole = model_of(&network, Precision::F32);
    let batch = observations(&residual(), ROWS);
    let to: Vec<Slot> = (0..13).map(Slot).collect();
    let steps: Vec<Unroll> =
        (0..13).map(|i| Unroll { from: Slot(i), action: Action((i % 5) as u16), to: Slot(20 + i) }).collect();
    let [chunked, expected] = [&mut model, &mut whole].map(|model| {
        let mut answers = [LatentPredictions::default(), LatentPredictions::default()];
        model.initial(&batch, &to, &mut answers[0]).unwrap();
        model.recurrent(&steps, &mut answers[1]).unwrap();
        let values = answers.iter().flat_map(|answers| (0..13).map(|i| f64::from(answers.value(i))));
        values.collect::<Vec<_>>()
    });
    crate::tests::networks::assert_close(&chunked, &expected, 1e-5);
}

#[test]
fn reserving_more_slots_keeps_the_states() {
    for architecture in [dense(), residual()] {
        let network = seasoned(&architecture, 86);
        let mut model = model_of(&network, Precision::F32);
        let mut predictions = LatentPredictions::default();
        model.initial(&observations(&architecture, 1), &[Slot(5)], &mut predictions).unwrap();
        let mut after_one_action = |model: &mut LibtorchLatent| {
            model.recurrent(&[Unroll { from: Slot(5), action: Action(1), to: Slot(6) }], &mut predictions).unwrap();
            (predictions.value(0), predictions.reward(0))
        };
        let before = after_one_action(&mut model);
        model.reserve(100).unwrap();
        model.reserve(7).unwrap();
        assert_eq!(after_one_action(&mut model), before);
        assert_eq!(model.place.slots, 100);
    }
}

#[test]
fn weights_that_give_nan_are_an_error_with_their_version() {
    for architecture in [dense(), residual()] {
        let network = seasoned(&architecture, 87);
        tch::no_grad(|| network.tensor("value.output.bias").shallow_clone().f_fill_(f64::NAN).map(drop)).unwrap();
        let mut model = model_of(&network, Precision::F32);
        let mut predictions = LatentPredictions::default();
        let refused = model.initial(&observations(&architecture, 2), &[Slot(0), Slot(1)], &mut predictions);
        assert!(matches!(refused, Err(inference::Error::NotFinite { weights_version: 9 })), "{refused:?}");
        let step = Unroll { from: Slot(0), action: Action(0), to: Slot(2) };
        let refused = model.recurrent(&[step], &mut predictions);
        assert!(matches!(refused, Err(inference::Error::NotFinite { weights_version: 9 })), "{refused:?}");
    }
}

#[test]
fn a_network_of_alphazero_and_observations_of_another_game_are_refused() {
    let bytes = seasoned(&small(), 88).to_safetensors().unwrap();
    let refused = LibtorchLatent::new(&small(), WeightsVersion(1), &bytes, Device::Cpu, Precision::F32).unwrap_err();
    assert!(
        matches!(refused, Error::Training(training::Error::Network(::network::Error::Model { expected: "muzero" }))),
        "{refused}"
    );

    let mut model = model_of(&seasoned(&dense(), 89), Precision::F32);
    let refused = model.initial(&observations(&residual(), 1), &[Slot(0)], &mut LatentPredictions::default());
    assert!(matches!(refused, Err(inference::Error::Shape { .. })), "{refused:?}");
}

#[test]
#[should_panic(expected = "slot 40 of 40 was not reserved")]
fn a_slot_that_was_not_reserved_is_a_bug_of_the_caller() {
    let mut model = model_of(&seasoned(&dense(), 90), Precision::F32);
    let _ = model.initial(&observations(&dense(), 1), &[Slot(40)], &mut LatentPredictions::default());
}

#[test]
fn the_model_is_built_from_published_bytes_and_named_after_its_device() {
    let network = seasoned(&dense(), 91);
    let bytes = network.to_safetensors().unwrap();
    let mut read = LibtorchLatent::new(&dense(), WeightsVersion(9), &bytes, Device::Cpu, Precision::F32).unwrap();
    read.reserve(1).unwrap();
    assert_eq!((&*read.attributes().name, read.attributes().weights_version), ("libtorch cpu f32", 9));
    let [mut of_bytes, mut copied] = [LatentPredictions::default(), LatentPredictions::default()];
    read.initial(&observations(&dense(), 1), &[Slot(0)], &mut of_bytes).unwrap();
    model_of(&network, Precision::F32).initial(&observations(&dense(), 1), &[Slot(0)], &mut copied).unwrap();
    assert_eq!(of_bytes, copied);
}

#[test]
fn answers_are_those_of_the_layers_that_a_published_file_names() {
    for architecture in latent_layers::agreement::architectures() {
        let named = latent_layers::Named::random(&architecture);
        let bytes = latent_layers::file(&named.tensors);
        let (version, precision) = (WeightsVersion(3), Precision::F32);
        let mut model = LibtorchLatent::new(&architecture, version, &bytes, crate::Device::Cpu, precision).unwrap();
        latent_layers::agreement::agrees(&named, &mut model);
    }
}
