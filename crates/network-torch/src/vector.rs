use tch::{Device, Tensor};

use crate::{Error, Precision, random, threads};

/// More elements than this are more memory than machines have.
const ELEMENTS_MAX: usize = 1 << 32;

/// The operation on every element of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorOperation {
    /// The sums of the elements of two vectors, `[N]`.
    Add,
    /// The products of the elements of two vectors, `[N]`.
    Multiply,
    /// The sum over all elements of one vector, `[]`.
    Sum,
}

impl VectorOperation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Add, Self::Multiply, Self::Sum];

    /// Bytes that one operation on vectors of so many elements has to read and write.
    #[must_use]
    pub fn bytes(self, elements: usize, precision: Precision) -> f64 {
        let vectors = match self {
            Self::Add | Self::Multiply => 3.0,
            Self::Sum => 1.0,
        };
        vectors * elements as f64 * precision.kind().elt_size_in_bytes() as f64
    }
}

impl std::fmt::Display for VectorOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Multiply => "multiply",
            Self::Sum => "sum",
        })
    }
}

/// An operation and the vectors of random numbers it is done to, for benchmarks.
#[derive(Debug)]
pub struct Vectors {
    operation: VectorOperation,
    left: Tensor,
    right: Tensor,
    /// Written anew each time: what is timed allocates no vector.
    result: Tensor,
}

impl Vectors {
    /// Vectors of so many elements. The seed alone decides every number.
    ///
    /// # Errors
    /// A number of elements that no vector has, or [`Error::Libtorch`] if the device refuses.
    pub fn new(
        operation: VectorOperation,
        elements: usize,
        device: Device,
        precision: Precision,
        seed: u64,
    ) -> Result<Self, Error> {
        if !(1..=ELEMENTS_MAX).contains(&elements) {
            return Err(Error::Setting { field: "elements", got: elements as f64, expected: "1 to 4294967296" });
        }
        let elements = i64::try_from(elements).expect("the number of elements was checked");
        let vector = |len, seed| random::uniform(&[len], 1.0, device, precision, seed);
        let left = vector(elements, seed)?;
        // A sum has neither a second vector nor a long result.
        let len = if operation == VectorOperation::Sum { 1 } else { elements };
        let right = vector(len, seed.wrapping_add(1))?;
        let result = right.f_zeros_like()?;
        Ok(Self { operation, left, right, result })
    }

    /// Does it so many times, one after the other, waits for the last one, and returns the first number of its result.
    ///
    /// An accelerator is waited for once, as in [`MatrixProduct::multiply`](crate::MatrixProduct::multiply).
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device refuses.
    pub fn operate(&mut self, times: usize) -> Result<f64, Error> {
        let _guard = tch::no_grad_guard();
        threads::apply();
        for _ in 0..times {
            match self.operation {
                VectorOperation::Add => drop(self.left.f_add_out(&self.result, &self.right)?),
                VectorOperation::Multiply => drop(self.left.f_mul_out(&self.result, &self.right)?),
                VectorOperation::Sum => self.result = self.left.f_sum(self.left.kind())?.f_view([1])?,
            }
        }
        Ok(self.result.f_double_value(&[0])?)
    }
}

#[cfg(test)]
mod tests {
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
}
