//! Implements the sequential probability ratio test of Wald 1945 for the difference in strength between two players.
//!
//! The test compares two hypotheses about the difference: `elo0` and `elo1`. It may be evaluated after every batch of
//! openings, and stops as soon as one hypothesis is accepted, so that a clear difference takes few games. The data
//! are pairs of games with sides exchanged. The five results of a pair have unknown probabilities: each hypothesis
//! fixes only the mean, and the likelihood is maximised over the rest (the generalised test, as in Fishtest; Van den
//! Bergh 2019, *A practical introduction to the GSPRT*). Draw rates and the correlation of the two games need no
//! model. Start with [`Sprt`].

use serde::Serialize;

use crate::ledger::Tally;

/// Pseudo-count of pairs for each unobserved result, as in Fishtest. With zero counts, a single observed result would
/// exclude every hypothesis but one.
const UNOBSERVED: f64 = 1e-3;

/// Maximum number of steps in a root search. Each step either halves the interval or is a Newton step.
const STEPS_MAX: usize = 200;

/// Maximum difference in a hypothesis, in Elo, at which the stronger player scores 0.9999 of the points.
const ELO_MAX: f64 = 1600.0;

/// Minimum distance between the hypotheses, in Elo: a finer test would take more than ten million games.
const DISTANCE_MIN: f64 = 0.1;

/// Hypotheses and error rates of a test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Settings {
    /// Difference in strength under H0, in Elo on the logistic scale.
    pub elo0: f64,
    /// Difference in strength under H1, above `elo0`.
    pub elo1: f64,
    /// Probability of accepting H1 where H0 holds.
    pub alpha: f64,
    /// Probability of accepting H0 where H1 holds.
    pub beta: f64,
}

/// The reason why [`Settings`] are rejected.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Error {
    /// The hypotheses are not two finite differences in order.
    #[error(
        "the hypotheses {elo0} and {elo1} must be from -{max} to {max} Elo, the second at least {distance} above the \
         first",
        max = ELO_MAX,
        distance = DISTANCE_MIN
    )]
    Hypotheses {
        /// Difference under H0.
        elo0: f64,
        /// Difference under H1.
        elo1: f64,
    },
    /// An error rate is not between 0 and 0.5.
    #[error("{name}: must be above 0 and below 0.5, got {rate}")]
    Rate {
        /// Name of the rate: `alpha` or `beta`.
        name: &'static str,
        /// Value of the rate.
        rate: f64,
    },
}

/// The state of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The games so far do not suffice for a decision.
    Continue,
    /// H0 is accepted: the difference is not as large as `elo1`.
    AcceptH0,
    /// H1 is accepted: the difference is larger than `elo0`.
    AcceptH1,
}

/// The log-likelihood ratios at which a test stops.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bounds {
    /// H0 is accepted at this ratio or below: ln(β / (1 − α)).
    pub low: f64,
    /// H1 is accepted at this ratio or above: ln((1 − β) / α).
    pub high: f64,
}

/// A sequential probability ratio test; see the [module](self). A test stores no games: its state depends only on a
/// [`Tally`] of all games, not on the batches in which they were played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sprt {
    settings: Settings,
    bounds: Bounds,
    /// Expected score of a pair, 0 to 1, under H0.
    score0: f64,
    /// Expected score of a pair, 0 to 1, under H1.
    score1: f64,
}

