//! Muon step of a matrix; the direction is orthogonalised with float32 products.

use std::cell::RefCell;

use training::muon::{COEFFICIENTS, EPSILON, ITERATIONS, scale};

use crate::Path;
use crate::buffer::Store;
use crate::convolution::Packed;
use crate::optimiser::{Squares, StepSettings};
use crate::shape::Shape;
use crate::weight_gradient::{Part, WeightGradient};

/// Iterations between products with X. Within such a group each Gram matrix follows from the previous one, which
/// costs less but multiplies the rounding errors in squares of singular values near 0 by 12.
const AT_ONCE: [usize; 3] = [2, 2, 1];
const _: () = assert!(AT_ONCE[0] + AT_ONCE[1] + AT_ONCE[2] == ITERATIONS, "all iterations are made");

thread_local! {
    /// Buffers of previous matrices, for reuse.
    static STORE: RefCell<Store> = RefCell::default();
}

/// A matrix with the step direction, `[outputs, inputs]` each.
pub(crate) struct Matrix<'a> {
    pub(crate) settings: StepSettings<'a>,
    pub(crate) shape: [usize; 2],
    pub(crate) parameters: &'a mut [f32],
    pub(crate) average: &'a mut [f32],
    pub(crate) direction: &'a mut [f32],
}

impl Matrix<'_> {
    /// Takes the step and updates the average.
    pub(crate) fn step(self) {
        let Self { settings, shape, parameters, average, direction } = self;
        let StepSettings { learning_rate, weight_decay, share, .. } = settings;
        orthogonalise(direction, shape);
        let (kept, rate) = ((1.0 - learning_rate * weight_decay) as f32, (learning_rate * scale(shape)) as f32);
        let share = share as f32;
        for ((parameter, average), direction) in parameters.iter_mut().zip(average).zip(direction) {
            *parameter = *parameter * kept - rate * *direction;
            *average += share * (*parameter - *average);
        }
    }
}

