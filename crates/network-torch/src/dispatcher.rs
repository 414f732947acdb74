//! Calls libtorch operators that tch does not wrap, by name, through libtorch's stable C interface
//! (`torch/csrc/stable/c/shim.h`, `torch/csrc/stable/stableivalue_conversions.h`).
//!
//! A value is passed as 64 bits: a number as bits, a tensor as a handle, and a list as a handle of a list of such
//! values. The dispatcher takes over handles. An optional value is a block of C++ memory, which the dispatcher frees.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use tch::Tensor;

use crate::{Error, gpu};

/// Version of the value encoding: 2.11.
const ABI_VERSION: u64 = 2 << 56 | 11 << 48;

type Handle = *mut c_void;

unsafe extern "C" {
    fn torch_call_dispatcher(name: *const c_char, overload: *const c_char, stack: *mut u64, version: u64) -> i32;
    fn aoti_torch_new_tensor_handle(tensor: *const c_void, handle: *mut Handle) -> i32;
    fn aoti_torch_copy_(to: *const c_void, from: *const c_void, non_blocking: i32) -> i32;
    fn torch_new_list_reserve_size(size: usize, list: *mut Handle) -> i32;
    fn torch_list_push_back(list: Handle, element: u64) -> i32;
    /// C++'s `operator new`, on systems of 64 bits.
    #[link_name = "_Znwm"]
    fn operator_new(bytes: usize) -> *mut u64;
}

fn checked(status: i32, what: &'static str) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(failed(what)) }
}

/// Returns the error of an operation. The interface has no message, which libtorch prints, so that CUDA gives the
/// reason.
fn failed(what: &str) -> Error {
    Error::of_message(format!("{what} failed{}", gpu::latest_error()))
}

fn handle(tensor: &Tensor) -> Result<u64, Error> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: a tensor of tch is a pointer to an `at::Tensor`, which is what the interface calls a handle; the call
    // makes another one.
    checked(unsafe { aoti_torch_new_tensor_handle(tensor.as_ptr().cast(), &raw mut handle) }, "creating a handle")?;
    Ok(handle as u64)
}

fn list(tensors: &[&Tensor]) -> Result<u64, Error> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the call writes a new list to `list`.
    checked(unsafe { torch_new_list_reserve_size(tensors.len(), &raw mut list) }, "creating a tensor list")?;
    for tensor in tensors {
        // SAFETY: the list is the one made above, and takes over the handle.
        checked(unsafe { torch_list_push_back(list, handle(tensor)?) }, "creating a tensor list")?;
    }
    Ok(list as u64)
}

fn some(tensor: &Tensor) -> Result<u64, Error> {
    let value = handle(tensor)?;
    // SAFETY: `operator new` returns memory for the 8 bytes or does not return; the dispatcher deletes it.
    unsafe {
        let block = operator_new(size_of::<u64>());
        block.write(value);
        Ok(block as u64)
    }
}

/// Calls an operator, which takes over the arguments on the stack and leaves the results there.
fn call(name: &CStr, overload: &CStr, stack: &mut [u64]) -> Result<(), Error> {
    // SAFETY: both names are C strings, and the stack holds one value for each argument of the schema, which the
    // callers below state.
    let status = unsafe { torch_call_dispatcher(name.as_ptr(), overload.as_ptr(), stack.as_mut_ptr(), ABI_VERSION) };
    if status == 0 { Ok(()) } else { Err(failed(&name.to_string_lossy())) }
}

/// Arguments of [`fused_adamw`] besides the tensors of the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamW<'a> {
    /// `[1]`, float32: the learning rate.
    pub(crate) learning_rate: &'a Tensor,
    pub(crate) betas: [f64; 2],
    pub(crate) weight_decay: f64,
    pub(crate) epsilon: f64,
    /// `[1]`, float32: divisor of the gradient, applied in place.
    pub(crate) scale: &'a Tensor,
    /// `[1]`, float32: 1 makes the call change nothing.
    pub(crate) is_refused: &'a Tensor,
    /// `[1]`, float32: the number of this step, from 1.
    pub(crate) step: &'a Tensor,
}

