use tch::{Device, Kind, Tensor};

use crate::Error;

/// Numbers on the CPU on their way to a device or back: kept from batch to batch, and pinned where that lets a copy
/// happen while a batch is computed.
#[derive(Debug)]
pub(crate) struct Staging {
    device: Device,
    /// `[capacity]`, float32, contiguous, on the CPU.
    tensor: Option<Tensor>,
    capacity: usize,
}

impl Staging {
    /// For copies to or from `device`; nothing is allocated yet.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, tensor: None, capacity: 0 }
    }

    /// The first `len` numbers as a tensor `[len]` in the same memory.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if there is no memory.
    pub(crate) fn tensor(&mut self, len: usize) -> Result<Tensor, Error> {
        let tensor = match self.tensor.take() {
            Some(tensor) if self.capacity >= len => tensor,
            _ => {
                // Batches differ by a little from call to call.
                self.capacity = len.next_power_of_two();
                allocate(self.capacity, self.device)?
            }
        };
        Ok(self.tensor.insert(tensor).f_narrow(0, 0, i64::try_from(len).expect("a batch fits memory"))?)
    }

    /// The first `len` numbers, for writing. Tensors in the same memory are not to be in use meanwhile.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub(crate) fn numbers(&mut self, len: usize) -> Result<&mut [f32], Error> {
        let tensor = self.tensor(len)?;
        // SAFETY: the tensor is float32, contiguous, on the CPU and at least `len` long; `self.tensor` keeps its memory
        // for as long as `self` is borrowed. Nothing else touches it: other tensors of this memory live only while a
        // batch is submitted and collected, which also borrows `self` mutably, and a device that copies from it has
        // done so once the answers of that batch were read; a flight whose batch failed is never staged again.
        Ok(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), len) })
    }
}

fn allocate(capacity: usize, device: Device) -> Result<Tensor, Error> {
    let size = i64::try_from(capacity).expect("a batch fits memory");
    let plain = Tensor::f_zeros([size], (Kind::Float, Device::Cpu))?;
    if !device.is_cuda() {
        return Ok(plain);
    }
    // Where the system lets nothing be pinned, copies are slower and as right.
    Ok(plain.f_pin_memory(device).unwrap_or(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers;

    #[test]
    fn what_is_written_is_what_the_tensor_holds() {
        let mut staging = Staging::new(Device::Cpu);
        staging.numbers(3).unwrap().copy_from_slice(&[1.0, 2.0, 3.0]);
        assert_eq!(numbers(&staging.tensor(3).unwrap()), [1.0, 2.0, 3.0]);
        let _ = staging.tensor(2).unwrap().f_add_scalar_(1.0).unwrap();
        assert_eq!(staging.numbers(3).unwrap(), [2.0, 3.0, 3.0]);
    }

    #[test]
    fn memory_is_allocated_once_for_the_largest_batch() {
        let mut staging = Staging::new(Device::Cpu);
        let large = staging.numbers(1000).unwrap().as_ptr();
        assert_eq!(staging.numbers(7).unwrap().as_ptr(), large);
        assert_eq!(staging.numbers(1024).unwrap().as_ptr(), large);
    }
}
