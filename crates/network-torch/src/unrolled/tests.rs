use tch::{Device, Tensor};
use weights::Architecture;

use super::{UnrolledTargets, losses, policy_weight};
use crate::{
    Error, Network, Trainer,
    losses::LossTensors,
    muzero::Unrolled,
    tests::networks::{
        assert_close, batch, dense, numbers, of_returns, residual, small, stochastic, unrolled_batch,
        with_next_observations,
    },
};
use training::{
    Decay, Examples, Laps, Losses, Observations, Precision, Trained, Trainer as _, TrainerSettings, UnrolledBatch,
};

const WEIGHTS: Losses = Losses { policy: 1.0, value: 0.25, reward: 1.0, ..Losses::ZERO };

fn settings() -> TrainerSettings {
    TrainerSettings { learning_rate: 3e-3, warm_up_steps: 3, ema_decay: 0.9, ..TrainerSettings::muzero() }
}

fn trainer_of(architecture: &Architecture, settings: TrainerSettings) -> Trainer {
    Trainer::new(Network::to_train(architecture, &settings, Device::Cpu, 61).unwrap(), settings).unwrap()
}

/// Returns the results of one step.
fn trained(trainer: &mut Trainer, batch: &UnrolledBatch) -> Result<Trained, Error> {
    trainer.queue(&batch.clone().into(), &mut Laps::none())?;
    Ok(trainer.collect(&mut Laps::none()).expect("a step was queued")?)
}

/// Returns the minimum of the losses, the entropy of the targets: policy, value, reward.
fn least_losses(architecture: &Architecture, batch: &UnrolledBatch) -> [f64; 3] {
    let bound = architecture.model.support().expect("values are categorical") as f64;
    let steps = batch.unroll_steps;
    let positions = batch.policy_weights.len() / (steps + 1);
    let shares = if steps == 0 { 1.0 } else { 2.0 };
    let share = |state: usize| if state.is_multiple_of(steps + 1) { 1.0 } else { 1.0 / steps as f64 };
    let entropy = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    let two_hot = |value: f32| {
        let position = inference::categorical::transform(f64::from(value)).clamp(-bound, bound);
        let upper = position - position.floor();
        entropy(upper) + entropy(1.0 - upper)
    };
    let weights: Vec<f64> =
        batch.policy_weights.iter().enumerate().map(|(i, &weight)| share(i) * f64::from(weight)).collect();
    let policies = batch.policies.chunks(architecture.actions).zip(&weights);
    let policy: f64 = policies.map(|(row, w)| w * row.iter().map(|&p| entropy(f64::from(p))).sum::<f64>()).sum();
    let value: f64 = batch.values.iter().enumerate().map(|(i, &value)| share(i) * two_hot(value)).sum();
    let reward: f64 = batch.rewards.iter().map(|&reward| two_hot(reward) / steps as f64).sum();
    let positions = positions as f64;
    [policy / (weights.iter().sum::<f64>() / shares), value / positions, reward / positions]
}

fn learns_a_small_batch_by_heart(architecture: &Architecture, settings: TrainerSettings, steps: usize, tolerance: f64) {
    let mut trainer = trainer_of(architecture, settings);
    let batch = unrolled_batch(architecture, 8, if architecture.model.has_dynamics() { 3 } else { 0 }, 62);
    for _ in 0..steps {
        trained(&mut trainer, &batch).unwrap();
    }
    let losses = trained(&mut trainer, &batch).unwrap().losses;
    let least = least_losses(architecture, &batch);
    for ((name, got), least) in
        [("policy", losses.policy), ("value", losses.value), ("reward", losses.reward)].into_iter().zip(least)
    {
        assert!(got - least < tolerance, "{}: {name} {got} of at least {least}", architecture.game);
    }
    assert_eq!(losses.value_accuracy, 1.0);
}

/// Dense networks of this size are as large as for small environments.
fn wide() -> Architecture {
    Architecture { channels: 64, ..dense() }
}

#[test]
fn a_dense_network_learns_a_small_batch_by_heart() {
    learns_a_small_batch_by_heart(&wide(), settings(), 300, 0.05);
}

#[test]
fn a_residual_network_learns_a_small_batch_by_heart() {
    learns_a_small_batch_by_heart(&Architecture { channels: 16, ..residual() }, settings(), 300, 0.05);
}

#[test]
fn networks_of_returns_learn_a_small_batch_by_heart() {
    let [dense, residual] = of_returns();
    learns_a_small_batch_by_heart(&Architecture { channels: 64, ..dense }, settings(), 300, 0.05);
    learns_a_small_batch_by_heart(&Architecture { channels: 16, ..residual }, settings(), 300, 0.05);
}

