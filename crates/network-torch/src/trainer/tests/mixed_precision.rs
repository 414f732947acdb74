//! float16 with a loss scale, and layers that go back to float32.

use training::mixed_precision::{GRADIENT_ERROR_MAX, loses_too_much};
use training::{Laps, LossScale, MixedPrecision};

use super::*;
use crate::loss_scale::ScaleOnDevice;
use crate::tests::networks::{
    attentive, dense, of_positions, of_returns, pooled, residual, stochastic, unrolled_batch, with_next_observations,
};

fn f16() -> TrainerSettings {
    TrainerSettings { precision: Precision::F16, ..settings() }
}

fn adaptive(precision: Precision) -> TrainerSettings {
    TrainerSettings { precision, is_adaptive: true, ..settings() }
}

/// Sets the loss scale of the next step.
fn set_scale(trainer: &mut Trainer, factor: f32) {
    trainer.loss_scale = Some(ScaleOnDevice::new(LossScale { factor, good_steps: 0 }, Device::Cpu).unwrap());
}

fn mixed(trainer: &Trainer) -> MixedPrecision {
    let loss_scale = trainer.loss_scale.as_ref().map(|scale| scale.download().unwrap());
    MixedPrecision { loss_scale, float32_layers: trainer.float32_layers.clone() }
}

#[test]
fn f16_learns_a_small_batch_by_heart() {
    for architecture in [small(), complete()] {
        learns_a_small_batch_by_heart(&architecture, f16(), 60, 0.02);
    }
}

#[test]
fn gradients_of_f16_do_not_depend_on_the_scale_and_are_nearer_to_float32_than_those_of_bf16() {
    let (architecture, batch) = (complete(), batch(&complete(), 32, 3));
    let gradient = |precision, scale: Option<f32>| {
        let settings = TrainerSettings { precision, tower: TrainingKernel::Libtorch, ..settings() };
        let mut trainer = Trainer::new(seasoned(&architecture, 65), settings).unwrap();
        if let Some(scale) = scale {
            set_scale(&mut trainer, scale);
        }
        numbers(&pass(&mut trainer, &batch).gradient)
    };
    let exact = gradient(Precision::F32, None);
    let distance = |gradient: &[f64]| {
        let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
        square(&mut gradient.iter().zip(&exact).map(|(a, b)| a - b)) / square(&mut exact.iter().copied())
    };
    let bf16 = distance(&gradient(Precision::Bf16, None));
    let scaled = [256.0, 4096.0].map(|scale| gradient(Precision::F16, Some(scale)));
    let errors = scaled.each_ref().map(|gradient| distance(gradient));
    assert!(errors.iter().all(|&error| error < 0.5 * bf16), "{errors:?}, in bf16 {bf16}");
}

#[test]
fn a_gradient_that_overflows_skips_the_step_and_halves_the_scale_and_nothing_else_changes() {
    let mut trainer = trainer(f16());
    trainer.step(&batch(&small(), 9, 1).into()).unwrap();
    let scale = LossScale::MAX;
    set_scale(&mut trainer, scale);
    let before = trainer.files().unwrap();
    // Times the largest scale this loss exceeds float16 in every layer that feeds the heads.
    let examples: training::Examples = batch(&small(), 9, 2).into();
    let mut skipped = 0;
    while let Err(error) = trainer.step(&examples) {
        let training::Error::Overflow { loss_scale, step } = error else { panic!("{error}") };
        assert_eq!((loss_scale, step), (f64::from(scale) / 2.0_f64.powi(skipped), 2));
        skipped += 1;
        let halved = mixed(&trainer).loss_scale.unwrap();
        assert_eq!(halved, LossScale { factor: scale / 2.0_f32.powi(skipped), good_steps: 0 });
        set_scale(&mut trainer, scale);
        assert!(trainer.files().unwrap() == before, "a skipped step changed more than the scale");
        set_scale(&mut trainer, halved.factor);
    }
    assert!(skipped > 0, "nothing overflowed");
    assert_eq!((trainer.step_count(), mixed(&trainer).loss_scale.unwrap().good_steps), (2, 1));
}

#[test]
fn a_step_queued_behind_one_that_overflows_has_the_smaller_scale() {
    let mut trainer = trainer(f16());
    set_scale(&mut trainer, LossScale::MAX);
    let examples = batch(&small(), 9, 2).into();
    let scales = [(); 2].map(|()| trainer.queue(&examples, &mut Laps::none()).unwrap());
    let collected = scales.map(|()| {
        let collected = trainer.collect(&mut Laps::none()).unwrap();
        (collected.is_ok(), trainer.loss_scale().unwrap())
    });
    assert_eq!(collected[0], (false, f64::from(LossScale::MAX)));
    assert_eq!(collected[1].1, f64::from(LossScale::MAX) / 2.0);
}

