use inference::{LatentPredictions, Slot, Unroll};

use super::*;
use crate::tests::networks::{dense, of_returns, stochastic};

/// libtorch with an engine on the stand-in, for batches in these sizes.
#[expect(clippy::disallowed_methods, reason = "batches are timed with a real clock")]
fn accelerated_for(batch_sizes: &[usize], preference: PrecisionPreference) -> Libtorch {
    crate::set_threads(1);
    let settings = EngineSettings {
        device: "stand-in".into(),
        batch_sizes: batch_sizes.to_vec(),
        in_flight: IN_FLIGHT,
        in_flight_max: 3,
        clock: Box::new(Instant::now),
        report: Box::new(|_| ()),
    };
    let graphs = Graphs::new(Err("no graphs".to_owned()), Arc::default(), Reports::default());
    let engine = BatchingEngine::start(Accelerator::new(Device::Cpu, graphs), settings).unwrap();
    let device = Chosen { device: Device::Cpu, reason: "stands in".to_owned() };
    let engine = Engine { engine, reports: Reports::default(), refusal: Arc::default() };
    Libtorch::on(device, Some(engine), preference, Instant::now)
}

/// Rows of a batch that needs no padding, in an engine and in a thread.
const ROWS: u32 = 16;

/// The learned models of all kinds.
fn learned() -> Vec<Architecture> {
    [dense(), residual()].into_iter().chain(stochastic()).chain(of_returns()).collect()
}

/// The learned model of a version that computes in this thread.
fn alone(manifest: &Manifest, bytes: &[u8], precision: Precision) -> LibtorchLatent {
    LibtorchLatent::new(&manifest.architecture, manifest.version, bytes, Device::Cpu, precision).unwrap()
}

fn random_observations(architecture: &Architecture, rows: u32, rng: &mut ChaCha8Rng) -> Batch {
    let legal: Vec<Action> = (0..architecture.actions).map(|action| Action(action as u16)).collect();
    let mut batch = Batch::new(shape(architecture));
    for _ in 0..rows {
        batch.push(&legal, |numbers| numbers.fill_with(|| rng.random_range(-1.0..1.0)));
    }
    batch
}

/// Returns the slots of one of several parts.
fn slots(part: u32, rows: u32) -> Vec<Slot> {
    (part * rows..(part + 1) * rows).map(Slot).collect()
}

/// Returns random steps between two parts.
fn random_steps([from, to]: [u32; 2], rows: u32, choices: usize, rng: &mut ChaCha8Rng) -> Vec<Unroll> {
    let pairs = slots(from, rows).into_iter().zip(slots(to, rows));
    pairs.map(|(from, to)| Unroll { from, action: Action(rng.random_range(0..choices as u16)), to }).collect()
}

/// Returns the answers to a chain of calls, which the seed determines: observations, then steps that read the states
/// before and overwrite earlier ones. Every model uses the same slots.
fn chain(model: &mut dyn LatentModel, architecture: &Architecture, rows: u32, seed: u64) -> Vec<LatentPredictions> {
    let (mut rng, mut all, mut answers) = (ChaCha8Rng::seed_from_u64(seed), Vec::new(), LatentPredictions::default());
    model.reserve(3 * rows as usize).unwrap();
    model.initial(&random_observations(architecture, rows, &mut rng), &slots(0, rows), &mut answers).unwrap();
    all.push(answers.clone());
    let rounds = if architecture.model.has_dynamics() { 4 } else { 0 };
    for round in 0..rounds {
        let (from, to) = (round % 2, (round + 1) % 2);
        let codes = model.codes();
        if codes > 0 {
            let acts = random_steps([from, 2], rows, architecture.actions, &mut rng);
            model.act(&acts, &mut answers).unwrap();
            all.push(answers.clone());
        }
        let (from, choices) = if codes > 0 { (2, codes) } else { (from, architecture.actions) };
        model.recurrent(&random_steps([from, to], rows, choices, &mut rng), &mut answers).unwrap();
        all.push(answers.clone());
    }
    all
}

