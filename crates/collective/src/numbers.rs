use std::marker::PhantomData;
use std::ptr::NonNull;

/// The memory in which a group sums numbers without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Memory of this process.
    Host,
    /// Memory of the CUDA device with this index.
    Cuda(usize),
}

/// Numbers to sum in place.
#[derive(Debug)]
pub enum Numbers<'a> {
    /// Numbers in the memory of this process, which every group sums.
    Host(&'a mut [f32]),
    /// Numbers in the memory of a CUDA device, which only a group on this device sums.
    Cuda(CudaNumbers<'a>),
}

/// Numbers in the memory of a CUDA device, written by operations on the default stream.
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
    /// For the lifetime, the memory is allocated and holds `len` contiguous numbers. Meanwhile no operation uses the
    /// memory, except operations already submitted to the default stream of the device.
    #[must_use]
    pub unsafe fn new(address: NonNull<f32>, len: usize, device: usize) -> Self {
        Self { address, len, device, borrowed: PhantomData }
    }
}
