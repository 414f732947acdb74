use half::bf16;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::{Path, Shape, WeightGradient};

const SHAPES: [Shape; 8] = [
    shape(1, 1, 1, 1, 1),
    shape(3, 2, 5, 3, 16),
    shape(33, 6, 7, 2, 64),
    shape(64, 6, 7, 64, 64),
    shape(40, 9, 9, 48, 32),
    shape(5, 19, 19, 17, 40),
    shape(2, 5, 1, 20, 33),
    // Several bands of rows.
    shape(34, 19, 19, 128, 48),
];

const fn shape(positions: usize, height: usize, width: usize, inputs: usize, outputs: usize) -> Shape {
    Shape { positions, height, width, inputs, outputs }
}

/// The paths of this machine.
fn paths() -> impl Iterator<Item = Path> {
    [Path::Portable, Path::Amx].into_iter().filter(|path| path.is_available())
}

struct Example {
    shape: Shape,
    /// `[B, H, W, I]`.
    input: Vec<bf16>,
    /// `[B, H, W, O]`.
    gradient: Vec<bf16>,
}

impl Example {
    fn new(shape: Shape) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(17);
        let mut random = |len| (0..len).map(|_| bf16::from_f32(rng.random_range(-1.0..1.0))).collect();
        Self { shape, input: random(shape.input_len()), gradient: random(shape.gradient_len()) }
    }

    /// What a path makes of it; weights are NaN before.
    fn computed(&self, with: &mut WeightGradient) -> Vec<f32> {
        let mut weights = vec![f32::NAN; self.shape.weights_len()];
        with.compute(self.shape, &self.input, &self.gradient, &mut weights);
        weights
    }

    /// The formula over a board with an explicit border of zeros, and the same with absolute values, `[O, 3, 3, I]`.
    fn expected(&self) -> Vec<(f64, f64)> {
        let Shape { positions, height, width, inputs, outputs } = self.shape;
        let mut expected = vec![(0.0, 0.0); self.shape.weights_len()];
        for b in 0..positions {
            let mut padded = vec![0.0; (height + 2) * (width + 2) * inputs];
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                for i in 0..inputs {
                    let number = self.input[((b * height + y) * width + x) * inputs + i];
                    padded[((y + 1) * (width + 2) + x + 1) * inputs + i] = number.to_f64();
                }
            }
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                for o in 0..outputs {
                    let gradient = self.gradient[((b * height + y) * width + x) * outputs + o].to_f64();
                    for (ky, kx) in (0..3).flat_map(|ky| (0..3).map(move |kx| (ky, kx))) {
                        let input = &padded[((y + ky) * (width + 2) + x + kx) * inputs..][..inputs];
                        let sums = &mut expected[((o * 3 + ky) * 3 + kx) * inputs..][..inputs];
                        for ((sum, absolute), input) in sums.iter_mut().zip(input) {
                            *sum += gradient * input;
                            *absolute += (gradient * input).abs();
                        }
                    }
                }
            }
        }
        expected
    }
}

#[test]
fn weights_get_the_sum_over_positions_and_cells_of_gradient_times_shifted_input() {
    for shape in SHAPES {
        let example = Example::new(shape);
        let expected = example.expected();
        for path in paths() {
            let computed = example.computed(&mut WeightGradient::new(path));
            for (index, (computed, (sum, absolute))) in computed.iter().zip(&expected).enumerate() {
                // Sums of float32: many times what rounding in an unfavourable order costs.
                let error = (f64::from(*computed) - sum).abs();
                assert!(error <= 1e-5 * absolute, "{path:?} {shape:?} weight {index}: {computed}, not {sum}");
            }
        }
    }
}

#[test]
fn a_call_leaves_nothing_behind_for_the_next() {
    for path in paths() {
        let mut used = WeightGradient::new(path);
        for shape in SHAPES.iter().chain(SHAPES.iter().rev()) {
            let example = Example::new(*shape);
            let fresh = example.computed(&mut WeightGradient::new(path));
            assert!(example.computed(&mut used) == fresh, "{path:?} {shape:?} differs after other shapes");
        }
    }
}

#[test]
#[should_panic(expected = "gradient of Shape")]
fn a_length_that_does_not_fit_is_refused() {
    let example = Example::new(shape(2, 3, 3, 4, 5));
    let mut weights = vec![0.0; example.shape.weights_len()];
    WeightGradient::new(Path::Portable).compute(example.shape, &example.input, &example.gradient[1..], &mut weights);
}
