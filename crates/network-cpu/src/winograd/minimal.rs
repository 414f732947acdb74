/// Filter taps along a side.
pub(super) const TAPS: usize = 3;
/// Outputs per piece for sides that are a multiple of seven cells, with narrow registers: a row of Connect Four is
/// one such piece.
pub(super) const SEVEN: usize = 7;

/// Finite points. Fractions among whole numbers give the smallest rounding errors (Barabasz et al. 2020, arXiv
/// 1803.10986): pieces with up to five outputs round like nine taps, pieces with six a fifth more. The first point of
/// every piece is infinity, followed by the first of these numbers, so that pieces of all sizes share the filter
/// values.
pub(super) const NUMBERS: [f64; 7] = [0.0, 1.0, -1.0, 0.5, -2.0, -0.5, 2.0];
/// Finite points for pieces of seven, which share no values with other pieces. The rounding errors are 1.7 times
/// those of nine taps; with one more number added to the points above, they would be twice that.
const NUMBERS_OF_SEVEN: [f64; 8] = [-1.0, 1.0, 0.25, -0.25, 0.625, -0.625, 2.0, -2.0];
/// Index of the number one within the points: the product there enters every output once, and so does a bias added to
/// it.
pub(super) const ONE: usize = 2;

/// Returns finite point `number` of a piece with `points` points.
const fn number(points: usize, number: usize) -> f64 {
    if points == SEVEN + TAPS - 1 { NUMBERS_OF_SEVEN[number] } else { NUMBERS[number] }
}

/// Returns the filter `g₀ + g₁ x + g₂ x²` at one of `points` points.
pub(super) fn filter_at(points: usize, point: usize, [g0, g1, g2]: [f64; TAPS]) -> f64 {
    match point.checked_sub(1) {
        None => g2,
        Some(index) => g0 + number(points, index) * (g1 + number(points, index) * g2),
    }
}

/// The filtering F(M, 3) of `N = M + 2` inputs at N points: `outputs = OUTPUTS · (filter ⊙ INPUTS · inputs)`.
pub(crate) struct Minimal<const M: usize, const N: usize>;

impl<const M: usize, const N: usize> Minimal<M, N> {
    /// Inputs to values at points, `[point, input]`.
    pub(crate) const INPUTS: [[f32; N]; N] = rounded(inputs());
    /// Products at points to outputs, `[output, point]`.
    pub(crate) const OUTPUTS: [[f32; N]; M] = rounded(outputs());
}

/// Returns [`Minimal::INPUTS`]: the transpose of interpolation. A polynomial of degree N − 1 is the Lagrange
/// interpolation of the values at the numbers, plus the leading coefficient times `∏ (x − number)`.
pub(super) const fn inputs<const N: usize>() -> [[f64; N]; N] {
    let mut matrix = [[0.0; N]; N];
    matrix[0] = with_roots::<N>(N);
    let mut index = 0;
    while index < N - 1 {
        let mut divisor = 1.0;
        let mut other = 0;
        while other < N - 1 {
            if other != index {
                divisor *= number(N, index) - number(N, other);
            }
            other += 1;
        }
        let polynomial = with_roots::<N>(index);
        let mut power = 0;
        while power < N {
            matrix[index + 1][power] = polynomial[power] / divisor;
            power += 1;
        }
        index += 1;
    }
    matrix
}

/// Returns the coefficients of `∏ (x − number)` over the first N − 1 numbers except number `but`, constant first.
const fn with_roots<const N: usize>(but: usize) -> [f64; N] {
    let mut coefficients = [0.0; N];
    coefficients[0] = 1.0;
    let mut index = 0;
    while index < N - 1 {
        if index != but {
            let mut power = N - 1;
            while power > 0 {
                coefficients[power] = coefficients[power - 1] - number(N, index) * coefficients[power];
                power -= 1;
            }
            coefficients[0] *= -number(N, index);
        }
        index += 1;
    }
    coefficients
}

/// Returns [`Minimal::OUTPUTS`]: the transpose of evaluation; output j takes the j-th powers of the numbers.
pub(super) const fn outputs<const M: usize, const N: usize>() -> [[f64; N]; M] {
    let mut matrix = [[0.0; N]; M];
    matrix[M - 1][0] = 1.0;
    let mut index = 0;
    while index < N - 1 {
        let (mut output, mut power) = (0, 1.0);
        while output < M {
            matrix[output][index + 1] = power;
            power *= number(N, index);
            output += 1;
        }
        index += 1;
    }
    matrix
}

const fn rounded<const ROWS: usize, const COLUMNS: usize>(exact: [[f64; COLUMNS]; ROWS]) -> [[f32; COLUMNS]; ROWS] {
    let mut matrix = [[0.0; COLUMNS]; ROWS];
    let mut row = 0;
    while row < ROWS {
        let mut column = 0;
        while column < COLUMNS {
            matrix[row][column] = exact[row][column] as f32;
            column += 1;
        }
        row += 1;
    }
    matrix
}
