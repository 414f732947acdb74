use game::Game;
use games::{GameKind, with_game};

use super::report::{CPU, Transfers};
use super::tensors::Devices;
use crate::bench::phases::Rates;

/// Numbers are of 32 bits on their way to and from a device.
const BYTES: f64 = 4.0;
/// Win, draw and loss.
const OUTCOMES: f64 = 3.0;

/// What is copied for what was done; nothing where everything is on the CPU.
pub(super) fn transfers(game: GameKind, devices: &Devices, rates: &Rates) -> Transfers {
    let (planes, actions) = with_game!(game, |game| sizes(&game));
    // What a batch of the learner holds of each position: planes, policy, legal actions, outcome, weight of the policy.
    let trained = BYTES * (planes + 2.0 * actions + OUTCOMES + 1.0);
    let evaluated = BYTES * (planes + actions + OUTCOMES);
    let copies = |device: Option<&str>, rate: Option<f64>| match device? {
        CPU => Some(0.0),
        _ => rate,
    };
    let (learner, evaluator) = (devices.learner.as_deref(), devices.of_evaluator());
    let evaluations = rates.evaluations_per_second;
    let batches = evaluations.zip(rates.mean_batch).map(|(evaluations, mean)| evaluations / mean);
    Transfers {
        training_batches_per_second: copies(learner, rates.steps_per_second),
        training_bytes_per_second: copies(learner, rates.training_positions_per_second.map(|rate| rate * trained)),
        evaluated_batches_per_second: copies(evaluator, batches),
        evaluated_bytes_per_second: copies(evaluator, evaluations.map(|rate| rate * evaluated)),
    }
}

/// Numbers of an observation, and actions.
fn sizes(game: &impl Game) -> (f64, f64) {
    let (spec, shape) = (game.spec(), game.spec().observation);
    ((shape.planes * shape.height * shape.width) as f64, spec.actions as f64)
}

#[cfg(test)]
mod tests;
