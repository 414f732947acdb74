mod contribution;

use training::checkpoint::Files;
use training::{
    Decay, Examples, Laps, Losses, MomentFormat, Observations, Optimiser, Precision, Recompute, Trainer as _,
    TrainerSettings, TrainingBatch, UnrolledBatch,
};
use weights::{Architecture, BlockKind, Design, Model};

use super::Trainer;
use crate::tests::networks::{batch, complete, plain, unrolled, vectors};
use crate::{Error, Path};

fn settings() -> TrainerSettings {
    TrainerSettings { warm_up_steps: 0, decay: Decay::Constant, ..TrainerSettings::default() }
}

fn with_consistency(consistency: f64) -> Losses {
    Losses { consistency, ..settings().loss_weights }
}

fn trainer(architecture: &Architecture, settings: TrainerSettings) -> Trainer {
    Trainer::new(architecture, settings, 1, 2).unwrap()
}

const MUON: Optimiser = Optimiser::Muon { momentum: 0.95 };
const FORMATS: [MomentFormat; 3] = [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Int8];

fn step(trainer: &mut Trainer, batch: &TrainingBatch) -> Result<Losses, training::Error> {
    trainer.step(&Examples::Positions(batch.clone()))
}

fn files(trainer: &Trainer) -> Files {
    trainer.files().unwrap()
}

#[test]
fn training_reduces_the_losses_of_a_batch() {
    let architecture = complete();
    let batch = batch(&architecture, 16, 3);
    let optimisers =
        [(Optimiser::adamw(), 3e-3), (Optimiser::Sgd { momentum: 0.9 }, 3e-2), (Optimiser::lion(), 1e-3), (MUON, 3e-3)];
    for (optimiser, learning_rate) in optimisers {
        let after = FORMATS.map(|moments| {
            let settings = TrainerSettings { optimiser, learning_rate, moments, ..settings() };
            let mut trainer = trainer(&architecture, settings);
            let before = step(&mut trainer, &batch).unwrap();
            let after = (0..60).map(|_| step(&mut trainer, &batch).unwrap()).last().unwrap();
            assert!(after.total < before.total - 0.5, "{optimiser:?}, {moments}: {} of {}", after.total, before.total);
            assert_eq!(trainer.step_count(), 61);
            after.total
        });
        // A twentieth of the improvement: rounding of moments adds noise to steps.
        assert!(after[1..].iter().all(|loss| (loss - after[0]).abs() < 0.05), "{optimiser:?}: {after:?}");
    }
}

#[test]
fn zeros_between_tensors_stay_zero_under_every_optimiser_and_format_of_moments() {
    let architecture = Architecture { channels: 5, ..complete() };
    let batch = batch(&architecture, 8, 3);
    for optimiser in [Optimiser::adamw(), Optimiser::Sgd { momentum: 0.9 }, Optimiser::lion(), MUON] {
        for moments in FORMATS {
            let mut trainer = trainer(&architecture, TrainerSettings { optimiser, moments, ..settings() });
            for _ in 0..4 {
                step(&mut trainer, &batch).unwrap();
            }
            let (state, mut zeros) = (&trainer.state, 0);
            let moments: Vec<Vec<f32>> = state.moments.iter().map(training::Moment::to_floats).collect();
            let of_state = [&state.network.parameters, &state.average.parameters].into_iter().chain(&moments);
            for numbers in of_state {
                for entry in &trainer.model.layout().parameters {
                    let between = &numbers[entry.range().end..][..entry.padding()];
                    assert!(between.iter().all(|zero| *zero == 0.0), "{optimiser:?}, after {}", entry.tensor.name);
                    zeros += between.len();
                }
            }
            assert!(zeros > 0, "the network needs no zeros");
        }
    }
}

#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    let architecture = complete();
    let good = batch(&architecture, 6, 3);
    let mut wdl = good.wdl.clone();
    wdl[0] = f32::NAN;
    let observations = (0..6 * 3 * 12).map(|index| if index == 40 { f32::INFINITY } else { 0.0 }).collect();
    for (bad, expected) in [
        (TrainingBatch { wdl, ..good.clone() }, "value loss"),
        (TrainingBatch { observations, ..good.clone() }, "policy loss"),
    ] {
        let mut trainer = trainer(&architecture, settings());
        step(&mut trainer, &good).unwrap();
        let before = files(&trainer);
        let error = step(&mut trainer, &bad).unwrap_err();
        let training::Error::NotFinite { quantity, step: 2 } = error else { panic!("{error}") };
        assert_eq!((quantity, trainer.step_count()), (expected, 1));
        assert_eq!(files(&trainer), before);
        step(&mut trainer, &good).unwrap();
    }
}

