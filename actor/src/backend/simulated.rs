//! Implements an evaluator that takes a fixed time and has no network. Fleet benchmarks use this evaluator so that
//! neither CPU cores nor an accelerator limit the throughput. Training on such games learns noise.

use std::time::{Duration, Instant};

use bytes::Bytes;
use evaluators::Backend;
use game::ObservationShape;
use inference::{Attributes, Batch, Error, Evaluator, Hashing, Predictions};
use weights::Manifest;

/// Value of `actor.kernel` for this evaluator.
pub(crate) const NAME: &str = "simulated";

/// Builds evaluators without a network, with the batch time of an accelerator.
pub(super) struct Simulated {
    delay: Duration,
}

impl Simulated {
    /// Logs a warning, because a simulated evaluator must never be used by accident.
    pub(super) fn new(delay: Duration) -> Self {
        tracing::warn!(
            delay_us = delay.as_micros(),
            "SIMULATED EVALUATIONS: games are played without a network and are worthless for training (actor.kernel)"
        );
        Self { delay }
    }
}

impl Backend for Simulated {
    fn describe(&self) -> String {
        format!("simulated, {} us per batch, without a neural network", self.delay.as_micros())
    }

    fn build(&self, manifest: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, evaluators::Error> {
        let architecture = &manifest.architecture;
        let (planes, height, width) = (architecture.planes, architecture.height, architecture.width);
        let shape = ObservationShape { planes, height, width };
        Ok(Box::new(Delayed { answers: Hashing::new(shape, manifest.version.0), delay: self.delay }))
    }
}

/// An evaluator that returns the predictions of [`Hashing`], `delay` after the request.
struct Delayed {
    answers: Hashing,
    delay: Duration,
}

impl Evaluator for Delayed {
    fn attributes(&self) -> Attributes {
        Attributes { name: NAME.into(), ..self.answers.attributes() }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        // Computing the predictions is part of the delay.
        let end = Instant::now() + self.delay;
        self.answers.evaluate(batch, predictions)?;
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: ObservationShape = ObservationShape { planes: 3, height: 6, width: 7 };

    fn delayed(delay: Duration) -> Delayed {
        Delayed { answers: Hashing::new(SHAPE, 5), delay }
    }

    fn batch_of_one() -> Batch {
        let mut batch = Batch::new(SHAPE);
        batch.push(&[game::Action(0), game::Action(3)], |planes| planes.fill(1.0));
        batch
    }

    #[test]
    fn a_simulated_evaluator_passes_the_conformance_suite() {
        evaluator_doubles::conformance::run(&mut delayed(Duration::from_micros(1)), SHAPE, 7, 0.0);
    }

    #[test]
    fn a_batch_is_answered_after_the_delay_and_with_the_version_it_was_made_for() {
        let delay = Duration::from_millis(5);
        let mut evaluator = delayed(delay);
        assert_eq!((&*evaluator.attributes().name, evaluator.attributes().weights_version), (NAME, 5));
        let (start, mut predictions) = (Instant::now(), Predictions::new());
        evaluator.evaluate(&batch_of_one(), &mut predictions).unwrap();
        assert!(start.elapsed() >= delay);
        assert_eq!(predictions.len(), 1);
    }
}
