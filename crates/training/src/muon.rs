//! Constants of Muon (Jordan et al. 2024), the same in both backends.

/// Coefficients a, b, c of `aX + b(XXᵀ)X + c(XXᵀ)²X`, which moves every singular value of X towards 1.
pub const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
/// Newton-Schulz iterations per step: singular values above a five-hundredth of the norm end within 0.68 and 1.21.
pub const ITERATIONS: usize = 5;
/// Added to the norm by which a matrix is divided.
pub const EPSILON: f64 = 1e-7;

/// Returns the multiplier of an orthogonal direction `[outputs, inputs]` that gives it the root mean square of an
/// AdamW step, so that learning rate and weight decay carry over from AdamW (Liu et al. 2025, section 2.2).
#[must_use]
pub fn scale([outputs, inputs]: [usize; 2]) -> f64 {
    0.2 * (outputs.max(inputs) as f64).sqrt()
}
