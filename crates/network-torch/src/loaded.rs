//! Finds the libraries of libtorch that this process has loaded.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A function of the CPU half, `libtorch_cpu`.
pub(crate) const OF_THE_CPU_HALF: &CStr = c"aoti_torch_device_type_cpu";
/// A function of the CUDA half, `libtorch_cuda`.
const OF_THE_CUDA_HALF: &CStr = c"torch_get_cuda_stream_from_pool";

/// Returns the path of the CPU half, which every program with libtorch loads; `None` if the loader
/// does not list it.
#[must_use]
pub fn cpu_half() -> Option<PathBuf> {
    file_of(OF_THE_CPU_HALF)
}

/// Returns the path of the CUDA half; `None` before [`choose_device`](crate::choose_device) has loaded it.
#[must_use]
pub fn cuda_half() -> Option<PathBuf> {
    file_of(OF_THE_CUDA_HALF)
}

/// Returns the path of the loaded library that defines a function, as the loader knows it.
pub(crate) fn file_of(function: &CStr) -> Option<PathBuf> {
    // SAFETY: the name is a valid C string, and the address is only passed on.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: all bytes zero are a valid `Dl_info`, which has pointer fields.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` only reads the tables of the loader, and writes to `info`.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: after success the name is a C string that lives as long as the library, which is never closed.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(OsStr::from_bytes(file.to_bytes())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_loaded_cpu_half_is_found_without_files_of_the_system() {
        // Something of libtorch must be used, so that the test is linked with it.
        assert!(tch::get_num_threads() > 0);
        let library = cpu_half().unwrap();
        let name = library.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("libtorch_cpu.") && library.is_absolute(), "{}", library.display());
        assert_eq!(file_of(c"no_library_defines_this_function"), None);
    }
}
