//! The importance of each tuned setting: the share of the variance of the results that a regression on this setting
//! alone explains.
//!
//! Results are replaced by their ranks (Iman and Conover 1979, "The Use of the Rank Transform in Regression"), so that
//! few trials that diverged do not outweigh all others. The ranks are regressed on the coordinate and its square, or on
//! the choice as a one-way analysis of variance does. The share of explained variance is the correlation ratio, the
//! first-order effect of global sensitivity analysis (Saltelli et al. 2008); it is adjusted for the number of
//! coefficients (Ezekiel 1930), so that a setting without effect has 0 on average. Effects of settings that appear only
//! together are not seen.

use super::range::{Range, Setting};
use super::sampler::Observation;

/// The fewest results from which importance is computed.
pub(super) const RESULTS_MIN: usize = 8;

/// Returns the importance of each setting, from 0 to 1; `None` with fewer than [`RESULTS_MIN`] results, or if all are
/// equal. Failed trials are left out, because they may have failed for any reason.
pub(super) fn importance(settings: &[Setting], observations: &[Observation]) -> Option<Vec<f64>> {
    let results: Vec<(&Observation, f64)> =
        observations.iter().filter_map(|observation| Some((observation, observation.score?))).collect();
    if results.len() < RESULTS_MIN {
        return None;
    }
    let ranks = ranks(&results.iter().map(|(_, score)| *score).collect::<Vec<_>>());
    let of_setting = |(index, setting): (usize, &Setting)| {
        let coordinates: Vec<f64> = results.iter().map(|(observation, _)| observation.coordinates[index]).collect();
        explained(&setting.range, &coordinates, &ranks)
    };
    settings.iter().enumerate().map(of_setting).collect()
}

/// Returns the rank of each value; equal values have the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|&&other| other < value).count() as f64;
    let equal = |value: f64| values.iter().filter(|&&other| other == value).count() as f64;
    values.iter().map(|&value| below(value) + (equal(value) - 1.0) / 2.0).collect()
}

/// Returns the adjusted share of the variance of `ranks` that a setting explains; `None` if they do not vary.
fn explained(range: &Range, coordinates: &[f64], ranks: &[f64]) -> Option<f64> {
    let count = ranks.len() as f64;
    let mean = ranks.iter().sum::<f64>() / count;
    let all: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    if all <= 0.0 {
        return None;
    }
    let columns = columns(range, coordinates);
    let rest = residual(columns, ranks.iter().map(|rank| rank - mean).collect());
    let (coefficients, rest) = (rest.coefficients as f64, rest.squares);
    let freedom = count - 1.0 - coefficients;
    if freedom < 1.0 {
        return Some(0.0);
    }
    Some((1.0 - (rest / freedom) / (all / (count - 1.0))).clamp(0.0, 1.0))
}

/// Returns the columns of the regression: coordinate and square, or an indicator of each choice.
fn columns(range: &Range, coordinates: &[f64]) -> Vec<Vec<f64>> {
    let Some((_, count)) = range.choice(0.0) else {
        let square = coordinates.iter().map(|coordinate| coordinate * coordinate).collect();
        return vec![coordinates.to_vec(), square];
    };
    let is_chosen = |coordinate: f64, choice| range.choice(coordinate).is_some_and(|(chosen, _)| chosen == choice);
    let indicator = |choice| coordinates.iter().map(|&x| f64::from(u8::from(is_chosen(x, choice)))).collect();
    (0..count).map(indicator).collect()
}

/// What a regression leaves: the sum of squares, and the number of independent columns.
struct Residual {
    squares: f64,
    coefficients: usize,
}

