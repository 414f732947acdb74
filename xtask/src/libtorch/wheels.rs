//! The wheels that a platform needs, and the files of each.

use std::collections::BTreeSet;
use std::env::consts::{ARCH, OS};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::VERSION;
use super::gpu::Capability;
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
    /// The lowest compute capability that `libtorch_cuda.so` was compiled for; none where there is no CUDA half.
    pub(super) capability_min: Option<Capability>,
}

/// A wheel and the files that are extracted from it.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The requirement for pip.
    pub(super) requirement: &'static str,
    pub(super) download_mb: u64,
    /// The folder in the wheel that becomes `.libtorch`.
    root: &'static str,
    /// Files that every program needs: prefixes of the names below `root`.
    pub(super) cpu: Part,
    /// Libraries of the CUDA half: complete names, below `lib`.
    pub(super) cuda: Part,
}

/// The files of a wheel that belong to one half of libtorch.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) take: &'static [&'static str],
    pub(super) installed_mb: u64,
}

const NOTHING: Part = Part { take: &[], installed_mb: 0 };

/// Linux on x86-64.
pub(super) const LINUX_X86: Platform = Platform {
    name: "linux-x86_64",
    os_and_arch: ("linux", "x86_64"),
    libraries: &["libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13", "libtorch.so"],
    wheels: &{
        let cpu = &["include/", "lib/libtorch_cpu.so", "lib/libc10.so", "lib/libgomp.so"];
        linux(
            torch(531, Part { take: cpu, installed_mb: 493 }, 515),
            [423, 366, 214, 1, 60, 201, 146, 170, 196, 41, 60, 90],
            [596, 493, 287, 3, 133, 141, 163, 234, 218, 99, 41, 114],
        )
    },
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
    wheels: &{
        let cpu = &[
            "include/",
            "lib/libtorch_cpu.so",
            "lib/libc10.so",
            "lib/libgomp.so",
            "lib/libarm_compute",
            "lib/libnvpl_",
        ];
        linux(
            torch(420, Part { take: cpu, installed_mb: 345 }, 422),
            [543, 434, 214, 1, 62, 223, 162, 221, 197, 39, 60, 43],
            [692, 534, 283, 3, 148, 154, 175, 274, 219, 89, 41, 104],
        )
    },
    capability_min: Some(Capability { major: 8, minor: 0 }),
};

/// macOS on Apple silicon, with MPS.
pub(super) const MAC_ARM: Platform = Platform {
    name: "macos-arm64",
    os_and_arch: ("macos", "aarch64"),
    libraries: &["libtorch_cpu.dylib", "libc10.dylib", "libtorch.dylib"],
    wheels: &[Wheel {
        cpu: Part {
            take: &["include/", "lib/libtorch.dylib", "lib/libtorch_cpu.dylib", "lib/libc10.dylib", "lib/libomp.dylib"],
            installed_mb: 257,
        },
        cuda: NOTHING,
        ..torch(81, NOTHING, 0)
    }],
    capability_min: None,
};

const fn torch(download_mb: u64, cpu: Part, cuda_mb: u64) -> Wheel {
    let cuda = &[
        "libtorch_cuda.so",
        "libc10_cuda.so",
        // Opened by name when it is first used.
        "libtorch_cuda_linalg.so",
        "libtorch_nvshmem.so",
        "libcaffe2_nvrtc.so",
    ];
    let cuda = Part { take: cuda, installed_mb: cuda_mb };
    Wheel { requirement: "torch==2.11.0", download_mb, root: "torch/", cpu, cuda }
}

