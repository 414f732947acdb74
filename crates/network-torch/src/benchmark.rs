//! Workloads for benchmarks that do their own timing: tensor operations on random numbers.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Tensor};

use crate::{DeviceRules, Error, dispatcher, layers, network, process};
use inference::Precision;

/// Channels of the convolution before and after.
const CHANNELS: i64 = 256;
/// Side length of the boards of the convolution.
const BOARD: i64 = 9;
/// Side length of the kernels of the convolution.
const KERNEL: i64 = 3;

/// An operation on square matrices with a given number of rows, on vectors with a given number of elements, or on a
/// batch with a given number of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The product of two matrices, `[N, N]` by `[N, N]`.
    Product,
    /// A convolution as in a large tower: `[N, 256, 9, 9]` with `[256, 256, 3, 3]`.
    Convolution,
    /// Elementwise sum of two vectors, `[N]`.
    Add,
    /// Elementwise product of two vectors, `[N]`.
    Multiply,
    /// The sum over all elements of one vector, `[]`.
    Sum,
    /// A copy of one vector, `[N]`, from host memory to the device and back, each awaited; on the CPU two copies in
    /// host memory.
    Copy,
}

impl Operation {
    /// All operations, in order of declaration.
    pub const ALL: [Self; 6] = [Self::Product, Self::Convolution, Self::Add, Self::Multiply, Self::Sum, Self::Copy];

    /// Returns the work of one operation at a size: multiply-adds for products and convolutions, otherwise the bytes to
    /// read and write, or to copy there and back.
    #[must_use]
    pub fn units(self, size: usize, precision: Precision) -> f64 {
        let vectors = match self {
            Self::Product => return (size as f64).powi(3),
            Self::Convolution => return size as f64 * (CHANNELS * BOARD * KERNEL).pow(2) as f64,
            Self::Add | Self::Multiply => 3.0,
            Self::Sum => 1.0,
            Self::Copy => 2.0,
        };
        vectors * size as f64 * crate::rules::kind(precision).elt_size_in_bytes() as f64
    }

    /// Checks a size: larger tensors would need more memory than machines have.
    fn check(self, size: usize) -> Result<(), Error> {
        let (field, largest, expected) = match self {
            Self::Product => ("side", 65_536, "1 to 65536"),
            Self::Convolution => ("positions", 65_536, "1 to 65536"),
            Self::Add | Self::Multiply | Self::Sum | Self::Copy => ("elements", 1 << 32, "1 to 4294967296"),
        };
        if (1..=largest).contains(&size) {
            return Ok(());
        }
        Err(training::Error::Setting { field, got: size as f64, expected }.into())
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Product => "matrix product",
            Self::Convolution => "convolution",
            Self::Add => "vector add",
            Self::Multiply => "vector multiply",
            Self::Sum => "vector sum",
            Self::Copy => "copy there and back",
        })
    }
}

/// A tensor operation for benchmarks, with operands of random numbers.
#[derive(Debug)]
pub struct Operands {
    operation: Operation,
    left: Tensor,
    right: Tensor,
    /// Overwritten each time, so that no large tensor is allocated during the measurement.
    result: Tensor,
}

impl Operands {
    /// Creates operands of a size. The seed alone decides every number.
    ///
    /// # Errors
    /// [`training::Error::Setting`] for a size that is out of range, [`Error::Libtorch`] if the device fails.
    pub fn new(
        operation: Operation,
        size: usize,
        device: Device,
        precision: Precision,
        seed: u64,
    ) -> Result<Self, Error> {
        operation.check(size)?;
        let size = i64::try_from(size).expect("the size was checked");
        let rules = DeviceRules::of(device);
        let random = |shape: &[i64], seed| uniform(shape, device, precision, seed);
        let (first, second): (&[i64], &[i64]) = match operation {
            Operation::Product => (&[size, size], &[size, size]),
            Operation::Convolution => (&[1, CHANNELS, BOARD, BOARD], &[CHANNELS, CHANNELS, KERNEL, KERNEL]),
            Operation::Add | Operation::Multiply => (&[size], &[size]),
            // A sum has neither a second vector nor a long result, and a copy has the second for the device only.
            Operation::Sum | Operation::Copy => (&[size], &[1]),
        };
        let (mut left, mut right) = (random(first, seed)?, random(second, seed.wrapping_add(1))?);
        if operation == Operation::Convolution {
            // Equal positions take the time of different ones.
            left = rules.memory_format.arrange(&left.f_expand([size, CHANNELS, BOARD, BOARD], false)?)?;
            right = rules.memory_format.arrange(&right)?;
        }
        if operation == Operation::Copy {
            left = left.f_to_device(Device::Cpu)?;
            if rules.pins_host_memory {
                left = dispatcher::pinned(&left).unwrap_or(left);
            }
        }
        let result = right.f_zeros_like()?;
        Ok(Self { operation, left, right, result })
    }

