use game::Game;
use games::{GameKind, with_game};

use super::tensors::{CPU, Devices};
use crate::phases::Rates;

/// Numbers are of 32 bits on their way to and from a device.
const BYTES: f64 = 4.0;
/// Win, draw and loss.
const OUTCOMES: f64 = 3.0;

/// The copies between devices: computed from the work done, not measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Transfers {
    /// Batches of the learner that go to its device; 0 on a CPU.
    pub(super) training_batches_per_second: Option<f64>,
    /// Bytes of those.
    pub(super) training_bytes_per_second: Option<f64>,
    /// Batches of self-play that go to their device and come back as answers; 0 on a CPU.
    pub(super) evaluated_batches_per_second: Option<f64>,
    /// Bytes of those, both ways.
    pub(super) evaluated_bytes_per_second: Option<f64>,
}

/// Computes the copies for the work done; nothing where everything is on the CPU.
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
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        games_per_second: None,
        positions_per_second: None,
        evaluations_per_second: Some(600.0),
        simulations_per_second: None,
        mean_batch: Some(60.0),
        steps_per_second: Some(2.0),
        training_positions_per_second: Some(100.0),
        window_items: None,
        insert_wait_share: None,
        sample_wait_share: None,
    };

    fn devices(learner: &str, evaluator: &str) -> Devices {
        Devices { learner: Some(learner.to_owned()), precision: None, evaluator: Some(evaluator.to_owned()) }
    }

    #[test]
    fn on_the_cpu_nothing_is_copied() {
        let none = Some(0.0);
        let found = transfers(GameKind::TicTacToe, &devices("cpu", "CPU kernel"), &RATES);
        assert_eq!((found.training_batches_per_second, found.training_bytes_per_second), (none, none));
        assert_eq!((found.evaluated_batches_per_second, found.evaluated_bytes_per_second), (none, none));
    }

    #[test]
    fn an_accelerator_is_sent_every_batch() {
        let found = transfers(GameKind::TicTacToe, &devices("cuda", "libtorch on cuda (works), bf16"), &RATES);
        let (planes, actions) = sizes(&games::TicTacToe::new());
        assert_eq!((found.training_batches_per_second, found.evaluated_batches_per_second), (Some(2.0), Some(10.0)));
        assert_eq!(found.training_bytes_per_second, Some(100.0 * 4.0 * (planes + 2.0 * actions + 4.0)));
        assert_eq!(found.evaluated_bytes_per_second, Some(600.0 * 4.0 * (planes + actions + 3.0)));
    }

    #[test]
    fn what_nobody_tells_is_not_known() {
        assert_eq!(transfers(GameKind::TicTacToe, &Devices::default(), &RATES), Transfers::default());
    }
}
