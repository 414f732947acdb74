//! Gradients of the weights of 3×3 convolutions with zero padding.
//!
//! `dW[o, ky, kx, i] = sum over b, y, x of gradient[b, y, x, o] * input[b, y + ky - 1, x + kx - 1, i]`, where the input
//! is zero outside the board. [`Path`] names the instructions; start reading at [`WeightGradient::compute`].

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;

use half::bf16;
use half::slice::HalfFloatSliceExt as _;

/// Cells of the kernel along each side.
const SIDE: usize = 3;
/// Cells of the kernel.
const TAPS: usize = SIDE * SIDE;

/// The sizes of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// B: positions of a batch.
    pub positions: usize,
    /// H: rows of the board.
    pub height: usize,
    /// W: columns of the board.
    pub width: usize,
    /// I: channels of the input.
    pub inputs: usize,
    /// O: channels of the output.
    pub outputs: usize,
}

impl Shape {
    /// Number of elements of the input, `[B, H, W, I]`.
    fn input_len(self) -> usize {
        self.positions * self.height * self.width * self.inputs
    }

    /// Number of elements of the gradient of the output, `[B, H, W, O]`.
    fn gradient_len(self) -> usize {
        self.positions * self.height * self.width * self.outputs
    }

    /// Number of weights, `[O, 3, 3, I]`.
    fn weights_len(self) -> usize {
        self.outputs * TAPS * self.inputs
    }
}

/// Returns the part of `0..len` whose cells stay on the board when shifted by a tap, 0 to 2, along this axis.
fn on_board(len: usize, tap: usize) -> std::ops::Range<usize> {
    usize::from(tap == 0)..len - usize::from(tap == SIDE - 1)
}

/// The instructions that compute the gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Matrix tiles of x86-64, packed with AVX-512.
    Amx,
    /// Plain Rust, for other machines and as the reference for the other path.
    Portable,
}

impl Path {
    /// Returns whether this machine has the instructions and the system permits their use.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Amx => amx::is_available(),
            #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
            Self::Amx => false,
            Self::Portable => true,
        }
    }
}

/// Computes gradients of the weights of 3×3 convolutions and keeps its buffers from call to call. It runs on the
/// calling thread, whose matrix tiles it uses and then releases.
#[derive(Debug)]
pub struct WeightGradient(Method);

/// A path with its buffers.
#[derive(Debug)]
enum Method {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Amx(amx::Workspace),
    Portable(Portable),
}

impl WeightGradient {
    /// Creates the empty buffers of a path.
    ///
    /// # Panics
    /// If the path is not available.
    #[must_use]
    pub fn new(path: Path) -> Self {
        assert!(path.is_available(), "{path:?} is not available on this machine");
        match path {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Path::Amx => Self(Method::Amx(amx::Workspace::new())),
            _ => Self(Method::Portable(Portable::default())),
        }
    }

    /// Overwrites the gradient of the weights, `[O, 3, 3, I]`, from `input`, `[B, H, W, I]`, and the gradient of the
    /// output, `[B, H, W, O]`. Products are summed in float32; tiles treat subnormal numbers as zero.
    ///
    /// # Panics
    /// If a dimension is zero or a length does not fit the shape.
    pub fn compute(&mut self, shape: Shape, input: &[bf16], gradient: &[bf16], weights: &mut [f32]) {
        let Shape { positions, height, width, inputs, outputs } = shape;
        assert!([positions, height, width, inputs, outputs].iter().all(|&len| len > 0), "{shape:?} is empty");
        assert_eq!(input.len(), shape.input_len(), "input of {shape:?}");
        assert_eq!(gradient.len(), shape.gradient_len(), "gradient of {shape:?}");
        assert_eq!(weights.len(), shape.weights_len(), "weights of {shape:?}");
        match &mut self.0 {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Method::Amx(workspace) => workspace.compute(shape, input, gradient, weights),
            Method::Portable(workspace) => workspace.compute(shape, input, gradient, weights),
        }
    }
}

/// The portable path, which evaluates the formula position by position, in float32.
#[derive(Debug, Default)]
struct Portable {
    /// `[H, W, I]`.
    input: Vec<f32>,
    /// `[H, W, O]`.
    gradient: Vec<f32>,
}

impl Portable {
    /// Computes the gradient of the weights; lengths must fit the shape.
    fn compute(&mut self, shape: Shape, input: &[bf16], gradient: &[bf16], weights: &mut [f32]) {
        let cells = shape.height * shape.width;
        self.input.resize(cells * shape.inputs, 0.0);
        self.gradient.resize(cells * shape.outputs, 0.0);
        weights.fill(0.0);
        let positions = input.chunks_exact(cells * shape.inputs).zip(gradient.chunks_exact(cells * shape.outputs));
        for (input, gradient) in positions {
            input.convert_to_f32_slice(&mut self.input);
            gradient.convert_to_f32_slice(&mut self.gradient);
            for tap in 0..TAPS {
                self.add_tap(shape, tap, weights);
            }
        }
    }

    /// Adds the contribution of one position to one cell of the kernel.
    fn add_tap(&self, shape: Shape, tap: usize, weights: &mut [f32]) {
        let (down, right) = (tap / SIDE, tap % SIDE);
        for y in on_board(shape.height, down) {
            for x in on_board(shape.width, right) {
                let cell = y * shape.width + x;
                let seen = (y + down - 1) * shape.width + x + right - 1;
                let input = &self.input[seen * shape.inputs..][..shape.inputs];
                let gradient = &self.gradient[cell * shape.outputs..][..shape.outputs];
                for (gradient, weights) in gradient.iter().zip(weights.chunks_exact_mut(TAPS * shape.inputs)) {
                    let weights = &mut weights[tap * shape.inputs..][..shape.inputs];
                    weights.iter_mut().zip(input).for_each(|(sum, input)| *sum += gradient * input);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
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

        /// The gradient that a path computes; weights are NaN before.
        fn computed(&self, with: &mut WeightGradient) -> Vec<f32> {
            let mut weights = vec![f32::NAN; self.shape.weights_len()];
            with.compute(self.shape, &self.input, &self.gradient, &mut weights);
            weights
        }

        /// The formula over a board with an explicit border of zeros, and the same with absolute values, `[O, 3, 3,
        /// I]`.
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
                    // The tolerance is many times the rounding error of float32 sums in an unfavourable order.
                    let error = (f64::from(*computed) - sum).abs();
                    assert!(error <= 1e-5 * absolute, "{path:?} {shape:?} weight {index}: {computed}, not {sum}");
                }
            }
        }
    }

    #[test]
    fn a_reused_weight_gradient_computes_the_same_as_a_new_one() {
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
        WeightGradient::new(Path::Portable).compute(
            example.shape,
            &example.input,
            &example.gradient[1..],
            &mut weights,
        );
    }
}
