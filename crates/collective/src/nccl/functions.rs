//! The functions of NCCL and of the CUDA runtime and driver, found by name at run time.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use super::UniqueId;
use crate::Error;

/// Returns the address of the function with this name in the loaded libraries; `None` if there is none.
pub type Lookup = fn(&CStr) -> Option<NonNull<c_void>>;

/// The leading fields of `ncclConfig_t`, as in NCCL 2.14. The library reads the fields of the stated version and uses
/// defaults for newer fields.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

impl Config {
    /// Configures a non-blocking communicator: calls return before the operation has finished.
    pub(super) const NON_BLOCKING: Self =
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21_400, blocking: 0 };
}

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions. Results are an `ncclResult_t`, `cudaError_t` or `CUresult`, and 0 means success in all three.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// Finds every function.
            ///
            /// # Errors
            /// A function is missing; the error names the first missing function.
            pub(super) fn found_by(lookup: Lookup) -> Result<Self, Error> {
                Ok(Self {
                    $($field: {
                        let missing = || Error {
                            operation: super::LOAD,
                            reason: format!("{} is missing", $symbol.to_string_lossy()),
                        };
                        let address = lookup($symbol).ok_or_else(missing)?;
                        // SAFETY: the function with this name has this signature in NCCL since 2.14, and in the CUDA
                        // runtime and driver since 12.
                        unsafe {
                            std::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    get_unique_id = c"ncclGetUniqueId": fn(*mut UniqueId) -> c_int;
    comm_init = c"ncclCommInitRankConfig": fn(*mut *mut c_void, c_int, UniqueId, c_int, *mut Config) -> c_int;
    comm_async_error = c"ncclCommGetAsyncError": fn(*mut c_void, *mut c_int) -> c_int;
    comm_abort = c"ncclCommAbort": fn(*mut c_void) -> c_int;
    all_reduce = c"ncclAllReduce":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
    broadcast = c"ncclBroadcast":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
    error_text = c"ncclGetErrorString": fn(c_int) -> *const c_char;
    last_error = c"ncclGetLastError": fn(*mut c_void) -> *const c_char;
    get_device = c"cudaGetDevice": fn(*mut c_int) -> c_int;
    set_device = c"cudaSetDevice": fn(c_int) -> c_int;
    stream_create = c"cudaStreamCreateWithFlags": fn(*mut *mut c_void, c_uint) -> c_int;
    stream_destroy = c"cudaStreamDestroy": fn(*mut c_void) -> c_int;
    stream_wait = c"cudaStreamWaitEvent": fn(*mut c_void, *mut c_void, c_uint) -> c_int;
    event_create = c"cudaEventCreateWithFlags": fn(*mut *mut c_void, c_uint) -> c_int;
    event_record = c"cudaEventRecord": fn(*mut c_void, *mut c_void) -> c_int;
    event_query = c"cudaEventQuery": fn(*mut c_void) -> c_int;
    event_destroy = c"cudaEventDestroy": fn(*mut c_void) -> c_int;
    allocate = c"cudaMalloc": fn(*mut *mut c_void, usize) -> c_int;
    free = c"cudaFree": fn(*mut c_void) -> c_int;
    copy = c"cudaMemcpyAsync": fn(*mut c_void, *const c_void, usize, c_int, *mut c_void) -> c_int;
    cuda_error_text = c"cudaGetErrorString": fn(c_int) -> *const c_char;
    driver_device = c"cuDeviceGet": fn(*mut c_int, c_int) -> c_int;
    driver_uuid = c"cuDeviceGetUuid": fn(*mut [u8; 16], c_int) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_is_missing_is_named() {
        let error = Functions::found_by(|_| None).unwrap_err().to_string();
        assert_eq!(error, "load NCCL failed: ncclGetUniqueId is missing");
    }
}
