use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::Error;

/// The memory in which a group sums numbers without copying them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// That of this process.
    Host,
    /// That of the CUDA device of this number.
    Cuda(usize),
}

/// Numbers that are summed in place.
#[derive(Debug)]
pub enum Numbers<'a> {
    /// In the memory of this process.
    Host(&'a mut [f32]),
    /// In the memory of a CUDA device.
    Cuda(CudaNumbers<'a>),
}

/// Numbers in the memory of a CUDA device, written by operations of its default stream.
#[derive(Debug)]
pub struct CudaNumbers<'a> {
    pub(crate) address: NonNull<f32>,
    pub(crate) len: usize,
    pub(crate) device: usize,
    borrowed: PhantomData<&'a mut f32>,
}

impl CudaNumbers<'_> {
    /// Borrows `len` numbers at `address` in the memory of CUDA device `device`.
    ///
    /// # Safety
    /// For the lifetime, the memory is allocated, holds that many numbers one after the other, and only operations that
    /// were submitted to the default stream of the device before use it.
    #[must_use]
    pub unsafe fn new(address: NonNull<f32>, len: usize, device: usize) -> Self {
        Self { address, len, device, borrowed: PhantomData }
    }
}

impl<'a> Numbers<'a> {
    /// Returns numbers in the memory of this process.
    ///
    /// # Errors
    /// They are in the memory of a device, and `operation` takes none.
    pub(crate) fn of_host(self, operation: &'static str) -> Result<&'a mut [f32], Error> {
        match self {
            Self::Host(numbers) => Ok(numbers),
            Self::Cuda(_) => Err(Error { operation, reason: "the group sums in the memory of the host".to_owned() }),
        }
    }
}