/// The wheel of torch and those of NVIDIA in the versions that it requires, with the sizes of NVIDIA's CUDA wheels:
/// compressed and of the files that are extracted.
///
/// Left out is what torch requires and this program never loads: the parts of NVSHMEM, cuFile and CUPTI for networks of
/// machines and for profilers, which need libraries of their own.
const fn linux(torch: Wheel, download_mb: [u64; 12], installed_mb: [u64; 12]) -> [Wheel; 14 + 1] {
    const CU13: &str = "nvidia/cu13/";
    const fn cuda(
        index: usize,
        mb: (&[u64; 12], &[u64; 12]),
        requirement: &'static str,
        root: &'static str,
        take: &'static [&'static str],
    ) -> Wheel {
        let cuda = Part { take, installed_mb: mb.1[index] };
        Wheel { requirement, download_mb: mb.0[index], root, cpu: NOTHING, cuda }
    }
    let mb = (&download_mb, &installed_mb);
    [
        torch,
        // The Linux wheels are CUDA builds: libtorch_cpu.so does not load without these two, which need no driver.
        Wheel {
            requirement: "nvidia-cuda-runtime==13.0.96",
            download_mb: 2,
            root: CU13,
            cpu: Part { take: &["lib/libcudart.so"], installed_mb: 1 },
            cuda: NOTHING,
        },
        Wheel {
            requirement: "nvidia-cuda-cupti==13.0.85",
            download_mb: 11,
            root: CU13,
            cpu: Part { take: &["lib/libcupti.so"], installed_mb: 4 },
            cuda: NOTHING,
        },
        cuda(0, mb, "nvidia-cublas==13.1.0.3", CU13, &["libcublas.so.13", "libcublasLt.so.13"]),
        cuda(
            1,
            mb,
            "nvidia-cudnn-cu13==9.19.0.56",
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
        cuda(2, mb, "nvidia-cufft==12.0.0.61", CU13, &["libcufft.so.12"]),
        cuda(3, mb, "nvidia-cufile==1.15.1.6", CU13, &["libcufile.so.0"]),
        cuda(4, mb, "nvidia-curand==10.4.0.35", CU13, &["libcurand.so.10"]),
        cuda(5, mb, "nvidia-cusolver==12.0.4.66", CU13, &["libcusolver.so.12"]),
        cuda(6, mb, "nvidia-cusparse==12.6.3.3", CU13, &["libcusparse.so.12"]),
        cuda(7, mb, "nvidia-cusparselt-cu13==0.8.0", "nvidia/cusparselt/", &["libcusparseLt.so.0"]),
        cuda(8, mb, "nvidia-nccl-cu13==2.28.9", "nvidia/nccl/", &["libnccl.so.2"]),
        cuda(9, mb, "nvidia-nvjitlink==13.0.88", CU13, &["libnvJitLink.so.13"]),
        cuda(10, mb, "nvidia-nvshmem-cu13==3.4.5", "nvidia/nvshmem/", &["libnvshmem_host.so.3"]),
        // Opened by name by cuDNN and cuBLAS, which compile kernels at run time; the second file by the first.
        cuda(11, mb, "nvidia-cuda-nvrtc==13.0.88", CU13, &["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]),
    ]
}

/// The names that libraries of the CUDA half open at run time, each with one library that does. Names of NVIDIA's driver
/// are left out.
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

/// Returns the packages of which the CPU half for Linux has files.
pub fn cpu_packages() -> impl Iterator<Item = &'static str> {
    LINUX_X86.wheels.iter().filter(|wheel| !wheel.cpu.take.is_empty()).map(Wheel::package)
}

/// Returns the further packages of which the CUDA half has files.
pub fn cuda_packages() -> impl Iterator<Item = &'static str> {
    LINUX_X86.wheels.iter().filter(|wheel| wheel.cpu.take.is_empty()).map(Wheel::package)
}

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

    /// The names of the libraries of the CUDA half.
    pub(super) fn cuda_libraries(&'static self) -> impl Iterator<Item = &'static str> {
        self.wheels.iter().flat_map(|wheel| wheel.cuda.take.iter().copied())
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
    /// The name of the package, without the version.
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
                bail!("the wheel {} held no `lib/{name}`", self.requirement);
            }
        }
        Ok(())
    }
}

/// The missing parts of an installation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// True if the CPU half is missing.
    pub(super) cpu: bool,
    /// The missing libraries of the CUDA half.
    pub(super) cuda: BTreeSet<&'static str>,
}

impl Wanted {
    pub(super) fn is_nothing(&self) -> bool {
        !self.cpu && self.cuda.is_empty()
    }

    /// Returns the prefixes of the names that the CPU half takes from a wheel.
    pub(super) fn cpu(&self, wheel: &Wheel) -> &'static [&'static str] {
        if self.cpu { wheel.cpu.take } else { &[] }
    }

    /// Returns the missing libraries of the CUDA half that a wheel holds.
    pub(super) fn cuda(&self, wheel: &Wheel) -> impl Iterator<Item = &'static str> {
        wheel.cuda.take.iter().copied().filter(|name| self.cuda.contains(name))
    }

    /// Returns the wheels to download.
    pub(super) fn wheels(&self, platform: &Platform) -> Vec<&'static Wheel> {
        let is_needed = |wheel: &&Wheel| !self.cpu(wheel).is_empty() || self.cuda(wheel).next().is_some();
        platform.wheels.iter().filter(is_needed).collect()
    }

    /// Returns the megabytes that the missing files take.
    pub(super) fn installed_mb(&self, platform: &Platform) -> u64 {
        let of = |wheel: &&Wheel| {
            let cpu = if self.cpu(wheel).is_empty() { 0 } else { wheel.cpu.installed_mb };
            // All libraries of a wheel count if one of them is missing.
            let cuda = if self.cuda(wheel).next().is_none() { 0 } else { wheel.cuda.installed_mb };
            cpu + cuda
        };
        self.wheels(platform).iter().map(of).sum()
    }
}
