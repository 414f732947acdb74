//! Stochastic MuZero: losses and gradients against plain float64, and a learnt chance distribution.

use inference::{LatentModel, Slot, Unroll};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::Device;

use super::*;
use crate::{Trainer, tests::networks::stochastic};
use training::{Trainer as _, TrainerSettings};

/// Encodings of all steps, `[B, K, M]`.
type Encodings = Vec<Vec<Vec<f64>>>;

fn greatest(numbers: &[f64]) -> usize {
    (1..numbers.len()).fold(0, |best, i| if numbers[i] > numbers[best] { i } else { best })
}

impl Reference<'_> {
    /// Returns the encodings of the chance event after each action.
    fn encodings(&self, batch: &UnrolledBatch) -> Encodings {
        let (planes, steps) = (self.network.architecture().planes, batch.unroll_steps);
        let double = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<_>>();
        let (first, next) = (double(batch.observations.to_floats()), double(batch.next_observations.to_floats()));
        let of_position = |position: usize| {
            let of_step = |step: usize| {
                let after = |step: usize| &next[(position * steps + step) * planes..][..planes];
                let before = if step == 0 { &first[position * planes..][..planes] } else { after(step - 1) };
                let features = self.features(0, "encoder", &[before, after(step)].concat());
                self.logits("encoding", &features)
            };
            (0..steps).map(of_step).collect()
        };
        let mut encodings: Encodings = (0..first.len() / planes).map(of_position).collect();
        // The mean over all rows is subtracted.
        let rows: Vec<Vec<f64>> = encodings.iter().flatten().cloned().collect();
        let mean = |i: usize| rows.iter().map(|row| row[i]).sum::<f64>() / rows.len() as f64;
        let means: Vec<f64> = (0..rows[0].len()).map(mean).collect();
        for encoding in encodings.iter_mut().flatten() {
            encoding.iter_mut().zip(&means).for_each(|(e, mean)| *e -= mean);
        }
        encodings
    }

    /// Returns the total loss, with codes chosen by the encodings `base` that move with the encodings of the
    /// parameters: the slopes are the gradients that pass straight through the codes.
    fn total(&self, batch: &UnrolledBatch, base: &Encodings) -> f64 {
        let &Architecture { planes, actions, model, .. } = self.network.architecture();
        let (support, steps) = (model.support().unwrap(), batch.unroll_steps);
        let share = |step: usize| if step == 0 { 1.0 } else { 1.0 / steps as f64 };
        let weights = batch.policy_weights.iter().enumerate();
        let policy_weight: f64 = weights.map(|(i, &w)| share(i % (steps + 1)) * f64::from(w)).sum::<f64>() / 2.0;
        let encodings = self.encodings(batch);
        let (observations, next) = (batch.observations.to_floats(), batch.next_observations.to_floats());
        let positions = observations.len() / planes;
        let mut total = 0.0;
        for position in 0..positions {
            let observation: Vec<f64> =
                observations[position * planes..][..planes].iter().map(|&x| f64::from(x)).collect();
            let mut state = self.trunk(0, "representation", &observation);
            for step in 0..=steps {
                let at = position * (steps + 1) + step;
                let (share, n) = (share(step), positions as f64);
                if step > 0 {
                    let taken = position * steps + step - 1;
                    let one_hot = |count: usize, hot: usize| (0..count).map(move |i| f64::from(u8::from(i == hot)));
                    state.extend(one_hot(actions, usize::from(batch.actions[taken])));
                    let mut afterstate = self.trunk(0, "afterstate", &state);
                    let value_weight = share * f64::from(batch.value_weights[at - 1]) / n;
                    let values = self.head("afterstate_value", &afterstate);
                    total +=
                        WEIGHTS.value * value_weight * two_hot_loss(&values, f64::from(batch.values[at - 1]), support);
                    let (base, encoding) = (&base[position][step - 1], &encodings[position][step - 1]);
                    let code: Vec<f64> = one_hot(base.len(), greatest(base)).collect();
                    let commitment: f64 = code.iter().zip(encoding).map(|(c, e)| (c - e).powi(2)).sum();
                    let cross_entropy = -self.head("code", &afterstate)[greatest(base)];
                    total += share * f64::from(batch.chance_weights[taken]) * (commitment + cross_entropy) / n;
                    let moved = code.iter().zip(encoding.iter().zip(base)).map(|(c, (e, base))| c + e - base);
                    afterstate.extend(moved);
                    state = self.trunk(0, "dynamics", &afterstate);
                    let reward = two_hot_loss(&self.head("reward", &state), f64::from(batch.rewards[taken]), support);
                    total += value_weight * reward;
                    if self.network.layers.consistency().is_some() {
                        let weight = WEIGHTS.consistency * share * f64::from(batch.next_weights[taken]);
                        total += weight * self.distance(&state, &next[taken * planes..][..planes]) / n;
                    }
                }
                let priors = self.head("policy", &state);
                let policy: f64 =
                    batch.policies[at * actions..].iter().zip(&priors).map(|(&target, p)| -f64::from(target) * p).sum();
                total += share * f64::from(batch.policy_weights[at]) * policy / policy_weight.max(1.0);
                let value = two_hot_loss(&self.head("value", &state), f64::from(batch.values[at]), support);
                total += WEIGHTS.value * share * f64::from(batch.value_weights[at]) * value / n;
            }
        }
        total
    }
}

