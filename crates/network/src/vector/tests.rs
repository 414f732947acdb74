use tch::Device;

use super::{VectorOperation, Vectors};
use crate::{Precision, testing::numbers};

#[test]
fn operations_give_what_arithmetic_gives() {
    for operation in VectorOperation::ALL {
        for (precision, tolerance) in [(Precision::F32, 1e-5), (Precision::Bf16, 0.05)] {
            let mut vectors = Vectors::new(operation, 11, Device::Cpu, precision, 3).unwrap();
            let (left, right) = (numbers(&vectors.left), numbers(&vectors.right));
            let expected = match operation {
                VectorOperation::Add => left[0] + right[0],
                VectorOperation::Multiply => left[0] * right[0],
                VectorOperation::Sum => left.iter().sum(),
            };
            let got = vectors.operate(3).unwrap();
            assert!((got - expected).abs() < tolerance, "{operation} is {got}, not {expected}, in {precision}");
        }
    }
}

#[test]
fn what_is_read_and_written_counts() {
    assert_eq!(VectorOperation::Add.bytes(100, Precision::F32), 1200.0);
    assert_eq!(VectorOperation::Multiply.bytes(100, Precision::Bf16), 600.0);
    assert_eq!(VectorOperation::Sum.bytes(100, Precision::F32), 400.0);
}

#[test]
fn a_number_of_elements_that_no_vector_has_is_refused() {
    let error = Vectors::new(VectorOperation::Add, 0, Device::Cpu, Precision::F32, 1).unwrap_err();
    assert_eq!(error.to_string(), "setting `elements` is 0, expected 1 to 4294967296");
}
