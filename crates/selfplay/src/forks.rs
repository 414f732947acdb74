//! Forks: episodes that start with the first plies of an earlier episode (Go-Exploit, Trudeau and Bowling 2023;
//! KataGo).
//!
//! An episode forks only from earlier episodes of the same slot, so that slots stay independent.

use std::collections::VecDeque;

use experience::Step;
use game::Action;
use rand::{Rng, RngExt};

/// Maximum number of fork positions stored for each slot. Beyond it, a new position replaces the oldest.
const KEPT_MAX: usize = 64;
/// Maximum number of plies before a fork. A higher limit would cost memory and add little variety.
const PLIES_MAX: usize = 1024;

/// The fork positions of a slot, each stored as an action list from the episode start.
#[derive(Debug, Default)]
pub(crate) struct Forks(VecDeque<Vec<Action>>);

impl Forks {
    /// Stores one position of a finished episode, drawn uniformly, as a fork position.
    pub(crate) fn keep(&mut self, steps: &[Step], rng: &mut impl Rng) {
        let last = steps.len().saturating_sub(1).min(PLIES_MAX);
        if last == 0 {
            return;
        }
        let plies = rng.random_range(1..=last);
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(steps[..plies].iter().map(|step| step.action).collect());
    }

    /// Draws a stored fork position uniformly. `None` if no position is stored.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> Option<&[Action]> {
        (!self.0.is_empty()).then(|| self.0[rng.random_range(0..self.0.len())].as_slice())
    }
}

/// Returns the Kullback-Leibler divergence of a search policy from the priors in nats. Both slices are `[actions]`.
pub(crate) fn surprise(policy: &[f32], priors: &[f32]) -> f32 {
    let term = |(&p, &prior): (&f32, &f32)| if p > 0.0 { p * (p / prior.max(f32::MIN_POSITIVE)).ln() } else { 0.0 };
    policy.iter().zip(priors).map(term).sum::<f32>().max(0.0)
}

#[cfg(test)]
mod tests {
    use experience::{StepKind, WeightsVersion};
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn steps(count: u16) -> Vec<Step> {
        let step = |action| Step {
            action: Action(action),
            reward: 0.0,
            kind: StepKind::Fast { value: 0.0 },
            weights_version: WeightsVersion(1),
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn every_position_but_the_first_and_the_last_is_kept_equally_often() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut counts = [0; 5];
        for _ in 0..4_000 {
            let mut forks = Forks::default();
            forks.keep(&steps(5), &mut rng);
            counts[forks.draw(&mut rng).unwrap().len()] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_newest_positions_are_kept_and_episodes_of_one_ply_have_none() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut forks = Forks::default();
        forks.keep(&steps(1), &mut rng);
        assert_eq!(forks.draw(&mut rng), None);
        for _ in 0..=KEPT_MAX {
            forks.keep(&steps(2), &mut rng);
        }
        assert_eq!((forks.0.len(), forks.draw(&mut rng).unwrap()), (KEPT_MAX, &[Action(0)][..]));
    }

    #[test]
    fn a_search_that_confirms_the_prior_is_no_surprise() {
        assert_eq!(surprise(&[0.25, 0.75], &[0.25, 0.75]), 0.0);
        let expected = 0.75 * 3.0_f32.ln() + 0.25 * (1.0_f32 / 3.0).ln();
        assert!((surprise(&[0.75, 0.25], &[0.25, 0.75]) - expected).abs() < 1e-6);
        assert!(surprise(&[1.0, 0.0], &[0.0, 1.0]).is_finite());
    }
}
