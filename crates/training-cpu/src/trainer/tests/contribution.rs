use training::checkpoint::State;
use training::{Contributed, Decay, Examples, Laps, Optimiser, Trainer as _, TrainerSettings, TrainingBatch};
use weights::{Architecture, Model};

use super::Trainer;
use crate::reference::reference;
use crate::tests::networks::{batch, complete, plain, unrolled};

fn settings() -> TrainerSettings {
    TrainerSettings { warm_up_steps: 0, decay: Decay::Constant, ..TrainerSettings::default() }
}

fn state(trainer: &Trainer, settings: &TrainerSettings) -> State {
    let files = trainer.files().unwrap();
    State::read(trainer.model.layout(), settings.optimiser, settings.moments, &files).unwrap()
}

/// Positions with a policy target each, so that the loss of a half is half of the loss.
fn positions(architecture: &Architecture, count: usize, seed: u64) -> TrainingBatch {
    let mut batch = batch(architecture, count, seed);
    batch.policy_weights.fill(1.0);
    batch
}

fn joined(batches: &[TrainingBatch]) -> TrainingBatch {
    let mut all = TrainingBatch::default();
    let mut observations = Vec::new();
    for batch in batches {
        observations.extend(batch.observations.to_floats());
        all.policies.extend(&batch.policies);
        all.legal.extend(&batch.legal);
        all.wdl.extend(&batch.wdl);
        all.policy_weights.extend(&batch.policy_weights);
    }
    TrainingBatch { observations: observations.into_iter().collect(), ..all }
}

/// Returns the mean contribution of trainers with the same state, once per trainer.
fn reduced(trainers: &mut [Trainer], batches: &[Examples]) -> Vec<Contributed> {
    let mut all: Vec<Contributed> = trainers
        .iter_mut()
        .zip(batches)
        .map(|(trainer, examples)| trainer.contribute(examples, &mut Laps::none()).unwrap())
        .collect();
    let mut sum = vec![0.0; all[0].contribution.numbers().len()];
    for contributed in &all {
        sum.iter_mut().zip(contributed.contribution.numbers()).for_each(|(sum, x)| *sum += x);
    }
    all.iter_mut().for_each(|contributed| contributed.contribution.set_mean(&sum, batches.len()));
    all
}

fn assert_near(what: &str, got: &[f32], expected: impl IntoIterator<Item = f64>, tolerance: f64) {
    let expected: Vec<f64> = expected.into_iter().collect();
    assert_eq!(got.len(), expected.len(), "{what}");
    let most = expected.iter().map(|x| x.abs()).fold(0.0, f64::max);
    let apart = got.iter().zip(&expected).map(|(got, x)| (f64::from(*got) - x).abs()).fold(0.0, f64::max);
    assert!(apart <= tolerance * most, "{what}: {apart} apart, the largest is {most}");
}

