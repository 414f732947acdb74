//! The functions of NCCL and of CUDA that groups of learners call, between threads of one process and in the memory of
//! the host.
//!
//! [`lookup`] finds them by name, as a loader does. Operations are done when the last member of a group has submitted
//! them, whatever the others do meanwhile, as on GPUs. Misuse is refused: an operation on the default stream, or one
//! that does not wait for the default stream. A [`Fault`] belongs to a device, so that tests that run at once use
//! devices of their own.

mod cuda;
mod group;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use group::State;

/// The results of NCCL that are returned here.
const SUCCESS: c_int = 0;
const SYSTEM_ERROR: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;

/// What goes wrong on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Members on it never finish joining.
    JoinHangs,
    /// Members on it are refused when they join.
    JoinRefused,
    /// The other members do not notice when one on it leaves, as over links between GPUs.
    LeavesSilently,
    /// Members on it fail once they have done this many operations.
    FailsAfter(u64),
}

/// The objects of a device that exist, and the communicators that were aborted on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alive {
    /// Communicators.
    pub communicators: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Blocks of memory.
    pub buffers: usize,
    /// Communicators that were aborted so far.
    pub aborted: usize,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Runs `work` on the state of all devices.
fn with<T>(work: impl FnOnce(&mut State) -> T) -> T {
    let mut state: MutexGuard<'_, _> = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    work(state.get_or_insert_default())
}

/// Sets what goes wrong on a device from now on.
pub fn set_fault(device: usize, fault: Option<Fault>) {
    with(|state| match fault {
        Some(fault) => state.faults.insert(device, fault),
        None => state.faults.remove(&device),
    });
}

/// Returns the objects of a device.
#[must_use]
pub fn alive(device: usize) -> Alive {
    with(|state| state.alive(device))
}

/// Returns the function of this name: every one that groups of learners call, and no other.
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
