//! Divides the CPU cores between learner and actors in a run without accelerators, according to the costs measured in
//! the first minutes.

use fleet::placement::{Costs, learner_threads, threads_per_actor};
use fleet::plan::Plan;
use fleet::run_directory::Learner;
use run_metrics::RunMetrics;

/// Minimum training time in seconds before the cores are divided, to exclude the warm-up of batches and caches.
const MEASURED_SECONDS: f64 = 120.0;
/// Minimum number of training steps before the cores are divided.
const MEASURED_STEPS: f64 = 100.0;

/// A division of the CPU cores between learner and actors that is still to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CoreDivision {
    cores: usize,
    pub(crate) actors: usize,
    /// Number of learner threads while the costs are measured.
    learner_threads: usize,
    /// Samples per training step.
    batch_size: f64,
    /// Samples per stored position.
    samples_per_insert: f64,
    /// Configured number of simulations in a full search (`selfplay.full_simulations`). Actors run more simulations
    /// while they would otherwise wait for the learner.
    full_simulations: f64,
}

impl CoreDivision {
    /// Returns the pending division of a run; `None` if thread counts are configured, an earlier session has divided
    /// the cores, or a program of the user trains, of which no costs are measured.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let is_measured = plan.progress.learner == Learner::Zerofleet;
        let cores = plan.placement.divided_cores.filter(|_| is_measured && plan.progress.learner_threads == 0)?;
        Some(Self {
            cores,
            actors: plan.actors,
            learner_threads: plan.placement.learner_threads,
            batch_size: plan.config.learner.batch_size as f64,
            samples_per_insert: plan.config.replay.main.samples_per_insert,
            full_simulations: f64::from(plan.config.selfplay.full_simulations),
        })
    }

    /// Returns the thread counts of the learner and of each actor; `None` until enough has been measured.
    pub(crate) fn threads(&self, measured: &RunMetrics) -> Option<[usize; 2]> {
        let steps = measured.steps.filter(|&steps| steps >= MEASURED_STEPS)?;
        let (positions, simulations) = (measured.positions?, measured.simulations?);
        if measured.elapsed_seconds < MEASURED_SECONDS {
            return None;
        }
        let seconds = |phase: &str| measured.seconds.get(phase).copied().unwrap_or_default();
        let training = seconds("learner/train") * self.learner_threads as f64;
        let deepened = (simulations / positions / self.full_simulations).max(1.0);
        let costs = Costs {
            training: training / (steps * self.batch_size) * self.samples_per_insert,
            self_play: (seconds("actor/evaluate") + seconds("actor/search")) / positions / deepened,
        };
        let learner = learner_threads(self.cores, costs);
        Some([learner, threads_per_actor(self.cores, learner, self.actors)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division() -> CoreDivision {
        CoreDivision {
            cores: 16,
            actors: 2,
            learner_threads: 1,
            batch_size: 256.0,
            samples_per_insert: 2.5,
            full_simulations: 32.0,
        }
    }

    /// Returns the metrics after two minutes: 14 threads played 1,000 positions per second with `simulations` per
    /// position, and one thread computed 100 training steps per minute.
    fn measured(simulations: f64) -> RunMetrics {
        let seconds = [("learner/train", 100.0), ("actor/evaluate", 1400.0), ("actor/search", 280.0)];
        RunMetrics {
            elapsed_seconds: 120.0,
            steps: Some(200.0),
            positions: Some(120_000.0),
            simulations: Some(120_000.0 * simulations),
            seconds: seconds.map(|(phase, seconds)| (phase.to_owned(), seconds)).into(),
            ..RunMetrics::default()
        }
    }

    #[test]
    fn cores_are_divided_by_the_costs_of_a_position_and_of_the_samples_it_is_trained_with() {
        // 4.9 ms of training and 14 ms of self-play per position: the learner gets 26 % of 16 cores.
        assert_eq!(division().threads(&measured(32.0)), Some([4, 6]));
        // Searches deepened to four times the configured simulations count with a quarter of the cost: 58 %.
        assert_eq!(division().threads(&measured(128.0)), Some([9, 3]));
        // Searches that stop early count with the measured cost.
        assert_eq!(division().threads(&measured(16.0)), Some([4, 6]));
    }

    #[test]
    fn nothing_is_divided_before_both_sides_were_measured() {
        for early in [
            RunMetrics { elapsed_seconds: 119.0, ..measured(32.0) },
            RunMetrics { steps: Some(99.0), ..measured(32.0) },
            RunMetrics { positions: None, ..measured(32.0) },
            RunMetrics::default(),
        ] {
            assert_eq!(division().threads(&early), None);
        }
    }
}
