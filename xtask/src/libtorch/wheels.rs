//! The wheels that a platform needs, and the files to extract.

use std::collections::BTreeSet;
use std::env::consts::{ARCH, OS};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::VERSION;
use super::gpu::Capability;
use crate::python::Python;

/// A platform with a libtorch to fetch.
#[derive(Debug)]
pub struct Platform {
    /// Name in the stamp.
    pub(super) name: &'static str,
    /// Operating system and processor, named as in the standard library.
    os_and_arch: (&'static str, &'static str),
    /// Libraries that every program needs to link or start.
    pub(super) libraries: &'static [&'static str],
    torch: Wheel,
    /// Wheels that torch requires.
    nvidia: &'static [Wheel],
    /// Upper bound on the size of the extracted files, in percent of the wheel sizes.
    pub(super) installed_percent: u64,
    /// Lowest compute capability that `libtorch_cuda.so` was compiled for; `None` without a CUDA half.
    pub(super) capability_min: Option<Capability>,
}

/// A wheel, and the files to extract from it.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Requirement for pip.
    pub(super) requirement: &'static str,
    /// Size in MB for x86-64, and for ARM.
    download_mb: [u64; 2],
    /// Directory in the wheel that becomes `.libtorch`.
    root: &'static str,
    /// Files that every program needs, as prefixes of the names below `root`.
    cpu: &'static [&'static str],
    /// Libraries of the CUDA half, as complete names below `lib`.
    cuda: &'static [&'static str],
}

/// Hashes of the wheels, as a requirements file.
pub(super) const HASHES: &str = include_str!("requirements.txt");

/// Linux on x86-64.
pub(super) const LINUX_X86: Platform = Platform {
    name: "linux-x86_64",
    os_and_arch: ("linux", "x86_64"),
    libraries: &["libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13", "libtorch.so"],
    torch: Wheel { cpu: &["include/", "lib/libtorch_cpu.so", "lib/libc10.so", "lib/libgomp.so"], ..TORCH },
    nvidia: &NVIDIA,
    // For the CUDA half: 3,035 MB from 2,499 MB on x86-64, 3,138 MB from 2,619 MB on ARM.
    installed_percent: 125,
    capability_min: Some(Capability { major: 7, minor: 5 }),
};

/// Linux on 64-bit ARM.
pub(super) const LINUX_ARM: Platform = Platform {
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
    torch: Wheel {
        cpu: &[
            "include/",
            "lib/libtorch_cpu.so",
            "lib/libc10.so",
            "lib/libgomp.so",
            "lib/libarm_compute",
            "lib/libnvpl_",
        ],
        ..TORCH
    },
    nvidia: &NVIDIA,
    installed_percent: 125,
    capability_min: Some(Capability { major: 8, minor: 0 }),
};

/// macOS on Apple silicon, with MPS.
pub(super) const MAC_ARM: Platform = Platform {
    name: "macos-arm64",
    os_and_arch: ("macos", "aarch64"),
    libraries: &["libtorch_cpu.dylib", "libc10.dylib", "libtorch.dylib"],
    torch: Wheel {
        download_mb: [81, 81],
        cpu: &["include/", "lib/libtorch.dylib", "lib/libtorch_cpu.dylib", "lib/libc10.dylib", "lib/libomp.dylib"],
        cuda: &[],
        ..TORCH
    },
    nvidia: &[],
    // 257 MB from 81 MB.
    installed_percent: 320,
    capability_min: None,
};

const TORCH: Wheel = Wheel {
    requirement: "torch==2.11.0",
    download_mb: [531, 420],
    root: "torch/",
    cpu: &[],
    cuda: &[
        "libtorch_cuda.so",
        "libc10_cuda.so",
        "libtorch_nvshmem.so",
        // Opened by name on first use.
        "libtorch_cuda_linalg.so",
        "libcaffe2_nvrtc.so",
    ],
};