#[test]
fn learned_models_on_an_engine_answer_bit_for_bit_as_models_of_single_threads() {
    for (preference, precision) in
        [(PrecisionPreference::F32, Precision::F32), (PrecisionPreference::Bf16, Precision::Bf16)]
    {
        for architecture in learned() {
            let (manifest, bytes) = published_of(architecture.clone(), 72);
            // Every batch is one request, so that matrices have the same size in both.
            let libtorch = accelerated_for(&[ROWS as usize], preference);
            for threads in [1, 8] {
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        let (libtorch, manifest, bytes) = (&libtorch, &manifest, &bytes);
                        scope.spawn(move || {
                            let mut merged = libtorch.latent_model(manifest, bytes).unwrap();
                            let mut alone = alone(manifest, bytes, precision);
                            for seed in [thread, thread + 100] {
                                let [got, expected] = [&mut *merged, &mut alone as &mut dyn LatentModel]
                                    .map(|model| chain(model, &manifest.architecture, ROWS, seed));
                                assert_eq!(got, expected);
                            }
                        });
                    }
                });
            }
            let counts = libtorch.counts().unwrap();
            assert_eq!(counts.positions, u64::from(ROWS) * counts.batches, "{architecture:?}");
        }
    }
}

#[test]
fn calls_of_any_size_of_many_threads_and_versions_share_batches_and_are_answered_as_alone() {
    for architecture in learned() {
        let libtorch = &accelerated(2);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (manifest, bytes) = published_of(architecture.clone(), 72 + thread % 2);
                scope.spawn(move || {
                    let mut merged = libtorch.latent_model(&manifest, &bytes).unwrap();
                    let mut alone = alone(&manifest, &bytes, Precision::F32);
                    for rows in [1, 5, 37, 19] {
                        let [got, expected] = [&mut *merged, &mut alone as &mut dyn LatentModel]
                            .map(|model| chain(model, &manifest.architecture, rows, thread));
                        for (got, expected) in got.iter().zip(&expected) {
                            assert_near_latent(got, expected);
                        }
                    }
                });
            }
        });
    }
}

fn assert_near_latent(a: &LatentPredictions, b: &LatentPredictions) {
    assert_eq!(a.len(), b.len());
    for i in 0..a.len() {
        let [a, b] = [a, b].map(|of| of.priors(i).iter().copied().chain([of.value(i), of.reward(i)]));
        assert!(a.zip(b).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + b.abs())));
    }
}

#[test]
fn calls_that_are_started_together_are_answered_as_one_after_the_other() {
    let architecture = stochastic()[0].clone();
    let (manifest, bytes) = published_of(architecture.clone(), 72);
    let libtorch = accelerated_for(&[ROWS as usize], PrecisionPreference::F32);
    let answers = |model: &mut dyn LatentModel, starts: bool| {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut all = vec![LatentPredictions::default(); 5];
        model.reserve(6 * ROWS as usize).unwrap();
        model.initial(&random_observations(&architecture, ROWS, &mut rng), &slots(0, ROWS), &mut all[0]).unwrap();
        let acts = random_steps([0, 1], ROWS, architecture.actions, &mut rng);
        model.act(&acts, &mut all[1]).unwrap();
        // New observations, and steps from the states and afterstates before.
        let batch = random_observations(&architecture, ROWS, &mut rng);
        let acts = random_steps([0, 3], ROWS, architecture.actions, &mut rng);
        let steps = random_steps([1, 4], ROWS, model.codes(), &mut rng);
        if starts {
            model.start(&batch, &slots(2, ROWS), &acts, &steps);
        }
        model.initial(&batch, &slots(2, ROWS), &mut all[2]).unwrap();
        model.act(&acts, &mut all[3]).unwrap();
        model.recurrent(&steps, &mut all[4]).unwrap();
        all
    };
    let expected = answers(&mut alone(&manifest, &bytes, Precision::F32), true);
    for starts in [true, false] {
        assert_eq!(answers(&mut *libtorch.latent_model(&manifest, &bytes).unwrap(), starts), expected);
    }
}

#[test]
fn a_failed_call_withdraws_the_calls_that_were_started_with_it() {
    let (manifest, bytes) = published_of(dense(), 72);
    let libtorch = accelerated_for(&[ROWS as usize], PrecisionPreference::F32);
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (good, answers) = (random_observations(&dense(), ROWS, &mut rng), &mut LatentPredictions::default());
    let [first, second] = [(); 2].map(|()| random_steps([0, 1], ROWS, 3, &mut rng));
    let (mut merged, mut alone) =
        (libtorch.latent_model(&manifest, &bytes).unwrap(), alone(&manifest, &bytes, Precision::F32));
    for model in [&mut *merged, &mut alone as &mut dyn LatentModel] {
        model.reserve(3 * ROWS as usize).unwrap();
        model.initial(&good, &slots(0, ROWS), answers).unwrap();
    }
    let mut broken = Batch::new(good.shape());
    (0..ROWS as usize).for_each(|i| broken.push(good.legal(i), |numbers| numbers.fill(f32::NAN)));
    merged.start(&broken, &slots(2, ROWS), &[], &first);
    let refused = merged.initial(&broken, &slots(2, ROWS), answers);
    assert!(matches!(refused, Err(inference::Error::NotFinite { weights_version: 72 })), "{refused:?}");
    // The first steps have other answers.
    let expected = &mut LatentPredictions::default();
    merged.recurrent(&second, answers).unwrap();
    alone.recurrent(&second, expected).unwrap();
    assert_eq!(answers, expected);
    // A model may be dropped between both.
    merged.start(&Batch::new(good.shape()), &[], &[], &first);
}