#[test]
fn losses_and_gradients_with_chance_are_those_of_plain_float64() {
    let [dense, _] = stochastic();
    check_losses_and_gradients(&seasoned(&dense, 91), &[]);
}

#[test]
fn the_consistency_loss_of_a_model_with_chance_is_that_of_the_states_after_chance() {
    let [dense, _] = stochastic();
    let heads = ["consistency.projector.0", "consistency.predictor.output"];
    check_losses_and_gradients(&seasoned_with_consistency(&dense, 96), &heads);
}

fn check_losses_and_gradients(network: &Network, heads: &[&str]) {
    let dense = network.architecture();
    let batch = unrolled_batch(dense, 3, 2, 92);
    let (total, gradient) = loss_and_gradient(network, &batch, 1.0);
    let mut reference = Reference::new(network, 0);
    let base = reference.encodings(&batch);
    let named: Vec<usize> = base.iter().flatten().map(|encoding| greatest(encoding)).collect();
    assert!(named.iter().any(|&code| code != named[0]), "the codes of the test differ: {named:?}");
    assert!((total - reference.total(&batch, &base)).abs() < 1e-9, "{total}");
    let parts = [
        "representation.input",
        "afterstate.input",
        "afterstate_value.output",
        "code.output",
        "dynamics.input",
        "encoder.input",
        "encoding.hidden",
        "encoding.output",
        "reward.output",
        "policy.hidden",
    ];
    for part in parts.iter().chain(heads) {
        let range = network.layout.parameter(&format!("{part}.weight"));
        // A few parameters of each part, spread over it.
        for index in range.clone().step_by((range.len() / 7).max(1)) {
            let mut at = |by: f64| {
                reference.parameters[0][index] += by;
                let total = reference.total(&batch, &base);
                reference.parameters[0][index] -= by;
                total
            };
            let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
            let got = gradient[index];
            assert!((got - slope).abs() < 1e-6 * (1.0 + slope.abs()), "{part}, {index}: {got}, slope {slope}");
        }
    }
}

/// Steps of an environment with one action that leads from a state to one of two, with probabilities 0.75 and 0.25;
/// the reward is 1 in the first case and −1 in the second. Observations are one-hot: start, first, second.
fn coin(rng: &mut ChaCha8Rng, positions: usize) -> UnrolledBatch {
    let mut batch = UnrolledBatch { unroll_steps: 1, ..UnrolledBatch::default() };
    for _ in 0..positions {
        let is_first = rng.random_bool(0.75);
        batch.observations.push(&[1.0, 0.0, 0.0]);
        batch.next_observations.push(if is_first { &[0.0, 1.0, 0.0] } else { &[0.0, 0.0, 1.0] });
        batch.actions.push(0);
        batch.policies.extend([1.0, 1.0]);
        batch.policy_weights.extend([1.0, 0.0]);
        batch.rewards.push(if is_first { 1.0 } else { -1.0 });
        batch.values.extend([if is_first { 1.0 } else { -1.0 }, 0.0]);
        batch.value_weights.extend([1.0, 1.0]);
        batch.next_weights.push(1.0);
        batch.chance_weights.push(1.0);
    }
    batch
}

