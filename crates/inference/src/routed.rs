//! Routes each batch to the evaluator that benchmarked fastest for the batch size; fails over to the next.

use std::sync::Arc;

use crate::trial::Speed;
use crate::{Attributes, Batch, Error, Evaluator, Predictions};

/// An evaluator and its measured speeds.
pub struct Candidate {
    /// The evaluator to measure and route to.
    pub evaluator: Box<dyn Evaluator>,
    /// Speeds, ascending by batch; an evaluator without speeds is used only after all others have failed.
    pub speeds: Vec<Speed>,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let evaluator = self.evaluator.attributes();
        f.debug_struct("Candidate").field("evaluator", &evaluator).field("speeds", &self.speeds).finish()
    }
}

impl Candidate {
    /// Returns the estimated evaluations/s at `batch`: the speed at the next larger measured size, scaled down by the
    /// share of padding; beyond the largest size, the speed at that size.
    fn speed(&self, batch: usize) -> f64 {
        let above = self.speeds.iter().find(|speed| speed.batch >= batch);
        let scaled = above.map(|speed| speed.evaluations_per_second * batch as f64 / speed.batch as f64);
        // At least the speed at the next smaller size, since batches can be split.
        let below = self.speeds.iter().rfind(|speed| speed.batch <= batch).map(|speed| speed.evaluations_per_second);
        scaled.unwrap_or(0.0).max(below.unwrap_or(0.0))
    }
}

/// A range of batch sizes for one of several evaluators; the next route limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Minimum batch size of the range.
    pub from: usize,
    /// Index of the evaluator among the candidates.
    pub candidate: usize,
}

/// Evaluators of the same weights, chosen by batch size. An evaluation fails only if all evaluators fail.
pub struct Routed {
    candidates: Vec<Candidate>,
    /// Routes, ascending by `from`; the first starts at 1.
    routes: Vec<Route>,
    /// Maximum batch that each candidate still accepts; 0 after a failure with a single position.
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
    /// Creates the evaluator. `report` receives a human-readable text for each failure of a candidate, with the
    /// consequence.
    ///
    /// # Panics
    /// If there are no candidates.
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

    /// Returns the routes, ascending by batch size.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Returns the fastest usable candidate for this batch size.
    fn fastest(&self, batch: usize) -> Option<usize> {
        let usable = |&candidate: &usize| self.limits[candidate] > 0;
        let routed = self.routes.iter().rfind(|route| route.from <= batch).map(|route| route.candidate);
        let speed = |candidate: usize| self.candidates[candidate].speed(batch);
        let others = || (0..self.candidates.len()).filter(usable).max_by(|&a, &b| speed(a).total_cmp(&speed(b)));
        routed.filter(usable).or_else(others)
    }

    /// Evaluates the positions from `from` that fit into one batch of `candidate`; returns the end of that range.
    fn evaluate_piece(
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
        self.piece.extend_from(batch, from..to);
        self.candidates[candidate].evaluator.evaluate(&self.piece, &mut self.answers)?;
        predictions.extend_from(&self.answers, 0..self.answers.len());
        Ok(to)
    }

    /// Reduces the batch limit of a candidate after a failure at `positions`; at a limit of 0 it is not used again.
    fn reduce_limit(&mut self, candidate: usize, positions: usize, limit: usize, why: &str) {
        self.limits[candidate] = limit;
        let name = self.candidates[candidate].evaluator.attributes().name;
        let then = match (limit, self.fastest(positions)) {
            (0, Some(other)) => format!("switching to {}", self.candidates[other].evaluator.attributes().name),
            (0, None) => "no evaluator is left".to_owned(),
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
                return Err(Error::Backend("all evaluators failed".to_owned()));
            };
            let positions = (batch.len() - from).min(self.limits[candidate]);
            let result = match positions == batch.len() {
                true => self.candidates[candidate].evaluator.evaluate(batch, predictions).map(|()| batch.len()),
                false => self.evaluate_piece(candidate, batch, from, predictions),
            };
            match result {
                Ok(to) if to >= batch.len() => return Ok(()),
                Ok(to) => from = to,
                Err(error) => {
                    let (limit, why) = match &error {
                        // A smaller batch may fit into memory.
                        Error::Backend(why) => (positions / 2, why.clone()),
                        Error::Lost { .. } => (0, error.to_string()),
                        Error::Shape { .. } | Error::NotFinite { .. } => return Err(error),
                    };
                    if from == 0 {
                        // The evaluator may have written some results.
                        predictions.clear();
                    }
                    self.reduce_limit(candidate, positions, limit, &why);
                    if self.fastest(positions).is_none() {
                        return Err(error);
                    }
                }
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
        // Ties go to the first candidate, since candidates are in order of preference.
        let fastest = (0..candidates.len()).reduce(|a, b| if speed(&b) > speed(&a) { b } else { a }).unwrap_or(0);
        if routes.last().is_none_or(|route| route.candidate != fastest) {
            routes.push(Route { from: size, candidate: fastest });
        }
        size *= 2;
    }
    routes
}

/// Returns the batch size beyond which larger batches gain little: the minimum with nine tenths of the best speed.
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
