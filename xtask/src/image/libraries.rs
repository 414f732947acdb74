//! Finds the shared libraries that a binary loads, with paths on this machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};

use crate::{files, libtorch};

/// Libraries that the C library loads at run time to look up names, without linking them; newer C libraries include the
/// code.
const NAME_LOOKUPS: [&str; 3] = ["libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"];
/// Library of NVIDIA's driver, which the container engine adds when a container starts.
const DRIVER: &str = "libcuda.so.1";

/// Paths of libraries.
pub(super) type Libraries = BTreeSet<PathBuf>;

/// The libraries of a binary: those of the system, and whether libtorch is among the rest.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Linked {
    pub(super) system: Libraries,
    /// True if the binary also loads libraries of libtorch.
    pub(super) torch: bool,
}

/// Returns the libraries that the loader would load for `binary`; the directory `lib` holds the libraries `torch`.
pub(super) fn linked(binary: &Path, lib: &Path, torch: &Libraries) -> Result<Linked> {
    let mut command = Command::new("ldd");
    let output = command.arg(binary).env("LD_LIBRARY_PATH", lib).output().context("start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text, torch).with_context(|| format!("parse the libraries of {}", binary.display()))
}

/// Parses the paths in the output of `ldd`.
fn parse(text: &str, torch: &Libraries) -> Result<Linked> {
    let mut linked = Linked::default();
    for line in text.lines().map(str::trim) {
        let path = line.split_once("=>").map_or(line, |(_, path)| path.trim());
        if path.starts_with("not found") && !line.starts_with(DRIVER) {
            bail!("a library is missing: {line}");
        }
        // The virtual library of the kernel (vDSO) has no path.
        if path.starts_with('/') {
            let path = Path::new(path.split(" (").next().unwrap_or(path));
            if torch.iter().any(|library| library.file_name() == path.file_name()) {
                linked.torch = true;
            } else {
                linked.system.insert(path.to_owned());
            }
        }
    }
    Ok(linked)
}

/// Returns every library in a directory, or none if the directory does not exist. A machine without binaries that link
/// libtorch does not need the directory.
pub(super) fn in_folder(folder: &Path) -> Result<Libraries> {
    let mut found = if folder.exists() { files::list(folder)? } else { Vec::new() };
    found.retain(|path| files::name(path).contains(".so") && is_library(path));
    Ok(found.into_iter().collect())
}

/// Splits the libraries of libtorch into the CPU half and the CUDA half, with the library for CUDA graphs.
pub(super) fn halves(torch: &Libraries) -> [Libraries; 2] {
    let is_cuda = |name: &str| libtorch::is_cuda(name) || name == libtorch::GRAPHS;
    let (cuda, cpu) = torch.iter().cloned().partition(|path| is_cuda(&files::name(path)));
    [cpu, cuda]
}

/// Returns the system libraries that these libraries load; `torch` lists all libraries of libtorch.
pub(super) fn needed_of_system(libraries: &Libraries, torch: &Libraries) -> Result<Libraries> {
    let mut needed = Libraries::new();
    for library in libraries {
        let lib = library.parent().context("find the directory of a library")?;
        needed.extend(linked(library, lib, torch)?.system);
    }
    Ok(needed)
}

/// Returns a checksum over names, sizes and dates; any changed library changes the checksum.
pub(super) fn stamp(libraries: &Libraries) -> Result<String> {
    let mut text = String::new();
    for path in libraries {
        let modified = fs::metadata(path).and_then(|data| data.modified());
        let modified = modified.with_context(|| format!("read the metadata of {}", path.display()))?;
        let changed = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        text.push_str(&format!("{} {} {}\n", path.display(), files::size(path)?, changed.as_nanos()));
    }
    Ok(format!("{:08x}", crc32c::crc32c(text.as_bytes())))
}

/// Returns true for an ELF file, and false for a linker script.
fn is_library(path: &Path) -> bool {
    let mut magic = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut magic));
    read.is_ok() && magic == b"\x7fELF"
}

/// Returns the existing [`NAME_LOOKUPS`] libraries next to the C library in `libraries`.
pub(super) fn of_name_lookups(libraries: &Libraries) -> Vec<PathBuf> {
    let c = libraries.iter().find(|path| path.file_name().is_some_and(|name| name == "libc.so.6"));
    let folder = c.and_then(|path| path.parent());
    let beside = folder.into_iter().flat_map(|folder| NAME_LOOKUPS.map(|name| folder.join(name)));
    beside.filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LDD: &str = "\tlinux-vdso.so.1 (0x00007f9d2fc7b000)\n\
    \tlibtorch_cpu.so => /opt/torch/lib/libtorch_cpu.so (0x00007f9d00000000)\n\
    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f9d2ec1e000)\n\
    \t/lib64/ld-linux-x86-64.so.2 (0x00007f9d2fc7d000)\n";

    fn paths(paths: &[&str]) -> Libraries {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn libraries_are_of_the_system_or_of_libtorch() {
        let torch = paths(&["/elsewhere/lib/libtorch_cpu.so", "/elsewhere/lib/libc10.so"]);
        let system = paths(&["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(parse(LDD, &torch).unwrap(), Linked { system, torch: true });
        assert!(!parse("\tlibc.so.6 => /lib/libc.so.6 (0x1)\n", &torch).unwrap().torch);
        assert_eq!(parse("\tstatically linked\n", &torch).unwrap(), Linked::default());
    }

    #[test]
    fn a_library_that_is_missing_is_named() {
        let error = parse("\tlibc10.so => not found\n", &paths(&[])).unwrap_err().to_string();
        assert!(error.contains("libc10.so"), "{error}");
        let driver = "\tlibcuda.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n";
        let system = parse(driver, &paths(&[])).unwrap().system;
        assert_eq!(system, paths(&["/lib/libc.so.6"]), "the driver comes with the machine of the container");
    }

    #[test]
    fn the_cuda_half_is_no_part_of_the_layer_of_the_cpu_half() {
        let both = ["/lib/libc10.so", "/lib/libtorch_cpu.so", "/lib/libcudart.so.13", "/lib/libgomp.so.1"];
        let cuda =
            ["/lib/libc10_cuda.so", "/lib/libcudnn_ops.so.9", "/lib/libtorch_cuda.so", "/lib/libzerofleet_graphs.so"];
        assert_eq!(halves(&paths(&[both.as_slice(), &cuda].concat())), [paths(&both), paths(&cuda)]);
    }

    #[test]
    fn scripts_of_the_linker_are_no_libraries() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("libtorch.so"), "INPUT(-ltorch_cpu)").unwrap();
        fs::write(folder.path().join("libc10.so"), b"\x7fELF and more").unwrap();
        fs::write(folder.path().join("empty.so"), b"").unwrap();
        fs::write(folder.path().join("notes"), b"\x7fELF").unwrap();
        let found = in_folder(folder.path()).unwrap();
        assert_eq!(found, Libraries::from([folder.path().join("libc10.so")]));
        let before = stamp(&found).unwrap();
        fs::write(folder.path().join("libc10.so"), b"\x7fELF and another").unwrap();
        assert_ne!(stamp(&found).unwrap(), before);
    }
}
