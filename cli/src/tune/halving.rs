//! Asynchronous successive halving, ASHA (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning"), in
//! the stopping variant. A trial that reaches a rung continues only if its objective is among the best 1/η of all
//! objectives measured at this rung so far. No trial waits for another trial.

/// The rungs of a study: the fractions of the full budget at which trials are compared and stopped.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Halving {
    /// Budget of each rung in minutes or positions, in ascending order.
    pub budgets: Vec<f64>,
    /// Reduction factor η: about 1/η of the trials at a rung continue.
    pub reduction_factor: f64,
}

impl Halving {
    /// Creates `count` rungs below the budget `full`: at `full` / η, `full` / η², and so on.
    pub(super) fn new(full: f64, count: u32, reduction_factor: f64) -> Self {
        let budgets = (1..=count).rev().map(|below| full / reduction_factor.powf(f64::from(below)));
        Self { budgets: budgets.collect(), reduction_factor }
    }

    /// Returns true if a trial with this score (higher is better) continues. `others` are the scores of earlier trials
    /// at the same rung. The best ⌊n / η⌋ of n trials continue, but at least one. Among equal scores, the earlier trial
    /// ranks higher.
    pub(super) fn goes_on(&self, score: f64, others: &[f64]) -> bool {
        let ahead = others.iter().filter(|&&other| other >= score).count();
        let places = ((others.len() + 1) as f64 / self.reduction_factor).floor().max(1.0);
        (ahead as f64) < places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_divide_the_full_budget_by_powers_of_the_reduction_factor() {
        assert_eq!(Halving::new(27.0, 3, 3.0).budgets, [1.0, 3.0, 9.0]);
        assert!(Halving::new(27.0, 0, 3.0).budgets.is_empty());
    }

    /// Compares the decisions with ranks in a sorted list, for every arrival order of five scores.
    #[test]
    fn a_trial_goes_on_if_its_rank_is_within_the_best_share_of_those_so_far() {
        let halving = Halving::new(1.0, 1, 2.0);
        let mut orders = vec![vec![]];
        for score in 0..5 {
            let inserted = |order: &Vec<f64>| {
                let order = order.clone();
                (0..=order.len()).map(move |at| [&order[..at], &[f64::from(score)], &order[at..]].concat())
            };
            orders = orders.iter().flat_map(inserted).collect();
        }
        assert_eq!(orders.len(), 120);
        for order in orders {
            for (index, &score) in order.iter().enumerate() {
                let mut so_far = order[..=index].to_vec();
                so_far.sort_by(|a, b| b.total_cmp(a));
                let rank = so_far.iter().position(|&other| other == score).unwrap();
                let expected = rank < (so_far.len() / 2).max(1);
                assert_eq!(halving.goes_on(score, &order[..index]), expected, "{score} after {:?}", &order[..index]);
            }
        }
    }

    #[test]
    fn the_first_trial_goes_on_and_an_equal_one_after_it_does_not() {
        let halving = Halving::new(1.0, 1, 3.0);
        assert!(halving.goes_on(0.5, &[]));
        assert!(!halving.goes_on(0.5, &[0.5]));
        assert!(halving.goes_on(0.6, &[0.5]));
        assert!(halving.goes_on(0.5, &[0.9, 0.1, 0.2, 0.3, 0.4]), "the second of six");
    }
}
