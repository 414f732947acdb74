use tch::{Device, Tensor};

use crate::{Error, Precision, random, threads};

/// The most rows of a matrix: with more, three matrices would take more memory than machines have.
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
mod tests {
    use tch::Device;

    use super::MatrixProduct;
    use crate::{Precision, testing::numbers};

    #[test]
    fn the_product_is_that_of_rows_and_columns() {
        for (precision, tolerance) in [(Precision::F32, 1e-5), (Precision::Bf16, 0.05)] {
            let product = MatrixProduct::new(7, Device::Cpu, precision, 3).unwrap();
            let (left, right) = (numbers(&product.left), numbers(&product.right));
            let expected: f64 = (0..7).map(|i| left[i] * right[7 * i]).sum();
            let got = product.multiply(2).unwrap();
            assert!((got - expected).abs() < tolerance, "{got} is not {expected} in {precision}");
            assert_ne!(left, right);
        }
    }

    #[test]
    fn a_product_has_the_cube_of_its_side_in_multiply_adds() {
        assert_eq!([1, 10, 4096].map(MatrixProduct::multiply_adds), [1.0, 1000.0, 68_719_476_736.0]);
    }

    #[test]
    fn a_side_that_no_matrix_has_is_refused() {
        for side in [0, 70_000] {
            let error = MatrixProduct::new(side, Device::Cpu, Precision::F32, 1).unwrap_err();
            assert_eq!(error.to_string(), format!("setting `side` is {side}, expected 1 to 65536"));
        }
    }
}
