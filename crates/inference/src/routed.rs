//! Routes each batch to the evaluator that benchmarked fastest at that size; fails over to the next one.

use std::sync::Arc;

use crate::trial::Speed;
use crate::{Attributes, Batch, Error, Evaluator, Predictions};

/// An evaluator, and how fast it was measured.
pub struct Candidate {
    /// It.
    pub evaluator: Box<dyn Evaluator>,
    /// Ascending by batch; an evaluator without speeds is used only where every other one has failed.
    pub speeds: Vec<Speed>,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let evaluator = self.evaluator.attributes();
        f.debug_struct("Candidate").field("evaluator", &evaluator).field("speeds", &self.speeds).finish()
    }
}

impl Candidate {
    /// As many evaluations/s as it made at the next larger measured size, scaled down by what is padded; those of the
    /// largest for batches that are larger still.
    fn speed(&self, batch: usize) -> f64 {
        let above = self.speeds.iter().find(|speed| speed.batch >= batch);
        let scaled = above.map(|speed| speed.evaluations_per_second * batch as f64 / speed.batch as f64);
        // At least what the next smaller size made: batches can be cut.
        let below = self.speeds.iter().rfind(|speed| speed.batch <= batch).map(|speed| speed.evaluations_per_second);
        scaled.unwrap_or(0.0).max(below.unwrap_or(0.0))
    }
}

/// The batch size from which one of several evaluators answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The smallest batch that it answers.
    pub from: usize,
    /// Its place among the candidates.
    pub candidate: usize,
}

/// Evaluators of the same weights, by batch size. Fails only if all of them do.
pub struct Routed {
    candidates: Vec<Candidate>,
    /// Ascending by `from`; the first is from 1.
    routes: Vec<Route>,
    /// The largest batch each candidate still takes; 0 where it has failed at a single position.
    limits: Vec<usize>,
    attributes: Attributes,
    report: Box<dyn Fn(String) + Send>,
    piece: Batch,
    answers: Predictions,
}

impl std::fmt::Debug for Routed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routed").field("routes", &self.routes).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Routed {
    /// `report` receives, for people, each failure of a candidate and the consequence.
    ///
    /// # Panics
    /// Without a candidate.
    pub fn new(candidates: Vec<Candidate>, batch_max: usize, report: Box<dyn Fn(String) + Send>) -> Self {
        assert!(!candidates.is_empty(), "there is at least one candidate");
        let all: Vec<Attributes> = candidates.iter().map(|candidate| candidate.evaluator.attributes()).collect();
        let routes = routes(&candidates, batch_max);
        let max_batch = all.iter().map(|attributes| attributes.max_batch).min().unwrap_or(1);
        let attributes = Attributes {
            name: describe(&routes, &all),
            weights_version: all[0].weights_version,
            preferred_batch: best_batch(&candidates, &routes).min(max_batch),
            max_batch,
        };
        Self {
            limits: all.iter().map(|attributes| attributes.max_batch).collect(),
            routes,
            attributes,
            report,
            piece: Batch::new(game::ObservationShape { planes: 0, height: 0, width: 0 }),
            answers: Predictions::new(),
            candidates,
        }
    }

    /// Returns the routes by batch size.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The fastest candidate for a batch that has not failed.
    fn fastest(&self, batch: usize) -> Option<usize> {
        let usable = |&candidate: &usize| self.limits[candidate] > 0;
        let routed = self.routes.iter().rfind(|route| route.from <= batch).map(|route| route.candidate);
        let speed = |candidate: usize| self.candidates[candidate].speed(batch);
        let others = || (0..self.candidates.len()).filter(usable).max_by(|&a, &b| speed(a).total_cmp(&speed(b)));
        routed.filter(usable).or_else(others)
    }

    /// Adds the answers to the positions from `from` on that `candidate` takes at a time; returns where they end.
    fn ask_piece(
        &mut self,
        candidate: usize,
        batch: &Batch,
        from: usize,
        predictions: &mut Predictions,
    ) -> Result<usize, Error> {
        let to = batch.len().min(from + self.limits[candidate]);
        if self.piece.shape() != batch.shape() {
            self.piece = Batch::new(batch.shape());
        }
        self.piece.clear();
        for i in from..to {
            self.piece.push(batch.legal(i), |planes| planes.copy_from_slice(batch.observation(i)));
        }
        self.candidates[candidate].evaluator.evaluate(&self.piece, &mut self.answers)?;
        (0..self.answers.len()).for_each(|i| predictions.push(self.answers.priors(i), self.answers.value(i)));
        Ok(to)
    }

    /// A batch of `positions` was too much for a candidate, or it is broken.
    fn give_way(&mut self, candidate: usize, positions: usize, why: &str) {
        self.limits[candidate] = positions / 2;
        let name = self.candidates[candidate].evaluator.attributes().name;
        let then = match (positions / 2, self.fastest(positions)) {
            (0, Some(other)) => format!("{} takes over", self.candidates[other].evaluator.attributes().name),
            (0, None) => "nothing is left to evaluate with".to_owned(),
            (half, _) => format!("trying batches of {half}"),
        };
        (self.report)(format!("{name} failed at a batch of {positions}: {why}; {then}"));
    }
}