#[test]
fn learners_with_batches_of_b_step_as_one_that_accumulates_micro_batches_of_b() {
    const LEARNERS: usize = 3;
    const EACH: usize = 6;
    for architecture in [complete(), plain(3, 3)] {
        // Gradient descent, with steps linear in the gradient; one clips, the other does not.
        for gradient_clip_norm in [1e9, 1e-2] {
            let (optimiser, ema_decay) = (Optimiser::Sgd { momentum: 0.9 }, 0.0);
            let settings = TrainerSettings { optimiser, ema_decay, gradient_clip_norm, ..settings() };
            let new = |micro_batch| {
                let settings = TrainerSettings { micro_batch, ..settings.clone() };
                Trainer::new(&architecture, settings, 1, 2).unwrap()
            };
            let mut learners: Vec<Trainer> = (0..LEARNERS).map(|_| new(0)).collect();
            let mut one = new(EACH);
            for step in 0..3 {
                let batches: Vec<_> =
                    (0..LEARNERS).map(|rank| positions(&architecture, EACH, 10 * step + rank as u64)).collect();
                let alone = one.step(&Examples::Positions(joined(&batches))).unwrap();
                assert_eq!(one.micro_batches(), LEARNERS);
                let examples: Vec<_> = batches.into_iter().map(Examples::Positions).collect();
                let means = reduced(&mut learners, &examples);
                for (learner, mean) in learners.iter_mut().zip(means) {
                    let losses = learner.apply(mean, &mut Laps::none()).unwrap().losses;
                    for (got, expected) in [
                        (losses.total, alone.total),
                        (losses.policy_entropy, alone.policy_entropy),
                        (losses.gradient_norm, alone.gradient_norm),
                        (losses.l2, alone.l2),
                    ] {
                        assert!((got - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{got} instead of {expected}");
                    }
                }
            }
            let states: Vec<State> = learners.iter().map(|learner| state(learner, &settings)).collect();
            assert!(states.iter().all(|state| *state == states[0]), "every learner has the same bits");
            let expected = state(&one, &settings);
            let wide = |numbers: &[f32]| numbers.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let parameters = &states[0].network.parameters;
            assert_near("parameters", parameters, wide(&expected.network.parameters), 1e-4);
            assert_near("moments", &states[0].moments[0].to_floats(), wide(&expected.moments[0].to_floats()), 2e-3);
            assert_near("average", &states[0].average.parameters, wide(&expected.average.parameters), 1e-4);
            assert_eq!((states[0].step, one.step_count()), (3, 3));
        }
    }
}

#[test]
fn the_reduced_gradient_losses_and_statistics_are_the_means_of_those_in_float64() {
    let architecture = complete();
    let mut learners: Vec<Trainer> = (0..2).map(|_| Trainer::new(&architecture, settings(), 1, 2).unwrap()).collect();
    let batches = [1, 2].map(|seed| batch(&architecture, 7, seed));
    let (layout, numbers) = (learners[0].model.layout().clone(), learners[0].state.network.clone());
    let references = batches
        .each_ref()
        .map(|batch| reference(&architecture, &layout, &numbers, batch, settings().loss_weights.value));
    let mean = |of: fn(&crate::reference::Reference) -> &[f64]| {
        let [a, b] = references.each_ref().map(of);
        a.iter().zip(b).map(|(a, b)| (a + b) / 2.0).collect::<Vec<f64>>()
    };
    let reduced = reduced(&mut learners, &batches.map(Examples::Positions));
    let contribution = &reduced[1].contribution;
    assert_near("gradient", contribution.gradient(), mean(|reference| &reference.gradient), 1e-4);
    assert_near("statistics", contribution.statistics(), mean(|reference| &reference.statistics), 1e-5);
    let losses = contribution.losses();
    for (got, of) in [
        (losses.policy, references.each_ref().map(|reference| reference.policy)),
        (losses.value, references.each_ref().map(|reference| reference.value)),
    ] {
        let expected = (of[0] + of[1]) / 2.0;
        assert!((got - expected).abs() < 1e-5 * (1.0 + expected), "{got} instead of {expected}");
    }
}

#[test]
fn a_batch_that_is_contributed_changes_nothing_and_one_alone_is_an_ordinary_step() {
    for (architecture, examples) in [
        (complete(), Examples::Positions(batch(&complete(), 6, 3))),
        (
            Architecture { model: Model::Muzero { support: 5 }, ..plain(2, 3) },
            Examples::Unrolled(unrolled(&Architecture { model: Model::Muzero { support: 5 }, ..plain(2, 3) }, 6, 2, 3)),
        ),
    ] {
        let [mut alone, mut queued] = [(); 2].map(|()| Trainer::new(&architecture, settings(), 1, 2).unwrap());
        let before = state(&alone, &settings());
        let mut contributed = alone.contribute(&examples, &mut Laps::none()).unwrap();
        assert_eq!((state(&alone, &settings()), alone.step_count()), (before, 0));
        let sum = contributed.contribution.numbers().to_vec();
        contributed.contribution.set_mean(&sum, 1);
        alone.apply(contributed, &mut Laps::none()).unwrap();
        queued.step(&examples).unwrap();
        assert_eq!(state(&alone, &settings()), state(&queued, &settings()));
    }
}

#[test]
fn a_batch_of_one_learner_that_is_not_finite_is_refused_by_all_and_changes_nothing() {
    let architecture = complete();
    let good = batch(&architecture, 6, 3);
    let mut wdl = good.wdl.clone();
    wdl[0] = f32::NAN;
    let bad = TrainingBatch { wdl, ..good.clone() };
    let mut learners: Vec<Trainer> = (0..2).map(|_| Trainer::new(&architecture, settings(), 1, 1).unwrap()).collect();
    let before = state(&learners[0], &settings());
    for mean in reduced(&mut learners, &[good, bad].map(Examples::Positions)) {
        for learner in &mut learners {
            let error = learner.apply(mean.clone(), &mut Laps::none()).unwrap_err();
            let training::Error::NotFinite { quantity, step: 1 } = error else { panic!("{error}") };
            assert_eq!((quantity, state(learner, &settings())), ("value loss", before.clone()));
        }
    }
}
