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