impl Evaluator for Routed {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        predictions.clear();
        if batch.len() > self.attributes.max_batch {
            batch.check(batch.shape(), usize::from(u16::MAX) + 1, self.attributes.max_batch)?;
        }
        let mut from = 0;
        loop {
            let Some(candidate) = self.fastest(batch.len()) else {
                return Err(Error::Backend("every evaluator has failed".to_owned()));
            };
            let positions = (batch.len() - from).min(self.limits[candidate]);
            let asked = match positions == batch.len() {
                true => self.candidates[candidate].evaluator.evaluate(batch, predictions).map(|()| batch.len()),
                false => self.ask_piece(candidate, batch, from, predictions),
            };
            match asked {
                Ok(to) if to >= batch.len() => return Ok(()),
                Ok(to) => from = to,
                Err(Error::Backend(why)) => {
                    if from == 0 {
                        // It may have begun to answer.
                        predictions.clear();
                    }
                    self.give_way(candidate, positions, &why);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the fastest evaluator at each power of two up to `batch_max`, with equal neighbours merged.
fn routes(candidates: &[Candidate], batch_max: usize) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let mut size = 1;
    while size <= batch_max.max(1) {
        let speed = |&candidate: &usize| candidates[candidate].speed(size);
        // The first of equals: candidates come in the order of preference.
        let fastest = (0..candidates.len()).reduce(|a, b| if speed(&b) > speed(&a) { b } else { a }).unwrap_or(0);
        if routes.last().is_none_or(|route| route.candidate != fastest) {
            routes.push(Route { from: size, candidate: fastest });
        }
        size *= 2;
    }
    routes
}

/// The batch from which larger ones gain little: the smallest that makes nine tenths of the best.
fn best_batch(candidates: &[Candidate], routes: &[Route]) -> usize {
    let speeds = routes.iter().flat_map(|route| &candidates[route.candidate].speeds);
    let best = speeds.clone().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
    let good = speeds.filter(|speed| speed.evaluations_per_second >= 0.9 * best).map(|speed| speed.batch);
    good.min().unwrap_or(1)
}

fn describe(routes: &[Route], all: &[Attributes]) -> Arc<str> {
    match routes {
        [only] => all[only.candidate].name.clone(),
        _ => {
            let part = |route: &Route| match route.from {
                1 => all[route.candidate].name.to_string(),
                from => format!("{} from batches of {from}", all[route.candidate].name),
            };
            routes.iter().map(part).collect::<Vec<_>>().join(", ").into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use game::{Action, ObservationShape};

    use super::*;
    use crate::conformance;
    use crate::testing::Hashing;

    const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };

    /// Answers as [`Hashing`] does, records the batches it received, and fails above a size.
    struct Limited {
        inner: Hashing,
        name: &'static str,
        largest: usize,
        asked: Arc<Mutex<Vec<(&'static str, usize)>>>,
    }

    impl Evaluator for Limited {
        fn attributes(&self) -> Attributes {
            Attributes { name: self.name.into(), ..self.inner.attributes() }
        }

        fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
            self.asked.lock().unwrap().push((self.name, batch.len()));
            if batch.len() > self.largest {
                return Err(Error::Backend("out of memory".to_owned()));
            }
            self.inner.evaluate(batch, predictions)
        }
    }

    /// Returns evaluators with these names and limits, the batches they received, and the reports.
    struct Bench {
        routed: Routed,
        asked: Arc<Mutex<Vec<(&'static str, usize)>>>,
        reported: Arc<Mutex<Vec<String>>>,
    }

    fn speeds(pairs: &[(usize, f64)]) -> Vec<Speed> {
        pairs.iter().map(|&(batch, evaluations_per_second)| Speed { batch, evaluations_per_second }).collect()
    }

    /// A name, the largest batch that does not fail, and speeds.
    type Sketch<'a> = (&'static str, usize, &'a [(usize, f64)]);

    fn bench(candidates: &[Sketch<'_>]) -> Bench {
        let (asked, reported) = (Arc::default(), Arc::<Mutex<Vec<String>>>::default());
        let candidate = |&(name, largest, measured): &Sketch<'_>| Candidate {
            evaluator: Box::new(Limited { inner: Hashing::new(SHAPE, 5), name, largest, asked: Arc::clone(&asked) }),
            speeds: speeds(measured),
        };
        let heard = Arc::clone(&reported);
        let report = Box::new(move |text| heard.lock().unwrap().push(text));
        Bench { routed: Routed::new(candidates.iter().map(candidate).collect(), 64, report), asked, reported }
    }

    /// A CPU that makes 1000 whatever the batch, and a device that needs large ones.
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
        (0..predictions.len()).map(|i| (predictions.priors(i).to_vec(), predictions.value(i).value())).collect()
    }

    #[test]
    fn it_keeps_the_promises_of_an_evaluator() {
        let Bench { mut routed, .. } = bench(&[("cpu", 4096, CPU), ("device", 4096, DEVICE)]);
        conformance::run(&mut routed, SHAPE, 9, 0.0);
        let Bench { mut routed, .. } = bench(&[("cpu", 3, CPU)]);
        conformance::run(&mut routed, SHAPE, 9, 0.0);
    }

    #[test]
    fn small_batches_go_to_the_cpu_and_large_ones_to_the_device() {
        let Bench { mut routed, asked, .. } = bench(&[("cpu", 4096, CPU), ("device", 4096, DEVICE)]);
        assert_eq!(routed.routes(), [Route { from: 1, candidate: 0 }, Route { from: 16, candidate: 1 }]);
        assert_eq!(&*routed.attributes().name, "cpu, device from batches of 16");
        for positions in [1, 8, 16, 64, 500] {
            answers(&mut routed, positions);
        }
        assert_eq!(*asked.lock().unwrap(), [("cpu", 1), ("cpu", 8), ("device", 16), ("device", 64), ("device", 500)]);
        assert_eq!(routed.attributes().preferred_batch, 64);
    }

    #[test]
    fn who_is_first_stays_where_nobody_is_faster() {
        let Bench { routed, .. } = bench(&[("cpu", 4096, CPU), ("other", 4096, CPU)]);
        assert_eq!(routed.routes(), [Route { from: 1, candidate: 0 }]);
        assert_eq!(&*routed.attributes().name, "cpu");
    }

    #[test]
    fn a_batch_that_is_too_much_is_halved_until_it_fits_and_stays_so() {
        let Bench { mut routed, asked, reported } = bench(&[("cpu", 4096, CPU), ("device", 20, DEVICE)]);
        let expected = answers(&mut Hashing::new(SHAPE, 5), 64);
        assert_eq!(answers(&mut routed, 64), expected);
        assert_eq!(asked.lock().unwrap()[..2], [("device", 64), ("device", 32)]);
        assert!(asked.lock().unwrap()[2..].iter().all(|&asked| asked == ("device", 16)), "{asked:?}");
        assert_eq!(
            *reported.lock().unwrap(),
            [
                "device failed at a batch of 64: out of memory; trying batches of 32",
                "device failed at a batch of 32: out of memory; trying batches of 16",
            ]
        );
        asked.lock().unwrap().clear();
        assert_eq!(answers(&mut routed, 64), expected);
        assert_eq!(*asked.lock().unwrap(), [("device", 16); 4]);
    }

    #[test]
    fn a_device_that_cannot_do_one_position_is_given_up_for_the_next() {
        let Bench { mut routed, asked, reported } = bench(&[("cpu", 4096, CPU), ("device", 0, DEVICE)]);
        assert_eq!(answers(&mut routed, 16), answers(&mut Hashing::new(SHAPE, 5), 16));
        assert_eq!(asked.lock().unwrap().last(), Some(&("cpu", 16)));
        assert_eq!(
            reported.lock().unwrap().last().unwrap(),
            "device failed at a batch of 1: out of memory; cpu takes over"
        );
        reported.lock().unwrap().clear();
        answers(&mut routed, 64);
        assert!(reported.lock().unwrap().is_empty(), "it is not tried again");
    }

    #[test]
    fn only_when_all_have_failed_is_it_an_error() {
        let Bench { mut routed, .. } = bench(&[("cpu", 0, CPU), ("device", 0, DEVICE)]);
        let error = routed.evaluate(&batch(4), &mut Predictions::new()).unwrap_err();
        assert!(matches!(error, Error::Backend(_)), "{error}");
    }
}
