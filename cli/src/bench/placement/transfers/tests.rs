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