impl Sprt {
    /// Creates a test from hypotheses and error rates.
    ///
    /// # Errors
    /// A value is out of range; [`Error`] names it.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let Settings { elo0, elo1, alpha, beta } = settings;
        let is_in_range = |elo: f64| (-ELO_MAX..=ELO_MAX).contains(&elo);
        if !(is_in_range(elo0) && is_in_range(elo1) && elo1 - elo0 >= DISTANCE_MIN) {
            return Err(Error::Hypotheses { elo0, elo1 });
        }
        for (name, rate) in [("alpha", alpha), ("beta", beta)] {
            if !(rate > 0.0 && rate < 0.5) {
                return Err(Error::Rate { name, rate });
            }
        }
        let bounds = Bounds { low: (beta / (1.0 - alpha)).ln(), high: ((1.0 - beta) / alpha).ln() };
        Ok(Self { settings, bounds, score0: score(elo0), score1: score(elo1) })
    }

    /// Returns the hypotheses and error rates.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Returns the log-likelihood ratios at which the test stops.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Returns the logarithm of the likelihood ratio, H1 over H0. Each likelihood is maximised over all probabilities
    /// of a pair's five results with the expected score of the hypothesis.
    #[must_use]
    pub fn log_likelihood_ratio(&self, tally: Tally) -> f64 {
        if tally.openings() == 0 {
            return 0.0;
        }
        let counts = counts(tally);
        log_likelihood(&counts, self.score1) - log_likelihood(&counts, self.score0)
    }

    /// Returns the state of the test after these results.
    #[must_use]
    pub fn state(&self, tally: Tally) -> State {
        let ratio = self.log_likelihood_ratio(tally);
        if ratio >= self.bounds.high {
            State::AcceptH1
        } else if ratio <= self.bounds.low {
            State::AcceptH0
        } else {
            State::Continue
        }
    }
}

/// Returns the expected score, 0 to 1, of a player that is `elo` above the opponent.
fn score(elo: f64) -> f64 {
    1.0 / (1.0 + 10_f64.powf(-elo / 400.0))
}

/// Returns by how much each result of a pair deviates from a score, as a fraction of the two points.
fn deviations(score: f64) -> [f64; 5] {
    [0.0, 0.25, 0.5, 0.75, 1.0].map(|result| result - score)
}

/// Returns how many pairs have each total of half points, with [`UNOBSERVED`] in place of zeros.
fn counts(tally: Tally) -> [f64; 5] {
    tally.pairs.map(|pairs| if pairs == 0 { UNOBSERVED } else { pairs as f64 })
}

/// Returns max Σ nᵢ ln pᵢ over all probabilities p with mean `score`, minus Σ nᵢ ln (nᵢ / n), which depends on no
/// score.
///
/// By Lagrange multipliers pᵢ = nᵢ / (n (1 + θ dᵢ)), where dᵢ is the deviation of result i from the score and θ the
/// root of Σ nᵢ dᵢ / (1 + θ dᵢ).
fn log_likelihood(counts: &[f64; 5], score: f64) -> f64 {
    let deviations = deviations(score);
    let theta = multiplier(counts, &deviations);
    let terms = counts.iter().zip(deviations).map(|(count, deviation)| count * (theta * deviation).ln_1p());
    -terms.sum::<f64>()
}

/// Returns the root θ of Σ nᵢ dᵢ / (1 + θ dᵢ), by Newton's method inside a bracketing interval. All probabilities are
/// positive only between the poles of the first and the last result, where the sum falls from ∞ to −∞.
fn multiplier(counts: &[f64; 5], deviations: &[f64; 5]) -> f64 {
    let (mut low, mut high) = (-1.0 / deviations[4], -1.0 / deviations[0]);
    let mut theta = 0.0;
    for _ in 0..STEPS_MAX {
        let (mut sum, mut slope) = (0.0, 0.0);
        for (count, deviation) in counts.iter().zip(deviations) {
            let term = deviation / (1.0 + theta * deviation);
            sum += count * term;
            slope -= count * term * term;
        }
        if sum > 0.0 {
            low = theta;
        } else {
            high = theta;
        }
        let newton = theta - sum / slope;
        let next = if newton > low && newton < high { newton } else { f64::midpoint(low, high) };
        if (next - theta).abs() <= 1e-13 * theta.abs().max(1.0) {
            return next;
        }
        theta = next;
    }
    theta
}

#[cfg(test)]
mod tests;
