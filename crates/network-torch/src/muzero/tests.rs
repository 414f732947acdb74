mod chance;

use ::network::NORM_EPSILON;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Kind, Tensor};
use weights::{Architecture, Model};

use super::{LatentTower, RANGE_EPSILON, Unrolled, unroll};
use crate::{
    Network,
    consistency::NextStates,
    layers::Mode,
    network,
    tests::networks::{
        assert_close, dense, numbers, of_returns, residual, seasoned, seasoned_with_consistency, unrolled_batch,
        with_next_observations,
    },
    unrolled::{DYNAMICS_GRADIENT, UnrolledTargets, losses, policy_weight},
};
use training::{Losses, UnrolledBatch};

const WEIGHTS: Losses = Losses { policy: 1.0, value: 0.25, reward: 1.0, consistency: 2.0, chance: 1.0, ..Losses::ZERO };

/// A dense network with losses in plain float64: an implementation that shares nothing with libtorch.
struct Reference<'a> {
    network: &'a Network,
    /// Copies of the parameters, `[P]` each: for representation and heads, for the dynamics at each step, and for the
    /// projection of observations after actions.
    parameters: Vec<Vec<f64>>,
}

/// Losses of a batch by step, `[K + 1]`: policy, value and reward together.
type ByStep = Vec<f64>;

impl<'a> Reference<'a> {
    fn new(network: &'a Network, steps: usize) -> Self {
        Self { network, parameters: vec![numbers(&network.flat_parameters); steps + 2] }
    }

    /// Returns the parameter called `name` in copy `copy`.
    fn part(&self, copy: usize, name: &str) -> &[f64] {
        &self.parameters[copy][self.network.layout.parameter(name)]
    }

    fn matrix(&self, copy: usize, name: &str, x: &[f64]) -> Vec<f64> {
        let rows = self.part(copy, &format!("{name}.weight")).chunks(x.len());
        rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }

    /// Applies a matrix and layer norm, without ReLU.
    fn normed(&self, copy: usize, name: &str, x: &[f64]) -> Vec<f64> {
        let y = self.matrix(copy, name, x);
        let n = y.len() as f64;
        let mean = y.iter().sum::<f64>() / n;
        let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
        let [scale, shift] = ["weight", "bias"].map(|part| self.part(copy, &format!("{name}.norm.{part}")));
        let standard = y.iter().map(|y| (y - mean) / (variance + NORM_EPSILON).sqrt());
        standard.zip(scale.iter().zip(shift)).map(|(y, (scale, shift))| y * scale + shift).collect()
    }

    /// Applies a trunk, without the rescaling.
    fn features(&self, copy: usize, name: &str, x: &[f64]) -> Vec<f64> {
        let mut x = relu(self.normed(copy, &format!("{name}.input"), x));
        for block in 0..self.network.architecture().blocks {
            let y = relu(self.normed(copy, &format!("{name}.block.{block}.first"), &x));
            let y = self.normed(copy, &format!("{name}.block.{block}.second"), &y);
            x = relu(y.iter().zip(&x).map(|(y, x)| y + x).collect());
        }
        x
    }

    fn trunk(&self, copy: usize, name: &str, x: &[f64]) -> Vec<f64> {
        let x = self.features(copy, name, x);
        let [least, greatest] =
            [f64::min, f64::max].map(|choose: fn(f64, f64) -> f64| x.iter().copied().reduce(choose).unwrap());
        x.iter().map(|x| (x - least) / (greatest - least + RANGE_EPSILON)).collect()
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let bias = self.part(0, &format!("{name}.bias"));
        self.matrix(0, name, x).iter().zip(bias).map(|(y, b)| y + b).collect()
    }

    fn logits(&self, name: &str, x: &[f64]) -> Vec<f64> {
        self.linear(&format!("{name}.output"), &relu(self.normed(0, &format!("{name}.hidden"), x)))
    }

    /// Returns the log probabilities of a head.
    fn head(&self, name: &str, x: &[f64]) -> Vec<f64> {
        log_probabilities(&self.logits(name, x))
    }