#[test]
fn a_network_takes_the_steps_of_a_batch_or_none() {
    let [returns, _] = of_returns();
    for (architecture, steps, expected) in [(returns, 2, 0), (dense(), 0, 1)] {
        let batch = unrolled_batch(&architecture, 4, steps, 63);
        let error = trained(&mut trainer_of(&architecture, settings()), &batch).unwrap_err();
        assert!(
            matches!(error, Error::Training(training::Error::Batch { field: "unroll_steps", expected: e, got }) if (e, got) == (expected, steps)),
            "{error}"
        );
    }
}

#[test]
fn bf16_learns_a_small_batch_by_heart() {
    let bf16 = TrainerSettings { precision: Precision::Bf16, ..settings() };
    learns_a_small_batch_by_heart(&wide(), bf16, 300, 0.1);
}

#[test]
fn training_goes_on_bit_for_bit_after_a_restore() {
    crate::set_threads(1);
    let plain = TrainerSettings { decay: Decay::Cosine { floor: 0.1 }, decay_steps: Some(20), ..settings() };
    let consistent = TrainerSettings { loss_weights: consistent().loss_weights, ..plain.clone() };
    let [dense_stochastic, residual_stochastic] = stochastic();
    for (architecture, settings) in [
        (dense(), plain.clone()),
        (residual(), plain.clone()),
        (dense(), consistent.clone()),
        (residual(), consistent.clone()),
        (dense_stochastic, consistent),
        (residual_stochastic, plain),
    ] {
        let mut uninterrupted = trainer_of(&architecture, settings.clone());
        let batch = |seed| with_next_observations(&architecture, unrolled_batch(&architecture, 6, 2, seed), seed);
        for seed in 0..3 {
            trained(&mut uninterrupted, &batch(seed)).unwrap();
        }
        let files = uninterrupted.files().unwrap();
        let mut restored = Trainer::restore(&architecture, settings, Device::Cpu, &files).unwrap();
        for seed in 3..6 {
            let results = [&mut restored, &mut uninterrupted].map(|t| trained(t, &batch(seed)).unwrap());
            assert_eq!(results[0], results[1]);
        }
        assert!(restored.files().unwrap() == uninterrupted.files().unwrap(), "the checkpoints differ");
    }
}

/// Settings with a consistency loss as published.
fn consistent() -> TrainerSettings {
    let loss_weights = Losses { consistency: 2.0, ..settings().loss_weights };
    TrainerSettings { loss_weights, ..settings() }
}

#[test]
fn the_heads_of_the_consistency_loss_are_trained_and_in_checkpoints_but_not_published() {
    for architecture in [dense(), residual()] {
        let batch = with_next_observations(&architecture, unrolled_batch(&architecture, 6, 2, 70), 71);
        let mut trainer = trainer_of(&architecture, consistent());
        let without = trainer_of(&architecture, settings());
        assert_eq!(trainer.published().unwrap(), without.published().unwrap(), "the first weights do not depend on it");
        let head = |trainer: &Trainer| numbers(trainer.network().tensor("consistency.projector.0.weight"));
        let before = head(&trainer);
        let losses = trained(&mut trainer, &batch).unwrap().losses;
        assert!((0.0..2.0).contains(&losses.consistency), "{losses:?}");
        assert_ne!(head(&trainer), before);
        // The published file is exactly an evaluator's.
        Network::from_safetensors(&architecture, &trainer.published().unwrap(), Device::Cpu).unwrap();
        let files = trainer.files().unwrap();
        let refused = Trainer::restore(&architecture, settings(), Device::Cpu, &files).unwrap_err().to_string();
        assert!(refused.starts_with("tensor `consistency."), "{refused}");
    }
}

#[test]
fn unrolled_states_come_to_point_where_later_observations_do() {
    crate::set_threads(1);
    for architecture in [wide(), Architecture { channels: 16, ..residual() }] {
        let batch = with_next_observations(&architecture, unrolled_batch(&architecture, 8, 3, 72), 73);
        let mut trainer = trainer_of(&architecture, consistent());
        let first = trained(&mut trainer, &batch).unwrap().losses;
        for _ in 0..150 {
            trained(&mut trainer, &batch).unwrap();
        }
        let last = trained(&mut trainer, &batch).unwrap().losses;
        assert!(last.consistency < 0.3 * first.consistency, "{first:?}, then {last:?}");
        assert!(last.reward < first.reward && last.total < first.total, "{first:?}, then {last:?}");
    }
}

