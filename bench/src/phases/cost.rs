use crate::digits::number;

/// Time and price of a longer run at the measured speed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cost {
    /// Number of epochs of training.
    pub(super) epochs: f64,
    /// Positions trained on in one of them: as many as the window holds.
    pub(super) epoch_positions: f64,
    /// The time that they take; unknown if nothing was trained on.
    pub(super) hours: Option<f64>,
    /// Moves that self-play makes meanwhile.
    pub(super) positions: Option<f64>,
    /// The price of an hour, as given.
    pub(super) price_per_hour: Option<f64>,
    /// The price of all of it, in the same money.
    pub(super) price: Option<f64>,
}

/// The speed of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Speed {
    /// Positions trained on.
    pub(super) training_positions_per_second: Option<f64>,
    /// Moves of self-play.
    pub(super) positions_per_second: Option<f64>,
}

/// Computes time and price of `epochs` of `epoch_positions` at this speed.
pub(super) fn cost(epochs: f64, epoch_positions: f64, price_per_hour: Option<f64>, speed: Speed) -> Cost {
    let rate = speed.training_positions_per_second.filter(|rate| *rate > 0.0);
    let hours = rate.map(|rate| epochs * epoch_positions / rate / 3600.0);
    Cost {
        epochs,
        epoch_positions,
        hours,
        positions: hours.zip(speed.positions_per_second).map(|(hours, rate)| hours * 3600.0 * rate),
        price_per_hour,
        price: hours.zip(price_per_hour).map(|(hours, price)| hours * price),
    }
}

impl Cost {
    /// A sentence of a report.
    pub(super) fn in_words(&self) -> String {
        let Self { epochs, epoch_positions, hours, positions, price_per_hour, price } = self;
        let what = format!("{epochs} epochs of {epoch_positions:.0} training positions");
        let Some(hours) = hours else { return format!("{what}: unknown, since nothing was trained on.") };
        let mut text = format!("{what} take {hours:.2} hours at this speed");
        if let Some(positions) = positions {
            text += &format!(", in which self-play makes {} moves", number(*positions));
        }
        if let Some((price, per_hour)) = price.zip(*price_per_hour) {
            text += &format!(", and cost {price:.2} at {per_hour} per hour");
        }
        text + "."
    }
}

/// The positions of an epoch: those of the window, which is no smaller than configured once the table is full.
pub(super) fn epoch_positions(window_items: Option<f64>, window_items_min: u64) -> f64 {
    window_items.unwrap_or(0.0).max(window_items_min as f64)
}

#[cfg(test)]
mod tests {
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
}
