//! Measures the parts of one call of the episodes, as seen from the evaluator: descents before a batch, and applying
//! predictions after it. The clock is read twice per batch and never within a search.

use std::time::{Duration, Instant};

use inference::{Attributes, Batch, Error, Evaluator, LatentModel, LatentPredictions, Predictions, Slot, Unroll};
use service::trace::{self, TraceContext};

/// The durations of the parts of one call. `gathering` includes the time for observations, which the episodes also
/// measure separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Time before batches: tree descents with rules and cache, moves, observations.
    pub(crate) gathering: Duration,
    /// Time in the evaluator, over all batches.
    pub(crate) evaluating: Duration,
    /// Time after the last batch: adding predictions to trees and cache.
    pub(crate) answering: Duration,
}

impl Parts {
    /// Returns the time of the whole call.
    pub(crate) fn sum(&self) -> Duration {
        self.gathering + self.evaluating + self.answering
    }
}

/// The traced batch of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evaluated {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) positions: usize,
    pub(crate) weights_version: u64,
}

/// A wrapper around a network that measures the time in, before and after evaluations.
pub(crate) struct Timed<N: ?Sized> {
    inner: Box<N>,
    watch: Stopwatch,
}

struct Stopwatch {
    clock: fn() -> Instant,
    parts: Parts,
    /// End of the last batch, or start of the call.
    mark: Instant,
    evaluated: bool,
    /// Trace context of the next batch, if traced.
    trace: Option<TraceContext>,
    shown: Option<Evaluated>,
}

impl<N: ?Sized> Timed<N> {
    pub(crate) fn new(inner: Box<N>, clock: fn() -> Instant) -> Self {
        let (parts, mark) = (Parts::default(), clock());
        Self { inner, watch: Stopwatch { clock, parts, mark, evaluated: false, trace: None, shown: None } }
    }

    /// Starts the measurement of a call of the episodes.
    pub(crate) fn begin(&mut self) {
        let watch = &mut self.watch;
        (watch.parts, watch.evaluated) = (Parts::default(), false);
        watch.mark = (watch.clock)();
    }

    /// Sets the trace context of the first batch in the call.
    pub(crate) fn show(&mut self, trace: Option<TraceContext>) {
        (self.watch.trace, self.watch.shown) = (trace, None);
    }

    /// Takes the traced batch, if there was one.
    pub(crate) fn shown(&mut self) -> Option<Evaluated> {
        self.watch.shown.take()
    }

    /// Stops the measurement and returns the parts of the call.
    pub(crate) fn end(&mut self) -> Parts {
        let watch = &mut self.watch;
        let last = (watch.clock)().saturating_duration_since(watch.mark);
        let mut parts = std::mem::take(&mut watch.parts);
        // Without a batch there were no predictions to apply.
        *(if watch.evaluated { &mut parts.answering } else { &mut parts.gathering }) += last;
        parts
    }
}

impl Stopwatch {
    /// Measures a batch of `positions` positions or steps.
    fn measure<T>(&mut self, positions: usize, weights_version: u64, evaluate: impl FnOnce() -> T) -> T {
        let start = (self.clock)();
        self.parts.gathering += start.saturating_duration_since(self.mark);
        let trace = self.trace.take();
        let result = match trace {
            None => evaluate(),
            Some(_) => trace::within(trace, evaluate),
        };
        self.mark = (self.clock)();
        if trace.is_some() {
            self.shown = Some(Evaluated { begun: start, ended: self.mark, positions, weights_version });
        }
        self.parts.evaluating += self.mark.saturating_duration_since(start);
        self.evaluated = true;
        result
    }
}

impl Evaluator for Timed<dyn Evaluator> {
    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let Self { inner, watch } = self;
        watch.measure(batch.len(), inner.attributes().weights_version, || inner.evaluate(batch, predictions))
    }
}

impl LatentModel for Timed<dyn LatentModel> {
    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        self.inner.reserve(slots)
    }

    fn start(&mut self, batch: &Batch, to: &[Slot], acts: &[Unroll], steps: &[Unroll]) {
        self.inner.start(batch, to, acts, steps);
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let Self { inner, watch } = self;
        watch.measure(batch.len(), inner.attributes().weights_version, || inner.initial(batch, to, predictions))
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let Self { inner, watch } = self;
        watch.measure(steps.len(), inner.attributes().weights_version, || inner.recurrent(steps, predictions))
    }

    fn codes(&self) -> usize {
        self.inner.codes()
    }

    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let Self { inner, watch } = self;
        watch.measure(steps.len(), inner.attributes().weights_version, || inner.act(steps, predictions))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use evaluator_doubles::Uniform;
    use game::Game as _;
    use games::TicTacToe;

    use super::*;

    thread_local! {
        static START: Instant = Instant::now();
        static ELAPSED: Cell<u64> = const { Cell::new(0) };
    }

    /// Each reading advances this clock by one second.
    fn clock() -> Instant {
        ELAPSED.set(ELAPSED.get() + 1);
        START.with(|start| *start) + Duration::from_secs(ELAPSED.get())
    }

    fn timed() -> Timed<dyn Evaluator> {
        Timed::new(Box::new(Uniform::new(TicTacToe::new().spec().observation)), clock)
    }

    fn parts(gathering: u64, evaluating: u64, answering: u64) -> Parts {
        let [gathering, evaluating, answering] = [gathering, evaluating, answering].map(Duration::from_secs);
        Parts { gathering, evaluating, answering }
    }

    #[test]
    fn time_before_a_batch_is_gathering_and_time_after_it_is_answering() {
        let mut timed = timed();
        let batch = Batch::new(TicTacToe::new().spec().observation);
        timed.begin();
        timed.evaluate(&batch, &mut Predictions::new()).unwrap();
        assert_eq!(timed.end(), parts(1, 1, 1));
    }

    #[test]
    fn a_call_without_a_batch_gathers_all_the_time() {
        let mut timed = timed();
        timed.begin();
        assert_eq!(timed.end(), parts(1, 0, 0));
    }

    #[test]
    fn between_two_batches_the_next_is_gathered() {
        let mut timed = timed();
        let batch = Batch::new(TicTacToe::new().spec().observation);
        timed.begin();
        for _ in 0..3 {
            timed.evaluate(&batch, &mut Predictions::new()).unwrap();
        }
        assert_eq!(timed.end(), parts(3, 3, 1));
    }

    #[test]
    fn a_call_does_not_count_what_came_before_it() {
        let mut timed = timed();
        let batch = Batch::new(TicTacToe::new().spec().observation);
        timed.begin();
        timed.evaluate(&batch, &mut Predictions::new()).unwrap();
        timed.end();
        timed.begin();
        assert_eq!(timed.end(), parts(1, 0, 0));
    }
}
