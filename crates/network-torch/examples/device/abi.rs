//! C symbols that the engine and the learner may call without a shim.

use std::ffi::CStr;
use std::time::Instant;

use network_torch::{Libtorch, PrecisionPreference};

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

/// Exported by the library for CUDA graphs, which is opened after the CUDA half.
const OF_GRAPHS: [&CStr; 8] = [
    c"zf_graphs_open",
    c"zf_graphs_close",
    c"zf_graphs_enter",
    c"zf_graphs_leave",
    c"zf_graphs_begin",
    c"zf_graphs_end",
    c"zf_graphs_replay",
    c"zf_graphs_free",
];

/// Looks every symbol up.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let device = settings.device()?.device;
    check(settings, "symbols of libtorch", &OF_LIBTORCH);
    if !device.is_cuda() {
        settings.skipped("symbols of the CUDA half, its runtime, NCCL and graphs", "the device is no CUDA device");
        return Ok(());
    }
    check(settings, "symbols of libtorch_cuda", &OF_LIBTORCH_CUDA);
    check(settings, "symbols of the CUDA runtime", &OF_CUDART);
    // libtorch_cuda is linked with NCCL, so that it is loaded; opening it again finds the loaded library.
    // SAFETY: the name is a valid C string; the library is never closed.
    let nccl = unsafe { libc::dlopen(c"libnccl.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    settings.claim("libnccl.so.2 is found", if nccl.is_null() { "no" } else { "yes" }, !nccl.is_null());
    check(settings, "symbols of NCCL", &OF_NCCL);
    // Evaluation opens the library.
    let libtorch = Libtorch::new(settings.preference, PrecisionPreference::Bf16, Instant::now)?;
    let refusal = libtorch.graphs().unwrap_or_default();
    let found = if refusal.is_empty() { "yes" } else { &refusal };
    settings.claim("libzerofleet_graphs.so is opened", found, refusal.is_empty());
    check(settings, "symbols of libzerofleet_graphs.so", &OF_GRAPHS);
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
