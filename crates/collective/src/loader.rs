//! Opens libraries and finds functions at run time, so that one binary serves machines with and without CUDA.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Libraries that another library may have opened with local scope.
const LOCAL: [&CStr; 4] = [c"libnccl.so.2", c"libcudart.so.13", c"libcudart.so.12", c"libcuda.so.1"];

/// Opens a library for the whole process, and never closes it.
///
/// # Errors
/// The human-readable reason of the loader.
pub fn open(library: &CStr) -> Result<(), String> {
    // SAFETY: the name is a valid C string; the library is never closed, so that all functions stay valid.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: dlerror returns null or a C string that stays valid until the next call on this thread.
    let reason = unsafe {
        let message = libc::dlerror();
        if message.is_null() { None } else { Some(CStr::from_ptr(message).to_string_lossy().into_owned()) }
    };
    Err(reason.unwrap_or_else(|| format!("{} cannot be loaded", library.to_string_lossy())))
}

/// Finds a function in the libraries loaded in this process; `None` if there is none.
#[must_use]
pub fn in_this_process(symbol: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the arguments are valid C strings; a null handle, which means that the library is not loaded, is not
    // used. `RTLD_NOLOAD` loads nothing, and no handle is closed, so that the function stays valid.
    unsafe {
        let global = NonNull::new(libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()));
        global.or_else(|| {
            LOCAL.into_iter().find_map(|library| {
                let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if handle.is_null() { None } else { NonNull::new(libc::dlsym(handle, symbol.as_ptr())) }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named() {
        let error = open(c"libno-such-library.so.2").unwrap_err();
        assert!(error.contains("libno-such-library.so.2"), "{error}");
    }

    #[test]
    fn functions_of_this_process_are_found_by_name() {
        assert!(in_this_process(c"malloc").is_some());
        assert_eq!(in_this_process(c"no_library_defines_this_function"), None);
    }
}