/// The wheels that torch requires, in the required versions.
///
/// The list omits required parts that this program never loads: the parts of NVSHMEM, cuFile and CUPTI for networks of
/// machines and for profilers. They need further libraries.
const NVIDIA: [Wheel; 14] = [
    // The Linux wheels are CUDA builds: libtorch_cpu.so does not load without these two, which need no driver.
    Wheel { cpu: &["lib/libcudart.so"], ..cuda("nvidia-cuda-runtime==13.0.96", [2, 2], CU13, &[]) },
    Wheel { cpu: &["lib/libcupti.so"], ..cuda("nvidia-cuda-cupti==13.0.85", [11, 11], CU13, &[]) },
    cuda("nvidia-cublas==13.1.0.3", [423, 543], CU13, &["libcublas.so.13", "libcublasLt.so.13"]),
    cuda(
        "nvidia-cudnn-cu13==9.19.0.56",
        [366, 434],
        "nvidia/cudnn/",
        &[
            "libcudnn.so.9",
            // Opened by name, by the library above and by each other.
            "libcudnn_adv.so.9",
            "libcudnn_cnn.so.9",
            "libcudnn_engines_precompiled.so.9",
            "libcudnn_engines_runtime_compiled.so.9",
            "libcudnn_graph.so.9",
            "libcudnn_heuristic.so.9",
            "libcudnn_ops.so.9",
        ],
    ),
    cuda("nvidia-cufft==12.0.0.61", [214, 214], CU13, &["libcufft.so.12"]),
    cuda("nvidia-cufile==1.15.1.6", [1, 1], CU13, &["libcufile.so.0"]),
    cuda("nvidia-curand==10.4.0.35", [60, 62], CU13, &["libcurand.so.10"]),
    cuda("nvidia-cusolver==12.0.4.66", [201, 223], CU13, &["libcusolver.so.12"]),
    cuda("nvidia-cusparse==12.6.3.3", [146, 162], CU13, &["libcusparse.so.12"]),
    cuda("nvidia-cusparselt-cu13==0.8.0", [170, 221], "nvidia/cusparselt/", &["libcusparseLt.so.0"]),
    cuda("nvidia-nccl-cu13==2.28.9", [196, 197], "nvidia/nccl/", &["libnccl.so.2"]),
    cuda("nvidia-nvjitlink==13.0.88", [41, 39], CU13, &["libnvJitLink.so.13"]),
    cuda("nvidia-nvshmem-cu13==3.4.5", [60, 60], "nvidia/nvshmem/", &["libnvshmem_host.so.3"]),
    // cuDNN and cuBLAS compile kernels at run time: they open the first library by name, and it opens the second.
    cuda("nvidia-cuda-nvrtc==13.0.88", [90, 43], CU13, &["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]),
];

const CU13: &str = "nvidia/cu13/";

const fn cuda(
    requirement: &'static str,
    download_mb: [u64; 2],
    root: &'static str,
    cuda: &'static [&'static str],
) -> Wheel {
    Wheel { requirement, download_mb, root, cpu: &[], cuda }
}

/// Names that libraries of the CUDA half open at run time, in pairs `(opening library, name)`. Names of NVIDIA's driver
/// are omitted.
pub(super) const OPENED: &[(&str, &str)] = &[
    ("libtorch_cpu.so", "libtorch_cuda_linalg.so"),
    ("libtorch_cpu.so", "libcaffe2_nvrtc.so"),
    ("libtorch_cpu.so", "libnvrtc.so.13"),
    ("libcudnn.so.9", "libcudnn_adv.so.9"),
    ("libcudnn.so.9", "libcudnn_cnn.so.9"),
    ("libcudnn.so.9", "libcudnn_graph.so.9"),
    ("libcudnn.so.9", "libcudnn_ops.so.9"),
    ("libcudnn_graph.so.9", "libcudnn_engines_precompiled.so.9"),
    ("libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9"),
    ("libcudnn_graph.so.9", "libcudnn_heuristic.so.9"),
    ("libcudnn_graph.so.9", "libnvrtc.so.13"),
    ("libcudnn_adv.so.9", "libcublasLt.so.13"),
    ("libcublasLt.so.13", "libnvrtc.so.13"),
    ("libcusparseLt.so.0", "libnvrtc.so.13"),
    ("libcufft.so.12", "libnvJitLink.so.13"),
    ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"),
    ("libnvshmem_host.so.3", "libnccl.so.2"),
];

/// Returns true if a file in `lib` belongs to the CUDA half.
#[must_use]
pub fn is_cuda(name: &str) -> bool {
    [&LINUX_X86, &LINUX_ARM].into_iter().flat_map(Platform::cuda_libraries).any(|library| library == name)
}

/// Returns the packages with files for the CPU half for Linux.
pub fn cpu_packages() -> impl Iterator<Item = &'static str> {
    LINUX_X86.wheels().filter(|wheel| !wheel.cpu.is_empty()).map(Wheel::package)
}

/// Returns the further packages with files for the CUDA half.
pub fn cuda_packages() -> impl Iterator<Item = &'static str> {
    LINUX_X86.wheels().filter(|wheel| wheel.cpu.is_empty()).map(Wheel::package)
}