#[test]
fn a_new_version_is_searched_while_searches_with_the_old_version_are_under_way() {
    for architecture in [dense(), residual()] {
        let libtorch = accelerated_for(&[ROWS as usize], PrecisionPreference::F32);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let batch = random_observations(&architecture, ROWS, &mut rng);
        let steps = random_steps([0, 1], ROWS, architecture.actions, &mut rng);
        let mut under_way: Vec<(Box<dyn LatentModel>, LibtorchLatent)> = Vec::new();
        for version in 72..76 {
            let (manifest, bytes) = published_of(architecture.clone(), version);
            let mut next: (Box<dyn LatentModel>, _) =
                (libtorch.latent_model(&manifest, &bytes).unwrap(), alone(&manifest, &bytes, Precision::F32));
            for model in [&mut *next.0, &mut next.1 as &mut dyn LatentModel] {
                model.reserve(2 * ROWS as usize).unwrap();
                model.initial(&batch, &slots(0, ROWS), &mut LatentPredictions::default()).unwrap();
            }
            under_way.push(next);
            for (merged, alone) in &mut under_way {
                let [got, expected] = [&mut **merged, alone as &mut dyn LatentModel].map(|model| {
                    let mut answers = LatentPredictions::default();
                    model.recurrent(&steps, &mut answers).unwrap();
                    answers
                });
                assert_eq!(got, expected);
            }
            // The oldest search ends.
            if under_way.len() > 2 {
                drop(under_way.remove(0));
            }
        }
    }
}

#[test]
fn weights_of_the_other_kind_and_too_many_slots_are_errors_and_the_engine_stays_usable() {
    let libtorch = accelerated(2);
    let [(rules, of_rules), (model, of_model)] = [small(), dense()].map(|architecture| published_of(architecture, 72));
    for _ in 0..2 {
        assert!(libtorch.latent_model(&rules, &of_rules).map(drop).is_err());
        assert!(libtorch.evaluator(&model, &of_model).map(drop).is_err());
        assert_eq!(evaluated_by(&libtorch, &rules, &of_rules), 3);
        let mut learned = libtorch.latent_model(&model, &of_model).unwrap();
        let refused = learned.reserve(1 << 30);
        assert!(matches!(refused, Err(inference::Error::Backend(_))), "{refused:?}");
        chain(&mut *learned, &dense(), 5, 1);
    }
}

/// Returns the number of answers to three positions.
fn evaluated_by(libtorch: &Libtorch, manifest: &Manifest, bytes: &[u8]) -> usize {
    let mut predictions = Predictions::new();
    libtorch.evaluator(manifest, bytes).unwrap().evaluate(&positions(3), &mut predictions).unwrap();
    predictions.len()
}

#[test]
fn learned_models_outlive_the_engine_and_then_fail() {
    let (manifest, bytes) = published_of(dense(), 72);
    let libtorch = accelerated(2);
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let batch = random_observations(&dense(), ROWS, &mut rng);
    let mut models: Vec<_> = (0..3).map(|_| libtorch.latent_model(&manifest, &bytes).unwrap()).collect();
    for model in &mut models {
        model.reserve(ROWS as usize).unwrap();
        model.start(&batch, &slots(0, ROWS), &[], &[]);
    }
    drop(libtorch);
    for model in &mut models {
        let answers = &mut LatentPredictions::default();
        assert!(matches!(model.initial(&batch, &slots(0, ROWS), answers), Ok(()) | Err(inference::Error::Lost { .. })));
        let lost = model.initial(&batch, &slots(0, ROWS), answers);
        assert!(matches!(lost, Err(inference::Error::Lost { .. })), "{lost:?}");
        let lost = model.reserve(100);
        assert!(matches!(lost, Err(inference::Error::Lost { .. })), "{lost:?}");
    }
}
