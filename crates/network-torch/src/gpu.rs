//! Reads name, compute capability, memory and latest error of a CUDA device, waits for points in its work, and captures
//! work.
//!
//! The functions are looked up at run time in the CUDA runtime and driver that libtorch's CUDA half has loaded, and in
//! the library for graphs; nothing is linked, so that one binary serves machines with and without CUDA. Every function
//! fails with [`Error::Cuda`] if they are missing: call [`choose_device`](crate::choose_device) first, which loads the
//! CUDA half.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use collective::loader;

use crate::Error;

mod capture;
mod completion;

pub(crate) use capture::{Capture, Captured, Restricted};
pub(crate) use completion::Completion;

/// Generation of a CUDA device, ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// Number before the point.
    pub major: u32,
    /// Number after the point.
    pub minor: u32,
}

impl ComputeCapability {
    /// First generation with matrix units for float16 (Volta). GPUs of Turing without them, such as the GTX 16 series,
    /// still multiply float16 numbers at twice the rate of float32.
    pub const VOLTA: Self = Self { major: 7, minor: 0 };
    /// First generation with matrix units for bfloat16 and TF32 (Ampere).
    pub const AMPERE: Self = Self { major: 8, minor: 0 };
}

impl std::fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Memory of a device, shared by all processes that use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that no process has allocated. The memory that libtorch keeps for reuse counts as allocated.
    pub free: u64,
    /// All bytes of the device.
    pub total: u64,
}

/// Returns the name of CUDA device `index`, such as `NVIDIA H100 80GB HBM3`.
///
/// # Errors
/// [`Error::Cuda`] if the driver is not loaded or refuses.
pub fn name(index: usize) -> Result<String, Error> {
    Functions::loaded().name(index)
}

/// Returns the compute capability of CUDA device `index`.
///
/// # Errors
/// [`Error::Cuda`] if the CUDA runtime is not loaded or refuses.
pub fn compute_capability(index: usize) -> Result<ComputeCapability, Error> {
    Functions::loaded().compute_capability(index)
}

/// Returns the free and total memory of CUDA device `index`.
///
/// # Errors
/// [`Error::Cuda`] if the CUDA runtime is not loaded or refuses.
pub fn memory(index: usize) -> Result<Memory, Error> {
    Functions::loaded().memory(index)
}

/// Describes the thread's latest CUDA error and the free device memory, for operations that fail without a reason.
/// Empty without CUDA.
pub(crate) fn latest_error() -> String {
    Functions::loaded().latest_error()
}

/// Returns true for an error of work on the device: exhausted memory, or a fault after which CUDA refuses all work.
fn is_of_work(code: c_int) -> bool {
    // `cudaErrorMemoryAllocation`, `cudaErrorECCUncorrectable`, and from `cudaErrorIllegalAddress` on the faults of
    // kernels.
    matches!(code, 2 | 214 | 700..=799)
}

/// C functions of the CUDA runtime and driver, found by name.
#[derive(Debug, Clone, Copy)]
struct Functions {
    lookup: fn(&CStr) -> Option<NonNull<c_void>>,
}

/// `cudaDevAttrComputeCapabilityMajor` and `cudaDevAttrComputeCapabilityMinor`.
const CAPABILITY_ATTRIBUTES: [c_int; 2] = [75, 76];

impl Functions {
    /// Returns the functions of the libraries in this process.
    fn loaded() -> Self {
        Self { lookup: loader::in_this_process }
    }

    fn find(self, call: &'static str, symbol: &CStr) -> Result<NonNull<c_void>, Error> {
        let missing = || Error::Cuda { call, reason: "the CUDA libraries are not loaded in this process".to_owned() };
        (self.lookup)(symbol).ok_or_else(missing)
    }

    fn compute_capability(self, index: usize) -> Result<ComputeCapability, Error> {
        let call = "cudaDeviceGetAttribute";
        let device = ordinal(call, index)?;
        let [major, minor] = CAPABILITY_ATTRIBUTES.map(|attribute| {
            let mut value: c_int = 0;
            // SAFETY: the signature of the CUDA runtime; the result is written before it is read.
            let code = unsafe {
                let get: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
                    std::mem::transmute(self.find(call, c"cudaDeviceGetAttribute")?);
                get(&raw mut value, attribute, device)
            };
            self.check(call, code).map(|()| u32::try_from(value).unwrap_or(0))
        });
        Ok(ComputeCapability { major: major?, minor: minor? })
    }

