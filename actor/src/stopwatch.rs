//! Where the time of one call of the episodes goes, from what can be seen at its evaluator: before a batch there are
//! descents, after it answers are applied. The clock is read twice for each batch and never within a search.

use std::time::{Duration, Instant};

use inference::{Attributes, Batch, Error, Evaluator, Predictions};

#[cfg(test)]
mod tests;

/// The parts of one call. Observing is part of `gathering`; the episodes tell it themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Before batches: descents with rules and cache, moves, observations.
    pub(crate) gathering: Duration,
    /// In the evaluator.
    pub(crate) evaluating: Duration,
    /// After the last batch: its answers enter trees and cache.
    pub(crate) answering: Duration,
}

impl Parts {
    /// The whole call.
    pub(crate) fn sum(&self) -> Duration {
        self.gathering + self.evaluating + self.answering
    }
}

/// An evaluator that knows how long it took, and what came before and after.
pub(crate) struct Timed {
    inner: Box<dyn Evaluator>,
    clock: fn() -> Instant,
    parts: Parts,
    /// The end of the last batch, or the beginning of the call.
    mark: Instant,
    evaluated: bool,
}

impl Timed {
    pub(crate) fn new(inner: Box<dyn Evaluator>, clock: fn() -> Instant) -> Self {
        Self { inner, clock, parts: Parts::default(), mark: clock(), evaluated: false }
    }

    /// A call of the episodes begins.
    pub(crate) fn begin(&mut self) {
        (self.parts, self.evaluated) = (Parts::default(), false);
        self.mark = (self.clock)();
    }

    /// It has ended.
    pub(crate) fn end(&mut self) -> Parts {
        let last = (self.clock)().saturating_duration_since(self.mark);
        let mut parts = std::mem::take(&mut self.parts);
        // Without a batch there was nothing to answer.
        *(if self.evaluated { &mut parts.answering } else { &mut parts.gathering }) += last;
        parts
    }
}

impl Evaluator for Timed {
    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let start = (self.clock)();
        self.parts.gathering += start.saturating_duration_since(self.mark);
        let result = self.inner.evaluate(batch, predictions);
        self.mark = (self.clock)();
        self.parts.evaluating += self.mark.saturating_duration_since(start);
        self.evaluated = true;
        result
    }
}
