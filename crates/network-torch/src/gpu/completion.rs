use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use super::{Functions, ordinal};
use crate::Error;

/// `cudaEventBlockingSync | cudaEventDisableTiming`: a waiting thread sleeps instead of spinning, and no times are
/// taken.
const FLAGS: c_uint = 0x01 | 0x02;
/// `cudaErrorNotReady`.
const NOT_READY: c_int = 600;

/// A point in the operation sequence of a CUDA device, for waiting until the device has passed it. Later operations
/// are not waited for.
#[derive(Debug)]
pub(crate) struct Completion {
    event: *mut c_void,
    device: c_int,
    functions: Functions,
}

// SAFETY: the CUDA runtime permits every thread to use an event; the handle has no other owner.
unsafe impl Send for Completion {}

impl Completion {
    /// Creates a point on CUDA device `index`.
    ///
    /// # Errors
    /// [`Error::Cuda`] if the CUDA runtime is not loaded or refuses.
    pub(crate) fn new(index: usize) -> Result<Self, Error> {
        Self::found_by(Functions::loaded(), index)
    }

    fn found_by(functions: Functions, index: usize) -> Result<Self, Error> {
        let call = "cudaEventCreateWithFlags";
        let device = ordinal(call, index)?;
        // All functions are looked up now, so that none is missing while a batch is in flight.
        for name in [c"cudaEventRecord", c"cudaEventQuery", c"cudaEventSynchronize", c"cudaEventDestroy"] {
            functions.find(call, name)?;
        }
        let mut event = null_mut();
        functions.on(device, || {
            // SAFETY: the signature of the CUDA runtime; the handle is written before it is used.
            let code = unsafe {
                let create: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int =
                    std::mem::transmute(functions.find(call, c"cudaEventCreateWithFlags")?);
                create(&raw mut event, FLAGS)
            };
            functions.check(call, code)
        })?;
        Ok(Self { event, device, functions })
    }

    /// Moves the point after all operations submitted to the default stream, which libtorch uses.
    ///
    /// # Errors
    /// [`Error::Cuda`] if an earlier operation of the device failed.
    pub(crate) fn record(&self) -> Result<(), Error> {
        let call = "cudaEventRecord";
        self.functions.on(self.device, || {
            // SAFETY: the signature of the CUDA runtime; the event is alive, and a null stream is the default stream.
            let code = unsafe {
                let record: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int =
                    std::mem::transmute(self.functions.find(call, c"cudaEventRecord")?);
                record(self.event, null_mut())
            };
            self.functions.check(call, code)
        })
    }

    /// Returns true if the device has passed the point, or has failed.
    pub(crate) fn has_passed(&self) -> bool {
        self.call("cudaEventQuery", c"cudaEventQuery").is_ok_and(|code| code != NOT_READY)
    }

    /// Waits until the device has passed the point.
    ///
    /// # Errors
    /// [`Error::Cuda`] if an operation of the device failed.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        let call = "cudaEventSynchronize";
        let code = self.call(call, c"cudaEventSynchronize")?;
        self.functions.check(call, code)
    }

    /// Calls a function that takes only the event.
    fn call(&self, call: &'static str, symbol: &std::ffi::CStr) -> Result<c_int, Error> {
        // SAFETY: the query, the wait and the destructor of the CUDA runtime all have this signature; the event is
        // alive.
        unsafe {
            let function: unsafe extern "C" fn(*mut c_void) -> c_int =
                std::mem::transmute(self.functions.find(call, symbol)?);
            Ok(function(self.event))
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        // A failed device cannot destroy the event, and need not.
        let _ = self.call("cudaEventDestroy", c"cudaEventDestroy");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::CStr;
    use std::ptr::NonNull;

    use super::*;

    thread_local! {
        /// Queries until the point of the stand-in is passed; negative if the device has failed.
        static QUERIES: Cell<i64> = const { Cell::new(0) };
        static CALLS: Cell<[u32; 3]> = const { Cell::new([0; 3]) };
    }

    fn count(which: usize) {
        let mut calls = CALLS.get();
        calls[which] += 1;
        CALLS.set(calls);
    }

    unsafe extern "C" fn get_device(device: *mut c_int) -> c_int {
        // SAFETY: as for the function that it stands in for.
        unsafe { *device = 0 };
        0
    }

    unsafe extern "C" fn set_device(_: c_int) -> c_int {
        0
    }

    unsafe extern "C" fn create(event: *mut *mut c_void, flags: c_uint) -> c_int {
        assert_eq!(flags, 3);
        count(0);
        // SAFETY: as for the function that it stands in for.
        unsafe { *event = NonNull::<u64>::dangling().as_ptr().cast() };
        0
    }

    unsafe extern "C" fn record(_: *mut c_void, stream: *mut c_void) -> c_int {
        assert!(stream.is_null());
        count(1);
        0
    }

    unsafe extern "C" fn query(_: *mut c_void) -> c_int {
        let left = QUERIES.get();
        QUERIES.set(left - i64::from(left > 0));
        match left {
            0 => 0,
            1.. => NOT_READY,
            _ => 700,
        }
    }

    unsafe extern "C" fn synchronize(_: *mut c_void) -> c_int {
        if QUERIES.replace(0) < 0 { 700 } else { 0 }
    }

    unsafe extern "C" fn destroy(_: *mut c_void) -> c_int {
        count(2);
        0
    }

    fn stand_in(symbol: &CStr) -> Option<NonNull<c_void>> {
        let function = match symbol.to_bytes() {
            b"cudaGetDevice" => get_device as *const c_void,
            b"cudaSetDevice" => set_device as *const c_void,
            b"cudaEventCreateWithFlags" => create as *const c_void,
            b"cudaEventRecord" => record as *const c_void,
            b"cudaEventQuery" => query as *const c_void,
            b"cudaEventSynchronize" => synchronize as *const c_void,
            b"cudaEventDestroy" => destroy as *const c_void,
            _ => return None,
        };
        NonNull::new(function.cast_mut())
    }

    #[test]
    fn a_point_is_passed_once_the_device_is_ready_and_is_freed() {
        let completion = Completion::found_by(Functions { lookup: stand_in }, 0).unwrap();
        completion.record().unwrap();
        QUERIES.set(2);
        assert_eq!([completion.has_passed(), completion.has_passed(), completion.has_passed()], [false, false, true]);
        QUERIES.set(9);
        completion.wait().unwrap();
        assert!(completion.has_passed());
        drop(completion);
        assert_eq!(CALLS.get(), [1, 1, 1]);
    }

    #[test]
    fn a_failed_device_blocks_no_wait_and_is_an_error() {
        let completion = Completion::found_by(Functions { lookup: stand_in }, 0).unwrap();
        QUERIES.set(-1);
        assert!(completion.has_passed());
        assert!(matches!(completion.wait(), Err(Error::Cuda { call: "cudaEventSynchronize", .. })));
    }

    #[test]
    fn without_cuda_there_is_a_reason() {
        let error = Completion::found_by(Functions { lookup: |_| None }, 0).unwrap_err();
        assert!(matches!(error, Error::Cuda { .. }), "{error}");
    }
}
