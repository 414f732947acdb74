//! Symbols of loaded libraries, and memory use of a device or this process.

use std::ffi::{CStr, c_int, c_void};

use network_torch::Device;

/// Returns the address of a symbol in the libraries loaded for the whole process; null if there is none.
pub(super) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a valid C string; the call only looks it up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns the bytes in use: on a CUDA device by all programs, otherwise in main memory by this process.
pub(super) fn held_bytes(device: Device) -> Option<u64> {
    match device {
        Device::Cuda(_) => cuda_bytes(),
        _ => resident_bytes(),
    }
}

/// Returns total minus free memory of the current CUDA device.
fn cuda_bytes() -> Option<u64> {
    type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
    let address = symbol(c"cudaMemGetInfo");
    if address.is_null() {
        return None;
    }
    // SAFETY: this is the signature of `cudaMemGetInfo(size_t*, size_t*)` in every version of the CUDA runtime.
    let info: MemGetInfo = unsafe { std::mem::transmute(address) };
    let (mut free, mut total) = (0, 0);
    // SAFETY: both pointers are valid for writing during the call.
    let status = unsafe { info(&raw mut free, &raw mut total) };
    (status == 0).then(|| u64::try_from(total - free).expect("memory fits 64 bits"))
}

#[cfg(target_os = "linux")]
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> Option<u64> {
    None
}