/// Subtracts from `values`, whose mean is 0, their projection on the columns, by Gram and Schmidt. Columns that depend
/// on the mean and those before them are left out.
fn residual(columns: Vec<Vec<f64>>, mut values: Vec<f64>) -> Residual {
    /// Share of a column's squares that must be independent of the columns before it.
    const INDEPENDENT_MIN: f64 = 1e-9;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for column in columns {
        let mean = column.iter().sum::<f64>() / column.len() as f64;
        let before = dot(&column, &column);
        let mut column: Vec<f64> = column.iter().map(|value| value - mean).collect();
        for other in &basis {
            let share = dot(&column, other);
            column.iter_mut().zip(other).for_each(|(value, other)| *value -= share * other);
        }
        let squares = dot(&column, &column);
        if squares <= INDEPENDENT_MIN * before {
            continue;
        }
        column.iter_mut().for_each(|value| *value /= squares.sqrt());
        let share = dot(&values, &column);
        values.iter_mut().zip(&column).for_each(|(value, column)| *value -= share * column);
        basis.push(column);
    }
    Residual { squares: dot(&values, &values), coefficients: basis.len() }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use serde_json::json;

    use super::*;

    fn settings() -> Vec<Setting> {
        vec![
            Setting::written("a", &json!({"min": 0.0, "max": 1.0})),
            Setting::written("b", &json!({"min": 0.0, "max": 1.0})),
            Setting::written("c", &json!({"choices": ["x", "y", "z"]})),
            Setting::written("d", &json!({"choices": ["x", "y", "z"]})),
        ]
    }

    /// Returns the importance where the score of random values is `score` of them.
    fn importance_of(count: usize, seed: u64, score: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let observation = |_| {
            let coordinates: Vec<f64> = (0..4).map(|_| rng.random()).collect();
            let score = Some(score(&coordinates));
            Observation { coordinates, score }
        };
        let observations: Vec<_> = (0..count).map(observation).collect();
        importance(&settings(), &observations).unwrap()
    }

    /// `a` has its best value inside, `c` one bad choice; `b` and `d` have no effect. The seeds are fixed.
    #[test]
    fn planted_settings_are_important_and_others_are_not() {
        for seed in 0..20 {
            let bad = |coordinate: f64| if coordinate > 2.0 / 3.0 { 1.0 } else { 0.0 };
            let got = importance_of(60, seed, |x| -4.0 * (x[0] - 0.6).powi(2) - 0.7 * bad(x[2]));
            let [a, b, c, d] = got[..] else { unreachable!() };
            assert!(a > 0.2 && c > 0.2 && b < 0.15 && d < 0.15 && b + d < 0.5 * a.min(c), "seed {seed}: {got:?}");
        }
    }

    #[test]
    fn a_setting_that_decides_everything_has_almost_all_importance_and_a_diverged_trial_changes_little() {
        let got = importance_of(40, 1, |x| x[0]);
        assert!(got[0] > 0.95 && got[1] < 0.1, "{got:?}");
        let diverged = importance_of(40, 1, |x| if x[0] < 0.05 { -1e30 } else { x[0] });
        assert!(diverged[0] > 0.9, "{diverged:?}");
    }

    /// Without any effect the mean of the unclamped share is 0; clamped at 0, that of 200 samples of 30 stays small.
    #[test]
    fn without_effects_the_importance_is_near_zero_on_average() {
        let sum: f64 = (0..200).map(|seed| importance_of(30, seed, |x| (x.iter().sum::<f64>() * 1e6).fract())[1]).sum();
        assert!(sum / 200.0 < 0.05, "{}", sum / 200.0);
    }

    /// The analysis of variance of a textbook's form: groups of ranks with known sums.
    #[test]
    fn the_share_of_choices_is_that_of_the_analysis_of_variance() {
        let observation = |choice: usize, score: f64| Observation {
            coordinates: vec![0.0, 0.0, (choice as f64 + 0.5) / 3.0, 0.0],
            score: Some(score),
        };
        let scores = [[0.0, 1.0, 5.0], [2.0, 3.0, 7.0], [4.0, 6.0, 8.0]];
        let observations: Vec<_> =
            (0..3).flat_map(|choice| scores[choice].map(|score| observation(choice, score))).collect();
        // Means 2, 4 and 6 around 4: 24 of 60 are between the choices. Adjusted: 1 - (36 / 6) / (60 / 8).
        let got = importance(&settings(), &observations).unwrap();
        assert!((got[2] - 0.2).abs() < 1e-12, "{got:?}");
        assert_eq!(got[0], 0.0, "a setting with one value explains nothing");
    }

    #[test]
    fn few_or_equal_results_have_no_importance() {
        let of = |count: usize, score: Option<f64>| vec![Observation { coordinates: vec![0.5; 4], score }; count];
        assert_eq!(importance(&settings(), &of(7, Some(1.0))), None);
        assert_eq!(importance(&settings(), &of(20, Some(1.0))), None);
        assert_eq!(importance(&settings(), &of(20, None)), None);
    }

    #[test]
    fn equal_values_share_the_mean_of_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 7.0]), [1.5, 0.0, 1.5, 3.0]);
    }
}
