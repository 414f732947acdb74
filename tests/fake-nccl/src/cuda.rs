//! The functions of CUDA. Handles are numbers; device memory is host memory.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use super::group::Pending;
use super::with;

/// Number of devices, and the first number without a device.
const DEVICES: c_int = 64;
const INVALID_VALUE: c_int = 1;
const INVALID_DEVICE: c_int = 101;
const INVALID_HANDLE: c_int = 400;
const NOT_READY: c_int = 600;

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

/// Returns the current device of the calling thread.
pub(super) fn current() -> usize {
    usize::try_from(CURRENT.get()).unwrap_or_default()
}

/// A sequence of operations.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) device: usize,
    /// Operation submitted last.
    pub(super) last: Option<Pending>,
    /// True if the next operation waits for the default stream.
    pub(super) is_ordered: bool,
}

/// A point in a sequence of operations.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) device: usize,
    last: Option<Pending>,
    is_of_default: bool,
}

pub(super) unsafe extern "C" fn get_device(device: *mut c_int) -> c_int {
    // SAFETY: as for the function that it stands in for.
    unsafe { *device = CURRENT.get() };
    0
}

pub(super) unsafe extern "C" fn set_device(device: c_int) -> c_int {
    if !(0..DEVICES).contains(&device) {
        return INVALID_DEVICE;
    }
    CURRENT.set(device);
    0
}

pub(super) unsafe extern "C" fn stream_create(stream: *mut *mut c_void, flags: c_uint) -> c_int {
    if flags != 1 {
        return INVALID_VALUE;
    }
    let handle = with(|state| {
        let handle = state.handle();
        state.streams.insert(handle, Stream { device: current(), last: None, is_ordered: false });
        handle
    });
    // SAFETY: as for the function that it stands in for.
    unsafe { *stream = without_provenance_mut(handle) };
    0
}

pub(super) unsafe extern "C" fn stream_destroy(stream: *mut c_void) -> c_int {
    with(|state| state.streams.remove(&stream.addr()).map_or(INVALID_HANDLE, |_| 0))
}

pub(super) unsafe extern "C" fn stream_wait(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> c_int {
    with(|state| match (state.streams.get_mut(&stream.addr()), state.events.get(&event.addr())) {
        (Some(stream), Some(event)) => {
            stream.is_ordered |= event.is_of_default;
            0
        }
        _ => INVALID_HANDLE,
    })
}

pub(super) unsafe extern "C" fn event_create(event: *mut *mut c_void, _flags: c_uint) -> c_int {
    let handle = with(|state| {
        let handle = state.handle();
        state.events.insert(handle, Event { device: current(), last: None, is_of_default: false });
        handle
    });
    // SAFETY: as for the function that it stands in for.
    unsafe { *event = without_provenance_mut(handle) };
    0
}

pub(super) unsafe extern "C" fn event_record(event: *mut c_void, stream: *mut c_void) -> c_int {
    with(|state| {
        let last = match state.streams.get(&stream.addr()) {
            Some(stream) => stream.last,
            None if stream.is_null() => None,
            None => return INVALID_HANDLE,
        };
        let Some(event) = state.events.get_mut(&event.addr()).filter(|event| event.device == current()) else {
            return INVALID_HANDLE;
        };
        (event.last, event.is_of_default) = (last, stream.is_null());
        0
    })
}

pub(super) unsafe extern "C" fn event_query(event: *mut c_void) -> c_int {
    with(|state| match state.events.get(&event.addr()) {
        Some(event) if event.last.is_none_or(|pending| state.is_done(pending)) => 0,
        Some(_) => NOT_READY,
        None => INVALID_HANDLE,
    })
}

pub(super) unsafe extern "C" fn event_destroy(event: *mut c_void) -> c_int {
    with(|state| state.events.remove(&event.addr()).map_or(INVALID_HANDLE, |_| 0))
}

pub(super) unsafe extern "C" fn allocate(address: *mut *mut c_void, bytes: usize) -> c_int {
    // Floats, so that the memory is aligned for them.
    let mut memory = vec![0.0_f32; bytes.div_ceil(4)].into_boxed_slice();
    let start = memory.as_mut_ptr();
    with(|state| state.buffers.insert(start.addr(), (current(), memory)));
    // SAFETY: as for the function that it stands in for.
    unsafe { *address = start.cast() };
    0
}

pub(super) unsafe extern "C" fn free(address: *mut c_void) -> c_int {
    with(|state| state.buffers.remove(&address.addr()).map_or(INVALID_VALUE, |_| 0))
}

pub(super) unsafe extern "C" fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    direction: c_int,
    stream: *mut c_void,
) -> c_int {
    // An operation in progress would still write to the source of the copy.
    let is_done = with(|state| {
        let stream = state.streams.get(&stream.addr())?;
        Some(stream.last.is_none_or(|pending| state.is_done(pending)))
    });
    if is_done != Some(true) || !matches!(direction, 1 | 2) {
        return INVALID_HANDLE;
    }
    // SAFETY: as for the function that it stands in for.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    0
}

pub(super) unsafe extern "C" fn error_text(_code: c_int) -> *const c_char {
    c"an error of CUDA".as_ptr()
}

pub(super) unsafe extern "C" fn driver_device(handle: *mut c_int, device: c_int) -> c_int {
    // SAFETY: as for the function that it stands in for.
    unsafe { *handle = device };
    if (0..DEVICES).contains(&device) { 0 } else { INVALID_DEVICE }
}

pub(super) unsafe extern "C" fn driver_uuid(uuid: *mut [u8; 16], handle: c_int) -> c_int {
    let number = u8::try_from(handle).unwrap_or_default();
    // SAFETY: as for the function that it stands in for.
    unsafe { *uuid = [0xa0; 16].map(|byte| byte + number) };
    0
}

/// Returns the null handle, for NCCL.
pub(super) fn null() -> *mut c_void {
    null_mut()
}
