mod learned_models;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, Predictions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind};
use weights::{Architecture, WeightsVersion};

use super::*;
use crate::{
    stand_in::{Fault, StandIn},
    tests::networks::{numbers, on, pooled, residual, seasoned, small},
    tower::{Mode, forward},
};
use inference::Precision;

fn shape(architecture: &Architecture) -> ObservationShape {
    ObservationShape { planes: architecture.planes, height: architecture.height, width: architecture.width }
}

fn positions(count: usize) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(71);
    let mut batch = Batch::new(shape(&small()));
    for position in 0..count {
        let legal: Vec<Action> =
            (0..7).filter(|action| (position + action) % 3 != 0).map(|a| Action(a as u16)).collect();
        batch.push(&legal, |planes| planes.iter_mut().for_each(|x| *x = f32::from(u8::from(rng.random_bool(0.3)))));
    }
    batch
}

fn evaluator(precision: Precision) -> LibtorchEvaluator {
    let bytes = seasoned(&small(), 72).to_safetensors().unwrap();
    LibtorchEvaluator::new(&small(), WeightsVersion(9), &bytes, Device::Cpu, precision).unwrap()
}

fn evaluated(evaluator: &mut dyn Evaluator, batch: &Batch) -> Predictions {
    let mut predictions = Predictions::new();
    evaluator.evaluate(batch, &mut predictions).unwrap();
    predictions
}

#[test]
fn priors_are_the_softmax_over_legal_actions_and_values_over_results() {
    let batch = positions(5);
    let predictions = evaluated(&mut evaluator(Precision::F32), &batch);
    let input = tch::Tensor::from_slice(batch.observations()).view([5, 2, 6, 7]);
    let logits = forward(&seasoned(&small(), 72), &input, Kind::Float, Mode::Evaluation).unwrap();
    let (policy, value) = (numbers(&logits.policy), numbers(&logits.value));
    for i in 0..5 {
        let exp = |action: &Action| policy[i * 7 + action.index()].exp();
        let sum: f64 = batch.legal(i).iter().map(exp).sum();
        assert_eq!(predictions.priors(i).len(), batch.legal(i).len());
        for (action, &prior) in batch.legal(i).iter().zip(predictions.priors(i)) {
            assert!((f64::from(prior) - exp(action) / sum).abs() < 1e-5);
        }
        let results: Vec<f64> = value[i * 3..][..3].iter().map(|logit| logit.exp()).collect();
        let wdl = predictions.wdl()[i];
        for (got, expected) in [wdl.win, wdl.draw, wdl.loss].into_iter().zip(&results) {
            assert!((f64::from(got) - expected / results.iter().sum::<f64>()).abs() < 1e-5);
        }
    }
}

#[test]
fn a_position_is_answered_alike_alone_and_in_any_batch() {
    let mut evaluator = evaluator(Precision::F32);
    // More than a chunk, and a size that needs padding.
    let whole = positions(CHUNK + 37);
    let together = evaluated(&mut evaluator, &whole);
    assert_eq!(together.len(), whole.len());
    for i in [0, 100, CHUNK - 1, CHUNK, CHUNK + 36] {
        let mut alone = Batch::new(whole.shape());
        alone.push(whole.legal(i), |planes| planes.copy_from_slice(whole.observation(i)));
        let alone = evaluated(&mut evaluator, &alone);
        assert!((alone.value(0) - together.value(i)).abs() < 1e-5);
        for (a, b) in alone.priors(0).iter().zip(together.priors(i)) {
            assert!((a - b).abs() < 1e-5);
        }
    }
}

#[test]
fn the_conformance_suite_passes_in_every_precision() {
    evaluator_doubles::conformance::run(&mut evaluator(Precision::F32), shape(&small()), 7, 1e-5);
    evaluator_doubles::conformance::run(&mut evaluator(Precision::F16), shape(&small()), 7, 0.005);
    evaluator_doubles::conformance::run(&mut evaluator(Precision::Bf16), shape(&small()), 7, 0.02);
}

/// libtorch with an engine, with the CPU as a stand-in for the accelerator.
fn accelerated(in_flight: usize) -> Libtorch {
    recording(in_flight, Err("no graphs".to_owned()))
}

/// The same with a recorder of graphs, or the reason for none.
fn recording(in_flight: usize, recorder: Result<Recorder, String>) -> Libtorch {
    started(PrecisionPreference::F32, in_flight, recorder)
}