    fn name(self, index: usize) -> Result<String, Error> {
        let call = "cuDeviceGetName";
        let device = ordinal(call, index)?;
        let mut name = [0_u8; 256];
        // SAFETY: the signatures of the CUDA driver, which numbers devices like the runtime. The handle is written
        // before it is read, and the name is written within the given length.
        let code = unsafe {
            let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int =
                std::mem::transmute(self.find(call, c"cuDeviceGet")?);
            let get_name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
                std::mem::transmute(self.find(call, c"cuDeviceGetName")?);
            let mut handle: c_int = 0;
            match get(&raw mut handle, device) {
                0 => get_name(name.as_mut_ptr().cast(), 255, handle),
                code => code,
            }
        };
        if code != 0 {
            return Err(Error::Cuda { call, reason: format!("driver error {code}") });
        }
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    fn memory(self, index: usize) -> Result<Memory, Error> {
        let mut memory = Memory { free: 0, total: 0 };
        self.on(ordinal("cudaMemGetInfo", index)?, || self.memory_here().map(|here| memory = here))?;
        Ok(memory)
    }

    /// Returns the memory of the current device.
    fn memory_here(self) -> Result<Memory, Error> {
        let call = "cudaMemGetInfo";
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the signature of the CUDA runtime; both results are written before they are read.
        let code = unsafe {
            let get: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int =
                std::mem::transmute(self.find(call, c"cudaMemGetInfo")?);
            get(&raw mut free, &raw mut total)
        };
        self.check(call, code).map(|()| Memory { free: free as u64, total: total as u64 })
    }

    fn latest_error(self) -> String {
        let call = "cudaGetLastError";
        let Ok(function) = self.find(call, c"cudaGetLastError") else { return String::new() };
        // SAFETY: the signature of the CUDA runtime.
        let code = unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> c_int>(function)() };
        let text = match self.check(call, code) {
            Err(Error::Cuda { reason, .. }) if is_of_work(code) => format!(": CUDA error: {reason}"),
            Err(Error::Cuda { reason, .. }) => format!(": {reason}"),
            _ => String::new(),
        };
        let memory = self.memory_here().map(|Memory { free, total }| {
            let [free, total] = [free, total].map(|bytes| bytes >> 20);
            format!(", {free} of {total} MiB of the device are free")
        });
        text + &memory.unwrap_or_default()
    }

    /// Runs `work` with `device` as the current device of this thread, and then restores the previous device.
    fn on(self, device: c_int, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let (get, set) = ("cudaGetDevice", "cudaSetDevice");
        // SAFETY: the signatures of the CUDA runtime; the current device is written before it is read.
        unsafe {
            let current: unsafe extern "C" fn(*mut c_int) -> c_int =
                std::mem::transmute(self.find(get, c"cudaGetDevice")?);
            let make_current: unsafe extern "C" fn(c_int) -> c_int =
                std::mem::transmute(self.find(set, c"cudaSetDevice")?);
            let mut before: c_int = 0;
            self.check(get, current(&raw mut before))?;
            self.check(set, make_current(device))?;
            let outcome = work();
            self.check(set, make_current(before)).and(outcome)
        }
    }

    fn check(self, call: &'static str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let text = self.find(call, c"cudaGetErrorString").ok().and_then(|function| {
            // SAFETY: the signature of the CUDA runtime, which returns null or a string that is never freed.
            unsafe {
                let describe: unsafe extern "C" fn(c_int) -> *const c_char = std::mem::transmute(function);
                let text = describe(code);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        });
        Err(Error::Cuda { call, reason: text.unwrap_or_else(|| format!("error {code}")) })
    }
}

