//! The wheels that a platform needs, and the files of each.

use std::env::consts::{ARCH, OS};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::VERSION;
use crate::python::Python;

/// A platform that libtorch is fetched for.
#[derive(Debug)]
pub struct Platform {
    /// The name in the stamp.
    pub(super) name: &'static str,
    /// The operating system and the processor, as the standard library names them.
    os_and_arch: (&'static str, &'static str),
    /// Libraries that every program needs to link or start.
    pub(super) libraries: &'static [&'static str],
    pub(super) wheels: &'static [Wheel],
}

/// A wheel and the files that are extracted from it.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The requirement for pip.
    pub(super) requirement: &'static str,
    /// The size shown while it downloads.
    pub(super) size: &'static str,
    /// The folder in the wheel that becomes `.libtorch`.
    root: &'static str,
    /// The prefixes of the names below `root` that are extracted.
    take: &'static [&'static str],
}

/// Linux on x86-64.
pub(super) const LINUX_X86: Platform = Platform {
    name: "linux-x86_64",
    os_and_arch: ("linux", "x86_64"),
    libraries: &["libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13", "libtorch.so"],
    wheels: &[
        Wheel { take: &["include/", "lib/libtorch_cpu.so", "lib/libc10.so", "lib/libgomp.so"], ..torch("530 MB") },
        CUDA_RUNTIME,
        CUPTI,
    ],
};

/// Linux on 64-bit ARM.
const LINUX_ARM: Platform = Platform {
    name: "linux-aarch64",
    os_and_arch: ("linux", "aarch64"),
    libraries: &[
        "libtorch_cpu.so",
        "libc10.so",
        "libgomp.so.1",
        "libcudart.so.13",
        "libcupti.so.13",
        "libarm_compute.so",
        "libtorch.so",
    ],
    wheels: &[
        Wheel {
            take: &[
                "include/",
                "lib/libtorch_cpu.so",
                "lib/libc10.so",
                "lib/libgomp.so",
                "lib/libarm_compute",
                "lib/libnvpl_",
            ],
            ..torch("420 MB")
        },
        CUDA_RUNTIME,
        CUPTI,
    ],
};

/// macOS on Apple silicon, with MPS.
pub(super) const MAC_ARM: Platform = Platform {
    name: "macos-arm64",
    os_and_arch: ("macos", "aarch64"),
    libraries: &["libtorch_cpu.dylib", "libc10.dylib", "libtorch.dylib"],
    wheels: &[Wheel {
        take: &["include/", "lib/libtorch.dylib", "lib/libtorch_cpu.dylib", "lib/libc10.dylib", "lib/libomp.dylib"],
        ..torch("81 MB")
    }],
};

const fn torch(size: &'static str) -> Wheel {
    Wheel { requirement: "torch==2.11.0", size, root: "torch/", take: &[] }
}

// The Linux wheels are CUDA builds: libtorch_cpu.so does not load without these two, which need no driver.
const CUDA_RUNTIME: Wheel = Wheel {
    requirement: "nvidia-cuda-runtime==13.0.96",
    size: "2 MB",
    root: "nvidia/cu13/",
    take: &["lib/libcudart.so"],
};
const CUPTI: Wheel = Wheel {
    requirement: "nvidia-cuda-cupti==13.0.85",
    size: "11 MB",
    root: "nvidia/cu13/",
    take: &["lib/libcupti.so"],
};

impl Platform {
    /// The platform this program runs on.
    ///
    /// # Errors
    /// If there are no wheels for it.
    pub fn here() -> Result<&'static Self> {
        let here = [&LINUX_X86, &LINUX_ARM, &MAC_ARM].into_iter().find(|platform| platform.os_and_arch == (OS, ARCH));
        here.with_context(|| {
            format!(
                "there is no libtorch {VERSION} to fetch for {OS} on {ARCH}: set LIBTORCH to the folder of one that you \
                 have"
            )
        })
    }

    /// Adds the files that the wheels do not hold, and checks that every needed file exists.
    pub(super) fn finish(&self, folder: &Path) -> Result<()> {
        if OS == "linux" {
            // libtorch.so only has to satisfy `-ltorch`; the real one would load the CUDA libraries.
            fs::write(folder.join("lib/libtorch.so"), "INPUT(-ltorch_cpu -lc10)\n").context("write libtorch.so")?;
        }
        for library in self.libraries {
            if !folder.join("lib").join(library).is_file() {
                bail!("the wheels of torch {VERSION} held no `lib/{library}`");
            }
        }
        if !folder.join("include/torch").is_dir() {
            bail!("the wheels of torch {VERSION} held no headers");
        }
        Ok(())
    }
}

impl Wheel {
    pub(super) fn folder_name(&self) -> String {
        format!("wheel-{}", self.requirement.split('=').next().unwrap_or_default())
    }

    pub(super) fn unpack(&self, python: &Python, downloads: &Path, target: &Path) -> Result<()> {
        let mut arguments = vec![downloads.as_os_str(), target.as_os_str(), OsStr::new(self.root)];
        arguments.extend(self.take.iter().map(OsStr::new));
        python.script(include_str!("unpack.py"), &arguments).with_context(|| format!("unpack {}", self.requirement))
    }
}
