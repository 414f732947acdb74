use std::time::{Duration, Instant};

use gradients::Path;
use tch::Device;
use weights::Architecture;

use super::{StepTimes, Trainer, TrainerSettings, TrainingKernel};
use crate::{
    Decay, Error, Network, Optimiser, Precision,
    custom_backward::CustomBackward,
    tests::networks::{assert_close, batch, complete, numbers, seasoned, small, tiny},
    trainer::Laps,
};

fn settings() -> TrainerSettings {
    TrainerSettings {
        learning_rate: 3e-3,
        warm_up_steps: 3,
        decay: Decay::Cosine { floor: 0.1 },
        decay_steps: Some(40),
        ema_decay: 0.9,
        ..TrainerSettings::default()
    }
}

fn trainer(settings: TrainerSettings) -> Trainer {
    trainer_of(&small(), settings)
}

fn trainer_of(architecture: &Architecture, settings: TrainerSettings) -> Trainer {
    Trainer::new(Network::new(architecture, Device::Cpu, 61).unwrap(), settings).unwrap()
}

/// The entropy of the targets is the least a cross-entropy can reach.
fn least_losses(architecture: &Architecture, batch: &crate::TrainingBatch) -> (f64, f64) {
    let entropy =
        |row: &[f32]| -> f64 { row.iter().filter(|&&p| p > 0.0).map(|&p| -f64::from(p) * f64::from(p).ln()).sum() };
    let weights = batch.policy_weights.iter().map(|&weight| f64::from(weight));
    let policies = batch.policies.chunks(architecture.actions);
    let policy = policies.zip(weights.clone()).map(|(row, weight)| weight * entropy(row)).sum::<f64>();
    let value = batch.wdl.chunks(3).map(entropy).sum::<f64>() / batch.policy_weights.len() as f64;
    (policy / weights.sum::<f64>(), value)
}

fn learns_a_small_batch_by_heart(architecture: &Architecture, settings: TrainerSettings, steps: usize, tolerance: f64) {
    let mut trainer = trainer_of(architecture, settings);
    let batch = batch(architecture, 12, 62);
    for _ in 0..steps {
        trainer.step(&batch).unwrap();
    }
    let losses = trainer.step(&batch).unwrap();
    let (policy, value) = least_losses(architecture, &batch);
    assert!(losses.policy - policy < tolerance, "policy {} of at least {policy}", losses.policy);
    assert!(losses.value - value < tolerance, "value {} of at least {value}", losses.value);
    assert_eq!(losses.value_accuracy, 1.0);
}

#[test]
fn adamw_learns_a_small_batch_by_heart() {
    learns_a_small_batch_by_heart(&small(), settings(), 60, 0.01);
}

#[test]
fn squeeze_excitation_and_global_pooling_learn_a_small_batch_by_heart() {
    learns_a_small_batch_by_heart(&complete(), settings(), 60, 0.01);
}

#[test]
fn sgd_learns_a_small_batch_by_heart() {
    let sgd = TrainerSettings { optimiser: Optimiser::Sgd { momentum: 0.9 }, learning_rate: 0.05, ..settings() };
    learns_a_small_batch_by_heart(&small(), sgd, 80, 0.02);
}

#[test]
fn bf16_learns_a_small_batch_by_heart() {
    let bf16 = TrainerSettings { precision: Precision::Bf16, ..settings() };
    learns_a_small_batch_by_heart(&small(), bf16.clone(), 60, 0.02);
    learns_a_small_batch_by_heart(&complete(), bf16, 60, 0.02);
}

/// Trainers in bfloat16 with the custom backward pass, one for every available path.
fn custom_backward(network: impl Fn() -> Network) -> impl Iterator<Item = (Path, Trainer)> {
    [Path::Portable, Path::Amx].into_iter().filter(|path| path.is_available()).map(move |path| {
        let mut trainer =
            Trainer::new(network(), TrainerSettings { precision: Precision::Bf16, ..settings() }).unwrap();
        trainer.custom_backward = Some(CustomBackward::new(path));
        (path, trainer)
    })
}