fn ordinal(call: &'static str, index: usize) -> Result<c_int, Error> {
    c_int::try_from(index).map_err(|_| Error::Cuda { call, reason: format!("no device {index}") })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Current device of the stand-in, and the latest error.
        static CURRENT: Cell<c_int> = const { Cell::new(0) };
        static LATEST: Cell<c_int> = const { Cell::new(0) };
    }

    /// Error of the stand-in for a device that does not exist.
    const INVALID_DEVICE: c_int = 101;

    unsafe extern "C" fn get_attribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
        let found = match (device, attribute) {
            (0, 75) => 9,
            (0, 76) => 0,
            (1, 75) => 7,
            (1, 76) => 5,
            _ => return INVALID_DEVICE,
        };
        // SAFETY: as for the function that it stands in for.
        unsafe { *value = found };
        0
    }

    unsafe extern "C" fn get_device(device: *mut c_int) -> c_int {
        // SAFETY: as for the function that it stands in for.
        unsafe { *device = CURRENT.get() };
        0
    }

    unsafe extern "C" fn set_device(device: c_int) -> c_int {
        if device > 1 {
            return INVALID_DEVICE;
        }
        CURRENT.set(device);
        0
    }

    unsafe extern "C" fn memory_info(free: *mut usize, total: *mut usize) -> c_int {
        let device = usize::try_from(CURRENT.get()).unwrap();
        // SAFETY: as for the function that it stands in for.
        unsafe { (*free, *total) = (100 + device, 1000 + device) };
        0
    }

    unsafe extern "C" fn error_text(code: c_int) -> *const c_char {
        let text = match code {
            2 => c"out of memory",
            700 => c"an illegal memory access was encountered",
            _ => c"invalid device ordinal",
        };
        text.as_ptr()
    }

    unsafe extern "C" fn driver_get(handle: *mut c_int, device: c_int) -> c_int {
        // SAFETY: as for the function that it stands in for.
        unsafe { *handle = device + 40 };
        if device > 1 { INVALID_DEVICE } else { 0 }
    }

    unsafe extern "C" fn driver_name(name: *mut c_char, len: c_int, handle: c_int) -> c_int {
        let text = if handle == 41 { c"GPU one" } else { c"GPU zero" };
        assert!(len > 9);
        // SAFETY: the text with the final zero is shorter than the buffer.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name, text.to_bytes_with_nul().len()) };
        0
    }

    unsafe extern "C" fn last_error() -> c_int {
        LATEST.get()
    }

    /// A machine with two devices.
    fn two_devices() -> Functions {
        Functions {
            lookup: |symbol| {
                let function: *const () = match symbol.to_str().unwrap() {
                    "cudaDeviceGetAttribute" => get_attribute as *const (),
                    "cudaGetDevice" => get_device as *const (),
                    "cudaSetDevice" => set_device as *const (),
                    "cudaMemGetInfo" => memory_info as *const (),
                    "cudaGetErrorString" => error_text as *const (),
                    "cuDeviceGet" => driver_get as *const (),
                    "cuDeviceGetName" => driver_name as *const (),
                    "cudaGetLastError" => last_error as *const (),
                    other => panic!("{other} is not used"),
                };
                NonNull::new(function.cast_mut().cast())
            },
        }
    }

    #[test]
    fn name_capability_and_memory_are_those_of_the_device_with_the_index() {
        let functions = two_devices();
        assert_eq!(functions.name(1).unwrap(), "GPU one");
        assert_eq!(functions.compute_capability(0).unwrap().to_string(), "9.0");
        assert!(functions.compute_capability(1).unwrap() < ComputeCapability::AMPERE);
        assert_eq!(functions.memory(1).unwrap(), Memory { free: 101, total: 1001 });
        assert_eq!(CURRENT.get(), 0, "the current device of the thread changed");
    }

    #[test]
    fn a_refusal_names_the_call_and_the_reason() {
        let functions = two_devices();
        let expected = "cudaDeviceGetAttribute: invalid device ordinal";
        assert_eq!(functions.compute_capability(7).unwrap_err().to_string(), expected);
        assert_eq!(functions.memory(7).unwrap_err().to_string(), "cudaSetDevice: invalid device ordinal");
        assert_eq!(functions.name(7).unwrap_err().to_string(), "cuDeviceGetName: driver error 101");
        let beyond = functions.memory(usize::MAX).unwrap_err().to_string();
        assert_eq!(beyond, format!("cudaMemGetInfo: no device {}", usize::MAX));
    }

    #[test]
    fn the_latest_error_has_a_text_and_the_free_memory_and_a_fault_is_an_error_of_cuda() {
        let functions = two_devices();
        CURRENT.set(1);
        let memory = ", 0 of 0 MiB of the device are free";
        for (code, text) in [
            (0, ""),
            (2, ": CUDA error: out of memory"),
            (700, ": CUDA error: an illegal memory access was encountered"),
            (INVALID_DEVICE, ": invalid device ordinal"),
        ] {
            LATEST.set(code);
            assert_eq!(functions.latest_error(), format!("{text}{memory}"));
        }
        assert_eq!(Functions { lookup: |_| None }.latest_error(), "");
    }

    #[test]
    fn without_cuda_every_call_gives_a_reason() {
        let none = Functions { lookup: |_| None };
        let reasons = [
            none.name(0).map(drop).unwrap_err(),
            none.compute_capability(0).map(drop).unwrap_err(),
            none.memory(0).map(drop).unwrap_err(),
        ];
        for (error, call) in reasons.iter().zip(["cuDevice", "cudaDevice", "cudaGetDevice"]) {
            let text = error.to_string();
            assert!(text.starts_with(call) && text.ends_with("are not loaded in this process"), "{text}");
        }
    }

    #[test]
    fn the_functions_of_this_process_answer_or_give_a_reason() {
        for index in [0, 1000] {
            let answers = [name(index).map(drop), memory(index).map(drop), Completion::new(index).map(drop)];
            for error in answers.into_iter().filter_map(Result::err) {
                assert!(matches!(error, Error::Cuda { .. }), "{error}");
            }
        }
    }
}
