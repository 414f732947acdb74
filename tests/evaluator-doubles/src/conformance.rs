//! The conformance suite that every evaluator must pass: the properties that self-play relies on.
//!
//! A batch over [`Attributes::max_batch`](inference::Attributes::max_batch) is rejected with [`Error::Shape`], not
//! split: the code that fills batches knows the limit, and a silent split would hide that a batch takes twice the
//! expected time.

use game::{Action, ObservationShape, mix};
use inference::{Batch, Error, Evaluator, Predictions};

/// Tolerance for a sum of probabilities. The error of an f32 softmax over a few hundred actions is far smaller; bf16
/// networks compute the softmax in f32.
const SUM_TOLERANCE: f32 = 1e-4;
/// Maximum size, in numbers, for the test with an oversized batch; filling a larger batch would be too expensive.
const OVERFULL_NUMBERS_MAX: usize = 1 << 26;

/// Runs the suite on an evaluator of observations of `shape` with `actions` actions.
///
/// `tolerance` is the maximum change of a result when other positions of the batch change: 0 if the arithmetic does not
/// depend on the batch, about 1e-5 for f32 and 2e-2 for bf16 if kernels are chosen by batch size.
///
/// # Panics
/// The evaluator violates a property; the message names it.
pub fn run(evaluator: &mut dyn Evaluator, shape: ObservationShape, actions: usize, tolerance: f32) {
    let max_batch = evaluator.attributes().max_batch;
    assert!(max_batch > 0, "an evaluator takes at least one position");
    assert!(evaluator.attributes().preferred_batch <= max_batch, "the preferred batch is larger than the largest");

    let batch = positions(shape, actions, 0..max_batch.min(17) as u64);
    let answers = evaluated(evaluator, &batch, Predictions::new());
    check_repeats(evaluator, &batch, &answers);
    check_order_and_independence(evaluator, shape, actions, &answers, tolerance);
    check_reuse(evaluator, shape, actions, &batch, &answers);
    check_refusals(evaluator, shape, actions, max_batch);
    let again = evaluated(evaluator, &batch, Predictions::new());
    assert_same(&answers, &again, "a refused batch changes later answers");
}

fn check_numbers(batch: &Batch, answers: &Predictions) {
    assert_eq!(answers.len(), batch.len(), "as many answers as positions");
    for i in 0..batch.len() {
        let (priors, value) = (answers.priors(i), answers.wdl()[i]);
        assert_eq!(priors.len(), batch.legal(i).len(), "position {i}: one prior per legal action");
        let wdl = [value.win, value.draw, value.loss];
        for number in priors.iter().chain(&wdl) {
            assert!(number.is_finite(), "position {i}: {number} is not finite");
            assert!(*number >= 0.0, "position {i}: {number} is negative");
        }
        let sum: f32 = priors.iter().sum();
        assert!((sum - 1.0).abs() <= SUM_TOLERANCE, "position {i}: the priors sum to {sum}");
        let sum: f32 = wdl.iter().sum();
        assert!((sum - 1.0).abs() <= SUM_TOLERANCE, "position {i}: win, draw and loss sum to {sum}");
    }
}

fn check_repeats(evaluator: &mut dyn Evaluator, batch: &Batch, answers: &Predictions) {
    let again = evaluated(evaluator, batch, Predictions::new());
    assert_same(answers, &again, "the same batch is answered differently the second time");
}

fn check_order_and_independence(
    evaluator: &mut dyn Evaluator,
    shape: ObservationShape,
    actions: usize,
    answers: &Predictions,
    tolerance: f32,
) {
    let reversed = positions(shape, actions, (0..answers.len() as u64).rev());
    let reversed = evaluated(evaluator, &reversed, Predictions::new());
    for i in 0..answers.len() {
        assert_close(answers, i, &reversed, answers.len() - 1 - i, tolerance);
        let alone = positions(shape, actions, [i as u64]);
        let alone = evaluated(evaluator, &alone, Predictions::new());
        assert_close(answers, i, &alone, 0, tolerance);
    }
}

fn check_reuse(
    evaluator: &mut dyn Evaluator,
    shape: ObservationShape,
    actions: usize,
    batch: &Batch,
    answers: &Predictions,
) {
    let other = positions(shape, actions, [99]);
    let used = evaluated(evaluator, &other, Predictions::new());
    let reused = evaluated(evaluator, batch, used);
    assert_same(answers, &reused, "what predictions held before shows");
    let emptied = evaluated(evaluator, &Batch::new(shape), reused);
    assert!(emptied.is_empty(), "an empty batch has no answers");
}

fn check_refusals(evaluator: &mut dyn Evaluator, shape: ObservationShape, actions: usize, max_batch: usize) {
    let wrong = ObservationShape { planes: shape.planes + 1, ..shape };
    let wrong = positions(wrong, actions, [0]);
    let answer = evaluator.evaluate(&wrong, &mut Predictions::new());
    assert!(matches!(answer, Err(Error::Shape { .. })), "another shape is refused, not {answer:?}");

    if max_batch < OVERFULL_NUMBERS_MAX / shape.len() {
        let overfull = positions(shape, actions, 0..=max_batch as u64);
        let answer = evaluator.evaluate(&overfull, &mut Predictions::new());
        assert!(matches!(answer, Err(Error::Shape { .. })), "a batch over the limit is refused, not {answer:?}");
    }
}

/// Returns pseudo-random sparse observations, each with a pseudo-random set of legal actions: one action up to all.
fn positions(shape: ObservationShape, actions: usize, indices: impl IntoIterator<Item = u64>) -> Batch {
    let mut batch = Batch::new(shape);
    for index in indices {
        let draw = |of: u64| mix(mix(index) ^ mix(of << 1));
        let mut legal: Vec<Action> = (0..actions)
            .filter(|&action| index == 0 || draw(action as u64) % 3 != 0)
            .map(|action| Action(u16::try_from(action).expect("actions fit 16 bits")))
            .collect();
        match index {
            1 => legal.truncate(1),
            _ if legal.is_empty() => legal.push(Action(0)),
            _ => {}
        }
        batch.push(&legal, |planes| {
            for (cell, number) in (1 << 20..).zip(planes) {
                *number = if draw(cell) % 10 < 3 { 1.0 } else { 0.0 };
            }
        });
    }
    batch
}

fn evaluated(evaluator: &mut dyn Evaluator, batch: &Batch, mut predictions: Predictions) -> Predictions {
    evaluator.evaluate(batch, &mut predictions).unwrap_or_else(|error| panic!("a good batch is refused: {error}"));
    check_numbers(batch, &predictions);
    predictions
}

fn assert_same(a: &Predictions, b: &Predictions, broken: &str) {
    assert_eq!(a.len(), b.len(), "{broken}");
    for i in 0..a.len() {
        assert_eq!((a.priors(i), a.wdl()[i]), (b.priors(i), b.wdl()[i]), "position {i}: {broken}");
    }
}

fn assert_close(a: &Predictions, i: usize, b: &Predictions, j: usize, tolerance: f32) {
    let numbers = |of: &Predictions, k: usize| {
        let value = of.wdl()[k];
        of.priors(k).iter().copied().chain([value.win, value.draw, value.loss]).collect::<Vec<_>>()
    };
    let (a, b) = (numbers(a, i), numbers(b, j));
    assert_eq!(a.len(), b.len(), "position {i} is answered out of order");
    for (x, y) in a.iter().zip(&b) {
        let moved = (x - y).abs();
        assert!(moved <= tolerance, "position {i} moves by {moved} with the other positions of the batch");
    }
}