#[test]
fn a_loss_that_is_not_finite_is_refused_in_f16_and_leaves_the_scale() {
    let mut trainer = trainer(f16());
    trainer.step(&batch(&small(), 9, 1).into()).unwrap();
    let before = trainer.files().unwrap();
    let mut broken = batch(&small(), 9, 2);
    spoil_observations(&mut broken);
    let refused = trainer.step(&broken.into()).unwrap_err();
    assert!(matches!(refused, training::Error::NotFinite { .. }), "{refused}");
    assert!(trainer.files().unwrap() == before);
}

#[test]
fn training_in_f16_goes_on_bit_for_bit_with_its_scale_after_a_restore() {
    goes_on_bit_for_bit_after_a_restore(&small(), f16());
    let mut trainer = trainer(f16());
    trainer.step(&batch(&small(), 9, 1).into()).unwrap();
    set_scale(&mut trainer, 512.0);
    let files = trainer.files().unwrap();
    let restored = Trainer::restore(&small(), f16(), Device::Cpu, &files).unwrap();
    assert_eq!(mixed(&restored).loss_scale, Some(LossScale { factor: 512.0, good_steps: 0 }));
    // float32 has no loss scale, and float16 starts with the initial one.
    let float32 = Trainer::restore(&small(), settings(), Device::Cpu, &files).unwrap();
    assert_eq!(mixed(&float32), MixedPrecision::default());
    let again = Trainer::restore(&small(), f16(), Device::Cpu, &float32.files().unwrap()).unwrap();
    assert_eq!(mixed(&again).loss_scale, Some(LossScale::new()));
}

/// Returns the layer errors that a check with these settings finds.
fn layer_errors(network: Network, settings: TrainerSettings, batch: &TrainingBatch) -> Vec<(String, f64)> {
    let trainer = Trainer::new(network, settings).unwrap();
    let staged = Staged::new(&batch.clone().into(), &trainer.network, &trainer.boards, [0.0; 2]).unwrap();
    let statistics = numbers(&trainer.network.flat_statistics);
    let errors = trainer.layer_errors(&staged).unwrap();
    assert_eq!(numbers(&trainer.network.flat_statistics), statistics, "a check moves no statistics");
    errors
}

#[test]
#[expect(clippy::disallowed_macros, reason = "the figures of docs/kernels.md")]
fn healthy_networks_have_no_layer_that_loses_too_much() {
    let wide = Architecture { channels: 64, blocks: 4, height: 6, width: 7, ..small() };
    let of_cells = of_positions().into_iter().chain([attentive()]).chain(pooled());
    for architecture in [small(), complete(), wide].into_iter().chain(of_cells) {
        for network in [Network::new(&architecture, Device::Cpu, 61).unwrap(), seasoned(&architecture, 65)] {
            let bf16 = layer_errors(network, adaptive(Precision::Bf16), &batch(&architecture, 64, 3));
            let layers = bf16.len();
            let of_layers = bf16.iter().map(|(_, error)| *error);
            let (mean, largest) = (of_layers.clone().sum::<f64>() / layers as f64, of_layers.fold(0.0, f64::max));
            println!(
                "{layers} layers of {}x{}: mean {mean:.4}, largest {largest:.4}",
                architecture.blocks, architecture.channels
            );
            assert!(mean > 1e-5 && bf16.iter().all(|&(_, error)| !loses_too_much(error)), "{bf16:?}");
        }
    }
}

/// A network with a tower that ends in nearly constant numbers: the last norm has a shift so large compared with the
/// differences between positions that bfloat16 has no bit for them. The heads read the output; the norm after the
/// head convolutions removes the constant.
fn planted() -> Network {
    let network = seasoned(&small(), 65);
    let _ = tch::no_grad(|| network.tensor("block.1.second.norm.bias").shallow_clone().fill_(1000.0));
    network
}

