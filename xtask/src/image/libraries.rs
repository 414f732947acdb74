//! The shared libraries that a binary loads, with paths on this machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};

use crate::libtorch;

/// Libraries that the C library loads at run time to look up names, without linking them; newer C libraries include the
/// code.
const NAME_LOOKUPS: [&str; 3] = ["libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"];
/// Library of NVIDIA's driver; the engine adds it to a container at the start.
const DRIVER: &str = "libcuda.so.1";

/// Paths of the libraries of one binary or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Libraries(BTreeSet<PathBuf>);

/// Libraries of a binary, split into the system's and libtorch's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Linked {
    pub(super) system: BTreeSet<PathBuf>,
    /// True if the binary also loads libraries of libtorch.
    pub(super) torch: bool,
}

/// Returns the libraries that the loader would load for `binary`, with `torch` as an additional search path.
pub(super) fn of(binary: &Path, torch: &Path) -> Result<Libraries> {
    let mut command = Command::new("ldd");
    let output = command.arg(binary).env("LD_LIBRARY_PATH", torch).output().context("start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| format!("parse the libraries of {}", binary.display()))
}

/// Parses the paths in the output of `ldd`.
fn parse(text: &str) -> Result<Libraries> {
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        let path = line.split_once("=>").map_or(line, |(_, path)| path.trim());
        if path.starts_with("not found") && !line.starts_with(DRIVER) {
            bail!("a library is missing: {line}");
        }
        // The virtual library of the kernel (vDSO) has no path.
        if path.starts_with('/') {
            found.insert(PathBuf::from(path.split(" (").next().unwrap_or(path)));
        }
    }
    Ok(Libraries(found))
}

impl Libraries {
    /// Returns every library in a directory; none if the directory does not exist.
    pub(super) fn in_folder(folder: &Path) -> Result<Self> {
        let mut found = BTreeSet::new();
        if !folder.exists() {
            // A machine without binaries that link libtorch does not need this directory.
            return Ok(Self(found));
        }
        for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
            let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.contains(".so") && is_library(&path)? {
                found.insert(path);
            }
        }
        Ok(Self(found))
    }

    /// Splits the libraries of libtorch into the CPU half and the CUDA half.
    pub(super) fn halves(self) -> [Self; 2] {
        let is_cuda = |path: &PathBuf| path.file_name().is_some_and(|name| libtorch::is_cuda(&name.to_string_lossy()));
        let (cuda, cpu) = self.0.into_iter().partition(is_cuda);
        [Self(cpu), Self(cuda)]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter()
    }

    /// Separates libraries of the system from libraries of libtorch.
    pub(super) fn system_and_other(&self, torch: &Self) -> Linked {
        let names: BTreeSet<_> = torch.0.iter().filter_map(|path| path.file_name()).collect();
        let is_torch = |path: &&PathBuf| path.file_name().is_some_and(|name| names.contains(name));
        Linked {
            system: self.0.iter().filter(|path| !is_torch(path)).cloned().collect(),
            torch: self.0.iter().any(|path| is_torch(&path)),
        }
    }

    /// Returns the system libraries that these libraries load; `torch` lists all libraries of libtorch.
    pub(super) fn needed_of_system(&self, torch: &Self) -> Result<BTreeSet<PathBuf>> {
        let mut needed = BTreeSet::new();
        for library in &self.0 {
            let folder = library.parent().context("find the directory of a library")?;
            needed.extend(of(library, folder)?.system_and_other(torch).system);
        }
        Ok(needed)
    }

    /// Returns a checksum over names, sizes and dates; any changed library changes the checksum.
    pub(super) fn stamp(&self) -> Result<String> {
        let mut text = String::new();
        for path in &self.0 {
            let data = fs::metadata(path).with_context(|| format!("read the metadata of {}", path.display()))?;
            let changed =
                data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
            text.push_str(&format!("{} {} {}\n", path.display(), data.len(), changed.as_nanos()));
        }
        Ok(format!("{:08x}", crc32c::crc32c(text.as_bytes())))
    }
}

/// Returns true for an ELF file, and false for a linker script.
fn is_library(path: &Path) -> Result<bool> {
    let mut magic = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut magic));
    read.with_context(|| format!("read {}", path.display()))?;
    Ok(magic == b"\x7fELF")
}

/// Returns the existing [`NAME_LOOKUPS`] libraries next to the C library in `libraries`.
pub(super) fn of_name_lookups(libraries: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
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

    fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn libraries_are_of_the_system_or_of_libtorch() {
        let torch = Libraries(paths(&["/elsewhere/lib/libtorch_cpu.so", "/elsewhere/lib/libc10.so"]));
        let linked = parse(LDD).unwrap().system_and_other(&torch);
        let system = paths(&["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(linked, Linked { system, torch: true });
        let without = parse("\tlibc.so.6 => /lib/libc.so.6 (0x1)\n").unwrap().system_and_other(&torch);
        assert!(!without.torch);
        assert_eq!(parse("\tstatically linked\n").unwrap(), Libraries(BTreeSet::new()));
    }

    #[test]
    fn a_library_that_is_missing_is_named() {
        let error = parse("\tlibc10.so => not found\n").unwrap_err().to_string();
        assert!(error.contains("libc10.so"), "{error}");
        let driver = parse("\tlibcuda.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n").unwrap();
        assert_eq!(driver.0, paths(&["/lib/libc.so.6"]), "the driver comes with the machine of the container");
    }

    #[test]
    fn the_cuda_half_is_no_part_of_the_layer_of_the_cpu_half() {
        let both = ["/lib/libc10.so", "/lib/libtorch_cpu.so", "/lib/libcudart.so.13", "/lib/libgomp.so.1"];
        let cuda = ["/lib/libc10_cuda.so", "/lib/libcudnn_ops.so.9", "/lib/libtorch_cuda.so"];
        let halves = Libraries(paths(&[both.as_slice(), &cuda].concat())).halves();
        assert_eq!(halves, [Libraries(paths(&both)), Libraries(paths(&cuda))]);
    }

    #[test]
    fn scripts_of_the_linker_are_no_libraries() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("libtorch.so"), "INPUT(-ltorch_cpu)").unwrap();
        fs::write(folder.path().join("libc10.so"), b"\x7fELF and more").unwrap();
        fs::write(folder.path().join("empty.so"), b"").unwrap();
        fs::write(folder.path().join("notes"), b"\x7fELF").unwrap();
        let found = Libraries::in_folder(folder.path()).unwrap();
        assert_eq!(found, Libraries([folder.path().join("libc10.so")].into()));
        let stamp = found.stamp().unwrap();
        fs::write(folder.path().join("libc10.so"), b"\x7fELF and another").unwrap();
        assert_ne!(Libraries::in_folder(folder.path()).unwrap().stamp().unwrap(), stamp);
    }
}