    fn project(&self, copy: usize, state: &[f64]) -> Vec<f64> {
        let first = relu(self.normed(copy, "consistency.projector.0", state));
        let second = relu(self.normed(copy, "consistency.projector.1", &first));
        self.normed(copy, "consistency.projector.2", &second)
    }

    /// Returns 1 minus the cosine between a latent state and an observation.
    fn distance(&self, state: &[f64], observation: &[f32]) -> f64 {
        let hidden = relu(self.normed(0, "consistency.predictor.hidden", &self.project(0, state)));
        let predicted = self.linear("consistency.predictor.output", &hidden);
        let observation: Vec<f64> = observation.iter().copied().map(f64::from).collect();
        let fixed = self.parameters.len() - 1;
        let observed = self.project(fixed, &self.trunk(fixed, "representation", &observation));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        1.0 - dot(&predicted, &observed) / (dot(&predicted, &predicted) * dot(&observed, &observed)).sqrt()
    }

    fn losses(&self, batch: &UnrolledBatch) -> ByStep {
        let &Architecture { planes, actions, model, .. } = self.network.architecture();
        let support = model.support().expect("values are categorical");
        let (observations, next) = (batch.observations.to_floats(), batch.next_observations.to_floats());
        let (steps, positions) = (batch.unroll_steps, observations.len() / planes);
        let share = |step: usize| if step == 0 { 1.0 } else { 1.0 / steps as f64 };
        let weights = batch.policy_weights.iter().enumerate();
        let shares: f64 = (0..=steps).map(share).sum();
        let policy_weight: f64 = weights.map(|(i, &w)| share(i % (steps + 1)) * f64::from(w)).sum::<f64>() / shares;
        let mut by_step = vec![0.0; steps + 1];
        for position in 0..positions {
            let observation: Vec<f64> =
                observations[position * planes..][..planes].iter().map(|&x| f64::from(x)).collect();
            let importance = batch.importance.get(position).map_or(1.0, |&importance| f64::from(importance));
            let mut state = self.trunk(0, "representation", &observation);
            for (step, loss) in by_step.iter_mut().enumerate() {
                let at = position * (steps + 1) + step;
                let share = importance * share(step);
                if step > 0 {
                    let taken = position * steps + step - 1;
                    state.extend((0..actions).map(|a| f64::from(u8::from(a == usize::from(batch.actions[taken])))));
                    state = self.trunk(step, "dynamics", &state);
                    let reward = two_hot_loss(&self.head("reward", &state), f64::from(batch.rewards[taken]), support);
                    *loss += share * f64::from(batch.value_weights[at - 1]) * reward / positions as f64;
                    if let Some(&weight) = batch.next_weights.get(taken) {
                        let distance = self.distance(&state, &next[taken * planes..][..planes]);
                        *loss += WEIGHTS.consistency * share * f64::from(weight) * distance / positions as f64;
                    }
                }
                let priors = self.head("policy", &state);
                let policy: f64 =
                    batch.policies[at * actions..].iter().zip(&priors).map(|(&target, p)| -f64::from(target) * p).sum();
                *loss += share * f64::from(batch.policy_weights[at]) * policy / policy_weight.max(1.0);
                let value = two_hot_loss(&self.head("value", &state), f64::from(batch.values[at]), support);
                let weight = WEIGHTS.value * share * f64::from(batch.value_weights[at]);
                *loss += weight * value / positions as f64;
            }
        }
        by_step
    }

    /// Returns central differences of the losses by step for parameter `index` of one copy: accurate to about 1e-8.
    fn slopes(&mut self, batch: &UnrolledBatch, copy: usize, index: usize) -> ByStep {
        let mut shifted = |by: f64| {
            self.parameters[copy][index] += by;
            let losses = self.losses(batch);
            self.parameters[copy][index] -= by;
            losses
        };
        let (above, below) = (shifted(1e-6), shifted(-1e-6));
        above.iter().zip(&below).map(|(above, below)| (above - below) / 2e-6).collect()
    }
}

fn log_probabilities(logits: &[f64]) -> Vec<f64> {
    let total = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
    logits.iter().map(|logit| logit - total).collect()
}

fn relu(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(|x| x.max(0.0)).collect()
}

