use super::*;

const SPEED: Speed = Speed { training_positions_per_second: Some(2000.0), positions_per_second: Some(500.0) };

#[test]
fn epochs_take_their_positions_at_the_speed_of_training() {
    let cost = cost(36.0, 100_000.0, Some(3.0), SPEED);
    assert_eq!((cost.hours, cost.price, cost.positions), (Some(0.5), Some(1.5), Some(900_000.0)));
}

#[test]
fn without_a_price_there_is_none() {
    let cost = cost(36.0, 100_000.0, None, SPEED);
    assert_eq!((cost.hours, cost.price), (Some(0.5), None));
}

#[test]
fn where_nothing_was_trained_on_nothing_is_foretold() {
    for rate in [None, Some(0.0)] {
        let cost = cost(1.0, 100.0, Some(3.0), Speed { training_positions_per_second: rate, ..SPEED });
        assert_eq!((cost.hours, cost.price, cost.positions), (None, None, None));
    }
}

#[test]
fn an_epoch_is_the_window_as_it_will_be_when_the_table_is_full() {
    assert_eq!(epoch_positions(Some(7_000.0), 100_000), 100_000.0);
    assert_eq!(epoch_positions(Some(120_000.0), 100_000), 120_000.0);
    assert_eq!(epoch_positions(None, 100_000), 100_000.0);
}