#[test]
fn planted_layers_are_found_alone_and_named_and_computed_in_float32_from_then_on() {
    let examples: training::Examples = batch(&small(), 32, 3).into();
    let mut trainer = Trainer::new(planted(), adaptive(Precision::Bf16)).unwrap();
    trainer.step(&examples).unwrap();
    let names: Vec<&str> = trainer.float32_layers().keys().map(String::as_str).collect();
    assert_eq!(names, ["policy", "value"], "{:?}", trainer.float32_layers());
    assert!(trainer.float32_layers().values().all(|&error| error > GRADIENT_ERROR_MAX));
    let files = trainer.files().unwrap();
    let restored = Trainer::restore(&small(), adaptive(Precision::Bf16), Device::Cpu, &files).unwrap();
    assert_eq!(restored.float32_layers(), trainer.float32_layers());
    // Without adaptive precision the configured one is used.
    let bf16 = TrainerSettings { is_adaptive: false, ..adaptive(Precision::Bf16) };
    assert!(Trainer::restore(&small(), bf16, Device::Cpu, &files).unwrap().float32_layers().is_empty());
}

#[test]
fn layers_that_went_back_to_float32_have_the_gradient_that_bfloat16_lost() {
    let gradient = |seed, precision, float32_layers: &[&str]| {
        let settings = TrainerSettings { precision, tower: TrainingKernel::Libtorch, ..settings() };
        let mut trainer = Trainer::new(planted(), settings).unwrap();
        let layers = float32_layers.iter().map(|&layer| layer.to_owned()).collect();
        trainer.lowered = trainer.network.lowered(precision, layers).unwrap();
        let range = trainer.network.layout.parameter("policy.convolution.weight");
        numbers(&pass(&mut trainer, &batch(&small(), 32, seed)).gradient)[range].to_vec()
    };
    // A single batch in such a small network may have an error far from the mean, depending on the order of sums in
    // the threads.
    let [mut lost, mut found] = [0.0; 2];
    for seed in 3..11 {
        let exact = gradient(seed, Precision::F32, &[]);
        let error = |gradient: &[f64]| {
            let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
            square(&mut gradient.iter().zip(&exact).map(|(a, b)| a - b)) / square(&mut exact.iter().copied())
        };
        let errors = [&[][..], &["policy", "value"]].map(|layers| error(&gradient(seed, Precision::Bf16, layers)));
        lost += errors[0] / 8.0;
        found += errors[1] / 8.0;
    }
    assert!(found < 0.2 * lost, "{found} instead of {lost}");
}

#[test]
fn layers_of_every_model_are_checked_and_their_errors_are_small() {
    let muzero = [dense(), residual()].into_iter().chain(stochastic()).chain(of_returns());
    for architecture in muzero {
        let steps = if architecture.model.has_dynamics() { 3 } else { 0 };
        let mut batch = unrolled_batch(&architecture, 16, steps, 5);
        if architecture.model.codes() > 0 {
            batch = with_next_observations(&architecture, batch, 6);
        }
        let trainer = Trainer::new(seasoned(&architecture, 65), adaptive(Precision::Bf16)).unwrap();
        let staged = Staged::new(&batch.into(), &trainer.network, &trainer.boards, [0.0; 2]).unwrap();
        let errors = trainer.layer_errors(&staged).unwrap();
        let names: Vec<&str> = training::mixed_precision::layers(&trainer.network.layout).collect();
        assert_eq!(errors.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
        let is_good = |&(_, error): &(_, f64)| error > 0.0 && !loses_too_much(error);
        assert!(errors.iter().all(is_good), "{errors:?} of {architecture:?}");
    }
}

#[test]
fn networks_of_every_kind_of_layer_train_with_any_of_them_in_float32() {
    for architecture in of_positions().into_iter().chain([attentive(), complete()]).chain(pooled()) {
        let examples: training::Examples = batch(&architecture, 9, 3).into();
        let settings = TrainerSettings { precision: Precision::Bf16, tower: TrainingKernel::Libtorch, ..settings() };
        let names = training::mixed_precision::layers(&Network::new(&architecture, Device::Cpu, 1).unwrap().layout)
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let loss = |layers: &[String]| {
            let mut trainer = Trainer::new(seasoned(&architecture, 65), settings.clone()).unwrap();
            trainer.lowered = trainer.network.lowered(Precision::Bf16, layers.iter().cloned().collect()).unwrap();
            trainer.step(&examples).unwrap().total
        };
        let exact = Trainer::new(seasoned(&architecture, 65), self::settings()).unwrap().step(&examples).unwrap().total;
        // With all layers in float32 nothing is rounded.
        assert!((loss(&names) - exact).abs() < 1e-5 * exact, "{} instead of {exact}", loss(&names));
        for layer in &names {
            let one = loss(std::slice::from_ref(layer));
            assert!((one - exact).abs() < 0.05 * exact, "{layer}: {one} instead of {exact}");
        }
    }
}