/// Returns the cross-entropy against the two atoms around the transformed value.
fn two_hot_loss(log_probabilities: &[f64], value: f64, support: usize) -> f64 {
    let n = support as f64;
    let position = (value.signum() * ((value.abs() + 1.0).sqrt() - 1.0) + 0.001 * value).clamp(-n, n) + n;
    let probability = |atom: usize| (1.0 - (position - atom as f64).abs()).max(0.0);
    log_probabilities.iter().enumerate().map(|(atom, log)| -probability(atom) * log).sum()
}

/// Copies a network to float64.
fn doubled(network: &Network, parameters: &[f64]) -> Network {
    let statistics = network.flat_statistics.to_kind(Kind::Double).detach_copy();
    let parameters = Tensor::from_slice(parameters);
    Network::from_flat(network.architecture(), network.layers.clone(), parameters, statistics).unwrap()
}

/// Returns the observations and targets of a batch in float64.
fn doubles(architecture: &Architecture, batch: &UnrolledBatch) -> (Tensor, UnrolledTargets) {
    let size = |n: usize| i64::try_from(n).unwrap();
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let double = |values: &[f32], shape: &[i64]| Tensor::from_slice(values).to_kind(Kind::Double).view(shape);
    let states = size(batch.unroll_steps) + 1;
    let taken: Vec<f32> = batch.actions.iter().copied().map(f32::from).collect();
    let policy_weights = double(&batch.policy_weights, &[-1, states]);
    // Without a step, libtorch cannot infer the number of positions.
    let positions = policy_weights.size()[0];
    let planes_of = [-1, states - 1, size(planes), size(height), size(width)];
    let next_states = (!batch.next_weights.is_empty()).then(|| NextStates {
        observations: double(&batch.next_observations.to_floats(), &planes_of),
        weights: double(&batch.next_weights, &[-1, states - 1]),
        chance_weights: double(&batch.chance_weights, &[-1, states - 1]),
    });
    let targets = UnrolledTargets {
        positions,
        policy_weight: policy_weight(&policy_weights).unwrap(),
        actions: double(&taken, &[positions, states - 1]),
        policies: double(&batch.policies, &[-1, states, size(actions)]),
        policy_weights,
        values: double(&batch.values, &[-1, states]),
        value_weights: double(&batch.value_weights, &[-1, states]),
        rewards: double(&batch.rewards, &[positions, states - 1]),
        next_states,
        importance: (!batch.importance.is_empty()).then(|| double(&batch.importance, &[-1])),
    };
    let shape = [-1, size(planes), size(height), size(width)];
    (double(&batch.observations.to_floats(), &shape), targets)
}

/// Returns the predictions of a network for a batch.
fn predictions(network: &Network, observations: &Tensor, targets: &UnrolledTargets, gradient: f64) -> Unrolled {
    let tower = LatentTower::new(network, Kind::Double, Mode::Training).unwrap();
    let next = targets.next_states.as_ref().map(|next| &next.observations);
    unroll(tower, observations, &targets.actions, gradient, next).unwrap()
}

/// Returns the total loss in float64 and the gradient, `[P]`.
fn loss_and_gradient(network: &Network, batch: &UnrolledBatch, dynamics_gradient: f64) -> (f64, Vec<f64>) {
    let (observations, targets) = doubles(network.architecture(), batch);
    let network = doubled(network, &numbers(&network.flat_parameters));
    let predictions = predictions(&network, &observations, &targets, dynamics_gradient);
    let total = losses(&predictions, &targets, &WEIGHTS).unwrap().scalars.total;
    let gradients = Tensor::run_backward(&[&total], &network.parameters, false, false);
    (total.double_value(&[]), numbers(&network::flatten(&network.layout.parameters, &gradients).unwrap()))
}

#[test]
fn the_loss_of_a_dense_network_agrees_with_a_float64_reference_that_shares_no_code() {
    for importance in [vec![], vec![0.5, 1.0, 0.25, 0.75, 1.0]] {
        let network = seasoned(&dense(), 31);
        let batch = UnrolledBatch { importance, ..unrolled_batch(&dense(), 5, 3, 32) };
        let expected: f64 = Reference::new(&network, 3).losses(&batch).iter().sum();
        let (got, _) = loss_and_gradient(&network, &batch, DYNAMICS_GRADIENT);
        assert!((got - expected).abs() < 1e-9, "{got} instead of {expected}");
    }
}