#[test]
fn gradients_by_hand_are_as_near_to_those_in_float32_as_libtorchs_in_bf16() {
    let wide = Architecture { channels: 72, height: 5, ..small() };
    for architecture in [small(), tiny(), wide] {
        let network = || seasoned(&architecture, 65);
        let batch = batch(&architecture, 37, 66);
        let gradient = |trainer: &mut Trainer| {
            let outcome = trainer.forward_backward(&batch, 37, &mut Laps::none(), &mut StepTimes::default());
            let (losses, gradient) = outcome.unwrap();
            (losses.total, numbers(&gradient), numbers(&trainer.network.flat_statistics))
        };
        let of = |precision| {
            let settings = TrainerSettings { precision, tower: TrainingKernel::Libtorch, ..settings() };
            gradient(&mut Trainer::new(network(), settings).unwrap())
        };
        let ((loss, exact, statistics), (_, libtorch, _)) = (of(Precision::F32), of(Precision::Bf16));
        let distance = |gradient: &[f64], range: std::ops::Range<usize>| {
            let squares = gradient[range.clone()].iter().zip(&exact[range]).map(|(a, b)| (a - b).powi(2));
            squares.sum::<f64>().sqrt()
        };
        for (path, mut trainer) in custom_backward(network) {
            let (got, gradient, moved) = gradient(&mut trainer);
            assert!((got - loss).abs() < 0.01 * loss, "{path:?}: a loss of {got} for {loss}");
            assert_close(&moved, &statistics, 0.02);
            for entry in &trainer.network.layout.parameters {
                let range = entry.range();
                let length = exact[range.clone()].iter().map(|g| g * g).sum::<f64>().sqrt();
                let (distance, allowed) = (distance(&gradient, range.clone()), distance(&libtorch, range));
                let name = &entry.tensor.name;
                assert!(
                    distance < 2.0 * allowed + 0.01 * length,
                    "{path:?}, {name}: {distance}, libtorch {allowed}, of {length}"
                );
            }
        }
    }
}

#[test]
fn a_tower_by_hand_learns_a_small_batch_by_heart() {
    let batch = batch(&small(), 12, 62);
    for (path, mut trainer) in custom_backward(|| Network::new(&small(), Device::Cpu, 61).unwrap()) {
        for _ in 0..60 {
            trainer.step(&batch).unwrap();
        }
        let losses = trainer.step(&batch).unwrap();
        let (policy, value) = least_losses(&small(), &batch);
        assert!(losses.policy - policy < 0.02 && losses.value - value < 0.02, "{path:?}: {losses:?}");
    }
}

#[test]
fn a_step_by_hand_that_is_not_finite_changes_nothing() {
    for (path, mut trainer) in custom_backward(|| Network::new(&small(), Device::Cpu, 61).unwrap()) {
        trainer.step(&batch(&small(), 9, 1)).unwrap();
        let before = trainer.save().unwrap();
        let mut broken = batch(&small(), 9, 2);
        broken.observations[5] = f32::NAN;
        assert!(matches!(trainer.step(&broken), Err(Error::NotFinite { .. })), "{path:?}");
        assert!(trainer.save().unwrap() == before, "{path:?}: a refused step left something behind");
    }
}

fn goes_on_bit_for_bit_after_a_restore(architecture: &Architecture, settings: TrainerSettings) {
    crate::set_threads(1);
    let mut uninterrupted = trainer_of(architecture, settings.clone());
    for seed in 0..4 {
        uninterrupted.step(&batch(architecture, 9, seed)).unwrap();
    }
    uninterrupted.set_progress(0.3);
    let files = uninterrupted.save().unwrap();
    let mut restored = Trainer::restore(architecture, settings, Device::Cpu, &files).unwrap();
    for seed in 4..8 {
        assert_eq!(restored.learning_rate(), uninterrupted.learning_rate());
        let losses = [&mut restored, &mut uninterrupted].map(|t| t.step(&batch(architecture, 9, seed)).unwrap());
        assert_eq!(losses[0], losses[1]);
    }
    assert_eq!(restored.step_count(), 8);
    assert!(restored.save().unwrap() == uninterrupted.save().unwrap(), "the checkpoints differ");
    assert!(restored.published().unwrap() == uninterrupted.published().unwrap(), "the published weights differ");
}

