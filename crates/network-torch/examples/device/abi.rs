//! C symbols that the engine and the learner may call without a shim.

use std::ffi::CStr;

use crate::memory::symbol;
use crate::{Result, Settings};

/// Exported by the CPU half of libtorch.
const OF_LIBTORCH: [&CStr; 3] = [c"aoti_torch_copy_", c"aoti_torch_empty_strided_pinned", c"torch_call_dispatcher"];
/// Exported by the CUDA half of libtorch.
const OF_LIBTORCH_CUDA: [&CStr; 2] = [c"torch_get_cuda_stream_from_pool", c"torch_set_current_cuda_stream"];
/// Exported by the CUDA runtime, which the CPU half loads on Linux.
const OF_CUDART: [&CStr; 18] = [
    c"cudaEventCreateWithFlags",
    c"cudaEventRecord",
    c"cudaEventQuery",
    c"cudaEventSynchronize",
    c"cudaEventDestroy",
    c"cudaGetDevice",
    c"cudaSetDevice",
    c"cudaGetErrorString",
    c"cudaGetLastError",
    c"cudaStreamWaitEvent",
    c"cudaStreamCreateWithFlags",
    c"cudaStreamDestroy",
    c"cudaMalloc",
    c"cudaFree",
    c"cudaMemcpyAsync",
    c"cudaMemGetInfo",
    c"cudaDeviceGetAttribute",
    c"cudaGetDeviceCount",
];
/// Exported by NCCL, which the CUDA half loads.
const OF_NCCL: [&CStr; 8] = [
    c"ncclGetUniqueId",
    c"ncclCommInitRankConfig",
    c"ncclCommGetAsyncError",
    c"ncclCommAbort",
    c"ncclAllReduce",
    c"ncclBroadcast",
    c"ncclGetErrorString",
    c"ncclGetLastError",
];

/// Looks every symbol up.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let device = settings.device()?.device;
    check(settings, "symbols of libtorch", &OF_LIBTORCH);
    if !device.is_cuda() {
        settings.skipped("symbols of libtorch_cuda, the CUDA runtime and NCCL", "the device is no CUDA device");
        return Ok(());
    }
    check(settings, "symbols of libtorch_cuda", &OF_LIBTORCH_CUDA);
    check(settings, "symbols of the CUDA runtime", &OF_CUDART);
    // libtorch_cuda is linked with NCCL, so that it is loaded; opening it again finds the loaded library.
    // SAFETY: the name is a valid C string; the library is never closed.
    let nccl = unsafe { libc::dlopen(c"libnccl.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    settings.claim("libnccl.so.2 is found", if nccl.is_null() { "no" } else { "yes" }, !nccl.is_null());
    check(settings, "symbols of NCCL", &OF_NCCL);
    Ok(())
}

fn check(settings: &Settings, what: &str, names: &[&CStr]) {
    let missing: Vec<_> =
        names.iter().filter(|name| symbol(name).is_null()).map(|name| name.to_string_lossy()).collect();
    let found = match missing.as_slice() {
        [] => format!("all {} found", names.len()),
        _ => format!("missing: {}", missing.join(", ")),
    };
    settings.claim(what, &found, missing.is_empty());
}
