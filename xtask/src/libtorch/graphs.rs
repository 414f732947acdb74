//! Compiles the library with which programs record CUDA graphs, from crates/network-torch/shim.
//!
//! A C++ compiler and the headers of libtorch suffice: everything else stays undefined until a program opens the
//! library after the CUDA half. Where both halves are installed, each undefined symbol is looked up in the libraries.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Halves, VERSION};
use crate::{files, workspace};

/// File name of the library, which is next to the CUDA half.
pub(crate) const GRAPHS: &str = "libzerofleet_graphs.so";
/// Directory of the source, with declarations in place of NVIDIA's headers.
const SHIM: &str = "crates/network-torch/shim";
/// Libraries that define what the library needs beyond the C++ library, the CUDA half last.
const DEFINING: [&str; 5] = ["libc10.so", "libtorch_cpu.so", "libcudart.so.13", "libc10_cuda.so", "libtorch_cuda.so"];

/// Compiles the library into `.libtorch` if `halves` contain the CUDA half, for the libtorch in the directory `torch`.
/// Without the library programs compute without graphs, so that a failure is only printed.
pub(super) fn ensure_compiled(root: &Path, torch: &Path, halves: Halves) {
    if halves == Halves::Cpu {
        return;
    }
    if let Err(error) = compile(root, torch, &root.join(".libtorch/lib").join(GRAPHS)) {
        eprintln!("libtorch {VERSION}: programs will compute without CUDA graphs: {error:#}");
    }
}

/// Compiles the library for the libtorch in the directory `torch`, unless it is newer than the source.
///
/// # Errors
/// There is no C++ compiler, the headers are missing, or a symbol is not in the libraries of `torch`.
pub(crate) fn compile(root: &Path, torch: &Path, library: &Path) -> Result<()> {
    let shim = root.join(SHIM);
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let made = modified(library);
    if made.is_some() && files::list(&shim)?.iter().all(|source| modified(source) <= made) {
        return Ok(());
    }
    files::create_folder(library.parent().unwrap_or(library))?;
    let fresh = library.with_extension("new");
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O2", "-fPIC", "-shared", "-w", "-I"]).arg(&shim);
    compiler.arg("-I").arg(torch.join("include")).arg(shim.join("graphs.cpp")).arg("-o").arg(&fresh);
    workspace::output(&mut compiler).context("compile the library for CUDA graphs")?;
    verify(&fresh, &torch.join("lib"))?;
    files::rename(&fresh, library)
}

/// Compiles the library, and returns the parts that could not be checked on this machine, in human-readable form.
///
/// # Errors
/// The library does not compile, or a symbol is missing.
pub fn check(root: &Path) -> Result<Vec<String>> {
    if !cfg!(target_os = "linux") {
        return Ok(vec!["the library for CUDA graphs is compiled on Linux only".to_owned()]);
    }
    let (torch, library) = (workspace::libtorch(root), workspace::target(root)?.join(GRAPHS));
    compile(root, &torch, &library)?;
    let is_complete = verify(&library, &torch.join("lib"))?;
    let unchecked = "symbols of the library for CUDA graphs: the CUDA half of libtorch is not installed";
    Ok(if is_complete { Vec::new() } else { vec![unchecked.to_owned()] })
}

/// Looks up the symbols of libtorch and CUDA that the library needs in the libraries of the directory `lib`. Returns
/// false if a library is absent: then only the symbols of libtorch's CPU half are looked up.
///
/// # Errors
/// A symbol is in no library.
fn verify(library: &Path, lib: &Path) -> Result<bool> {
    let present: Vec<PathBuf> = DEFINING.iter().map(|name| lib.join(name)).filter(|path| path.exists()).collect();
    let is_complete = present.len() == DEFINING.len();
    let mut defined = BTreeSet::new();
    for path in present {
        defined.extend(symbols(&nm("--defined-only", &path)?).map(str::to_owned));
    }
    let needed = nm("--undefined-only", library)?;
    let is_looked_up =
        |name: &&str| if name.contains("cuda") { is_complete } else { name.contains("3c10") && !defined.is_empty() };
    let missing: Vec<&str> = symbols(&needed).filter(is_looked_up).filter(|name| !defined.contains(*name)).collect();
    ensure!(missing.is_empty(), "the library for CUDA graphs needs {}, which libtorch lacks", missing.join(", "));
    Ok(is_complete)
}

fn nm(which: &str, library: &Path) -> Result<String> {
    let mut command = Command::new("nm");
    workspace::output(command.args(["--dynamic", which]).arg(library))
        .with_context(|| format!("read the symbols of {} (with nm of binutils)", library.display()))
}

/// Returns the names in the output of `nm`, without versions. Weak symbols may be undefined.
fn symbols(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().rev();
        let (name, kind) = (words.next()?, words.next()?);
        (kind != "w").then(|| name.split('@').next().unwrap_or(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_read_without_their_versions_and_weak_ones_are_left_out() {
        let undefined = "                 U cudaGetLastError\n                 w __cxa_finalize@GLIBC_2.2.5\n\
                                          U _ZN3c105ErrorE@LIBC10\n\n";
        assert_eq!(symbols(undefined).collect::<Vec<_>>(), ["cudaGetLastError", "_ZN3c105ErrorE"]);
        let defined = "0000000000046b90 T cudaGetLastError@@libcudart.so.13\n0000000000000010 B _ZN3c104x\n";
        assert_eq!(symbols(defined).collect::<Vec<_>>(), ["cudaGetLastError", "_ZN3c104x"]);
    }

    #[test]
    fn a_library_newer_than_the_source_is_not_compiled_again_and_a_missing_header_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (shim, library) = (folder.path().join(SHIM), folder.path().join("lib").join(GRAPHS));
        files::create_folder(&shim).unwrap();
        files::write(&shim.join("graphs.cpp"), "#include <no/such/header.h>\n").unwrap();
        let error = compile(folder.path(), folder.path(), &library).unwrap_err();
        assert_eq!(error.to_string(), "compile the library for CUDA graphs");
        assert!(!library.exists());
        files::write(&library, "newer").unwrap();
        compile(folder.path(), folder.path(), &library).unwrap();
    }
}
