//! Tests of the choice among evaluators by batch size, and of failover.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::{Arc, Mutex};

use evaluator_doubles::conformance;
use game::{Action, ObservationShape};
use inference::{Attributes, Batch, Candidate, Error, Evaluator, Hashing, Predictions, Route, Routed, Speed};

const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };

/// An evaluator that works like [`Hashing`], records the received batches, and fails above a size.
struct Limited {
    inner: Hashing,
    name: &'static str,
    largest: usize,
    requests: Arc<Mutex<Vec<(&'static str, usize)>>>,
}

impl Evaluator for Limited {
    fn attributes(&self) -> Attributes {
        Attributes { name: self.name.into(), ..self.inner.attributes() }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        self.requests.lock().unwrap().push((self.name, batch.len()));
        if batch.len() > self.largest {
            return Err(Error::Backend("out of memory".to_owned()));
        }
        self.inner.evaluate(batch, predictions)
    }
}

/// A routed evaluator of candidates with given names and limits, the received batches, and the reports.
struct Bench {
    routed: Routed,
    requests: Arc<Mutex<Vec<(&'static str, usize)>>>,
    reported: Arc<Mutex<Vec<String>>>,
}

fn speeds(pairs: &[(usize, f64)]) -> Vec<Speed> {
    pairs.iter().map(|&(batch, evaluations_per_second)| Speed { batch, evaluations_per_second }).collect()
}

/// Name, maximum batch without failure, and speeds.
type Sketch<'a> = (&'static str, usize, &'a [(usize, f64)]);

fn bench(candidates: &[Sketch<'_>]) -> Bench {
    let (requests, reported) = (Arc::default(), Arc::<Mutex<Vec<String>>>::default());
    let candidate = |&(name, largest, measured): &Sketch<'_>| Candidate {
        evaluator: Box::new(Limited { inner: Hashing::new(SHAPE, 5), name, largest, requests: Arc::clone(&requests) }),
        speeds: speeds(measured),
    };
    let log = Arc::clone(&reported);
    let report = Box::new(move |text| log.lock().unwrap().push(text));
    Bench { routed: Routed::new(candidates.iter().map(candidate).collect(), 64, report), requests, reported }
}

/// Speeds of a CPU, equal at every batch size; the speeds of `DEVICE` grow with the batch.
const CPU: &[(usize, f64)] = &[(1, 1000.0), (4, 1000.0), (16, 1000.0), (64, 1000.0)];
const DEVICE: &[(usize, f64)] = &[(1, 100.0), (4, 400.0), (16, 1600.0), (64, 5000.0)];

fn batch(positions: usize) -> Batch {
    let legal: Vec<Action> = (0..9).map(Action).collect();
    let mut batch = Batch::new(SHAPE);
    for i in 0..positions {
        batch.push(&legal, |planes| planes[i % 18] = 1.0 + i as f32);
    }
    batch
}

fn answers(evaluator: &mut dyn Evaluator, positions: usize) -> Vec<(Vec<f32>, f32)> {
    let mut predictions = Predictions::new();
    evaluator.evaluate(&batch(positions), &mut predictions).unwrap();
    (0..predictions.len()).map(|i| (predictions.priors(i).to_vec(), predictions.value(i))).collect()
}

#[test]
fn the_routed_evaluator_conforms() {
    let Bench { mut routed, .. } = bench(&[("cpu", 4096, CPU), ("device", 4096, DEVICE)]);
    conformance::run(&mut routed, SHAPE, 9, 0.0);
    let Bench { mut routed, .. } = bench(&[("cpu", 3, CPU)]);
    conformance::run(&mut routed, SHAPE, 9, 0.0);
}

#[test]
fn small_batches_go_to_the_cpu_and_large_ones_to_the_device() {
    let Bench { mut routed, requests, .. } = bench(&[("cpu", 4096, CPU), ("device", 4096, DEVICE)]);
    assert_eq!(routed.routes(), [Route { from: 1, candidate: 0 }, Route { from: 16, candidate: 1 }]);
    assert_eq!(&*routed.attributes().name, "cpu, device from batches of 16");
    for positions in [1, 8, 16, 64, 500] {
        answers(&mut routed, positions);
    }
    assert_eq!(*requests.lock().unwrap(), [("cpu", 1), ("cpu", 8), ("device", 16), ("device", 64), ("device", 500)]);
    assert_eq!(routed.attributes().preferred_batch, 64);
}

#[test]
fn the_first_candidate_is_used_unless_another_is_faster() {
    let Bench { routed, .. } = bench(&[("cpu", 4096, CPU), ("other", 4096, CPU)]);
    assert_eq!(routed.routes(), [Route { from: 1, candidate: 0 }]);
    assert_eq!(&*routed.attributes().name, "cpu");
}

#[test]
fn a_failing_batch_is_halved_until_it_fits_and_the_limit_is_kept() {
    let Bench { mut routed, requests, reported } = bench(&[("cpu", 4096, CPU), ("device", 20, DEVICE)]);
    let expected = answers(&mut Hashing::new(SHAPE, 5), 64);
    assert_eq!(answers(&mut routed, 64), expected);
    assert_eq!(requests.lock().unwrap()[..2], [("device", 64), ("device", 32)]);
    assert!(requests.lock().unwrap()[2..].iter().all(|&requests| requests == ("device", 16)), "{requests:?}");
    assert_eq!(
        *reported.lock().unwrap(),
        [
            "device failed at a batch of 64: out of memory; trying batches of 32",
            "device failed at a batch of 32: out of memory; trying batches of 16",
        ]
    );
    requests.lock().unwrap().clear();
    assert_eq!(answers(&mut routed, 64), expected);
    assert_eq!(*requests.lock().unwrap(), [("device", 16); 4]);
}

#[test]
fn a_device_that_fails_at_one_position_is_replaced_by_the_next() {
    let Bench { mut routed, requests, reported } = bench(&[("cpu", 4096, CPU), ("device", 0, DEVICE)]);
    assert_eq!(answers(&mut routed, 16), answers(&mut Hashing::new(SHAPE, 5), 16));
    assert_eq!(requests.lock().unwrap().last(), Some(&("cpu", 16)));
    assert_eq!(
        reported.lock().unwrap().last().unwrap(),
        "device failed at a batch of 1: out of memory; switching to cpu"
    );
    reported.lock().unwrap().clear();
    answers(&mut routed, 64);
    assert!(reported.lock().unwrap().is_empty(), "it is not tried again");
}

#[test]
fn evaluation_fails_only_if_every_candidate_fails() {
    let Bench { mut routed, .. } = bench(&[("cpu", 0, CPU), ("device", 0, DEVICE)]);
    let error = routed.evaluate(&batch(4), &mut Predictions::new()).unwrap_err();
    assert!(matches!(error, Error::Backend(_)), "{error}");
}
