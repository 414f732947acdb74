//! Accepts a libtorch that the user installed: for a driver or GPU that the libtorch of the package index does not
//! support, or for a platform without wheels.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{Choice, Halves, VERSION};
use crate::{files, workspace};

const HEADER: &str = "include/torch/headeronly/version.h";
const CUDA_HALF: &str = "lib/libtorch_cuda.so";

/// C functions of the CPU half that the programs call. The linker checks the C++ functions.
const FUNCTIONS: [&str; 5] = [
    "aoti_torch_copy_",
    "aoti_torch_new_tensor_handle",
    "torch_call_dispatcher",
    "torch_list_push_back",
    "torch_new_list_reserve_size",
];

/// Checks that the programs can be built with the libtorch in `folder`.
///
/// # Errors
/// A part or function is missing, or the version is another one; the message names the first of them.
pub(super) fn check(folder: &Path) -> Result<()> {
    let library = format!("lib/{}torch_cpu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    if let Some(part) = ["include/torch", &library, HEADER].into_iter().find(|part| !folder.join(part).exists()) {
        bail!(complaint(folder, &format!("has no `{part}`")));
    }
    let found = version(&files::read(&folder.join(HEADER))?);
    // Versions with the same first two numbers have the same interface.
    let [has, needs] = [found.as_str(), VERSION].map(|version| version.rsplit_once('.').map(|(release, _)| release));
    ensure!(has == needs, complaint(folder, &format!("has version {found}")));
    let defined = defined(&folder.join(&library))?;
    let missing: Vec<&str> = FUNCTIONS.into_iter().filter(|name| !is_defined(&defined, name)).collect();
    ensure!(missing.is_empty(), complaint(folder, &format!("lacks the functions {}", missing.join(", "))));
    Ok(())
}

/// Returns the halves in `folder` that a program can use. The libtorch decides which drivers and GPUs are supported.
///
/// # Errors
/// The CUDA half is needed and missing.
pub(super) fn halves(folder: &Path, choice: Choice) -> Result<Halves> {
    if choice == Choice::Cpu {
        return Ok(Halves::Cpu);
    }
    if folder.join(CUDA_HALF).exists() {
        return Ok(Halves::CpuAndCuda);
    }
    let complaint = complaint(folder, &format!("has no `{CUDA_HALF}`"));
    ensure!(choice == Choice::Auto, complaint);
    eprintln!("libtorch {VERSION}: continuing without the GPU: {complaint}");
    Ok(Halves::Cpu)
}

fn complaint(folder: &Path, what: &str) -> String {
    let folder = folder.display();
    format!("LIBTORCH is {folder}, which {what}; set it to libtorch {VERSION}, or unset it to fetch libtorch")
}

/// Parses the version from the header: `2.11.0`.
fn version(header: &str) -> String {
    let number = |part: &str| {
        let define = format!("#define TORCH_VERSION_{part} ");
        header.lines().find_map(|line| line.strip_prefix(&define)).map_or("?", str::trim)
    };
    ["MAJOR", "MINOR", "PATCH"].map(number).join(".")
}

/// Lists the symbols that a library defines, one per line.
fn defined(library: &Path) -> Result<String> {
    let options: &[&str] = if cfg!(target_os = "macos") { &["-gU"] } else { &["-D", "--defined-only"] };
    workspace::output(Command::new("nm").args(options).arg(library))
        .with_context(|| format!("list the functions of {} (with nm of binutils)", library.display()))
}

