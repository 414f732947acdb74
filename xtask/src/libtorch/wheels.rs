//! The wheels that a platform needs, and the files of each.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::python::Python;

/// A platform that libtorch is fetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Linux on x86-64.
    LinuxX86,
    /// Linux on 64-bit ARM.
    LinuxArm,
    /// macOS on Apple silicon, with MPS.
    MacArm,
}

/// A wheel and what is taken from it.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The requirement for pip.
    pub(super) requirement: &'static str,
    /// The size shown while it downloads.
    pub(super) size: &'static str,
    /// Pairs of a beginning of names in the wheel, marked by the `*`, and what replaces it below `.libtorch`; the
    /// rest of the name is kept, so that headers keep their tree and libraries their numbers.
    take: &'static [(&'static str, &'static str)],
}

const HEADERS: (&str, &str) = ("torch/include/*", "include/");

// The Linux wheels are CUDA builds: libtorch_cpu.so does not load without these two, which need no driver.
const CUDA_RUNTIME: Wheel = Wheel {
    requirement: "nvidia-cuda-runtime==13.0.96",
    size: "2 MB",
    take: &[("nvidia/cu13/lib/libcudart.so*", "lib/libcudart.so")],
};
const CUPTI: Wheel = Wheel {
    requirement: "nvidia-cuda-cupti==13.0.85",
    size: "11 MB",
    take: &[("nvidia/cu13/lib/libcupti.so*", "lib/libcupti.so")],
};

impl Platform {
    /// The platform this program runs on.
    ///
    /// # Errors
    /// If there are no wheels for it.
    pub fn here() -> Result<Self> {
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Ok(Self::LinuxX86),
            ("linux", "aarch64") => Ok(Self::LinuxArm),
            ("macos", "aarch64") => Ok(Self::MacArm),
            (os, arch) => bail!(
                "there is no libtorch {} to fetch for {os} on {arch}: set LIBTORCH to the folder of one that you have",
                super::VERSION
            ),
        }
    }

    /// For the stamp.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LinuxX86 => "linux-x86_64",
            Self::LinuxArm => "linux-aarch64",
            Self::MacArm => "macos-arm64",
        }
    }

    /// Libraries without which nothing links or starts.
    pub(super) fn libraries(self) -> &'static [&'static str] {
        match self {
            Self::LinuxX86 => &[
                "lib/libtorch_cpu.so",
                "lib/libc10.so",
                "lib/libgomp.so.1",
                "lib/libcudart.so.13",
                "lib/libcupti.so.13",
                "lib/libtorch.so",
            ],
            Self::LinuxArm => &[
                "lib/libtorch_cpu.so",
                "lib/libc10.so",
                "lib/libgomp.so.1",
                "lib/libcudart.so.13",
                "lib/libcupti.so.13",
                "lib/libarm_compute.so",
                "lib/libtorch.so",
            ],
            Self::MacArm => &["lib/libtorch_cpu.dylib", "lib/libc10.dylib", "lib/libtorch.dylib"],
        }
    }

    pub(super) fn wheels(self) -> &'static [Wheel] {
        match self {
            Self::LinuxX86 => &[
                Wheel {
                    requirement: "torch==2.11.0",
                    size: "530 MB",
                    take: &[
                        HEADERS,
                        ("torch/lib/libtorch_cpu.so*", "lib/libtorch_cpu.so"),
                        ("torch/lib/libc10.so*", "lib/libc10.so"),
                        ("torch/lib/libgomp.so*", "lib/libgomp.so"),
                    ],
                },
                CUDA_RUNTIME,
                CUPTI,
            ],
            Self::LinuxArm => &[
                Wheel {
                    requirement: "torch==2.11.0",
                    size: "420 MB",
                    take: &[
                        HEADERS,
                        ("torch/lib/libtorch_cpu.so*", "lib/libtorch_cpu.so"),
                        ("torch/lib/libc10.so*", "lib/libc10.so"),
                        ("torch/lib/libgomp.so*", "lib/libgomp.so"),
                        ("torch/lib/libarm_compute*", "lib/libarm_compute"),
                        ("torch/lib/libnvpl_*", "lib/libnvpl_"),
                    ],
                },
                CUDA_RUNTIME,
                CUPTI,
            ],
            Self::MacArm => &[Wheel {
                requirement: "torch==2.11.0",
                size: "81 MB",
                take: &[
                    HEADERS,
                    ("torch/lib/libtorch.dylib*", "lib/libtorch.dylib"),
                    ("torch/lib/libtorch_cpu.dylib*", "lib/libtorch_cpu.dylib"),
                    ("torch/lib/libc10.dylib*", "lib/libc10.dylib"),
                    ("torch/lib/libomp.dylib*", "lib/libomp.dylib"),
                ],
            }],
        }
    }

    /// Adds the files that the wheels do not hold, and checks that every needed file exists.
    pub(super) fn finish(self, folder: &Path) -> Result<()> {
        if self != Self::MacArm {
            // libtorch.so only has to satisfy `-ltorch`; the real one would drag in the CUDA half.
            fs::write(folder.join("lib/libtorch.so"), "INPUT(-ltorch_cpu -lc10)\n").context("write libtorch.so")?;
        }
        for library in self.libraries() {
            if !folder.join(library).is_file() {
                bail!("the wheels of torch {} held no `{library}`", super::VERSION);
            }
        }
        if !folder.join("include/torch").is_dir() {
            bail!("the wheels of torch {} held no headers", super::VERSION);
        }
        Ok(())
    }
}

/// Takes from the one wheel in a folder what matches; arguments: folder, target, then pairs of pattern and place.
/// Reading a member to its end checks its checksum.
const UNPACK: &str = r"
import pathlib, shutil, sys, zipfile
folder, target, take = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
(wheel,) = folder.glob('*.whl')
rules = [(take[i].rstrip('*'), take[i + 1]) for i in range(0, len(take), 2)]
with zipfile.ZipFile(wheel) as archive:
    for info in archive.infolist():
        name = info.filename
        if info.is_dir() or '..' in name.split('/'):
            continue
        for head, place in rules:
            if name.startswith(head):
                path = target / (place + name[len(head):])
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, open(path, 'wb') as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                break
";

impl Wheel {
    pub(super) fn folder_name(&self) -> String {
        format!("wheel-{}", self.requirement.split('=').next().unwrap_or_default())
    }

    pub(super) fn unpack(&self, python: &Python, downloads: &Path, target: &Path) -> Result<()> {
        let mut arguments = vec![downloads.as_os_str(), target.as_os_str()];
        arguments.extend(self.take.iter().flat_map(|(pattern, place)| [OsStr::new(pattern), OsStr::new(place)]));
        python.script(UNPACK, &arguments).with_context(|| format!("unpack {}", self.requirement))
    }
}
