//! Objects of the CUDA runtime on the current device of the calling thread.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::null_mut;

use super::functions::Functions;
use crate::Error;

/// `cudaStreamNonBlocking`: operations on the default stream do not wait for operations on this stream.
const NON_BLOCKING: c_uint = 1;
/// `cudaEventDisableTiming`.
const NO_TIMES: c_uint = 2;

/// Checks a result of the CUDA runtime. An error has the runtime's text for `code`.
pub(super) fn check(functions: &Functions, operation: &'static str, code: c_int) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the function returns null or a string that is never freed.
    let text = unsafe {
        let text = (functions.cuda_error_text)(code);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    Err(Error { operation, reason: text.unwrap_or_else(|| format!("CUDA error {code}")) })
}

/// A CUDA stream: operations in sequence. The owner must call [`destroy`](Self::destroy).
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) handle: *mut c_void,
    functions: Functions,
}

impl Stream {
    pub(super) fn new(functions: &Functions) -> Result<Self, Error> {
        let mut handle = null_mut();
        // SAFETY: the handle is written before it is used.
        let code = unsafe { (functions.stream_create)(&raw mut handle, NON_BLOCKING) };
        check(functions, "join", code).map(|()| Self { handle, functions: *functions })
    }

    /// Makes subsequently submitted operations wait for `event`.
    pub(super) fn wait_for(&self, operation: &'static str, event: &Event) -> Result<(), Error> {
        // SAFETY: stream and event are not destroyed yet.
        let code = unsafe { (self.functions.stream_wait)(self.handle, event.handle, 0) };
        check(&self.functions, operation, code)
    }

    /// Submits a copy between host and device. The caller must keep both memories until the stream has finished the
    /// copy.
    pub(super) fn copy(
        &self,
        operation: &'static str,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        direction: c_int,
    ) -> Result<(), Error> {
        // SAFETY: both memories hold `bytes` bytes, as the caller promises.
        let code = unsafe { (self.functions.copy)(to, from, bytes, direction, self.handle) };
        check(&self.functions, operation, code)
    }

    pub(super) fn destroy(&mut self) {
        // SAFETY: the stream was created and is not used afterwards; the runtime finishes pending operations first.
        let _ = unsafe { (self.functions.stream_destroy)(self.handle) };
    }
}

/// A CUDA event: a point in a stream. The owner must call [`destroy`](Self::destroy).
#[derive(Debug)]
pub(super) struct Event {
    pub(super) handle: *mut c_void,
    functions: Functions,
}

impl Event {
    pub(super) fn new(functions: &Functions) -> Result<Self, Error> {
        let mut handle = null_mut();
        // SAFETY: the handle is written before it is used.
        let code = unsafe { (functions.event_create)(&raw mut handle, NO_TIMES) };
        check(functions, "join", code).map(|()| Self { handle, functions: *functions })
    }

    /// Moves the event after all operations already submitted to `stream`; null is the default stream.
    pub(super) fn record(&self, operation: &'static str, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: event and stream are not destroyed yet.
        let code = unsafe { (self.functions.event_record)(self.handle, stream) };
        check(&self.functions, operation, code)
    }

    pub(super) fn destroy(&mut self) {
        // SAFETY: the event was created and is not used afterwards.
        let _ = unsafe { (self.functions.event_destroy)(self.handle) };
    }
}

/// Device memory, freed on drop.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) address: *mut c_void,
    pub(super) bytes: usize,
    functions: Functions,
}

impl Buffer {
    pub(super) fn new(functions: &Functions, bytes: usize) -> Result<Self, Error> {
        let mut address = null_mut();
        // SAFETY: the address is written before it is used.
        let code = unsafe { (functions.allocate)(&raw mut address, bytes.max(1)) };
        check(functions, "allocate", code).map(|()| Self { address, bytes, functions: *functions })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated and is not used afterwards.
        let _ = unsafe { (self.functions.free)(self.address) };
    }
}
