//! Estimates effects and standard errors from the differences between paired runs.

/// The effects estimated by a regression.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fit {
    /// One effect per column of the design.
    pub effects: Vec<Effect>,
    /// Degrees of freedom of the standard errors.
    pub freedom: usize,
}

/// An estimated effect with a standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Effect {
    pub mean: f64,
    pub error: f64,
}

/// Regresses `differences` on the columns of `design` (one row per difference) by least squares without an intercept.
/// A single column of ones gives the mean difference. Returns `None` without degrees of freedom, or if columns are
/// linearly dependent.
pub(super) fn fit(design: &[Vec<f64>], differences: &[f64]) -> Option<Fit> {
    let columns = design.first()?.len();
    let freedom = differences.len().checked_sub(columns).filter(|&freedom| freedom > 0)?;
    let inverse = inverse_of_squares(design, columns)?;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let shares: Vec<f64> =
        (0..columns).map(|column| design.iter().zip(differences).map(|(row, d)| row[column] * d).sum()).collect();
    let means: Vec<f64> = inverse.iter().map(|row| dot(row, &shares)).collect();
    let squares: f64 = design.iter().zip(differences).map(|(row, d)| (d - dot(row, &means)).powi(2)).sum();
    let error = |column: usize| (squares / freedom as f64 * inverse[column][column]).sqrt();
    let effects = means.iter().enumerate().map(|(column, &mean)| Effect { mean, error: error(column) }).collect();
    Some(Fit { effects, freedom })
}

/// Returns the inverse of XᵀX by Gauss-Jordan elimination; `None` if XᵀX is singular.
fn inverse_of_squares(design: &[Vec<f64>], columns: usize) -> Option<Vec<Vec<f64>>> {
    /// Minimum pivot. Since the matrix XᵀX contains integers, smaller pivots are rounding errors.
    const PIVOT_MIN: f64 = 1e-9;
    let row = |i: usize| -> Vec<f64> {
        let squares = (0..columns).map(|j| design.iter().map(|row| row[i] * row[j]).sum());
        squares.chain((0..columns).map(|j| if i == j { 1.0 } else { 0.0 })).collect()
    };
    let mut system: Vec<Vec<f64>> = (0..columns).map(row).collect();
    for pivot in 0..columns {
        // XᵀX is positive definite, so that elimination needs no row exchanges.
        let divisor = Some(system[pivot][pivot]).filter(|divisor| *divisor > PIVOT_MIN)?;
        system[pivot].iter_mut().for_each(|value| *value /= divisor);
        let unit = system[pivot].clone();
        for (_, other) in system.iter_mut().enumerate().filter(|(index, _)| *index != pivot) {
            let factor = other[pivot];
            other.iter_mut().zip(&unit).for_each(|(value, unit)| *value -= factor * unit);
        }
    }
    Some(system.into_iter().map(|row| row[columns..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_ones_has_the_mean_and_its_standard_error() {
        let Fit { effects, freedom } = fit(&vec![vec![1.0]; 4], &[1.0, 2.0, 3.0, 6.0]).unwrap();
        assert_eq!((effects[0].mean, freedom), (3.0, 3));
        assert!((effects[0].error - (14.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12, "{effects:?}");
    }

    #[test]
    fn columns_that_are_not_orthogonal_are_told_apart_and_those_that_depend_on_each_other_refused() {
        let design: Vec<Vec<f64>> = [[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]].map(Vec::from).into();
        let differences: Vec<f64> = design.iter().map(|row| 5.0 * row[0] - 2.0 * row[1]).collect();
        let effects = fit(&design, &differences).unwrap().effects;
        assert!((effects[0].mean - 5.0).abs() < 1e-12 && (effects[1].mean + 2.0).abs() < 1e-12, "{effects:?}");
        assert!(effects.iter().all(|effect| effect.error < 1e-12), "{effects:?}");
        assert_eq!(fit(&vec![vec![1.0, -1.0]; 4], &[1.0; 4]), None);
        assert_eq!(fit(&[vec![1.0]], &[1.0]), None, "one difference has no standard error");
        assert_eq!(fit(&[], &[]), None);
    }
}