#[test]
fn an_unrolled_step_that_is_not_finite_changes_nothing() {
    let architecture = Architecture { model: Model::Muzero { support: 5 }, ..plain(2, 3) };
    let good = unrolled(&architecture, 6, 2, 3);
    let rewards = UnrolledBatch { rewards: vec![f32::NAN; 12], ..good.clone() };
    let values = UnrolledBatch { values: vec![f32::INFINITY; 18], ..good.clone() };
    for (bad, expected) in [(rewards, "reward loss"), (values, "value loss")] {
        let mut trainer = trainer(&architecture, settings());
        let mut step = |batch: &UnrolledBatch| {
            trainer.queue(&Examples::Unrolled(batch.clone()), &mut Laps::none()).unwrap();
            (trainer.collect(&mut Laps::none()).unwrap(), files(&trainer))
        };
        let (_, before) = step(&good);
        let (outcome, after) = step(&bad);
        let error = outcome.unwrap_err();
        let training::Error::NotFinite { quantity, step: 2 } = error else { panic!("{error}") };
        assert_eq!((quantity, after), (expected, before));
        step(&good).0.unwrap();
    }
}

#[test]
fn gradients_are_cut_to_the_clip_norm() {
    // Without momentum a step of SGD is the clipped gradient times the learning rate.
    let (architecture, clip) = (plain(6, 7), 1e-3);
    let settings = TrainerSettings {
        optimiser: Optimiser::Sgd { momentum: 0.0 },
        learning_rate: 1.0,
        weight_decay: 0.0,
        gradient_clip_norm: clip,
        ..settings()
    };
    let mut trainer = trainer(&architecture, settings);
    let before = trainer.state.network.parameters.clone();
    let losses = step(&mut trainer, &batch(&architecture, 9, 66)).unwrap();
    let changes = trainer.state.network.parameters.iter().zip(&before).map(|(after, before)| f64::from(after - before));
    let moved = changes.map(|change| change * change).sum::<f64>().sqrt();
    assert!(losses.gradient_norm > clip, "a gradient of {}", losses.gradient_norm);
    assert!((moved - clip).abs() < 1e-6, "moved by {moved}");
}

#[test]
fn the_number_of_threads_changes_no_bit_of_a_checkpoint() {
    let architecture = plain(6, 7);
    for optimiser in [Optimiser::adamw(), MUON] {
        let run = |threads: usize| {
            let settings = TrainerSettings { optimiser, ..settings() };
            let mut trainer = Trainer::new(&architecture, settings, 1, threads).unwrap();
            for seed in 0..3 {
                step(&mut trainer, &batch(&architecture, 50, seed)).unwrap();
            }
            files(&trainer)
        };
        let one = run(1);
        assert!(run(2) == one && run(5) == one, "{optimiser:?}");
    }
}

#[test]
fn a_restored_trainer_continues_as_if_it_had_not_stopped() {
    let architecture = complete();
    let batches = [1, 2, 3, 4].map(|seed| batch(&architecture, 5, seed));
    let optimisers = [Optimiser::adamw(), Optimiser::lion(), MUON, Optimiser::Sgd { momentum: 0.9 }];
    for (optimiser, moments) in optimisers.iter().flat_map(|&optimiser| FORMATS.map(|moments| (optimiser, moments))) {
        let settings = || TrainerSettings { optimiser, moments, decay_steps: Some(6), ..TrainerSettings::default() };
        let mut uninterrupted = trainer(&architecture, settings());
        for batch in &batches[..2] {
            step(&mut uninterrupted, batch).unwrap();
        }
        uninterrupted.set_progress(0.4);
        let mut restored = trainer(&architecture, settings());
        restored.load(&files(&uninterrupted)).unwrap();
        for trainer in [&mut uninterrupted, &mut restored] {
            for batch in &batches[2..] {
                step(trainer, batch).unwrap();
            }
        }
        assert_eq!(files(&restored), files(&uninterrupted));
        assert_eq!(restored.learning_rate(), uninterrupted.learning_rate());
        let published = [&restored, &uninterrupted].map(|trainer| trainer.published());
        assert_eq!(published[0].as_ref().unwrap(), published[1].as_ref().unwrap());
    }
}

