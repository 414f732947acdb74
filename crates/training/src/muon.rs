//! The constants of Muon (Jordan et al. 2024), which both backends compute with.

/// The coefficients a, b, c of `aX + b(XXᵀ)X + c(XXᵀ)²X`, which moves every singular value of X towards 1.
pub const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
/// Newton-Schulz iterations of a step: singular values above a five-hundredth of the norm end within 0.68 and 1.21.
pub const ITERATIONS: usize = 5;
/// Added to the norm by which a matrix is divided.
pub const EPSILON: f64 = 1e-7;

/// The factor of an orthogonal direction `[outputs, inputs]`, with which it has the root mean square of steps of AdamW,
/// so that learning rate and weight decay are those of AdamW (Liu et al. 2025, section 2.2).
#[must_use]
pub fn scale([outputs, inputs]: [usize; 2]) -> f64 {
    0.2 * (outputs.max(inputs) as f64).sqrt()
}