#[test]
fn the_loss_of_a_network_of_returns_agrees_with_a_float64_reference_that_shares_no_code() {
    let [architecture, _] = of_returns();
    for importance in [vec![], vec![0.5, 1.0, 0.25, 0.75, 1.0]] {
        let network = seasoned(&architecture, 49);
        let batch = UnrolledBatch { importance, ..unrolled_batch(&architecture, 5, 0, 50) };
        let expected: f64 = Reference::new(&network, 0).losses(&batch).iter().sum();
        let (got, gradient) = loss_and_gradient(&network, &batch, DYNAMICS_GRADIENT);
        assert!((got - expected).abs() < 1e-9, "{got} instead of {expected}");
        let mut reference = Reference::new(&network, 0);
        for index in (0..gradient.len()).step_by(7) {
            let slope: f64 = reference.slopes(&batch, 0, index).iter().sum();
            assert!((gradient[index] - slope).abs() < 1e-6, "parameter {index}: {} and not {slope}", gradient[index]);
        }
    }
}

#[test]
fn the_consistency_loss_agrees_with_a_float64_reference_that_shares_no_code() {
    let steps = 3;
    for importance in [vec![], vec![0.5, 1.0, 0.25, 0.75, 1.0]] {
        let network = seasoned_with_consistency(&dense(), 45);
        let batch = UnrolledBatch { importance, ..unrolled_batch(&dense(), 5, steps, 46) };
        let batch = with_next_observations(&dense(), batch, 47);
        let expected: f64 = Reference::new(&network, steps).losses(&batch).iter().sum();
        let (got, _) = loss_and_gradient(&network, &batch, DYNAMICS_GRADIENT);
        assert!((got - expected).abs() < 1e-9, "{got} instead of {expected}");
        let mut other = batch.clone();
        // The third row ends after the first step: observations after the end teach nothing.
        let mut next = other.next_observations.to_floats();
        next[(2 * steps + 1) * dense().planes] += 1.0;
        other.next_observations = next.into_iter().collect();
        assert_eq!(loss_and_gradient(&network, &other, DYNAMICS_GRADIENT).0, got);
    }
}

/// The loss of step k reaches the representation through k dynamics, and the dynamics of step j through k − j. Each
/// halves the gradient. The reference has separate parameters for the dynamics of each step and halves nothing.
#[test]
fn the_gradient_of_a_dense_network_is_halved_by_every_dynamics_on_its_way() {
    let steps = 3;
    let network = seasoned_with_consistency(&dense(), 33);
    let batch = with_next_observations(&dense(), unrolled_batch(&dense(), 4, steps, 34), 48);
    let (_, gradient) = loss_and_gradient(&network, &batch, 0.5);
    let mut reference = Reference::new(&network, steps);
    let mut checked = 0;
    for entry in &network.layout.parameters {
        let name = &entry.tensor.name;
        for index in entry.range().step_by(1 + entry.len / 6) {
            let halved = |slopes: ByStep, from: usize| -> f64 {
                (from..=steps).map(|step| slopes[step] * 0.5_f64.powi((step - from) as i32)).sum()
            };
            let expected: f64 = if name.starts_with("dynamics.") {
                (1..=steps).map(|step| halved(reference.slopes(&batch, step, index), step)).sum()
            } else if name.starts_with("representation.") {
                halved(reference.slopes(&batch, 0, index), 0)
            } else {
                reference.slopes(&batch, 0, index).iter().sum()
            };
            let off = (gradient[index] - expected).abs();
            assert!(off < 1e-7, "{name}: gradient {} instead of {expected}", gradient[index]);
            checked += 1;
        }
    }
    assert!(checked > 80, "only {checked} gradients were compared");
}