#[test]
fn gradients_of_micro_batches_add_up_with_norms_of_their_own() {
    let architecture = plain(3, 3);
    let whole = batch(&architecture, 10, 7);
    let mut halves = trainer(&architecture, TrainerSettings { micro_batch: 5, ..settings() });
    let split = step(&mut halves, &whole).unwrap();
    assert_eq!(halves.micro_batches(), 2);
    let mut once = trainer(&architecture, settings());
    let joined = step(&mut once, &whole).unwrap();
    assert_eq!(once.micro_batches(), 1);
    let apart = (split.total - joined.total).abs();
    assert!(apart > 0.0 && apart < 0.5 * joined.total, "{} and {}", split.total, joined.total);

    // Equal halves have equal statistics, so the sum matches the whole batch.
    let half = batch(&architecture, 4, 8);
    let twice = TrainingBatch {
        board: 0,
        observations: half.observations.to_floats().repeat(2).into_iter().collect(),
        policies: half.policies.repeat(2),
        legal: half.legal.repeat(2),
        wdl: half.wdl.repeat(2),
        policy_weights: half.policy_weights.repeat(2),
        importance: Vec::new(),
    };
    let mut halves = trainer(&architecture, TrainerSettings { micro_batch: 4, ..settings() });
    let mut once = trainer(&architecture, settings());
    let (split, joined) = (step(&mut halves, &twice).unwrap(), step(&mut once, &twice).unwrap());
    for (split, joined) in [(split.total, joined.total), (split.gradient_norm, joined.gradient_norm)] {
        assert!((split - joined).abs() < 1e-4 * joined, "{split} instead of {joined}");
    }
}

#[test]
fn micro_batches_of_a_network_without_batch_norms_have_the_losses_and_gradients_of_the_batch() {
    let architecture = Architecture { model: Model::Muzero { support: 5 }, ..vectors() };
    let examples = Examples::Unrolled(unrolled(&architecture, 10, 3, 7));
    let [split, joined] = [3, 0].map(|micro_batch| {
        let settings = TrainerSettings { micro_batch, loss_weights: with_consistency(2.0), ..settings() };
        let mut trainer = trainer(&architecture, settings);
        trainer.queue(&examples, &mut Laps::none()).unwrap();
        trainer.collect(&mut Laps::none()).unwrap().unwrap()
    });
    let of = |losses: Losses| [losses.total, losses.consistency, losses.gradient_norm, losses.policy_entropy];
    for (split, joined) in of(split.losses).into_iter().zip(of(joined.losses)) {
        assert!((split - joined).abs() < 1e-5 * joined, "{split} instead of {joined}");
    }
    assert_eq!((split.value_errors.len(), split.value_errors), (10, joined.value_errors));
}

#[test]
fn importance_returns_value_errors_in_the_order_of_the_rows() {
    let architecture = plain(3, 3);
    let batch = TrainingBatch { importance: vec![0.5; 7], ..batch(&architecture, 7, 2) };
    let errors = |micro_batch: usize| {
        let mut trainer = trainer(&architecture, TrainerSettings { micro_batch, ..settings() });
        trainer.queue(&Examples::Positions(batch.clone()), &mut Laps::none()).unwrap();
        trainer.collect(&mut Laps::none()).unwrap().unwrap().value_errors
    };
    let whole = errors(0);
    assert_eq!((whole.len(), errors(3).len()), (7, 7));
    // A new network expects a draw: the distance is about |win − loss|.
    for (error, target) in whole.iter().zip([1.0, 0.0, 0.3, 1.0, 0.0, 0.3, 1.0]) {
        assert!((error - target).abs() < 0.3, "{error} instead of about {target}");
    }
}

#[test]
fn networks_settings_and_batches_that_are_not_taken_are_refused() {
    let architecture = plain(3, 3);
    let new = |architecture: &Architecture, settings| Trainer::new(architecture, settings, 1, 1).map(drop);
    let bf16 = TrainerSettings { precision: Precision::Bf16, ..settings() };
    let is_refused = matches!(new(&architecture, bf16), Err(Error::Unsupported { .. }));
    assert_eq!(is_refused, Path::fastest(Precision::Bf16).is_none());
    let wrong = TrainerSettings { learning_rate: -1.0, ..settings() };
    assert!(matches!(new(&architecture, wrong), Err(Error::Training(training::Error::Setting { .. }))));
    let mut trainer = trainer(&architecture, settings());
    let bad = TrainingBatch { legal: Vec::new(), ..batch(&architecture, 2, 1) };
    for examples in [Examples::Positions(bad), Examples::Unrolled(UnrolledBatch::default())] {
        assert!(trainer.queue(&examples, &mut Laps::none()).is_err());
        assert!(trainer.collect(&mut Laps::none()).is_none());
    }
}

