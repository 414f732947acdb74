use std::sync::Arc;

use game::{Action, ObservationShape};
use inference::categorical::transform;
use inference::{Batch, LatentModel, LatentPredictions, Slot, Unroll};
use weights::{Architecture, WeightsVersion};

use super::folded::FoldedLatent;
use super::reference::{self, Answer};
use super::{LatentEvaluator, LatentNetwork};
use crate::{Error, KernelVariant};

/// Compares a path with float64 on a random network of a small architecture; the inner error is the reason to reject
/// the path.
pub(crate) fn self_check(path: KernelVariant, architecture: &Architecture) -> Result<Result<(), String>, Error> {
    const SEED: u64 = 1;
    let network = FoldedLatent::random(architecture, SEED)?;
    let packed = Arc::new(LatentNetwork::from_folded(&network, path)?);
    let mut evaluator = LatentEvaluator::new(packed, WeightsVersion(0));
    let worst = worst(&network, &mut evaluator).unwrap_or(f64::INFINITY);
    if worst > tolerance(path) {
        return Ok(Err(format!("off by {worst:.3} in the self-check")));
    }
    Ok(Ok(()))
}

/// Returns the maximum error of priors, and of values and rewards in atoms.
fn tolerance(path: KernelVariant) -> f64 {
    if path.is_bf16() { 0.3 } else { 1e-3 }
}

/// Returns the largest error over a few observations and steps from them.
fn worst(network: &FoldedLatent, evaluator: &mut LatentEvaluator) -> Result<f64, inference::Error> {
    // Two different states, repeated often enough for tiles of every size.
    const STATES: u32 = 34;
    let &Architecture { planes, height, width, actions, .. } = &network.architecture;
    let shape = ObservationShape { planes, height, width };
    let actions = u16::try_from(actions).unwrap_or(u16::MAX);
    let every: Vec<Action> = (0..actions).map(Action).collect();
    let mut batch = Batch::new(shape);
    for state in 0..STATES as usize {
        // A pattern without the period of a board.
        let observe = |i: usize| if i * i % 11 < 4 + state % 2 { 1.0 } else { -0.5 };
        batch.push(&every, |cells| cells.iter_mut().enumerate().for_each(|(i, cell)| *cell = observe(i)));
    }
    let to: Vec<Slot> = (0..STATES).map(Slot).collect();
    let choices = reference::choices(network);
    let choice = |from: u32, of: usize| Action(u16::try_from(from as usize % of).unwrap_or(u16::MAX));
    let step = |from: u32, of: usize| Unroll { from: Slot(from), action: choice(from, of), to: Slot(from + STATES) };
    let steps: Vec<Unroll> = (0..STATES).map(|from| step(from, choices)).collect();
    let first = [0, 1].map(|state| reference::initial(network, batch.observation(state)));

    evaluator.reserve(2 * STATES as usize)?;
    let mut predictions = LatentPredictions::default();
    evaluator.initial(&batch, &to, &mut predictions)?;
    let mut worst = (0..to.len()).map(|row| error(&predictions, row, &first[row % 2])).fold(0.0, greater);
    if !network.architecture.model.has_dynamics() {
        return Ok(worst);
    }
    evaluator.recurrent(&steps, &mut predictions)?;
    for (row, step) in steps.iter().enumerate().take(2 * choices) {
        let answer = reference::recurrent(network, &first[row % 2], step.action.index());
        worst = greater(worst, error(&predictions, row, &answer));
    }
    if evaluator.codes() > 0 {
        let steps: Vec<Unroll> = (0..STATES).map(|from| step(from, every.len())).collect();
        evaluator.act(&steps, &mut predictions)?;
        for (row, step) in steps.iter().enumerate().take(2 * every.len()) {
            let answer = reference::act(network, &first[row % 2], step.action.index());
            worst = greater(worst, error(&predictions, row, &answer));
        }
    }
    Ok(worst)
}

fn error(predictions: &LatentPredictions, row: usize, answer: &Answer) -> f64 {
    let total: f64 = answer.policy.iter().map(|logit| logit.exp()).sum();
    let priors = predictions.priors(row).iter().zip(&answer.policy);
    let of_priors = priors.map(|(&got, logit)| (f64::from(got) - logit.exp() / total).abs()).fold(0.0, greater);
    let scalars = [(predictions.value(row), answer.value), (predictions.reward(row), answer.reward)];
    scalars.into_iter().map(|(got, want)| (transform(f64::from(got)) - transform(want)).abs()).fold(of_priors, greater)
}

/// Returns the larger number, or infinity if one is NaN.
fn greater(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::INFINITY } else { a.max(b) }
}
