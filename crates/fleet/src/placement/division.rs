//! Divides the CPU cores between learner and self-play if both compute on CPUs.

/// Measured costs of a run, in thread-seconds per stored position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Cost of training on a position, over all samples of the position.
    pub training: f64,
    /// Cost of playing a position with the configured number of simulations.
    pub self_play: f64,
}

/// Returns the number of learner threads, out of `cores`, for which neither learner nor self-play waits: in proportion
/// to the share of training in the costs. Self-play has the remaining cores, at least one if there are two.
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