#[test]
fn unrolled_batches_that_do_not_fit_are_refused() {
    let muzero = Architecture { model: Model::Muzero { support: 5 }, ..vectors() };
    let good = unrolled(&muzero, 3, 2, 1);
    let short = UnrolledBatch { rewards: Vec::new(), ..good.clone() };
    let blind = UnrolledBatch {
        next_observations: Observations::default(),
        next_weights: Vec::new(),
        chance_weights: Vec::new(),
        ..good.clone()
    };
    let positions = Examples::Positions(batch(&muzero, 2, 1));
    for (consistency, examples, is_good) in [
        (0.0, Examples::Unrolled(blind.clone()), true),
        (0.0, Examples::Unrolled(short), false),
        (0.0, positions, false),
        (2.0, Examples::Unrolled(good), true),
        (2.0, Examples::Unrolled(blind), false),
    ] {
        let mut trainer =
            trainer(&muzero, TrainerSettings { loss_weights: with_consistency(consistency), ..settings() });
        assert_eq!(trainer.queue(&examples, &mut Laps::none()).is_ok(), is_good);
        assert_eq!(trainer.collect(&mut Laps::none()).is_some(), is_good);
    }
}

#[test]
fn training_reduces_the_losses_of_an_unrolled_batch_of_any_length() {
    for architecture in [vectors(), plain(2, 3)] {
        for model in [Model::Muzero { support: 5 }, Model::StochasticMuzero { support: 5, codes: 4 }] {
            let architecture = Architecture { model, ..architecture.clone() };
            let learning_rate = 3e-3;
            let mut trainer = trainer(&architecture, TrainerSettings { learning_rate, ..settings() });
            let [two, three] = [2, 3].map(|steps| Examples::Unrolled(unrolled(&architecture, 16, steps, 3)));
            let mut step = |examples: &Examples| trainer.step(examples).unwrap().total;
            let before = [step(&two), step(&three)];
            let after = (0..60).map(|_| [step(&two), step(&three)]).last().unwrap();
            assert!(after[0] < before[0] - 0.3 && after[1] < before[1] - 0.3, "{before:?} became {after:?}");
        }
    }
}

#[test]
fn every_path_trains_the_same_network() {
    let architecture = complete();
    let batch = batch(&architecture, 9, 3);
    let paths = Path::ALL.into_iter().filter(|path| path.is_available() && path.precision() == Precision::F32);
    let losses = paths.map(|path| {
        let mut trainer = Trainer::with_path(&architecture, settings(), 1, 2, path).unwrap();
        assert_eq!(trainer.path(), path);
        (0..5).map(|_| step(&mut trainer, &batch).unwrap().total).last().unwrap()
    });
    let losses: Vec<f64> = losses.collect();
    assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-3), "{losses:?}");
}

#[test]
fn a_checkpoint_resumes_with_moments_of_another_format_and_with_no_other_optimiser() {
    let architecture = plain(3, 3);
    let batch = batch(&architecture, 8, 3);
    for from in FORMATS {
        let mut first = trainer(&architecture, TrainerSettings { moments: from, ..settings() });
        for _ in 0..5 {
            step(&mut first, &batch).unwrap();
        }
        let checkpoint = files(&first);
        let expected = step(&mut first, &batch).unwrap().total;
        for to in FORMATS {
            let mut second = trainer(&architecture, TrainerSettings { moments: to, ..settings() });
            second.load(&checkpoint).unwrap();
            assert_eq!(files(&second) == checkpoint, from == to || to == MomentFormat::F32, "{from} to {to}");
            assert_eq!((step(&mut second, &batch).unwrap().total, second.step_count()), (expected, 6));
            let after = step(&mut second, &batch).unwrap().total;
            assert!(after < expected, "{from} to {to}: {after} after {expected}");
        }
        for optimiser in [Optimiser::lion(), MUON, Optimiser::Sgd { momentum: 0.9 }] {
            assert!(trainer(&architecture, TrainerSettings { optimiser, ..settings() }).load(&checkpoint).is_err());
        }
    }
}