fn accelerated_in(precision: PrecisionPreference, in_flight: usize) -> Libtorch {
    started(precision, in_flight, Err("no graphs".to_owned()))
}

#[expect(clippy::disallowed_methods, reason = "batches are timed with a real clock")]
fn started(precision: PrecisionPreference, in_flight: usize, recorder: Result<Recorder, String>) -> Libtorch {
    // With several threads per operation, the threads of concurrent tests would wait for each other.
    crate::set_threads(1);
    let device = Chosen { device: Device::Cpu, reason: "stands in".to_owned() };
    let engine = Engine::start(Device::Cpu, in_flight, Instant::now, recorder).unwrap();
    Libtorch::on(device, Some(engine), precision, Instant::now)
}

/// A published version with bytes; the seed determines the weights.
fn published(version: u64) -> (Manifest, Vec<u8>) {
    published_of(small(), version)
}

/// The same for a network of this architecture.
fn published_of(architecture: Architecture, version: u64) -> (Manifest, Vec<u8>) {
    published_network(&seasoned(&architecture, version), version)
}

fn published_network(network: &Network, version: u64) -> (Manifest, Vec<u8>) {
    let (bytes, architecture) = (network.to_safetensors().unwrap(), network.architecture().clone());
    (Manifest::of(&bytes, WeightsVersion(version), 0, architecture), bytes)
}

fn assert_near(a: &Predictions, b: &Predictions) {
    assert_eq!(a.len(), b.len());
    for i in 0..a.len() {
        assert!((a.value(i) - b.value(i)).abs() < 1e-5);
        assert!(a.priors(i).iter().zip(b.priors(i)).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}

#[test]
fn the_conformance_suite_passes_on_an_engine() {
    let (manifest, bytes) = published(72);
    for in_flight in 1..=3 {
        let recorders = [Err("no graphs".to_owned()), Ok(Recorder::StandIn(StandIn::default()))];
        for libtorch in recorders.map(|recorder| recording(in_flight, recorder)) {
            let mut evaluator = libtorch.evaluator(&manifest, &bytes).unwrap();
            evaluator_doubles::conformance::run(evaluator.as_mut(), shape(&small()), 7, 1e-5);
        }
    }
}

#[test]
fn requests_of_several_threads_and_versions_get_the_answers_that_one_thread_gets() {
    let stand_in = StandIn::default();
    let libtorch = &recording(2, Ok(Recorder::StandIn(stand_in.clone())));
    let sizes = [1, 5, 37, CHUNK + 3];
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (manifest, bytes) = published(72 + thread % 2);
            scope.spawn(move || {
                let mut merged = libtorch.evaluator(&manifest, &bytes).unwrap();
                let (device, precision) = (Device::Cpu, Precision::F32);
                let mut alone = LibtorchEvaluator::new(&small(), manifest.version, &bytes, device, precision).unwrap();
                for turn in 0..4 {
                    let batch = positions(sizes[(thread as usize + turn) % sizes.len()]);
                    let mut answers = Predictions::new();
                    merged.evaluate(&batch, &mut answers).unwrap();
                    assert_near(&answers, &evaluated(&mut alone, &batch));
                }
            });
        }
    });
    let counts = libtorch.counts().unwrap();
    assert!(counts.batches > 0 && counts.positions >= 24 && counts.padded_positions >= counts.positions);
    assert!(stand_in.counts.replayed.load(Ordering::Relaxed) > 0);
}

#[test]
fn an_engine_that_refuses_graphs_reports_the_reason_and_continues() {
    let stand_in = StandIn { fault: Some(Fault::Replay), ..StandIn::default() };
    let (reports, reported) = std::sync::mpsc::channel();
    let libtorch = recording(2, Ok(Recorder::StandIn(stand_in))).report_to(move |text| drop(reports.send(text)));
    let (manifest, bytes) = published(72);
    let answers = evaluated(&mut *libtorch.evaluator(&manifest, &bytes).unwrap(), &positions(5));
    assert_near(&answers, &evaluated(&mut evaluator(Precision::F32), &positions(5)));
    let report = reported.recv().unwrap();
    assert!(report.starts_with("evaluation without CUDA graphs: libtorch: a replay differs by"), "{report}");
    let refusal = libtorch.engine.as_ref().and_then(|engine| engine.refusal.get()).expect("graphs are refused");
    assert!(report.ends_with(refusal), "{report}");
}