/// Without halving, the gradient is the slope of the loss, through the unroll of three steps. Each tensor is shifted
/// along one random direction in which every element moves, so that a wrong element shows.
fn every_gradient_is_the_slope(network: &Network, batch: &UnrolledBatch) {
    let (_, gradient) = loss_and_gradient(network, batch, 1.0);
    let (observations, targets) = doubles(network.architecture(), batch);
    // The projections of observations have no gradient.
    let fixed = doubled(network, &numbers(&network.flat_parameters));
    let fixed = predictions(&fixed, &observations, &targets, 1.0).projections.map(|projections| projections.observed);
    let parameters = numbers(&network.flat_parameters);
    let mut rng = ChaCha8Rng::seed_from_u64(50);
    for entry in &network.layout.parameters {
        let direction: Vec<f64> = entry.range().map(|_| rng.random_range(-1.0..1.0)).collect();
        let norm = direction.iter().map(|part| part * part).sum::<f64>().sqrt();
        let shifted = |by: f64| {
            let mut parameters = parameters.clone();
            let shifts = direction.iter().map(|part| by * part / norm);
            parameters[entry.range()].iter_mut().zip(shifts).for_each(|(parameter, shift)| *parameter += shift);
            let network = doubled(network, &parameters);
            let mut shifted = tch::no_grad(|| predictions(&network, &observations, &targets, 1.0));
            if let (Some(projections), Some(fixed)) = (&mut shifted.projections, &fixed) {
                projections.observed = fixed.shallow_clone();
            }
            losses(&shifted, &targets, &WEIGHTS).unwrap().scalars.total.double_value(&[])
        };
        let slope = (shifted(1e-7) - shifted(-1e-7)) / 2e-7;
        let along =
            gradient[entry.range()].iter().zip(&direction).map(|(part, along)| part * along / norm).sum::<f64>();
        let off = (slope - along).abs();
        assert!(off < 2e-7, "{}: gradient {along} where the slope is {slope}", entry.tensor.name);
    }
}

#[test]
fn every_gradient_of_a_dense_network_is_the_slope_of_the_loss_through_three_steps() {
    every_gradient_is_the_slope(&seasoned(&dense(), 35), &unrolled_batch(&dense(), 4, 3, 36));
}

#[test]
fn every_gradient_of_a_residual_network_is_the_slope_of_the_loss_through_three_steps() {
    every_gradient_is_the_slope(&seasoned(&residual(), 35), &unrolled_batch(&residual(), 4, 3, 36));
}

#[test]
fn every_gradient_with_consistency_is_the_slope_of_the_loss_through_three_steps() {
    for architecture in [dense(), residual()] {
        let batch = with_next_observations(&architecture, unrolled_batch(&architecture, 4, 3, 36), 49);
        every_gradient_is_the_slope(&seasoned_with_consistency(&architecture, 35), &batch);
    }
}

#[test]
fn absorbing_steps_teach_value_and_reward_zero_and_no_policy() {
    let network = seasoned(&dense(), 37);
    // The last two of three steps are after the end: one action leads there, and the reward of that action is the
    // only one.
    let mut batch = unrolled_batch(&dense(), 1, 3, 38);
    batch.policy_weights = vec![1.0, 0.0, 0.0, 0.0];
    batch.values = vec![1.0, 0.0, 0.0, 0.0];
    batch.rewards = vec![1.0, 0.0, 0.0];
    let loss = |batch: &UnrolledBatch| loss_and_gradient(&network, batch, 0.5).0;
    let expected: f64 = Reference::new(&network, 3).losses(&batch).iter().sum();
    assert!((loss(&batch) - expected).abs() < 1e-9);

    let mut other_policies = batch.clone();
    other_policies.policies[dense().actions..].fill(0.9);
    assert_eq!(loss(&other_policies), loss(&batch));
    for target in [1, 2] {
        let mut other_reward = batch.clone();
        other_reward.rewards[target] = 1.0;
        assert_ne!(loss(&other_reward), loss(&batch), "reward {target}");
        let mut other_value = batch.clone();
        other_value.values[target] = 1.0;
        assert_ne!(loss(&other_value), loss(&batch), "value {target}");
        other_value.value_weights[target] = 0.0;
        batch.value_weights[target] = 0.0;
        assert_eq!(loss(&other_value), loss(&batch), "value {target} without weight");
        batch.value_weights[target] = 1.0;
    }
}

