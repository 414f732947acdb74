//! Constants of Muon (Jordan et al. 2024), the same in both backends.

/// Coefficients a, b, c of the Newton-Schulz iteration `aX + b(XXᵀ)X + c(XXᵀ)²X`, which moves singular values towards
/// 1.
pub const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
/// Newton-Schulz iterations per step. They move singular values above 1/500 of the norm to the range from 0.68 to 1.21.
pub const ITERATIONS: usize = 5;
/// Term added to the norm of a matrix before division by the norm.
pub const EPSILON: f64 = 1e-7;

/// Returns the factor for an orthogonal direction `[outputs, inputs]`. The scaled direction has the root mean square of
/// an AdamW update, so that learning rate and weight decay of AdamW also suit Muon (Liu et al. 2025, section 2.2).
#[must_use]
pub fn scale([outputs, inputs]: [usize; 2]) -> f64 {
    0.2 * (outputs.max(inputs) as f64).sqrt()
}