#[test]
fn dropping_an_engine_with_batches_in_flight_ends_and_callers_get_an_error() {
    let stand_in = StandIn::default();
    let libtorch = recording(3, Ok(Recorder::StandIn(stand_in.clone())));
    let (manifest, bytes) = published(72);
    let (answered, answers) = std::sync::mpsc::channel();
    let callers: Vec<_> = [5, 20, 37, 60]
        .map(|size| {
            let (mut evaluator, answered) = (libtorch.evaluator(&manifest, &bytes).unwrap(), answered.clone());
            std::thread::spawn(move || {
                let (batch, mut predictions) = (positions(size), Predictions::new());
                loop {
                    match evaluator.evaluate(&batch, &mut predictions) {
                        Ok(()) => drop(answered.send(())),
                        Err(error) => return error,
                    }
                }
            })
        })
        .into();
    for _ in 0..20 {
        answers.recv().unwrap();
    }
    drop(libtorch);
    for error in callers.into_iter().map(|caller| caller.join().unwrap()) {
        assert!(matches!(error, inference::Error::Lost { .. }), "{error}");
    }
    assert!(stand_in.counts.replayed.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_version_is_loaded_once_for_all_threads() {
    let libtorch = accelerated(2);
    let (manifest, bytes) = published(72);
    let first = libtorch.evaluator(&manifest, &bytes).unwrap();
    // The bytes are not read again.
    let second = libtorch.evaluator(&manifest, &[]).unwrap();
    assert_eq!(first.attributes(), second.attributes());
    assert_eq!((&*first.attributes().name, first.attributes().weights_version), ("libtorch cpu f32", 72));
}

#[test]
fn the_bytes_of_a_version_are_loaded_once_for_each_board_and_answer_as_a_network_of_that_board() {
    let libtorch = accelerated(2);
    let (own, bytes) = published_of(pooled()[0].clone(), 72);
    let other = own.on(on(&own.architecture, [2, 7]).board()).unwrap();
    for manifest in [&own, &other] {
        let architecture = &manifest.architecture;
        let mut evaluator = libtorch.evaluator(manifest, &bytes).unwrap();
        evaluator_doubles::conformance::run(evaluator.as_mut(), shape(architecture), architecture.actions, 1e-5);
        let mut batch = Batch::new(shape(architecture));
        let legal: Vec<Action> = (0..architecture.actions).map(|action| Action(action as u16)).collect();
        batch.push(&legal, |planes| planes.iter_mut().step_by(3).for_each(|x| *x = 1.0));
        let mut answers = Predictions::new();
        evaluator.evaluate(&batch, &mut answers).unwrap();
        let of_board = seasoned(architecture, 72);
        let mut alone = LibtorchEvaluator::from_network(&of_board, manifest.version, Precision::F32).unwrap();
        assert_near(&answers, &evaluated(&mut alone, &batch));
    }
    // Neither version is read from bytes again, until there is another version.
    assert!([&own, &other].into_iter().all(|manifest| libtorch.evaluator(manifest, &[]).is_ok()));
    let (next, bytes) = published_of(pooled()[0].clone(), 73);
    libtorch.evaluator(&next, &bytes).unwrap();
    assert!([&own, &other].into_iter().all(|manifest| libtorch.evaluator(manifest, &[]).is_err()));
}

#[test]
fn a_thread_can_go_on_while_another_one_prepares_weights() {
    let libtorch = accelerated(2);
    let (manifest, bytes) = published(72);
    let preparing = libtorch.newest.lock().unwrap();
    assert!(libtorch.try_evaluator(&manifest, &bytes).unwrap().is_none());
    drop(preparing);
    assert!(libtorch.try_evaluator(&manifest, &bytes).unwrap().is_some());
}

#[test]
fn weights_that_cannot_be_read_are_an_error_and_the_engine_stays_usable() {
    let libtorch = accelerated(2);
    let (manifest, bytes) = published(72);
    assert!(matches!(
        libtorch.evaluator(&manifest, &bytes[..9]).map(drop),
        Err(Error::Training(training::Error::Network(_)))
    ));
    let mut predictions = Predictions::new();
    libtorch.evaluator(&manifest, &bytes).unwrap().evaluate(&positions(3), &mut predictions).unwrap();
    assert_eq!(predictions.len(), 3);
}

#[test]
fn on_the_cpu_every_thread_computes_by_itself() {
    #[expect(clippy::disallowed_methods, reason = "precisions are timed with a real clock")]
    let libtorch = Libtorch::new(DevicePreference::Cpu, PrecisionPreference::F32, Instant::now).unwrap();
    assert!(!libtorch.is_accelerated() && libtorch.counts().is_none() && libtorch.in_flight().is_none());
    assert_eq!(libtorch.describe(), "libtorch on cpu (configured), f32 (configured)");
}

#[test]
fn an_empty_batch_has_empty_answers() {
    assert!(evaluated(&mut evaluator(Precision::Bf16), &positions(0)).is_empty());
}

#[test]
fn bf16_priors_stay_within_two_hundredths_and_f16_priors_within_four_thousandths() {
    let batch = positions(20);
    let f32 = evaluated(&mut evaluator(Precision::F32), &batch);
    for (precision, tolerance) in [(Precision::Bf16, 0.02), (Precision::F16, 0.004)] {
        let low = evaluated(&mut evaluator(precision), &batch);
        for i in 0..20 {
            assert!((f32.value(i) - low.value(i)).abs() < tolerance);
            for (a, b) in f32.priors(i).iter().zip(low.priors(i)) {
                assert!((a - b).abs() < tolerance, "{a} and {b} in {precision}");
            }
        }
    }
}

/// Texts that a callback received.
#[derive(Debug, Default, Clone)]
struct Texts(Arc<Mutex<Vec<String>>>);

impl Texts {
    fn receiver(&self) -> impl Fn(String) + Send + Sync + 'static {
        let texts = Arc::clone(&self.0);
        move |text| texts.lock().unwrap().push(text)
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A network with this shift in the first norm. With 6e4, the blocks have activations beyond float16.
fn shifted(shift: f64) -> Network {
    let network = seasoned(&small(), 72);
    let _ = tch::no_grad(|| network.tensor("stem.norm.bias").shallow_clone().fill_(shift));
    network
}

/// Returns an evaluator in float16, with the texts that it reports.
fn reporting_in_f16(network: &Network) -> (LibtorchEvaluator, Texts) {
    let (texts, reports) = (Texts::default(), Reports::default());
    reports.send_to(texts.receiver());
    (LibtorchEvaluator::reporting(network, WeightsVersion(9), Precision::F16, reports).unwrap(), texts)
}

#[test]
fn a_version_with_an_activation_beyond_float16_is_evaluated_in_float32_from_then_on_with_the_reason() {
    let (network, batch) = (shifted(6e4), positions(5));
    let mut wide = LibtorchEvaluator::from_network(&network, WeightsVersion(9), Precision::F32).unwrap();
    let expected = evaluated(&mut wide, &batch);
    let (mut evaluator, texts) = reporting_in_f16(&network);
    assert_eq!(texts.all(), [""; 0], "every weight is within float16");
    for _ in 0..2 {
        assert_near(&evaluated(&mut evaluator, &batch), &expected);
    }
    assert_eq!(texts.all(), ["weights v9 are evaluated in f32 instead of f16: an activation is beyond 65504"]);
}

#[test]
fn a_version_with_a_folded_weight_beyond_float16_is_evaluated_in_float32_with_the_layer() {
    let (network, batch) = (shifted(1e5), positions(5));
    let mut wide = LibtorchEvaluator::from_network(&network, WeightsVersion(9), Precision::F32).unwrap();
    let (mut evaluator, texts) = reporting_in_f16(&network);
    let expected = "weights v9 are evaluated in f32 instead of f16: the layer `stem` has a weight beyond 65504";
    assert_eq!(texts.all(), [expected]);
    assert_near(&evaluated(&mut evaluator, &batch), &evaluated(&mut wide, &batch));
    assert_eq!(texts.all().len(), 1);
}

#[test]
fn a_version_within_float16_is_evaluated_in_float16_without_a_text() {
    let (mut low, texts) = reporting_in_f16(&seasoned(&small(), 72));
    // A broken observation is no reason to leave float16.
    let mut broken = positions(1);
    broken.push(&[Action(1)], |planes| planes[5] = f32::NAN);
    let error = low.evaluate(&broken, &mut Predictions::new()).unwrap_err();
    assert!(matches!(error, inference::Error::NotFinite { weights_version: 9 }), "{error}");
    let batch = positions(20);
    let (in_f16, in_f32) = (evaluated(&mut low, &batch), evaluated(&mut evaluator(Precision::F32), &batch));
    assert!((0..20).any(|i| in_f16.priors(i) != in_f32.priors(i)), "float32 computed");
    assert_eq!((texts.all().len(), &*low.attributes().name), (0, "libtorch cpu f16"));
}

#[test]
fn on_an_engine_too_a_version_beyond_float16_is_evaluated_in_float32_with_one_text() {
    let texts = Texts::default();
    let libtorch = accelerated_in(PrecisionPreference::F16, 3).report_to(texts.receiver());
    let (manifest, bytes) = published_network(&shifted(6e4), 9);
    let mut wide = LibtorchEvaluator::new(&small(), manifest.version, &bytes, Device::Cpu, Precision::F32).unwrap();
    std::thread::scope(|scope| {
        for positions in [1, 5, 37].map(positions) {
            let mut merged = libtorch.evaluator(&manifest, &bytes).unwrap();
            let expected = evaluated(&mut wide, &positions);
            scope.spawn(move || {
                for _ in 0..3 {
                    let mut answers = Predictions::new();
                    merged.evaluate(&positions, &mut answers).unwrap();
                    assert_near(&answers, &expected);
                }
            });
        }
    });
    assert_eq!(texts.all(), ["weights v9 are evaluated in f32 instead of f16: an activation is beyond 65504"]);
    let (next, bytes) = published(10);
    let mut answers = Predictions::new();
    libtorch.evaluator(&next, &bytes).unwrap().evaluate(&positions(3), &mut answers).unwrap();
    assert_eq!((answers.len(), texts.all().len()), (3, 1), "the next version is in float16 again");
}

#[test]
fn learned_models_are_in_float32_where_float16_evaluates() {
    let libtorch = accelerated_in(PrecisionPreference::F16, 1);
    let (manifest, bytes) = published_of(residual(), 9);
    assert_eq!(&*libtorch.latent_model(&manifest, &bytes).unwrap().attributes().name, "libtorch cpu f32");
}

#[test]
fn another_shape_and_an_action_the_network_lacks_are_refused() {
    let mut evaluator = evaluator(Precision::F32);
    let mut predictions = Predictions::new();
    let mut other = Batch::new(ObservationShape { planes: 3, height: 6, width: 7 });
    other.push(&[Action(0)], |_| ());
    let error = evaluator.evaluate(&other, &mut predictions).unwrap_err();
    let expected = "the batch has observations of [3, 6, 7], the network accepts observations of [2, 6, 7]";
    assert_eq!(error.to_string(), expected);

    let mut beyond = Batch::new(shape(&small()));
    beyond.push(&[Action(7)], |_| ());
    let error = evaluator.evaluate(&beyond, &mut predictions).unwrap_err();
    assert_eq!(error.to_string(), "the batch has action 7, the network accepts actions below 7");
}

#[test]
fn a_number_that_is_not_finite_is_never_an_answer() {
    let mut evaluator = evaluator(Precision::F32);
    let mut batch = positions(3);
    batch.push(&[Action(1)], |planes| planes[5] = f32::NAN);
    let error = evaluator.evaluate(&batch, &mut Predictions::new()).unwrap_err();
    assert!(matches!(error, inference::Error::NotFinite { weights_version: 9 }), "{error}");
}

#[test]
fn attributes_name_the_device_precision_and_version() {
    let attributes = evaluator(Precision::Bf16).attributes();
    assert_eq!((&*attributes.name, attributes.weights_version), ("libtorch cpu bf16", 9));
}

#[test]
fn padding_wastes_at_most_an_eighth_and_bounds_the_number_of_sizes() {
    let sizes: std::collections::BTreeSet<usize> = (1..=CHUNK).map(padded).collect();
    assert!(sizes.len() <= 50, "{} sizes", sizes.len());
    for positions in 1..=CHUNK {
        let padded = padded(positions);
        assert!(padded >= positions && (padded - positions) * 8 <= positions, "{positions} became {padded}");
    }
}

#[test]
fn a_staging_tensor_shares_the_memory_of_its_numbers() {
    let mut staging = Staging::new(Device::Cpu);
    staging.numbers(3).unwrap().copy_from_slice(&[1.0, 2.0, 3.0]);
    assert_eq!(numbers(&staging.tensor(3).unwrap()), [1.0, 2.0, 3.0]);
    let _ = staging.tensor(2).unwrap().f_add_scalar_(1.0).unwrap();
    assert_eq!(staging.numbers(3).unwrap(), [2.0, 3.0, 3.0]);
}

#[test]
fn memory_is_allocated_once_for_the_largest_batch() {
    let mut staging = Staging::new(Device::Cpu);
    let large = staging.numbers(1000).unwrap().as_ptr();
    assert_eq!(staging.numbers(7).unwrap().as_ptr(), large);
    assert_eq!(staging.numbers(1024).unwrap().as_ptr(), large);
}