#[test]
fn the_reward_of_an_action_from_a_state_without_value_weight_teaches_nothing() {
    let network = seasoned(&dense(), 37);
    let mut batch = unrolled_batch(&dense(), 1, 3, 38);
    batch.value_weights = vec![1.0, 0.0, 1.0, 1.0];
    let loss = |batch: &UnrolledBatch| loss_and_gradient(&network, batch, 0.5).0;
    for (reward, counts) in [(0, true), (1, false), (2, true)] {
        let mut other = batch.clone();
        other.rewards[reward] += 1.0;
        assert_eq!(loss(&other) != loss(&batch), counts, "reward {reward}");
    }
}

#[test]
fn latent_states_range_from_0_to_1_and_depend_on_the_action() {
    for architecture in [dense(), residual()] {
        let network = seasoned(&architecture, 39);
        let (observations, _) = doubles(&architecture, &unrolled_batch(&architecture, 6, 1, 40));
        let tower = LatentTower::new(&network, Kind::Float, Mode::Evaluation).unwrap();
        let states = tower.represent(&observations).unwrap();
        let after = [0_i64, 1].map(|action| tower.next(&states, &Tensor::from_slice(&[action; 6])).unwrap());
        for states in [&states, &after[0], &after[1]] {
            for state in (0..6).map(|i| numbers(&states.get(i))) {
                let [least, greatest] = [f64::min, f64::max]
                    .map(|choose: fn(f64, f64) -> f64| state.iter().copied().reduce(choose).unwrap());
                assert!(least == 0.0 && (0.99..=1.0).contains(&greatest), "{least} to {greatest}");
            }
        }
        assert_ne!(numbers(&after[0]), numbers(&after[1]));
    }
}

#[test]
fn a_constant_state_is_rescaled_to_zeros() {
    let states = Tensor::from_slice(&[3.0_f32, 3.0, 3.0, 1.0, 2.0, 5.0]).view([2, 3]);
    assert_close(&numbers(&super::rescale(&states).unwrap()), &[0.0, 0.0, 0.0, 0.0, 0.25, 1.0], 1e-5);
}

#[test]
fn bf16_stays_near_f32() {
    for architecture in [dense(), residual()] {
        let network = seasoned(&architecture, 41);
        let (observations, targets) = doubles(&architecture, &unrolled_batch(&architecture, 6, 3, 42));
        let observations = observations.to_kind(Kind::Float);
        let of = |kind| {
            let tower = LatentTower::new(&network, kind, Mode::Evaluation).unwrap();
            let predictions = unroll(tower, &observations, &targets.actions, 0.5, None).unwrap();
            [predictions.policy, predictions.value, predictions.reward.unwrap()].map(|logits| numbers(&logits))
        };
        for (bf16, f32) in of(Kind::BFloat16).iter().zip(&of(Kind::Float)) {
            // Eight bits of mantissa through the layers of four states.
            assert_close(bf16, f32, 0.08);
        }
    }
}

#[test]
fn the_first_loss_of_a_new_network_is_near_that_of_uniform_predictions() {
    let architecture = residual();
    let network = Network::new(&architecture, tch::Device::Cpu, 43).unwrap();
    let batch = unrolled_batch(&architecture, 8, 2, 44);
    let (observations, targets) = doubles(&architecture, &batch);
    let network = doubled(&network, &numbers(&network.flat_parameters));
    let tower = LatentTower::new(&network, Kind::Double, Mode::Training).unwrap();
    let predictions = unroll(tower, &observations, &targets.actions, 0.5, None).unwrap();
    let losses = losses(&predictions, &targets, &WEIGHTS).unwrap().scalars;
    let Model::Muzero { support } = architecture.model else { panic!("a MuZero network") };
    let uniform = ((2 * support + 1) as f64).ln();
    let [value, reward] = [&losses.value, &losses.reward].map(|loss| loss.double_value(&[]));
    assert!((value - 2.0 * uniform).abs() < 0.3, "{value}, uniform {uniform} twice");
    assert!((reward - uniform).abs() < 0.15, "{reward}, uniform {uniform}");
}