/// Steps `parameters` `[n]` by AdamW and updates both moments `[n]`, in one pass.
///
/// # Errors
/// [`Error::Libtorch`] if the device has no such operator.
pub(crate) fn fused_adamw(
    parameters: &Tensor,
    gradient: &Tensor,
    [first, second]: [&Tensor; 2],
    settings: AdamW<'_>,
) -> Result<(), Error> {
    let AdamW { learning_rate, betas, weight_decay, epsilon, scale, is_refused, step } = settings;
    // _fused_adamw_.tensor_lr(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, Tensor(d!)[] exp_avg_sqs,
    // Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, Tensor lr, float beta1, float beta2, float weight_decay,
    // float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()
    let mut stack = [
        list(&[parameters])?,
        list(&[gradient])?,
        list(&[first])?,
        list(&[second])?,
        list(&[])?,
        list(&[step])?,
        handle(learning_rate)?,
        betas[0].to_bits(),
        betas[1].to_bits(),
        weight_decay.to_bits(),
        epsilon.to_bits(),
        0,
        0,
        some(scale)?,
        some(is_refused)?,
    ];
    call(c"aten::_fused_adamw_", c"tensor_lr", &mut stack)
}

/// Copies the numbers of `from` to `to`, also from another device. A copy from pinned memory is queued; `from` must not
/// change before the device has copied it.
///
/// The corresponding function of tch waits for the copy.
///
/// # Errors
/// [`Error::Libtorch`] if the device fails.
pub(crate) fn copy(to: &Tensor, from: &Tensor) -> Result<(), Error> {
    // SAFETY: a tensor of tch is a pointer to an `at::Tensor`, which is what the interface calls a handle; both live
    // during the call, which takes over neither.
    checked(unsafe { aoti_torch_copy_(to.as_ptr().cast(), from.as_ptr().cast(), 1) }, "copying a tensor")
}

/// Copies a host tensor to pinned memory.
///
/// The corresponding function of tch names a device, for which libtorch 2.11 prints two warnings per call. After a
/// failure this process makes no further calls, since libtorch prints each failure.
///
/// # Errors
/// [`Error::Libtorch`] if there is no accelerator or the system cannot pin memory.
pub(crate) fn pinned(tensor: &Tensor) -> Result<Tensor, Error> {
    static HAS_FAILED: AtomicBool = AtomicBool::new(false);
    if HAS_FAILED.load(Ordering::Relaxed) {
        return Err(Error::Libtorch("pin_memory failed before".to_owned()));
    }
    // pin_memory(Tensor(a) self, Device? device=None) -> Tensor(a)
    let mut stack = [handle(tensor)?, 0];
    call(c"aten::pin_memory", c"", &mut stack).inspect_err(|_| HAS_FAILED.store(true, Ordering::Relaxed))?;
    // SAFETY: the operator replaced the arguments by the handle of the result, an `at::Tensor` on the heap that
    // belongs to the caller, which is what tch takes over and deletes.
    Ok(unsafe { Tensor::from_ptr(stack[0] as *mut _) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_overwrites_the_memory_of_the_target() {
        let to = Tensor::from_slice(&[1.0_f32, 2.0]);
        let same = to.shallow_clone();
        copy(&to, &Tensor::from_slice(&[3.0_f32, 4.0])).unwrap();
        assert!(same.equal(&Tensor::from_slice(&[3.0_f32, 4.0])));
    }

    #[test]
    fn memory_is_not_pinned_without_an_accelerator() {
        let plain = Tensor::from_slice(&[1.0_f32, 2.0]);
        if tch::Cuda::is_available() {
            assert!(pinned(&plain).unwrap().equal(&plain));
        } else {
            // The second call is not made.
            for message in ["pin_memory failed", "failed before"] {
                let error = pinned(&plain).unwrap_err().to_string();
                assert!(error.contains(message), "{error}");
            }
        }
    }
}
