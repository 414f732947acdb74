//! The functions of NCCL and CUDA that learner groups call, between threads of one process and in host memory.
//!
//! [`lookup`] finds the functions by name, as a loader does. An operation is done once the last member of a group has
//! submitted it, whatever the other members do meanwhile, as on GPUs. Misuse is refused: an operation on the default
//! stream, or one that does not wait for the default stream. A [`Fault`] belongs to a device, so that concurrent tests
//! use separate devices.

mod cuda;
mod group;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use group::State;

/// Result codes of NCCL that this crate returns.
const SUCCESS: c_int = 0;
const SYSTEM_ERROR: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;

/// A failure mode of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Members on the device never finish joining.
    JoinHangs,
    /// Members on the device are refused when they join.
    JoinRefused,
    /// Other members do not notice when a member on the device leaves, as over links between GPUs.
    LeavesSilently,
    /// Calls that abort a communicator on the device do not return until the fault is over.
    AbortHangs,
    /// Members on the device fail after this many operations.
    FailsAfter(u64),
}

/// Existing objects of a device, and communicators aborted on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alive {
    /// Number of communicators.
    pub communicators: usize,
    /// Number of streams.
    pub streams: usize,
    /// Number of events.
    pub events: usize,
    /// Number of memory blocks.
    pub buffers: usize,
    /// Number of communicators aborted so far.
    pub aborted: usize,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Runs `work` on the state of all devices.
fn with<T>(work: impl FnOnce(&mut State) -> T) -> T {
    let mut state: MutexGuard<'_, _> = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    work(state.get_or_insert_default())
}

/// Sets the failure mode of a device from now on.
pub fn set_fault(device: usize, fault: Option<Fault>) {
    with(|state| match fault {
        Some(fault) => state.faults.insert(device, fault),
        None => state.faults.remove(&device),
    });
}

/// Counts the objects of a device.
#[must_use]
pub fn alive(device: usize) -> Alive {
    with(|state| state.alive(device))
}

/// Returns the function of this name: only functions that groups of learners call exist.
#[must_use]
pub fn lookup(symbol: &CStr) -> Option<NonNull<c_void>> {
    let function: *const () = match symbol.to_bytes() {
        b"ncclGetUniqueId" => group::get_unique_id as *const (),
        b"ncclCommInitRankConfig" => group::comm_init as *const (),
        b"ncclCommGetAsyncError" => group::comm_async_error as *const (),
        b"ncclCommAbort" => group::comm_abort as *const (),
        b"ncclAllReduce" => group::all_reduce as *const (),
        b"ncclBroadcast" => group::broadcast as *const (),
        b"ncclGetErrorString" => group::error_text as *const (),
        b"ncclGetLastError" => group::last_error as *const (),
        b"cudaGetDevice" => cuda::get_device as *const (),
        b"cudaSetDevice" => cuda::set_device as *const (),
        b"cudaStreamCreateWithFlags" => cuda::stream_create as *const (),
        b"cudaStreamDestroy" => cuda::stream_destroy as *const (),
        b"cudaStreamWaitEvent" => cuda::stream_wait as *const (),
        b"cudaEventCreateWithFlags" => cuda::event_create as *const (),
        b"cudaEventRecord" => cuda::event_record as *const (),
        b"cudaEventQuery" => cuda::event_query as *const (),
        b"cudaEventDestroy" => cuda::event_destroy as *const (),
        b"cudaMalloc" => cuda::allocate as *const (),
        b"cudaFree" => cuda::free as *const (),
        b"cudaMemcpyAsync" => cuda::copy as *const (),
        b"cudaGetErrorString" => cuda::error_text as *const (),
        b"cuDeviceGet" => cuda::driver_device as *const (),
        b"cuDeviceGetUuid" => cuda::driver_uuid as *const (),
        _ => return None,
    };
    NonNull::new(function.cast_mut().cast())
}
