//! Opens the CUDA half of libtorch at run time, so that one binary serves machines with and without CUDA.
//!
//! The half is next to the CPU half, where `cargo xtask libtorch --cuda` puts it, or elsewhere on the path of the
//! loader.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::loaded::{OF_THE_CPU_HALF, file_of};

const LIBRARY: &str = "libtorch_cuda.so";
/// The library of shim/graphs.cpp.
const GRAPHS: &str = "libzerofleet_graphs.so";
/// A function of `libcudart.so`, which the CPU half loads.
const OF_THE_RUNTIME: &CStr = c"cudaGetDeviceCount";
/// Libraries with the headers of the run-time compiler, one for each CUDA release with a libtorch 2.11.
const BUILTINS: [&str; 3] = ["libnvrtc-builtins.so.13.0", "libnvrtc-builtins.so.12.8", "libnvrtc-builtins.so.12.6"];
/// Directory of the compiler in the Python packages of CUDA 12, as seen from the runtime.
const COMPILER: &str = "../../cuda_nvrtc/lib";

/// Opens the CUDA half for the whole process.
///
/// # Errors
/// Returns the missing part in human-readable form: the driver, the CUDA half, or a library that this half needs.
pub(super) fn load() -> Result<(), String> {
    // First, because the CUDA half is gigabytes of files and of no use without a driver.
    open(Path::new("libcuda.so.1")).map_err(|why| format!("no NVIDIA driver ({why})"))?;
    open_beside_libtorch(LIBRARY)?;
    let folders = folder_of(OF_THE_RUNTIME).map(|folder| [folder.join(COMPILER), folder]);
    let places = folders.iter().flatten().flat_map(|folder| BUILTINS.map(|name| folder.join(name)));
    for builtins in places.filter(|builtins| builtins.exists()) {
        // The compiler that cuDNN uses opens this library by name, but has no search path for it: it is found only if
        // it is loaded already.
        open(&builtins)?;
    }
    Ok(())
}

/// Opens the library that records graphs, which needs the CUDA half.
///
/// # Errors
/// Returns the reason in human-readable form.
pub(super) fn load_graphs() -> Result<(), String> {
    open_beside_libtorch(GRAPHS)
}

/// Opens a library that is next to the CPU half, or elsewhere on the path of the loader.
fn open_beside_libtorch(library: &str) -> Result<(), String> {
    let folder = folder_of(OF_THE_CPU_HALF);
    match folder.as_ref().map(|folder| folder.join(library)).filter(|beside| beside.exists()) {
        Some(beside) => open(&beside),
        None => open(Path::new(library)).map_err(|why| {
            let place = folder.map_or_else(String::new, |folder| format!(", nor is it in {}", folder.display()));
            format!("{why}{place}: `cargo xtask libtorch --cuda` installs it")
        }),
    }
}

/// Opens a library for the whole process. The initialisers of the CUDA half register kernels with the libtorch that is
/// already loaded, as intended.
fn open(library: &Path) -> Result<(), String> {
    let name = CString::new(library.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    collective::loader::open(&name)
}

/// Returns the directory of the loaded library that defines a function.
fn folder_of(function: &CStr) -> Option<PathBuf> {
    Some(file_of(function)?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_loaded_libtorch_is_found() {
        // Something of libtorch must be used, so that the test is linked with it.
        assert!(tch::get_num_threads() > 0);
        let folder = folder_of(OF_THE_CPU_HALF).unwrap();
        assert!(folder.join("libtorch_cpu.so").exists() && folder.is_absolute(), "{}", folder.display());
        assert!(folder_of(OF_THE_RUNTIME).is_some());
        assert_eq!(folder_of(c"no_library_defines_this_function"), None);
    }

    #[test]
    fn a_missing_driver_or_a_missing_cuda_half_is_named_with_the_remedy() {
        let driver = open(Path::new("libcuda.so.1"));
        let half = folder_of(OF_THE_CPU_HALF).is_some_and(|folder| folder.join(LIBRARY).exists());
        match (driver, load()) {
            (Err(why), loaded) => assert_eq!(loaded, Err(format!("no NVIDIA driver ({why})"))),
            (Ok(()), loaded) if half => assert_eq!(loaded, Ok(())),
            (Ok(()), Err(why)) => assert!(why.contains("cargo xtask libtorch --cuda"), "{why}"),
            (Ok(()), Ok(())) => assert!(open(Path::new(LIBRARY)).is_ok(), "it is on the path of the loader"),
        }
    }

    /// Runs where the CUDA half is installed, with and without a GPU.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test opens the files of a folder")]
    fn every_library_of_an_installed_cuda_half_loads_from_its_folder() {
        assert!(tch::get_num_threads() > 0);
        let folder = folder_of(OF_THE_CPU_HALF).unwrap();
        if !folder.join(LIBRARY).exists() {
            return;
        }
        open(&folder.join(LIBRARY)).unwrap();
        assert!(folder_of(OF_THE_RUNTIME).unwrap().join(BUILTINS[0]).exists());
        let needs_driver = |name: &str| name.starts_with("libcaffe2_nvrtc");
        for file in std::fs::read_dir(&folder).unwrap().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            // `libtorch.so` is a script of the linker.
            if name.contains(".so") && name != "libtorch.so" && !needs_driver(&name) {
                assert_eq!(open(&file.path()), Ok(()), "{name}");
            }
        }
    }
}
