use half::bf16;
use tch::{Device, Kind, Tensor};

use crate::Error;

/// Activations on the CPU in bfloat16, `[B, H, W, C]` as they lie, for code that computes on them without libtorch.
#[derive(Debug)]
pub(crate) struct Cells(Tensor);

impl Cells {
    /// Of a tensor `[B, C, H, W]`, which is copied unless it is bfloat16 on the CPU with its channels last.
    pub(crate) fn from_tensor(tensor: &Tensor) -> Result<Self, Error> {
        let tensor = tensor.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::BFloat16)?;
        Ok(Self(tensor.f_permute([0, 2, 3, 1])?.f_contiguous()?))
    }

    /// Room for as many of the same shape, with unspecified contents.
    pub(crate) fn room(&self) -> Result<Self, Error> {
        Ok(Self(self.0.f_empty_like()?))
    }

    /// The same numbers in memory of their own.
    pub(crate) fn copy(&self) -> Result<Self, Error> {
        Ok(Self(self.0.f_detach_copy()?))
    }

    /// `[B, C, H, W]` in the same memory.
    pub(crate) fn tensor(&self) -> Result<Tensor, Error> {
        Ok(self.0.f_permute([0, 3, 1, 2])?)
    }

    /// B, H, W and C.
    pub(crate) fn size(&self) -> [usize; 4] {
        let size = self.0.size();
        std::array::from_fn(|dimension| usize::try_from(size[dimension]).expect("sizes are not negative"))
    }

    /// `[B, H, W, C]`.
    pub(crate) fn values(&self) -> &[bf16] {
        // SAFETY: the tensor is bfloat16, contiguous and on the CPU, which is how every one of them is made; it keeps
        // its memory for as long as `self` is borrowed. Nothing writes to it meanwhile: that takes `values_mut`, or an
        // operation of libtorch that works in place, and none is given these tensors.
        unsafe { std::slice::from_raw_parts(self.0.data_ptr().cast::<bf16>(), self.0.numel()) }
    }

    /// The same, to be written, where no other tensor shares the memory.
    pub(crate) fn values_mut(&mut self) -> &mut [bf16] {
        // SAFETY: as above, and no other tensor shares the memory.
        unsafe { std::slice::from_raw_parts_mut(self.0.data_ptr().cast::<bf16>(), self.0.numel()) }
    }
}
