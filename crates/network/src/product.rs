use tch::{Device, Tensor};

use crate::{Error, Precision, random, threads};

/// More rows than this are nobody's matrix here: three matrices would take more memory than machines have.
const SIDE_MAX: usize = 65_536;

/// A product of two square matrices of random numbers, `[N, N]` by `[N, N]`, for benchmarks.
#[derive(Debug)]
pub struct MatrixProduct {
    left: Tensor,
    right: Tensor,
    /// Written anew each time: what is timed allocates nothing.
    product: Tensor,
}

impl MatrixProduct {
    /// Two matrices of `side` rows. The seed alone decides every number.
    ///
    /// # Errors
    /// A side that no matrix has, or [`Error::Libtorch`] if the device refuses.
    pub fn new(side: usize, device: Device, precision: Precision, seed: u64) -> Result<Self, Error> {
        if !(1..=SIDE_MAX).contains(&side) {
            return Err(Error::Setting { field: "side", got: side as f64, expected: "1 to 65536" });
        }
        let rows = i64::try_from(side).expect("the side was checked");
        let matrix = |seed| random::uniform(&[rows, rows], 1.0, device, precision, seed);
        let (left, right) = (matrix(seed)?, matrix(seed.wrapping_add(1))?);
        let product = left.f_zeros_like()?;
        Ok(Self { left, right, product })
    }

    /// Multiply-adds of one product of matrices of `side` rows: N³.
    #[must_use]
    pub fn multiply_adds(side: usize) -> f64 {
        (side as f64).powi(3)
    }

    /// Multiplies so many times, one product after the other, waits for the last one, and returns its first number.
    ///
    /// An accelerator is waited for once: what leads up to an operation overlaps with the one before.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device refuses.
    pub fn multiply(&self, times: usize) -> Result<f64, Error> {
        let _guard = tch::no_grad_guard();
        threads::apply();
        for _ in 0..times {
            let _ = self.left.f_matmul_out(&self.product, &self.right)?;
        }
        // Operations of a device come to their end in order, so that the copy of one number waits for all of them.
        Ok(self.product.f_double_value(&[0, 0])?)
    }
}

#[cfg(test)]
mod tests;
