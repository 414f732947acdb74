use tch::{Device, Kind, Tensor};

use crate::{Error, dispatcher};

/// A CPU buffer for copies to or from a device. It is reused for later batches, and pinned where that allows a copy
/// while a batch is computed.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(super) device: Device,
    /// `[capacity]`, float32, contiguous, on the CPU.
    tensor: Option<Tensor>,
    capacity: usize,
}

impl Staging {
    /// Creates a buffer for copies to or from `device`; nothing is allocated yet.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, tensor: None, capacity: 0 }
    }

    /// Returns the first `len` numbers as a tensor `[len]` in the same memory.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if memory cannot be allocated.
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

    /// Returns the first `len` numbers for writing. Tensors in the same memory must not be in use meanwhile.
    ///
    /// # Errors
    /// The same as [`tensor`](Self::tensor).
    pub(crate) fn numbers(&mut self, len: usize) -> Result<&mut [f32], Error> {
        let tensor = self.tensor(len)?;
        // SAFETY: the tensor is float32, contiguous, on the CPU and at least `len` long; `self.tensor` keeps the
        // memory alive while `self` is borrowed. Nothing else accesses it: other tensors of this memory live only
        // while a batch is in flight, and a device that copies from it has finished once the results of that batch
        // were read; the buffer of a failed batch is dropped.
        Ok(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), len) })
    }
}

fn allocate(capacity: usize, device: Device) -> Result<Tensor, Error> {
    let size = i64::try_from(capacity).expect("a batch fits memory");
    let plain = Tensor::f_zeros([size], (Kind::Float, Device::Cpu))?;
    if !device.is_cuda() {
        return Ok(plain);
    }
    // Where the system cannot pin memory, copies are slower but equally correct.
    Ok(dispatcher::pinned(&plain).unwrap_or(plain))
}
