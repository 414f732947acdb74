//! The division of the cores between the learner and self-play, where both compute on CPUs.

/// Costs that a run has measured, in seconds of one thread per stored position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Training on the position, as often as it is sampled.
    pub training: f64,
    /// Self-play up to the position, with the configured number of simulations.
    pub self_play: f64,
}

/// Returns the number of learner threads among `cores` threads with which neither side waits for the other: the share
/// of training in the costs. Self-play has the rest, at least one thread.
#[must_use]
pub fn learner_threads(cores: usize, costs: Costs) -> usize {
    let share = costs.training / (costs.training + costs.self_play);
    let threads = if share.is_finite() { (share * cores as f64).round() as usize } else { 1 };
    threads.clamp(1, cores.saturating_sub(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learner_has_the_share_of_training_in_the_costs_and_each_side_a_thread() {
        let of = |cores, training, self_play| learner_threads(cores, Costs { training, self_play });
        assert_eq!([of(16, 3.0, 1.0), of(16, 1.0, 3.0), of(16, 1.0, 1.0), of(3, 1.0, 1.2)], [12, 4, 8, 1]);
        assert_eq!(
            [of(16, 1.0, 0.0), of(16, 0.0, 1.0), of(2, 9.0, 1.0), of(2, 1.0, 9.0), of(1, 1.0, 1.0)],
            [15, 1, 1, 1, 1]
        );
        assert_eq!([of(16, 0.0, 0.0), of(16, f64::NAN, 1.0)], [1, 1]);
    }
}
