//! Chance nodes: visits follow the probabilities of the outcomes.

use crate::edges::{Octet, UNAVAILABLE};
use crate::select::lanes::{Choice, first_lane, greatest, lanes, sum};

/// Returns the available outcome visited least for its probability: `argmax_c p(c) − N(c) / (1 + ΣN)`. Ties go to the
/// lowest outcome. `None` if no outcome is available.
///
/// This is the quasi-random choice of Stochastic MuZero (Antonoglou et al. 2022, appendix A). It needs no random
/// numbers, and visit shares approach the probabilities faster than under random sampling. The counts include visits in
/// flight.
pub(crate) fn next(octets: &[Octet]) -> Option<Choice> {
    let visits: f32 = octets.iter().map(|octet| sum(&octet.count)).sum();
    let to_share = 1.0 / (1.0 + visits);
    let (mut best, mut best_score) = (None, UNAVAILABLE);
    for (number, octet) in octets.iter().enumerate() {
        let scores = lanes(|lane| {
            let lag = octet.prior[lane] - octet.count[lane] * to_share;
            if octet.value[lane] == UNAVAILABLE { UNAVAILABLE } else { lag }
        });
        let greatest = greatest(&scores);
        if greatest > best_score {
            best = Some(Choice { octet: number, lane: first_lane(&scores, greatest) });
            best_score = greatest;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::{Edges, LANES, UNVISITED};

    fn choose(values: &[f32], counts: &[f32], probabilities: &[f32]) -> Option<usize> {
        next(Edges::of(values, counts, probabilities).all()).map(|Choice { octet, lane }| octet * LANES + lane)
    }

    #[test]
    fn the_most_probable_outcome_comes_first_and_ties_go_to_the_lowest() {
        assert_eq!(choose(&[UNVISITED; 3], &[0.0; 3], &[0.2, 0.5, 0.3]), Some(1));
        assert_eq!(choose(&[UNVISITED; 3], &[0.0; 3], &[0.4, 0.2, 0.4]), Some(0));
    }

    #[test]
    fn outcomes_that_are_not_available_are_passed_over() {
        assert_eq!(choose(&[UNVISITED, UNAVAILABLE, 3.0], &[5.0, 0.0, 9.0], &[0.2, 0.7, 0.1]), Some(0));
        assert_eq!(choose(&[UNAVAILABLE; 2], &[0.0; 2], &[0.5; 2]), None);
    }

    /// Each count stays within 1.5 of the expected count. Random sampling would deviate by about the square root of the
    /// visits.
    #[test]
    fn visit_counts_stay_within_one_of_their_expectations() {
        let probabilities = [0.03, 0.3, 0.07, 0.25, 0.05, 0.1, 0.02, 0.06, 0.04, 0.08];
        let mut counts = [0.0; 10];
        for visits in 1..=2000 {
            let chosen = choose(&[0.0; 10], &counts, &probabilities).unwrap();
            counts[chosen] += 1.0;
            for (count, probability) in counts.iter().zip(probabilities) {
                let expected = f64::from(visits) * f64::from(probability);
                assert!((f64::from(*count) - expected).abs() < 1.5, "{counts:?} after {visits}");
            }
        }
    }
}