    /// Runs the operation `times` times in sequence, waits for the last one, and returns the first number of the
    /// result.
    ///
    /// There is one wait for an accelerator: the launch of an operation overlaps with the previous operation.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub fn operate(&mut self, times: usize) -> Result<f64, Error> {
        let _guard = tch::no_grad_guard();
        process::apply();
        for _ in 0..times {
            match self.operation {
                Operation::Product => drop(self.left.f_matmul_out(&self.result, &self.right)?),
                Operation::Convolution => self.result = layers::convolve(&self.left, &self.right, None)?,
                Operation::Add => drop(self.left.f_add_out(&self.result, &self.right)?),
                Operation::Multiply => drop(self.left.f_mul_out(&self.result, &self.right)?),
                Operation::Sum => self.result = self.left.f_sum(self.left.kind())?.f_view([1])?,
                Operation::Copy => {
                    let (there, kind) = (self.right.device(), self.left.kind());
                    let copy = self.left.f_to_device_(there, kind, false, true)?;
                    self.result = copy.f_to_device_(Device::Cpu, kind, false, true)?;
                }
            }
        }
        // The device finishes operations in order, so that the copy of one number waits for all of them.
        Ok(self.result.f_double_value(&vec![0; self.result.dim()])?)
    }
}

/// Returns uniform numbers from −1 to 1 in `shape`. The seed alone decides every number.
fn uniform(shape: &[i64], device: Device, precision: Precision, seed: u64) -> Result<Tensor, Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_: i64| rng.random_range(-1.0..1.0)).collect();
    Ok(network::upload(&values, device)?.f_view(shape)?.f_to_kind(crate::rules::kind(precision))?)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::{Operands, Operation};
    use crate::tests::networks::numbers;
    use inference::Precision;

    #[test]
    fn every_operation_agrees_with_its_result_on_the_host() {
        for operation in Operation::ALL {
            for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Bf16, 0.05)] {
                let mut operands = Operands::new(operation, 11, Device::Cpu, precision, 3).unwrap();
                let (left, right) = (numbers(&operands.left), numbers(&operands.right));
                assert_ne!(left, right);
                let expected: f64 = match operation {
                    Operation::Product => (0..11).map(|i| left[i] * right[11 * i]).sum(),
                    // In the corner of the board, the kernel covers four cells.
                    Operation::Convolution => (0..256)
                        .flat_map(|c| {
                            [(0, 4), (1, 5), (9, 7), (10, 8)].map(|(at, of)| left[81 * c + at] * right[9 * c + of])
                        })
                        .sum(),
                    Operation::Add => left[0] + right[0],
                    Operation::Multiply => left[0] * right[0],
                    Operation::Sum => left.iter().sum(),
                    Operation::Copy => left[0],
                };
                let got = operands.operate(3).unwrap();
                let is_close = (got - expected).abs() < tolerance * expected.abs().max(1.0);
                assert!(is_close, "{operation} is {got}, not {expected}, in {precision}");
            }
        }
    }

    #[test]
    fn vector_operations_count_the_bytes_read_and_written() {
        assert_eq!(Operation::Add.units(100, Precision::F32), 1200.0);
        assert_eq!(Operation::Multiply.units(100, Precision::Bf16), 600.0);
        assert_eq!(Operation::Sum.units(100, Precision::F32), 400.0);
        assert_eq!(Operation::Copy.units(100, Precision::Bf16), 400.0);
    }

    #[test]
    fn a_product_has_the_cube_of_its_side_in_multiply_adds() {
        let units = |side| Operation::Product.units(side, Precision::F32);
        assert_eq!([1, 10, 4096].map(units), [1.0, 1000.0, 68_719_476_736.0]);
    }

    #[test]
    fn a_convolution_has_the_multiply_adds_of_every_pair_of_channels_in_every_cell() {
        assert_eq!(Operation::Convolution.units(2, Precision::F32), 2.0 * (81 * 9 * 256 * 256) as f64);
    }

    #[test]
    fn a_vector_length_out_of_range_is_refused() {
        let error = Operands::new(Operation::Add, 0, Device::Cpu, Precision::F32, 1).unwrap_err();
        assert_eq!(error.to_string(), "setting `elements` is 0, expected 1 to 4294967296");
    }

    #[test]
    fn a_matrix_side_out_of_range_is_refused() {
        for side in [0, 70_000] {
            let error = Operands::new(Operation::Product, side, Device::Cpu, Precision::F32, 1).unwrap_err();
            assert_eq!(error.to_string(), format!("setting `side` is {side}, expected 1 to 65536"));
        }
    }
}
