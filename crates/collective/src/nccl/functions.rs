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

/// Name of the NCCL library for the loader.
const LIBRARY: &CStr = c"libnccl.so.2";

/// Loads NCCL for the whole process. The CUDA part of libtorch, which is linked with NCCL, should be loaded first.
///
/// # Errors
/// The library cannot be loaded, with the loader's message.
#[cfg(unix)]
pub(super) fn load() -> Result<(), Error> {
    open(LIBRARY)
}

#[cfg(unix)]
fn open(name: &CStr) -> Result<(), Error> {
    // SAFETY: the name is a valid C string; the library is never closed, so that the functions stay valid.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: dlerror returns null or a C string that stays valid until the next call on this thread.
    let reason = unsafe {
        let message = libc::dlerror();
        if message.is_null() { None } else { Some(CStr::from_ptr(message).to_string_lossy().into_owned()) }
    };
    let reason = reason.unwrap_or_else(|| format!("{} cannot be loaded", name.to_string_lossy()));
    Err(Error { operation: super::LOAD, reason })
}

/// Finds a function in the libraries loaded in this process; `None` if there is none.
#[cfg(unix)]
pub(super) fn in_this_process(symbol: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the arguments are valid C strings; a null handle, which means that the library is not loaded, is not
    // used. `RTLD_NOLOAD` loads nothing, and no handle is closed, so that the function stays valid.
    unsafe {
        let global = NonNull::new(libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()));
        global.or_else(|| {
            // Another library may have loaded these libraries with local scope.
            [LIBRARY, c"libcudart.so.13", c"libcuda.so.1"].into_iter().find_map(|library| {
                let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if handle.is_null() { None } else { NonNull::new(libc::dlsym(handle, symbol.as_ptr())) }
            })
        })
    }
}

#[cfg(not(unix))]
pub(super) fn load() -> Result<(), Error> {
    Err(Error { operation: super::LOAD, reason: "NCCL requires Linux".to_owned() })
}

#[cfg(not(unix))]
pub(super) fn in_this_process(_: &CStr) -> Option<NonNull<c_void>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_or_a_function_that_is_missing_is_named() {
        let error = open(c"libno-such-library.so.2").unwrap_err().to_string();
        assert!(error.starts_with("load NCCL failed: libno-such-library.so.2"), "{error}");
        let error = Functions::found_by(|_| None).unwrap_err().to_string();
        assert_eq!(error, "load NCCL failed: ncclGetUniqueId is missing");
    }

    #[test]
    fn functions_of_this_process_are_found_by_name() {
        assert!(in_this_process(c"malloc").is_some());
        assert_eq!(in_this_process(c"no_library_defines_this_function"), None);
    }
}