impl Platform {
    /// Returns the platform on which this program runs.
    ///
    /// # Errors
    /// There are no wheels for this platform.
    pub fn here() -> Result<&'static Self> {
        let here = [&LINUX_X86, &LINUX_ARM, &MAC_ARM].into_iter().find(|platform| platform.os_and_arch == (OS, ARCH));
        here.with_context(|| {
            format!(
                "no libtorch {VERSION} is available for {OS} on {ARCH}; set LIBTORCH to the directory of an existing \
                 install"
            )
        })
    }

    /// Returns the names of the libraries in the CUDA half.
    pub(super) fn cuda_libraries(&'static self) -> impl Iterator<Item = &'static str> {
        self.wheels().flat_map(|wheel| wheel.cuda.iter().copied())
    }

    pub(super) fn wheels(&'static self) -> impl Iterator<Item = &'static Wheel> {
        std::iter::once(&self.torch).chain(self.nvidia)
    }

    /// Adds files that no wheel holds, and checks that every needed file exists.
    pub(super) fn finish(&self, folder: &Path) -> Result<()> {
        if OS == "linux" {
            // libtorch.so only has to satisfy `-ltorch`; the real library would load the CUDA libraries.
            fs::write(folder.join("lib/libtorch.so"), "INPUT(-ltorch_cpu -lc10)\n").context("write libtorch.so")?;
        }
        for library in self.libraries {
            if !folder.join("lib").join(library).is_file() {
                bail!("the wheels of torch {VERSION} have no `lib/{library}`");
            }
        }
        if !folder.join("include/torch").is_dir() {
            bail!("the wheels of torch {VERSION} have no headers");
        }
        Ok(())
    }
}

impl Wheel {
    pub(super) fn download_mb(&self, platform: &Platform) -> u64 {
        self.download_mb[usize::from(platform.os_and_arch.1 == "aarch64")]
    }

    /// Returns the line of the requirements file with the hashes of this wheel.
    ///
    /// # Errors
    /// There is no such line: the version was changed without the hashes.
    pub(super) fn hashed(&self) -> Result<&'static str> {
        let start = HASHES.match_indices(self.requirement).map(|(at, _)| at).find(|&at| {
            let starts_line = at == 0 || HASHES.as_bytes()[at - 1] == b'\n';
            starts_line && HASHES[at + self.requirement.len()..].starts_with(" \\\n")
        });
        let rest = start
            .map(|at| &HASHES[at..])
            .with_context(|| format!("xtask/src/libtorch/requirements.txt has no hashes of {}", self.requirement))?;
        // A backslash at the end of a line continues it.
        let ends = rest.match_indices('\n').map(|(at, _)| at).find(|&at| !rest[..at].ends_with('\\'));
        Ok(&rest[..ends.unwrap_or(rest.len())])
    }

    /// Returns the package name without the version.
    pub(super) fn package(&self) -> &'static str {
        self.requirement.split('=').next().unwrap_or_default()
    }

    /// Extracts the wanted files and the licence files.
    pub(super) fn unpack(&self, python: &Python, downloads: &Path, target: &Path, wanted: &Wanted) -> Result<()> {
        let mut take: Vec<String> = wanted.cpu(self).iter().map(|&prefix| prefix.to_owned()).collect();
        take.extend(wanted.cuda(self).map(|name| format!("lib/{name}")));
        let mut arguments = vec![downloads.as_os_str(), target.as_os_str(), OsStr::new(self.package())];
        arguments.push(OsStr::new(self.root));
        arguments.extend(take.iter().map(OsStr::new));
        python.script(include_str!("unpack.py"), &arguments).with_context(|| format!("unpack {}", self.requirement))?;
        for name in wanted.cuda(self) {
            if !target.join("lib").join(name).is_file() {
                bail!("the wheel {} has no `lib/{name}`", self.requirement);
            }
        }
        Ok(())
    }
}

/// Missing parts of an installation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// True if the CPU half is missing.
    pub(super) cpu: bool,
    /// Missing libraries of the CUDA half.
    pub(super) cuda: BTreeSet<&'static str>,
}

impl Wanted {
    pub(super) fn is_nothing(&self) -> bool {
        !self.cpu && self.cuda.is_empty()
    }

    /// Returns the name prefixes that the CPU half takes from a wheel.
    pub(super) fn cpu(&self, wheel: &Wheel) -> &'static [&'static str] {
        if self.cpu { wheel.cpu } else { &[] }
    }

    /// Returns the missing libraries of the CUDA half that a wheel holds.
    pub(super) fn cuda(&self, wheel: &Wheel) -> impl Iterator<Item = &'static str> {
        wheel.cuda.iter().copied().filter(|name| self.cuda.contains(name))
    }

    /// Returns the wheels to download.
    pub(super) fn wheels(&self, platform: &'static Platform) -> Vec<&'static Wheel> {
        let is_needed = |wheel: &&Wheel| !self.cpu(wheel).is_empty() || self.cuda(wheel).next().is_some();
        platform.wheels().filter(is_needed).collect()
    }
}