#[test]
fn a_consistency_loss_needs_its_heads_and_later_observations() {
    let network = Network::new(&dense(), Device::Cpu, 61).unwrap();
    let refused = Trainer::new(network, consistent()).unwrap_err().to_string();
    assert!(refused.contains("`consistency`"), "{refused}");
    let batch = unrolled_batch(&dense(), 3, 2, 74);
    let mut trainer = trainer_of(&dense(), consistent());
    let refused = trained(&mut trainer, &batch).unwrap_err().to_string();
    assert!(refused.contains("`next_observations`"), "{refused}");
    let mut short = with_next_observations(&dense(), batch, 75);
    short.next_weights.pop();
    let refused = trained(&mut trainer, &short).unwrap_err().to_string();
    assert!(refused.contains("`next_weights`"), "{refused}");
    let alphazero = Network::to_train(&small(), &consistent(), Device::Cpu, 1).unwrap_err().to_string();
    assert_eq!(alphazero, "the network is not an instance of the model muzero");
}

/// A dense network has no batch statistics, so that parts have exactly the gradients of the whole.
#[test]
fn micro_batches_of_a_dense_network_train_as_the_whole_batch() {
    let architecture = dense();
    let mut batch = with_next_observations(&architecture, unrolled_batch(&architecture, 12, 3, 63), 76);
    batch.importance = (0..12).map(|i| 1.0 - 0.05 * i as f32).collect();
    let of = |micro_batch| {
        let sgd = training::Optimiser::Sgd { momentum: 0.0 };
        let mut trainer = trainer_of(&architecture, TrainerSettings { micro_batch, optimiser: sgd, ..consistent() });
        let Trained { losses, value_errors, .. } = trained(&mut trainer, &batch).unwrap();
        assert_eq!(value_errors.len(), 12);
        let errors = value_errors.into_iter().map(f64::from);
        let of_parts = [losses.policy, losses.value, losses.reward, losses.consistency];
        let losses = [&of_parts[..], &[losses.gradient_norm, losses.policy_entropy]].concat();
        (losses, errors.collect::<Vec<_>>(), numbers(&trainer.network().flat_parameters))
    };
    let (whole, parts) = (of(0), of(5));
    assert_close(&parts.0, &whole.0, 1e-5);
    assert_close(&parts.1, &whole.1, 1e-5);
    assert_close(&parts.2, &whole.2, 1e-6);
}

#[test]
fn a_batch_with_a_number_that_is_not_finite_changes_nothing() {
    for architecture in [dense(), residual()] {
        let mut trainer = trainer_of(&architecture, settings());
        trained(&mut trainer, &unrolled_batch(&architecture, 6, 2, 64)).unwrap();
        let before = trainer.files().unwrap();
        for spoil in [
            |batch: &mut UnrolledBatch| batch.rewards[3] = f32::NAN,
            |batch: &mut UnrolledBatch| batch.values[4] = f32::INFINITY,
            |batch: &mut UnrolledBatch| batch.policies[1] = f32::NAN,
            |batch: &mut UnrolledBatch| {
                let mut floats = batch.observations.to_floats();
                floats[2] = f32::NAN;
                batch.observations = Observations::Floats(floats);
            },
        ] {
            let mut batch = unrolled_batch(&architecture, 6, 2, 65);
            spoil(&mut batch);
            assert!(matches!(trained(&mut trainer, &batch), Err(Error::Training(training::Error::NotFinite { .. }))));
            assert!(trainer.files().unwrap() == before, "a refused step left something behind");
        }
        trained(&mut trainer, &unrolled_batch(&architecture, 6, 2, 66)).unwrap();
        assert!(trainer.files().unwrap() != before);
    }
}

#[test]
fn a_batch_that_does_not_fit_is_refused_by_field() {
    let spoilt = |spoil: fn(&mut UnrolledBatch)| {
        let mut batch = with_next_observations(&dense(), unrolled_batch(&dense(), 3, 2, 67), 67);
        spoil(&mut batch);
        trained(&mut trainer_of(&dense(), settings()), &batch).unwrap_err().to_string()
    };
    let names = |text: String, field: &str| assert!(text.contains(&format!("`{field}`")), "{text}");
    names(spoilt(|batch| batch.observations.push(&[1.0])), "observations");
    names(spoilt(|batch| batch.actions.clear()), "actions");
    names(spoilt(|batch| batch.policies.push(0.0)), "policies");
    names(spoilt(|batch| batch.policy_weights.push(0.0)), "policy_weights");
    names(spoilt(|batch| batch.values.push(0.0)), "values");
    names(spoilt(|batch| batch.value_weights.clear()), "value_weights");
    names(spoilt(|batch| batch.rewards.push(0.0)), "rewards");
    names(spoilt(|batch| batch.chance_weights.push(0.0)), "chance_weights");
    names(spoilt(|batch| batch.next_observations.push(&[0.0])), "next_observations");
    names(spoilt(|batch| batch.next_weights.clear()), "next_weights");
    names(spoilt(|batch| batch.importance.push(0.0)), "importance");
    names(spoilt(|batch| batch.unroll_steps = 0), "unroll_steps");
    names(spoilt(|batch| *batch = UnrolledBatch { unroll_steps: 1, ..UnrolledBatch::default() }), "policy_weights");
    assert_eq!(spoilt(|batch| batch.actions[2] = 3), "the batch has the action 3, the network has 3 actions");
}