#[test]
fn recomputed_activations_change_no_bit_of_a_checkpoint_of_any_model() {
    let models = [Model::Alphazero, Model::Muzero { support: 5 }, Model::StochasticMuzero { support: 5, codes: 4 }];
    for model in models {
        let architecture = Architecture { model, blocks: 5, ..complete() };
        let examples = match model {
            Model::Alphazero => Examples::Positions(batch(&architecture, 9, 3)),
            _ => Examples::Unrolled(unrolled(&architecture, 9, 3, 3)),
        };
        let loss_weights = with_consistency(if model == Model::Alphazero { 0.0 } else { 2.0 });
        let trained = |recompute| {
            let settings = TrainerSettings { recompute, loss_weights, micro_batch: 5, ..settings() };
            let mut trainer = trainer(&architecture, settings);
            let losses = [(); 3].map(|()| trainer.step(&examples).unwrap());
            (losses, files(&trainer))
        };
        let [kept, recomputed] = [Recompute::None, Recompute::Blocks].map(trained);
        assert!(kept == recomputed, "{architecture:?}");
    }
}

#[test]
fn the_stated_memory_is_what_the_buffers_of_a_step_take() {
    for (model, steps) in [(Model::Alphazero, 0), (Model::Muzero { support: 5 }, 3)] {
        for (channels, moments, recompute, micro_batch) in [
            (11, MomentFormat::F32, Recompute::None, 0),
            (11, MomentFormat::Bf16, Recompute::Blocks, 0),
            // Enough channels for minimal filtering.
            (43, MomentFormat::Int8, Recompute::Blocks, 7),
        ] {
            let architecture = Architecture { model, channels, blocks: 6, ..complete() };
            let examples = match model {
                Model::Alphazero => Examples::Positions(batch(&architecture, 16, 3)),
                _ => Examples::Unrolled(unrolled(&architecture, 16, steps, 3)),
            };
            let mut trainer = trainer(&architecture, TrainerSettings { moments, recompute, micro_batch, ..settings() });
            let stated = trainer.memory(16, steps);
            for _ in 0..2 {
                trainer.queue(&examples, &mut Laps::none()).unwrap();
            }
            let allocated = trainer.allocated(steps);
            for ((part, stated), (_, allocated)) in stated.parts().into_iter().zip(allocated.parts()) {
                let apart = stated.abs_diff(allocated);
                assert!(20 * apart <= allocated, "{part}: {stated} stated, {allocated} allocated, {architecture:?}");
            }
        }
    }
}

/// Sizes of `network.preset`, on a 9×9 board with 82 actions.
fn presets() -> [Architecture; 5] {
    [[6, 96], [10, 128], [18, 192], [34, 256], [50, 320]].map(|[blocks, channels]| Architecture {
        blocks,
        channels,
        design: Design {
            block: if blocks == 50 { BlockKind::Bottleneck } else { BlockKind::Residual },
            ..Design::default()
        },
        actions: 82,
        ..plain(9, 9)
    })
}

#[test]
#[ignore = "networks of up to 34 blocks of 256 channels take 5 GiB and minutes"]
#[expect(clippy::disallowed_macros, reason = "the figures are the purpose of this test")]
fn every_preset_takes_a_step_and_recomputation_saves_three_fifths_of_the_memory_of_34_blocks() {
    const LARGE: usize = 768;
    for architecture in presets() {
        let batch = batch(&architecture, 32, 3);
        let [kept, recomputed] = [Recompute::None, Recompute::Blocks].map(|recompute| {
            let mut trainer = trainer(&architecture, TrainerSettings { recompute, ..settings() });
            let losses = step(&mut trainer, &batch).unwrap();
            let Architecture { blocks, channels, .. } = architecture;
            println!(
                "{blocks}x{channels}, {recompute:?}, loss {}: batch of 32: {}",
                losses.total,
                trainer.memory(32, 0)
            );
            println!("{blocks}x{channels}, {recompute:?}: batch of {LARGE}: {}", trainer.memory(LARGE, 0));
            (losses, trainer.memory(LARGE, 0).total())
        });
        assert_eq!(kept.0, recomputed.0, "{architecture:?}");
        assert!(kept.1 < 24 << 30, "{architecture:?}");
        if architecture.blocks == 34 {
            assert!(10 * recomputed.1 <= 4 * kept.1, "{} of {} bytes", recomputed.1, kept.1);
        }
    }
}
