//! Checks the libraries that the libraries of a directory load, by header or by name at run time: each must be in that
//! directory, be part of the system, or come with NVIDIA's driver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::wheels::{is_cuda, opened};
use crate::{files, workspace};

/// Libraries of every system with the GNU C library, the GNU C++ library and zlib.
pub(crate) const SYSTEM: [&str; 11] = [
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
    "libz.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];
/// Libraries that come with the driver.
const DRIVER: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

/// Returns one sentence for each name that the libraries in the directory `lib` load and that is found nowhere.
///
/// # Errors
/// The directory or a library cannot be read.
pub(super) fn unresolved(lib: &Path) -> Result<Vec<String>> {
    let mut loads = BTreeMap::new();
    for path in files::list(lib)? {
        let name = files::name(&path);
        // `libtorch.so` is a linker script.
        if name.contains(".so") && name != "libtorch.so" {
            loads.insert(name, needed_by(&path)?);
        }
    }
    // `/sbin` is not on the path of every user.
    let cache = workspace::output(Command::new("ldconfig").arg("-p"))
        .or_else(|_| workspace::output(Command::new("/sbin/ldconfig").arg("-p")))?;
    Ok(resolve(&loads, &|name| cache.lines().any(|line| line.trim_start().split(' ').next() == Some(name))))
}

/// Returns the libraries that the header of a library or program names.
///
/// # Errors
/// readelf is missing, or cannot read the file.
pub(crate) fn needed_by(path: &Path) -> Result<Vec<String>> {
    // The loader (`ldd`) would map gigabytes, and would miss everything that is opened by name.
    let mut command = Command::new("readelf");
    let text = workspace::output(command.env("LC_ALL", "C").arg("--dynamic").arg(path))
        .with_context(|| format!("read the dependencies of {} (with readelf of binutils)", path.display()))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Vec<String> {
    let names = text.lines().filter(|line| line.contains("(NEEDED)"));
    names.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
}

/// Resolves the names that each library loads. `loads` holds the libraries of the directory, and `is_on_system` returns
/// true for names that the loader finds elsewhere.
fn resolve(loads: &BTreeMap<String, Vec<String>>, is_on_system: &dyn Fn(&str) -> bool) -> Vec<String> {
    let has_cuda = loads.keys().any(|name| is_cuda(name));
    let opened = opened().iter().filter(|(opener, _)| has_cuda && loads.contains_key(*opener));
    let opened = opened.flat_map(|(opener, names)| names.iter().map(move |name| (*opener, *name)));
    let mut by_name: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let needed = loads.iter().flat_map(|(loader, names)| names.iter().map(|name| (loader.as_str(), name.as_str())));
    for (loader, name) in needed.chain(opened) {
        by_name.entry(name).or_default().insert(loader);
    }
    let mut unresolved = Vec::new();
    for (&name, loaders) in &by_name {
        let resolved =
            loads.contains_key(name) || DRIVER.contains(&name) || SYSTEM.contains(&name) && is_on_system(name);
        if !resolved {
            let loaders: Vec<&str> = loaders.iter().copied().collect();
            let remedy =
                if SYSTEM.contains(&name) { ": install it with the package manager of this system" } else { "" };
            unresolved.push(format!("`{name}`, which {} needs, is missing{remedy}", loaders.join(", ")));
        }
    }
    unresolved
}

#[cfg(test)]
mod tests {
    use super::*;

    const READELF: &str = "
Dynamic section at offset 0x1b2f4e0 contains 40 entries:
  Tag        Type                         Name/Value
 0x0000000000000001 (NEEDED)             Shared library: [libc10_cuda.so]
 0x0000000000000001 (NEEDED)             Shared library: [libcudart.so.13]
 0x000000000000000e (SONAME)             Library soname: [libtorch_cuda.so]
 0x000000000000000f (RPATH)              Library rpath: [$ORIGIN]
";

    fn loads(libraries: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        libraries.iter().map(|(name, needed)| ((*name).to_owned(), owned(needed))).collect()
    }

    #[test]
    fn the_needed_names_of_a_library_are_read() {
        assert_eq!(parse(READELF), ["libc10_cuda.so", "libcudart.so.13"]);
    }

    #[test]
    fn a_library_that_is_missing_in_the_folder_is_named_with_those_that_need_it() {
        let folder = loads(&[
            ("libc10.so", &["libc.so.6"]),
            ("libtorch_cpu.so", &["libc10.so", "libcudart.so.13"]),
            ("libcupti.so.13", &["libcudart.so.13", "libz.so.1"]),
        ]);
        assert_eq!(
            resolve(&folder, &|name| name != "libz.so.1"),
            [
                "`libcudart.so.13`, which libcupti.so.13, libtorch_cpu.so needs, is missing",
                "`libz.so.1`, which libcupti.so.13 needs, is missing: install it with the package manager of this system",
            ]
        );
    }

    #[test]
    fn a_library_that_is_opened_by_name_counts_like_one_in_a_header() {
        let folder = loads(&[("libtorch_cuda.so", &[]), ("libnvrtc.so.13", &["libc.so.6"])]);
        assert_eq!(
            resolve(&folder, &|_| true),
            ["`libnvrtc-builtins.so.13.0`, which libnvrtc.so.13 needs, is missing"],
            "libraries that are not there open nothing"
        );
    }

    #[test]
    fn the_driver_may_be_missing() {
        let cuda = loads(&[("libcaffe2_nvrtc.so", &["libcuda.so.1", "libnvrtc.so.13"]), ("libnvrtc.so.13", &[])]);
        let mut unresolved = resolve(&cuda, &|_| false);
        unresolved.retain(|name| !name.contains("builtins"));
        assert_eq!(unresolved, [""; 0]);
        let cpu = resolve(&loads(&[("libc10.so", &["libc.so.6"])]), &|name| name == "libc.so.6");
        assert_eq!(cpu, [""; 0]);
    }
}