#[test]
fn adamw_goes_on_bit_for_bit_after_a_restore() {
    goes_on_bit_for_bit_after_a_restore(&small(), settings());
    goes_on_bit_for_bit_after_a_restore(&complete(), settings());
}

#[test]
fn sgd_goes_on_bit_for_bit_after_a_restore() {
    let sgd = TrainerSettings { optimiser: Optimiser::Sgd { momentum: 0.9 }, ..settings() };
    goes_on_bit_for_bit_after_a_restore(&small(), sgd);
}

#[test]
fn bf16_goes_on_bit_for_bit_after_a_restore() {
    goes_on_bit_for_bit_after_a_restore(&small(), TrainerSettings { precision: Precision::Bf16, ..settings() });
}

#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    let mut trainer = trainer(settings());
    trainer.step(&batch(&small(), 9, 63)).unwrap();
    let before = trainer.save().unwrap();
    for spoil in [
        |batch: &mut crate::TrainingBatch| batch.observations[3] = f32::NAN,
        |batch: &mut crate::TrainingBatch| batch.policies[8] = f32::INFINITY,
        |batch: &mut crate::TrainingBatch| batch.wdl[2] = f32::NAN,
    ] {
        let mut spoilt = batch(&small(), 9, 64);
        spoil(&mut spoilt);
        assert!(matches!(trainer.step(&spoilt), Err(Error::NotFinite { step: 2, .. })));
        assert!(trainer.save().unwrap() == before, "something moved");
    }
    trainer.step(&batch(&small(), 9, 65)).unwrap();
    assert_eq!(trainer.step_count(), 2);
}

#[test]
fn gradients_are_cut_to_the_clip_norm() {
    // Without momentum a step of SGD is the clipped gradient times the learning rate.
    let clip = 1e-3;
    let mut trainer = trainer(TrainerSettings {
        optimiser: Optimiser::Sgd { momentum: 0.0 },
        learning_rate: 1.0,
        warm_up_steps: 0,
        weight_decay: 0.0,
        gradient_clip_norm: clip,
        ..settings()
    });
    let before = trainer.network().flat_parameters.detach_copy();
    let losses = trainer.step(&batch(&small(), 9, 66)).unwrap();
    let moved = (&trainer.network().flat_parameters - before).norm().double_value(&[]);
    assert!(losses.gradient_norm > clip);
    assert!((moved - clip).abs() < 1e-6, "moved by {moved}");
}

/// With hardly any gradient a step of SGD is weight decay alone: a tenth of every matrix and convolution.
#[test]
fn weight_decay_shrinks_convolutions_and_matrices_and_nothing_else() {
    let mut trainer = trainer_of(
        &complete(),
        TrainerSettings {
            optimiser: Optimiser::Sgd { momentum: 0.0 },
            learning_rate: 1.0,
            warm_up_steps: 0,
            weight_decay: 0.1,
            gradient_clip_norm: 1e-9,
            ..settings()
        },
    );
    let before = numbers(&trainer.network().flat_parameters);
    trainer.step(&batch(&complete(), 9, 69)).unwrap();
    let after = numbers(&trainer.network().flat_parameters);
    for entry in &trainer.network().layout.parameters {
        let kept = if entry.tensor.role.is_weight() { 0.9 } else { 1.0 };
        let place = entry.range();
        let expected: Vec<f64> = before[place.clone()].iter().map(|value| kept * value).collect();
        assert_close(&after[place], &expected, 1e-6);
    }
}

fn check_average(architecture: &Architecture) {
    let mut trainer = trainer_of(architecture, settings());
    let mut expected = numbers(&trainer.network().flat_parameters);
    for step in 0..12_u32 {
        trainer.step(&batch(architecture, 9, u64::from(step))).unwrap();
        let kept = 0.9_f64.min(f64::from(1 + step) / f64::from(10 + step));
        let newest = numbers(&trainer.network().flat_parameters);
        expected
            .iter_mut()
            .zip(newest)
            .for_each(|(average, newest)| *average = kept * *average + (1.0 - kept) * newest);
    }
    assert_close(&numbers(&trainer.average_parameters), &expected, 1e-6);
    let published = Network::from_safetensors(architecture, &trainer.published().unwrap(), Device::Cpu).unwrap();
    assert_close(&numbers(&published.flat_parameters), &expected, 1e-6);
}

