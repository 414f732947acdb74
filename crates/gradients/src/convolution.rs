//! Gradients of the weights of 3×3 convolutions with a border of zeros.
//!
//! `dW[o, ky, kx, i] = sum over b, y, x of gradient[b, y, x, o] * input[b, y + ky - 1, x + kx - 1, i]`, where the input is zero
//! outside the board. [`Path`] says what it is computed with; start reading at [`WeightGradient::compute`].

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod portable;

use half::bf16;

/// Cells of the kernel along each side.
const SIDE: usize = 3;
/// Cells of the kernel.
const TAPS: usize = SIDE * SIDE;

/// What a convolution is like.
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
    /// Numbers of the input, `[B, H, W, I]`.
    fn input_len(self) -> usize {
        self.positions * self.height * self.width * self.inputs
    }

    /// Numbers of the gradient of the output, `[B, H, W, O]`.
    fn gradient_len(self) -> usize {
        self.positions * self.height * self.width * self.outputs
    }

    /// Weights, `[O, 3, 3, I]`.
    fn weights_len(self) -> usize {
        self.outputs * TAPS * self.inputs
    }
}

/// The part of `0..len` whose cells stay on the board when moved by a tap, 0 to 2, along this axis.
fn on_board(len: usize, tap: usize) -> std::ops::Range<usize> {
    usize::from(tap == 0)..len - usize::from(tap == SIDE - 1)
}

/// What it is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Matrix tiles of x86-64, packed with AVX-512.
    Amx,
    /// Plain Rust: other machines, and what the other path is held against.
    Portable,
}

impl Path {
    /// Whether this machine has it and the system lets us use it.
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

/// Gradients of the weights of 3×3 convolutions; keeps its buffers from call to call. One thread; uses the matrix tiles of
/// the thread that calls it, and leaves them released.
#[derive(Debug)]
pub struct WeightGradient(Method);

/// A path with its buffers.
#[derive(Debug)]
enum Method {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Amx(amx::Workspace),
    Portable(portable::Workspace),
}

impl WeightGradient {
    /// # Panics
    /// If the path is not available.
    #[must_use]
    pub fn new(path: Path) -> Self {
        assert!(path.is_available(), "{path:?} is not available on this machine");
        match path {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Path::Amx => Self(Method::Amx(amx::Workspace::new())),
            _ => Self(Method::Portable(portable::Workspace::default())),
        }
    }

    /// Overwrites the gradient of the weights, `[O, 3, 3, I]`, from `input`, `[B, H, W, I]`, and the gradient of the output,
    /// `[B, H, W, O]`. Products are summed in float32; tiles take subnormal numbers for zero.
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

#[cfg(test)]
mod tests;