/// Returns whether the list of symbols has this C function, which may have a version or, on a Mac, an underscore.
fn is_defined(symbols: &str, name: &str) -> bool {
    let named = symbols.lines().filter_map(|line| line.rsplit(' ').next()?.split('@').next());
    named.map(|symbol| symbol.strip_prefix('_').unwrap_or(symbol)).any(|symbol| symbol == name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// Returns a directory with links to headers and libraries of the installed libtorch, of which the CPU half is
    /// `library`; `None` if none is installed.
    fn linked(library: &str) -> Option<TempDir> {
        let installed = workspace::libtorch(&workspace::root());
        if !installed.join(HEADER).exists() {
            crate::skip::skip("libtorch", "`cargo xtask libtorch` installs it");
            return None;
        }
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("lib")).unwrap();
        symlink(installed.join("include"), folder.path().join("include")).unwrap();
        let [own, of] = ["torch_cpu", library]
            .map(|name| format!("lib/{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
        symlink(installed.join(of), folder.path().join(own)).unwrap();
        Some(folder)
    }

    fn refusal(folder: &Path) -> String {
        let error = check(folder).unwrap_err().to_string();
        assert!(error.starts_with(&format!("LIBTORCH is {}, which ", folder.display())), "{error}");
        error
    }

    #[test]
    fn a_folder_with_the_version_and_the_functions_is_accepted() {
        let Some(folder) = linked("torch_cpu") else { return };
        check(folder.path()).unwrap();
        assert_eq!(halves(folder.path(), Choice::Auto).unwrap(), Halves::Cpu);
    }

    #[test]
    fn a_folder_without_headers_or_of_another_version_is_refused_with_what_it_has() {
        let Some(folder) = linked("torch_cpu") else { return };
        let include = folder.path().join("include");
        fs::remove_file(&include).unwrap();
        assert!(refusal(folder.path()).contains("has no `include/torch`"));
        fs::create_dir_all(include.join("torch/headeronly")).unwrap();
        assert!(refusal(folder.path()).contains(&format!("has no `{HEADER}`")));
        let header = |minor: &str| {
            let text = format!("#define TORCH_VERSION_MAJOR 2\n\n#define TORCH_VERSION_MINOR {minor}\n");
            fs::write(folder.path().join(HEADER), text + "#define TORCH_VERSION_PATCH 1\n").unwrap();
        };
        header("10");
        let error = refusal(folder.path());
        assert!(error.contains("has version 2.10.1; set it to libtorch 2.11.0"), "{error}");
        header("11");
        check(folder.path()).unwrap();
    }

    #[test]
    fn a_library_without_the_functions_is_refused_with_their_names() {
        let Some(folder) = linked("c10") else { return };
        let error = refusal(folder.path());
        assert!(error.contains(&format!("lacks the functions {}", FUNCTIONS.join(", "))), "{error}");
    }

    #[test]
    fn the_cuda_half_is_used_where_it_is_there_whatever_the_driver() {
        let folder = TempDir::new().unwrap();
        let halves = |choice| halves(folder.path(), choice);
        assert_eq!(halves(Choice::Auto).unwrap(), Halves::Cpu);
        let error = halves(Choice::Cuda).unwrap_err().to_string();
        assert!(error.contains("has no `lib/libtorch_cuda.so`"), "{error}");
        fs::create_dir(folder.path().join("lib")).unwrap();
        fs::write(folder.path().join(CUDA_HALF), "").unwrap();
        for choice in [Choice::Auto, Choice::Cuda, Choice::CudaForImages] {
            assert_eq!(halves(choice).unwrap(), Halves::CpuAndCuda);
        }
        assert_eq!(halves(Choice::Cpu).unwrap(), Halves::Cpu);
    }

    #[test]
    fn symbols_are_found_by_their_whole_name_with_a_version_or_an_underscore() {
        let symbols = "0000000000000010 T torch_list_push_back\n0000000000000020 T torch_call_dispatcher@@V1\n\
                       0000000000000030 T _torch_new_list_reserve_size\n";
        for name in ["torch_list_push_back", "torch_call_dispatcher", "torch_new_list_reserve_size"] {
            assert!(is_defined(symbols, name), "{name}");
        }
        assert!(!is_defined(symbols, "torch_list_push") && !is_defined("", "torch_list_push_back"));
    }

    #[test]
    fn the_functions_are_those_that_the_dispatcher_declares() {
        let source = files::read(&workspace::root().join("crates/network-torch/src/dispatcher.rs")).unwrap();
        let declared = source.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next());
        let mut declared: Vec<&str> = declared.filter(|name| name.contains("torch_")).collect();
        declared.sort_unstable();
        assert_eq!(declared, FUNCTIONS);
    }
}