#[test]
fn published_weights_are_an_exponential_average_with_warm_up() {
    check_average(&small());
    check_average(&complete());
}

#[test]
fn progress_is_the_further_of_steps_and_what_was_set() {
    let mut trainer = trainer(TrainerSettings { decay_steps: Some(4), ..settings() });
    trainer.step(&batch(&small(), 9, 67)).unwrap();
    assert_eq!(trainer.progress(), 0.25);
    trainer.set_progress(0.6);
    assert_eq!(trainer.progress(), 0.6);
    trainer.set_progress(7.0);
    assert_eq!(trainer.progress(), 1.0);
    trainer.set_progress(f64::NAN);
    assert_eq!(trainer.progress(), 0.25);
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut trainer = trainer(settings());
    trainer.step(&batch(&small(), 9, 68)).unwrap();
    let files = trainer.save().unwrap();
    let missing = trainer.load(&files[..2]).unwrap_err();
    assert_eq!(missing.to_string(), "the checkpoint has no file `optimiser.safetensors`");

    let mut cut = files.clone();
    let half = cut[2].1.len() / 2;
    cut[2].1.truncate(half);
    assert!(matches!(trainer.load(&cut), Err(Error::Network(::network::Error::Format(_)))));
    assert!(Trainer::restore(&tiny(), settings(), Device::Cpu, &files).is_err());

    let sgd = TrainerSettings { optimiser: Optimiser::Sgd { momentum: 0.9 }, ..settings() };
    let other = Trainer::restore(&small(), sgd, Device::Cpu, &files).unwrap_err();
    assert!(matches!(other, Error::Network(::network::Error::MissingTensor { .. })), "{other}");
    assert!(trainer.save().unwrap() == files, "something moved");
}

#[test]
fn settings_outside_their_range_are_refused_by_name() {
    let refused = |settings| {
        let network = Network::new(&tiny(), Device::Cpu, 0).unwrap();
        Trainer::new(network, settings).map(drop).unwrap_err().to_string()
    };
    assert!(refused(TrainerSettings { learning_rate: f64::NAN, ..settings() }).contains("`learning_rate`"));
    assert!(refused(TrainerSettings { gradient_clip_norm: 0.0, ..settings() }).contains("`gradient_clip_norm`"));
    assert!(refused(TrainerSettings { ema_decay: 1.0, ..settings() }).contains("`ema_decay`"));
}

#[test]
fn a_timed_step_reports_its_parts_and_returns_the_same_losses() {
    #[allow(clippy::disallowed_methods, reason = "an Instant has no other beginning; only differences count")]
    let start = Instant::now();
    let mut reads = 0;
    let mut clock = || {
        reads += 1;
        start + Duration::from_secs(1 << reads)
    };
    crate::set_threads(1);
    let [mut timed, mut untimed] = [(); 2].map(|()| trainer(settings()));
    let batch = batch(&small(), 9, 70);
    let (losses, times) = timed.step_timed(&batch, &mut clock).unwrap();
    assert_eq!(losses, untimed.step(&batch).unwrap());
    let [stage, forward, backward, optimiser] = [2, 4, 8, 16].map(Duration::from_secs);
    assert_eq!(times, StepTimes { stage, forward, backward, optimiser });
}

#[test]
fn tensors_of_the_training_are_on_the_device_of_the_network() {
    let mut trainer = trainer(settings());
    let kinds = |trainer: &Trainer| trainer.placement().map(|(what, _)| what).collect::<Vec<_>>();
    assert_eq!(kinds(&trainer), ["parameters", "average", "moments"], "no batch has been seen");
    trainer.step(&batch(&small(), 4, 62)).unwrap();
    assert_eq!(kinds(&trainer), ["parameters", "average", "moments", "batch"]);
    assert!(trainer.placement().all(|(_, device)| device == trainer.network.device()));
}