#[test]
fn examples_for_the_other_model_are_refused() {
    let unrolled: Examples = unrolled_batch(&dense(), 3, 2, 68).into();
    let refused = trainer_of(&small(), settings()).step(&unrolled).unwrap_err();
    assert_eq!(refused.to_string(), "the network is not an instance of the model muzero");
    let positions: Examples = batch(&small(), 3, 68).into();
    let refused = trainer_of(&dense(), settings()).step(&positions).unwrap_err();
    assert_eq!(refused.to_string(), "the network is not an instance of the model alphazero");
}

fn rows(values: &[f32], width: i64) -> Tensor {
    Tensor::from_slice(values).view([-1, width])
}

/// Two positions of one step, over the atoms −1, 0 and 1; all logits except a few are 0.
fn example() -> (Unrolled, UnrolledTargets) {
    let mut value = vec![0.0; 12];
    // The first root's value is the highest atom.
    value[2] = 50.0;
    let (policy, value, reward) = (rows(&[0.0; 8], 2), rows(&value, 3), Some(rows(&[0.0; 6], 3)));
    let predictions = Unrolled { policy, value, reward, projections: None, chance: None };
    let policy_weights = rows(&[1.0, 1.0, 1.0, 0.0], 2);
    let targets = UnrolledTargets {
        positions: 2,
        policy_weight: policy_weight(&policy_weights).unwrap(),
        actions: rows(&[0.0, 1.0], 1),
        policies: rows(&[1.0, 0.0, 0.5, 0.5, 1.0, 0.0, 0.0, 1.0], 4).view([2, 2, 2]),
        policy_weights,
        // The transform of 2.996… is 1.
        values: rows(&[inference::categorical::inverse_transform(1.0) as f32, 0.0, 0.0, 0.0], 2),
        value_weights: rows(&[1.0, 1.0, 1.0, 1.0], 2),
        rewards: rows(&[0.0, 0.0], 1),
        next_states: None,
        importance: None,
    };
    (predictions, targets)
}

fn close(got: &Tensor, expected: f64) {
    let got = got.double_value(&[]);
    assert!((got - expected).abs() < 1e-5, "{got} instead of {expected}");
}

#[test]
fn steps_share_the_weight_of_a_root_and_means_are_over_positions() {
    let (predictions, targets) = example();
    let (ln_2, ln_3) = (2.0_f64.ln(), 3.0_f64.ln());
    let LossTensors { scalars, value_errors } = losses(&predictions, &targets, &WEIGHTS).unwrap();
    // Three weights of ln 2, with a mean weight of (2 + 1) / 2 per step.
    close(&scalars.policy, 3.0 * ln_2 / 1.5);
    // The first of four values is certain.
    close(&scalars.value, 3.0 * ln_3 / 2.0);
    close(&scalars.reward, ln_3);
    close(&scalars.chance, 0.0);
    close(&scalars.total, 2.0 * ln_2 + 0.25 * 1.5 * ln_3 + ln_3);
    close(&scalars.consistency, 0.0);
    close(&scalars.policy_entropy, ln_2);
    close(&scalars.value_accuracy, 1.0);
    assert!(value_errors.is_none());
}

#[test]
fn value_errors_are_distances_of_the_roots_in_units_of_the_reward() {
    let (predictions, targets) = example();
    let targets = UnrolledTargets {
        importance: Some(Tensor::from_slice(&[0.5_f32, 1.0])),
        values: Tensor::from_slice(&[0.0_f32, 7.0, -2.0, 7.0]).view([2, 2]),
        ..targets
    };
    let losses = losses(&predictions, &targets, &WEIGHTS).unwrap();
    let highest = inference::categorical::inverse_transform(1.0);
    assert_close(&numbers(&losses.value_errors.unwrap()), &[highest, 2.0], 1e-4);
    let without_target = UnrolledTargets { value_weights: rows(&[1.0, 1.0, 0.0, 1.0], 2), ..targets };
    let errors = super::losses(&predictions, &without_target, &WEIGHTS).unwrap().value_errors.unwrap();
    assert_close(&numbers(&errors), &[highest, 0.0], 1e-4);
    close(&losses.scalars.value_accuracy, 0.0);
    // The weight of a position applies to all steps: ½ ln 3 and ln 3 for two positions.
    close(&losses.scalars.reward, 0.75 * 3.0_f64.ln());
}
