mod boards;
mod graphs;
mod mixed_precision;

use std::time::{Duration, Instant};

use tch::Device;
use weights::Architecture;

use super::{Pass, Staged, Trainer};
use crate::{
    DeviceRules, Error, Network,
    tests::networks::{assert_close, batch, complete, numbers, seasoned, small, tiny},
    trainer::Laps,
};
use training::{
    Contents, Decay, Examples, MomentFormat, Observations, Optimiser, Precision, StepTimes, Trained, Trainer as _,
    TrainerSettings, TrainingBatch, TrainingKernel,
};

impl Trainer {
    fn progress(&self) -> f64 {
        self.settings.progress_after(self.step, self.progress)
    }
}

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

/// The entropy of the targets is the minimum of a cross-entropy.
fn least_losses(architecture: &Architecture, batch: &TrainingBatch) -> (f64, f64) {
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
        trainer.step(&batch.clone().into()).unwrap();
    }
    let losses = trainer.step(&batch.clone().into()).unwrap();
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
fn zeros_between_tensors_stay_zero_under_every_optimiser_and_format_of_moments() {
    let architecture = Architecture { channels: 5, ..complete() };
    let muon = Optimiser::Muon { momentum: 0.9 };
    for optimiser in [Optimiser::adamw(), Optimiser::Sgd { momentum: 0.9 }, Optimiser::lion(), muon] {
        for moments in [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Int8] {
            let mut trainer = trainer_of(&architecture, TrainerSettings { optimiser, moments, ..settings() });
            for step in 0..4 {
                trainer.step(&batch(&architecture, 9, step).into()).unwrap();
            }
            let mut zeros = 0;
            for flat in [&trainer.network().flat_parameters, &trainer.average_parameters] {
                let flat = numbers(flat);
                for entry in &trainer.network().layout.parameters {
                    let between = &flat[entry.range().end..][..entry.padding()];
                    assert!(between.iter().all(|zero| *zero == 0.0), "{optimiser:?}, after {}", entry.tensor.name);
                    zeros += between.len();
                }
            }
            assert!(zeros > 0, "the network needs no zeros");
        }
    }
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
fn muon_learns_a_small_batch_by_heart() {
    let muon = TrainerSettings { optimiser: Optimiser::Muon { momentum: 0.95 }, ..settings() };
    learns_a_small_batch_by_heart(&complete(), muon, 60, 0.02);
}

#[test]
fn bf16_learns_a_small_batch_by_heart() {
    let bf16 = TrainerSettings { precision: Precision::Bf16, ..settings() };
    learns_a_small_batch_by_heart(&small(), bf16.clone(), 60, 0.02);
    learns_a_small_batch_by_heart(&complete(), bf16, 60, 0.02);
}

#[test]
fn one_cast_of_all_weights_gives_the_bits_of_a_cast_in_each_layer() {
    crate::set_threads(1);
    for architecture in [small(), complete()] {
        let bf16 = TrainerSettings { precision: Precision::Bf16, tower: TrainingKernel::Libtorch, ..settings() };
        let [mut at_once, mut by_layer] = [(); 2].map(|()| trainer_of(&architecture, bf16.clone()));
        by_layer.lowered = None;
        for seed in 0..3 {
            let batch = batch(&architecture, 9, seed);
            assert_eq!(at_once.step(&batch.clone().into()).unwrap(), by_layer.step(&batch.clone().into()).unwrap());
        }
        assert!(at_once.files().unwrap() == by_layer.files().unwrap(), "the states differ");
    }
}

/// Returns the losses and the gradient of a batch, in the micro-batches that the trainer chooses.
fn pass(trainer: &mut Trainer, batch: &TrainingBatch) -> Pass {
    let staged = Staged::new(&batch.clone().into(), &trainer.network, &trainer.boards, [0.0; 2]).unwrap();
    let statistics = trainer.network.flat_statistics.detach_copy();
    trainer.split(&staged, &statistics, &mut Laps::none(), &mut StepTimes::default()).unwrap()
}

fn spoil_observations(batch: &mut TrainingBatch) {
    let mut floats = batch.observations.to_floats();
    floats[3] = f32::NAN;
    batch.observations = Observations::Floats(floats);
}

fn goes_on_bit_for_bit_after_a_restore(architecture: &Architecture, settings: TrainerSettings) {
    crate::set_threads(1);
    let mut uninterrupted = trainer_of(architecture, settings.clone());
    for seed in 0..4 {
        uninterrupted.step(&batch(architecture, 9, seed).into()).unwrap();
    }
    uninterrupted.set_progress(0.3);
    let files = uninterrupted.files().unwrap();
    let mut restored = Trainer::restore(architecture, settings, Device::Cpu, &files).unwrap();
    for seed in 4..8 {
        assert_eq!(restored.learning_rate(), uninterrupted.learning_rate());
        let losses = [&mut restored, &mut uninterrupted].map(|t| t.step(&batch(architecture, 9, seed).into()).unwrap());
        assert_eq!(losses[0], losses[1]);
    }
    assert_eq!(restored.step_count(), 8);
    assert!(restored.files().unwrap() == uninterrupted.files().unwrap(), "the checkpoints differ");
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
fn muon_goes_on_bit_for_bit_after_a_restore() {
    let muon = TrainerSettings { optimiser: Optimiser::Muon { momentum: 0.95 }, ..settings() };
    goes_on_bit_for_bit_after_a_restore(&complete(), muon);
}

#[test]
fn bf16_goes_on_bit_for_bit_after_a_restore() {
    goes_on_bit_for_bit_after_a_restore(&small(), TrainerSettings { precision: Precision::Bf16, ..settings() });
}

#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    let mut trainer = trainer(settings());
    trainer.step(&batch(&small(), 9, 63).into()).unwrap();
    let before = trainer.files().unwrap();
    for spoil in [
        spoil_observations,
        |batch: &mut TrainingBatch| batch.policies[8] = f32::INFINITY,
        |batch: &mut TrainingBatch| batch.wdl[2] = f32::NAN,
    ] {
        let mut spoilt = batch(&small(), 9, 64);
        spoil(&mut spoilt);
        assert!(matches!(trainer.step(&spoilt.clone().into()), Err(training::Error::NotFinite { step: 2, .. })));
        assert!(trainer.files().unwrap() == before, "something moved");
    }
    trainer.step(&batch(&small(), 9, 65).into()).unwrap();
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
    let losses = trainer.step(&batch(&small(), 9, 66).into()).unwrap();
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
    trainer.step(&batch(&complete(), 9, 69).into()).unwrap();
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
        trainer.step(&batch(architecture, 9, u64::from(step)).into()).unwrap();
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
    trainer.step(&batch(&small(), 9, 67).into()).unwrap();
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
    trainer.step(&batch(&small(), 9, 68).into()).unwrap();
    let files = trainer.files().unwrap();
    let missing = trainer.load(&files[..2]).unwrap_err();
    assert_eq!(missing.to_string(), "the checkpoint has no file `optimiser.safetensors`");

    let mut cut = files.clone();
    let half = cut[2].1.len() / 2;
    cut[2].1.truncate(half);
    assert!(matches!(trainer.load(&cut), Err(training::Error::Network(::network::Error::Format(_)))));
    assert!(Trainer::restore(&tiny(), settings(), Device::Cpu, &files).is_err());

    let sgd = TrainerSettings { optimiser: Optimiser::Sgd { momentum: 0.9 }, ..settings() };
    let other = Trainer::restore(&small(), sgd, Device::Cpu, &files).unwrap_err();
    assert!(
        matches!(other, Error::Training(training::Error::Network(::network::Error::MissingTensor { .. }))),
        "{other}"
    );
    assert!(trainer.files().unwrap() == files, "something moved");
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
    timed.queue(&batch.clone().into(), &mut Laps::new(&mut clock)).unwrap();
    let Trained { losses, times, .. } = timed.collect(&mut Laps::new(&mut clock)).unwrap().unwrap();
    assert_eq!(losses, untimed.step(&batch.clone().into()).unwrap());
    let [stage, forward, backward, optimiser] = [2, 4, 8 + 64, 16].map(Duration::from_secs);
    assert_eq!(times, StepTimes { stage, forward, backward, optimiser });
}

/// Takes steps with `depth` of them always queued, as on an accelerator, and returns the result of each.
fn queued_ahead<B: Clone + Into<Examples>>(trainer: &mut Trainer, batches: &[B], depth: usize) -> Vec<Option<Trained>> {
    let mut results = Vec::new();
    for batch in batches {
        trainer.queue(&batch.clone().into(), &mut Laps::none()).unwrap();
        while trainer.queued.len() > depth {
            results.push(trainer.collect(&mut Laps::none()).unwrap().ok());
        }
    }
    while let Some(result) = trainer.collect(&mut Laps::none()) {
        results.push(result.ok());
    }
    results
}

#[test]
fn steps_that_are_queued_ahead_give_the_same_bits_as_one_at_a_time_also_around_refused_ones() {
    crate::set_threads(1);
    let refused = [2, 3, 6];
    let batches: Vec<TrainingBatch> = (0..9)
        .map(|seed| {
            let mut batch = batch(&small(), 9, seed);
            batch.importance = vec![0.5; 9];
            if refused.contains(&seed) {
                spoil_observations(&mut batch);
            }
            batch
        })
        .collect();
    let sgd = TrainerSettings { optimiser: Optimiser::Sgd { momentum: 0.9 }, ..settings() };
    for settings in [settings(), sgd] {
        // The learning rate changes with every step, so that a wrong step count shows.
        let settings = TrainerSettings { warm_up_steps: 50, ..settings };
        let [mut at_once, mut ahead] = [(); 2].map(|()| trainer(settings.clone()));
        let expected = queued_ahead(&mut at_once, &batches, 0);
        let got = queued_ahead(&mut ahead, &batches, 1);
        assert_eq!(got, expected);
        let is_refused: Vec<bool> = got.iter().map(Option::is_none).collect();
        assert_eq!(is_refused, (0..9).map(|seed| refused.contains(&seed)).collect::<Vec<_>>());
        assert_eq!((ahead.step_count(), ahead.learning_rate()), (6, at_once.learning_rate()));
        assert!(ahead.files().unwrap() == at_once.files().unwrap(), "the states differ");
    }
}

#[test]
fn the_state_after_refused_steps_is_that_without_them() {
    crate::set_threads(1);
    let [mut clean, mut disturbed] = [(); 2].map(|()| trainer(settings()));
    for seed in 0..3 {
        clean.step(&batch(&small(), 9, seed).into()).unwrap();
        disturbed.step(&batch(&small(), 9, seed).into()).unwrap();
        let mut spoilt = batch(&small(), 9, 100 + seed);
        spoil_observations(&mut spoilt);
        disturbed.step(&spoilt.clone().into()).unwrap_err();
    }
    assert_eq!(disturbed.learning_rate(), clean.learning_rate());
    assert!(disturbed.files().unwrap() == clean.files().unwrap(), "the states differ");
}

#[test]
fn loading_drops_queued_steps() {
    let mut trainer = trainer(settings());
    trainer.step(&batch(&small(), 9, 1).into()).unwrap();
    let files = trainer.files().unwrap();
    trainer.queue(&batch(&small(), 9, 2).into(), &mut Laps::none()).unwrap();
    trainer.load(&files).unwrap();
    assert_eq!((trainer.queued.len(), trainer.step_count()), (0, 1));
    assert!(trainer.files().unwrap() == files);
}

#[test]
fn a_snapshot_holds_the_step_it_was_made_at() {
    // Under the rules of MPS the training thread reads the device itself.
    for rules in [DeviceRules::CPU, DeviceRules::MPS] {
        let network = Network::new(&small(), Device::Cpu, 61).unwrap().with_rules(rules);
        let mut trainer = Trainer::new(network, settings()).unwrap();
        trainer.step(&batch(&small(), 9, 1).into()).unwrap();
        let (published, files) = (trainer.published().unwrap(), trainer.files().unwrap());
        let snapshots = [Contents::Average, Contents::All].map(|contents| trainer.snapshot(contents).unwrap());
        trainer.step(&batch(&small(), 9, 2).into()).unwrap();
        assert!(snapshots.iter().all(|snapshot| snapshot.published().unwrap() == published));
        assert!(snapshots[1].files().unwrap() == files);
        assert!(trainer.files().unwrap() != files);
    }
}

/// Returns rows `rows` of a batch without importance.
fn rows(batch: &TrainingBatch, rows: std::ops::Range<usize>) -> TrainingBatch {
    let all = batch.policy_weights.len();
    fn part<T: Clone>(values: &[T], all: usize, rows: std::ops::Range<usize>) -> Vec<T> {
        let width = values.len() / all;
        values[rows.start * width..rows.end * width].to_vec()
    }
    TrainingBatch {
        board: batch.board,
        observations: part(&batch.observations.to_floats(), all, rows.clone()).into_iter().collect(),
        policies: part(&batch.policies, all, rows.clone()),
        legal: part(&batch.legal, all, rows.clone()),
        wdl: part(&batch.wdl, all, rows.clone()),
        policy_weights: part(&batch.policy_weights, all, rows),
        ..TrainingBatch::default()
    }
}

#[test]
fn two_micro_batches_have_the_mean_of_the_gradients_of_both_halves() {
    let whole = TrainingBatch { policy_weights: vec![1.0; 12], ..batch(&complete(), 12, 71) };
    let of = |batch: &TrainingBatch, micro_batch| {
        let mut trainer = trainer_of(&complete(), TrainerSettings { micro_batch, ..settings() });
        let pass = pass(&mut trainer, batch);
        (numbers(&pass.gradient), pass.losses.scalars.total.double_value(&[]), trainer.micro_batches())
    };
    let (got, loss, micro_batches) = of(&whole, 6);
    let halves = [0..6, 6..12].map(|half| of(&rows(&whole, half), 0));
    let expected: Vec<f64> = halves[0].0.iter().zip(&halves[1].0).map(|(a, b)| (a + b) / 2.0).collect();
    assert_eq!(micro_batches, 2);
    assert_close(&got, &expected, 1e-6);
    assert_close(&[loss], &[(halves[0].1 + halves[1].1) / 2.0], 1e-6);
}

#[test]
fn a_step_that_runs_out_of_memory_is_taken_in_micro_batches_from_then_on() {
    crate::set_threads(1);
    let mut limited = trainer(settings());
    limited.stand_in.memory_positions = Some(4);
    let mut configured = trainer(TrainerSettings { micro_batch: 4, ..settings() });
    for seed in 0..3 {
        let mut batch = batch(&small(), 13, seed);
        batch.importance = vec![0.5; 13];
        limited.queue(&batch.clone().into(), &mut Laps::none()).unwrap();
        configured.queue(&batch.clone().into(), &mut Laps::none()).unwrap();
        let results =
            [&mut limited, &mut configured].map(|trainer| trainer.collect(&mut Laps::none()).unwrap().unwrap());
        assert_eq!(results[0], results[1]);
        assert_eq!(results[0].value_errors.len(), 13);
        assert_eq!([limited.micro_batches(), configured.micro_batches()], [4, 4]);
    }
    assert!(limited.files().unwrap() == configured.files().unwrap(), "the states differ");
}

#[test]
fn a_step_whose_single_positions_do_not_fit_is_an_error_that_changes_nothing() {
    let mut trainer = trainer(settings());
    trainer.step(&batch(&small(), 9, 1).into()).unwrap();
    let before = trainer.files().unwrap();
    trainer.stand_in.memory_positions = Some(0);
    let refused = trainer.step(&batch(&small(), 9, 2).into()).map_err(Error::from).unwrap_err();
    let Error::Training(training::Error::Backend(refused)) = refused else { panic!("{refused}") };
    assert!(matches!(refused.downcast_ref(), Some(Error::OutOfMemory { .. })), "{refused}");
    assert!(trainer.files().unwrap() == before, "something moved");
}

#[test]
fn observations_in_bytes_and_in_float32_train_alike() {
    crate::set_threads(1);
    let bytes = batch(&small(), 9, 72);
    let floats = TrainingBatch { observations: Observations::Floats(bytes.observations.to_floats()), ..bytes.clone() };
    assert!(matches!(bytes.observations, Observations::Bytes(_)));
    let [mut from_bytes, mut from_floats] = [(); 2].map(|()| trainer(settings()));
    assert_eq!(from_bytes.step(&bytes.clone().into()).unwrap(), from_floats.step(&floats.clone().into()).unwrap());
    assert!(from_bytes.files().unwrap() == from_floats.files().unwrap());
}

#[test]
fn a_step_that_is_not_computed_is_counted_and_changes_no_weights() {
    let mut trainer = trainer(settings());
    let published = trainer.published().unwrap();
    trainer.queue_nothing(&batch(&small(), 9, 73).into(), &mut Laps::none()).unwrap();
    let trained = trainer.collect(&mut Laps::none()).unwrap().unwrap();
    assert_eq!((trainer.step_count(), trained.losses.total), (1, 0.0));
    assert!(trainer.published().unwrap() == published);
}

#[test]
fn tensors_of_the_training_are_on_the_device_of_the_network() {
    let mut trainer = trainer(settings());
    let kinds = |trainer: &Trainer| trainer.placement().iter().map(|placed| placed.what).collect::<Vec<_>>();
    assert_eq!(kinds(&trainer), ["parameters", "average", "moments"], "no batch has been seen");
    trainer.step(&batch(&small(), 4, 62).into()).unwrap();
    assert_eq!(kinds(&trainer), ["parameters", "average", "moments", "batch"]);
    assert!(trainer.placement().iter().all(|placed| placed.device == "cpu"));
}