#[test]
fn the_distribution_of_two_outcomes_is_learnt_with_the_reward_of_each() {
    crate::set_threads(1);
    let model = Model::StochasticMuzero { support: 4, codes: 4 };
    let architecture = Architecture { planes: 3, actions: 1, channels: 32, model, ..dense() };
    let settings = TrainerSettings { learning_rate: 3e-3, ema_decay: 0.98, ..TrainerSettings::muzero() };
    let mut trainer = Trainer::new(Network::new(&architecture, Device::Cpu, 3).unwrap(), settings).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for _ in 0..400 {
        trainer.step(&coin(&mut rng, 64).into()).unwrap();
    }
    let bytes = trainer.published().unwrap();
    let mut model = crate::LibtorchLatent::new(
        &architecture,
        weights::WeightsVersion(1),
        &bytes,
        Device::Cpu,
        crate::Precision::F32,
    )
    .unwrap();
    let mut predictions = inference::LatentPredictions::default();
    let mut observation = inference::Batch::new(game::ObservationShape { planes: 3, height: 1, width: 1 });
    observation.push(&[game::Action(0)], |planes| planes.copy_from_slice(&[1.0, 0.0, 0.0]));
    model.reserve(8).unwrap();
    model.initial(&observation, &[Slot(0)], &mut predictions).unwrap();
    let act = Unroll { from: Slot(0), action: game::Action(0), to: Slot(1) };
    model.act(&[act], &mut predictions).unwrap();
    let codes = predictions.priors(0).to_vec();
    let afterstate_value = predictions.value(0);
    let steps: Vec<Unroll> = (0..4)
        .map(|code| Unroll { from: Slot(1), action: game::Action(code), to: Slot(2 + u32::from(code)) })
        .collect();
    model.recurrent(&steps, &mut predictions).unwrap();
    let sum = |holds: fn(f32) -> bool| -> f32 {
        (0..4).filter(|&code| holds(predictions.reward(code))).map(|code| codes[code]).sum()
    };
    let (first, second) = (sum(|reward| (reward - 1.0).abs() < 0.1), sum(|reward| (reward + 1.0).abs() < 0.1));
    // Four standard errors over the last hundred batches or so, plus the lag of the weights average.
    assert!((first - 0.75).abs() < 0.04, "{first} of {codes:?}, rewards {predictions:?}");
    assert!((second - 0.25).abs() < 0.04, "{second} of {codes:?}, rewards {predictions:?}");
    // The mean atom, not the mean value: the transform maps 1 and −1 to ±0.415, with the mean 0.2075.
    let expected = inference::categorical::inverse_transform(0.5 * inference::categorical::transform(1.0)) as f32;
    assert!((afterstate_value - expected).abs() < 0.08, "{afterstate_value} instead of {expected}");
}

#[test]
fn the_latent_model_takes_the_steps_of_the_network() {
    for architecture in stochastic() {
        let network = seasoned(&architecture, 95);
        let mut model =
            crate::LibtorchLatent::from_network(&network, weights::WeightsVersion(1), crate::Precision::F32).unwrap();
        assert_eq!(model.codes(), 3);
        let &Architecture { planes, height, width, actions, .. } = &architecture;
        let shape = game::ObservationShape { planes, height, width };
        let mut batch = inference::Batch::new(shape);
        let legal: Vec<game::Action> = (0..actions as u16).map(game::Action).collect();
        let observation: Vec<f32> = (0..shape.len()).map(|i| (i as f32 * 0.7).sin()).collect();
        batch.push(&legal, |planes| planes.copy_from_slice(&observation));
        model.reserve(3).unwrap();
        let mut predictions = inference::LatentPredictions::default();
        model.initial(&batch, &[Slot(0)], &mut predictions).unwrap();
        model.act(&[Unroll { from: Slot(0), action: game::Action(2), to: Slot(1) }], &mut predictions).unwrap();
        let after = predictions.clone();
        model.recurrent(&[Unroll { from: Slot(1), action: game::Action(1), to: Slot(2) }], &mut predictions).unwrap();

        let _guard = tch::no_grad_guard();
        let tower = LatentTower::new(&network, Kind::Float, Mode::Evaluation).unwrap();
        let chance = tower.layers.chance.as_ref().unwrap();
        let shape = [1, planes, height, width].map(|n| i64::try_from(n).unwrap());
        let state = tower.represent(&Tensor::from_slice(&observation).view(shape)).unwrap();
        let afterstate = tower.act(chance, &state, &Tensor::from_slice(&[2_i64])).unwrap();
        let code = Tensor::from_slice(&[0.0_f32, 1.0, 0.0]).view([1, 3]);
        let next = tower.follow(&afterstate, &code).unwrap();
        let softmax = |head, x| numbers(&tower.head(head, x).unwrap().softmax(-1, Kind::Float));
        let of = |numbers: &[f32]| numbers.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        assert_close(&of(after.priors(0)), &softmax(&chance.code, &afterstate), 1e-5);
        assert_close(&of(predictions.priors(0)), &softmax(&tower.layers.policy, &next), 1e-5);
        let value = |head, x| numbers(&crate::categorical::value(&tower.head(head, x).unwrap()).unwrap());
        assert_close(&[f64::from(after.value(0))], &value(&chance.value, &afterstate), 1e-4);
        assert_close(&[f64::from(predictions.value(0))], &value(&tower.layers.value, &next), 1e-4);
        assert_close(&[f64::from(predictions.reward(0))], &value(&tower.dynamics().unwrap().reward, &next), 1e-4);
    }
}