/// Replaces a matrix `[outputs, inputs]` by approximately the nearest orthogonal matrix: all singular values except
/// the smallest become about 1.
///
/// With X the matrix, or the transpose if that is taller, divided by the Frobenius norm, each iteration is
/// `X ← X (aI + bA + cA²)` with `A = XᵀX` of the smaller dimension.
fn orthogonalise(matrix: &mut [f32], [outputs, inputs]: [usize; 2]) {
    // With bfloat16 products each path would take different steps.
    let path = Path::widest();
    let (rows, columns) = (outputs.max(inputs), outputs.min(inputs));
    // Strides in X between outputs and between inputs.
    let strides = if inputs > outputs { [1, columns] } else { [columns, 1] };
    let place = |output: usize, input: usize| output * strides[0] + input * strides[1];
    let norm = (path.run(Squares(matrix)).sqrt() + EPSILON) as f32;
    let [a, b, c] = COEFFICIENTS.map(|coefficient| coefficient as f32);

    let shape = Shape::matrix(columns, columns);
    let of_gram = WeightGradient::new(shape, rows, path);
    let mut packed = Packed::new(shape, path);
    // The second factor is symmetric, so the transposition in the packing does not matter.
    let mut multiply = |left: &[f32], right: &[f32], product: &mut [f32]| {
        packed.pack(right);
        packed.convolve(left, None, product);
    };
    let (all, square) = (rows * columns, columns * columns);
    let lens = [all, all, square, square, square, square, of_gram.sums()];
    let buffers = STORE.with_borrow_mut(|store| lens.map(|len| store.take(len, len)));
    let [mut x, mut next, mut gram, mut polynomial, mut factor, mut product, mut sums] = buffers;
    for (output, row) in matrix.chunks_exact(inputs).enumerate() {
        row.iter().enumerate().for_each(|(input, number)| x[place(output, input)] = number / norm);
    }
    for iterations in AT_ONCE {
        of_gram.parts(&x, &x, &mut sums).into_iter().for_each(Part::compute);
        gram.fill(0.0);
        of_gram.add(&sums, 0..columns, &mut gram);
        factor.fill(0.0);
        factor.iter_mut().step_by(columns + 1).for_each(|diagonal| *diagonal = 1.0);
        for iteration in 0..iterations {
            if iteration > 0 {
                // With P the polynomial, the Gram matrix of XP is PAP.
                multiply(&gram, &polynomial, &mut product);
                multiply(&product, &polynomial, &mut gram);
            }
            multiply(&gram, &gram, &mut polynomial);
            polynomial.iter_mut().zip(&*gram).for_each(|(square, gram)| *square = b * gram + c * *square);
            polynomial.iter_mut().step_by(columns + 1).for_each(|diagonal| *diagonal += a);
            multiply(&factor, &polynomial, &mut product);
            std::mem::swap(&mut factor, &mut product);
        }
        multiply(&x, &factor, &mut next);
        std::mem::swap(&mut x, &mut next);
    }
    for (output, row) in matrix.chunks_exact_mut(inputs).enumerate() {
        row.iter_mut().enumerate().for_each(|(input, number)| *number = x[place(output, input)]);
    }
    let buffers = [x, next, gram, polynomial, factor, product, sums];
    STORE.with_borrow_mut(|store| buffers.map(|buffer| store.give(buffer)));
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use training::muon::{COEFFICIENTS, ITERATIONS};
    use training::{Group, Moment, MomentFormat, MomentKind, Optimiser};

    use super::orthogonalise;
    use crate::Path;
    use crate::optimiser::{StepSettings, Trained, apply};
    use crate::threads::Threads;

    /// Returns orthonormal vectors of length `len` (Gram-Schmidt).
    fn orthonormal(rng: &mut ChaCha8Rng, count: usize, len: usize) -> Vec<Vec<f64>> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut vectors: Vec<Vec<f64>> = Vec::new();
        for _ in 0..count {
            let mut vector: Vec<f64> = (0..len).map(|_| rng.random_range(-1.0..1.0)).collect();
            for _ in 0..2 {
                for other in &vectors {
                    let share = dot(&vector, other);
                    vector.iter_mut().zip(other).for_each(|(number, other)| *number -= share * other);
                }
            }
            let norm = dot(&vector, &vector).sqrt();
            vectors.push(vector.into_iter().map(|number| number / norm).collect());
        }
        vectors
    }

    /// Applies the iteration to a singular value.
    fn iterated(value: f64) -> f64 {
        let [a, b, c] = COEFFICIENTS;
        (0..ITERATIONS).fold(value, |x, _| a * x + b * x.powi(3) + c * x.powi(5))
    }

    /// Matrices are `Σ σ u vᵀ` with known singular values and vectors; the iteration changes σ alone.
    #[test]
    fn singular_values_become_about_one_as_in_float64() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let full = [(64, 576), (96, 40), (33, 33), (1, 7), (7, 1), (5, 300)].map(|shape| (shape, usize::MAX));
        for ((outputs, inputs), rank) in full.into_iter().chain([((20, 48), 3), ((48, 20), 7), ((16, 16), 1)]) {
            let rank = rank.min(outputs).min(inputs);
            let [left, right] = [outputs, inputs].map(|len| orthonormal(&mut rng, rank, len));
            let values: Vec<f64> = (0..rank).map(|_| 10_f64.powf(rng.random_range(-1.0..1.0))).collect();
            let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
            let matrix = |values: &[f64]| -> Vec<f64> {
                let of = |output: usize, input: usize| (0..rank).map(move |k| (k, output, input));
                let places = (0..outputs).flat_map(|output| (0..inputs).map(move |input| (output, input)));
                places
                    .map(|(o, i)| of(o, i).map(|(k, o, i)| values[k] * left[k][o] * right[k][i]).sum::<f64>())
                    .collect()
            };
            let mut got: Vec<f32> = matrix(&values).into_iter().map(|number| number as f32).collect();
            orthogonalise(&mut got, [outputs, inputs]);

            let ends: Vec<f64> = values.iter().map(|value| iterated(value / norm)).collect();
            // The extrema of the polynomial near 1, where it moves values towards 1, are 0.6817 and 1.2024.
            assert!(ends.iter().all(|end| (0.68..1.21).contains(end)), "{ends:?}");
            let expected = matrix(&ends);
            let size = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
            let apart = size(&mut got.iter().zip(&expected).map(|(&got, expected)| f64::from(got) - expected));
            let error = apart / size(&mut expected.iter().copied());
            assert!(error < 1e-4, "[{outputs}, {inputs}] of rank {rank}: relative error {error}");
        }
    }

    /// Takes five steps of these groups with random gradients; returns parameters and second moments.
    fn stepped(groups: &[Group], mut each: impl FnMut(&[f32])) -> [Vec<f32>; 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let (mut parameters, mut average) = (vec![0.5; SIZE], vec![0.0; SIZE]);
        let mut moments =
            [MomentKind::Gradient, MomentKind::Square].map(|kind| Moment::zeros(kind, MomentFormat::F32, SIZE));
        for step in 1..=5 {
            let mut gradient: Vec<f32> = (0..SIZE).map(|_| rng.random_range(-1.0..1.0)).collect();
            each(&gradient);
            let (learning_rate, weight_decay, scale, share) = (0.05, 0.1, 2.0, 1.0);
            let settings = StepSettings { groups, learning_rate, weight_decay, step, scale, share };
            let trained = Trained { parameters: &mut parameters, moments: &mut moments, average: &mut average };
            apply(Path::widest(), &mut Threads::new(2).unwrap(), settings, trained, &mut gradient);
            assert!(average.iter().zip(&parameters).all(|(average, newest)| (average - newest).abs() < 1e-6));
        }
        [parameters, moments[1].to_floats()]
    }

    const SIZE: usize = 20;

    /// Jordan et al. 2024 on one-row matrices, in which the norm is the only singular value, next to AdamW.
    #[test]
    fn muon_steps_matrices_along_orthogonal_momentum_and_the_rest_by_adamw() {
        const ROW: usize = 6;
        let group = |range, matrix, optimiser| Group { range, matrix, optimiser, is_decayed: true };
        let muon = group(0..2 * ROW, Some([1, ROW]), Optimiser::Muon { momentum: 0.8 });
        let (mut expected, mut sums) = ([0.5; 2 * ROW], [0.0; 2 * ROW]);
        let [got, squares] = stepped(&[muon, group(2 * ROW..SIZE, None, Optimiser::adamw())], |gradient| {
            let rows = expected.chunks_mut(ROW).zip(sums.chunks_mut(ROW)).zip(gradient.chunks(ROW));
            for ((values, sums), gradient) in rows {
                let newest = gradient.iter().map(|&number| f64::from(number) / 2.0);
                sums.iter_mut().zip(newest.clone()).for_each(|(sum, newest)| *sum = 0.8 * *sum + newest);
                let direction: Vec<f64> = newest.zip(&*sums).map(|(newest, sum)| newest + 0.8 * sum).collect();
                let norm = direction.iter().map(|number| number * number).sum::<f64>().sqrt();
                let factor = 0.2 * 6.0_f64.sqrt() * iterated(1.0) / norm;
                let moved = values.iter_mut().zip(direction);
                moved.for_each(|(value, direction)| *value -= 0.05 * (factor * direction + 0.1 * *value));
            }
        });
        for (got, expected) in got.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{got} instead of {expected}");
        }
        let [of_adamw, of_squares] = stepped(&[group(0..SIZE, None, Optimiser::adamw())], |_| {});
        assert_eq!((&got[2 * ROW..], &squares[2 * ROW..]), (&of_adamw[2 * ROW..], &of_squares[2 * ROW..]));
        assert_eq!(squares[..2 * ROW], [0.0; 2 * ROW]);
    }

    #[test]
    fn zeros_stay_zeros() {
        let mut zeros = vec![0.0; 12];
        orthogonalise(&mut zeros, [3, 4]);
        assert_eq!(zeros, [0.0; 12]);
    }
}
