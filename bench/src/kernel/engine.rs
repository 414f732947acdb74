use std::fmt;

use network_cpu::KernelVariant;
use network_torch::Precision;
use serde::{Serialize, Serializer};

/// Something that evaluates positions on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// The kernel, on one of its paths.
    Kernel(KernelVariant),
    /// libtorch.
    Libtorch(Precision),
    /// OpenVINO.
    Openvino(Precision),
    /// onnxruntime, which computes in float32 only.
    Onnxruntime,
}

/// The library that an engine belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// The CPU kernel of this project.
    Kernel,
    /// libtorch.
    Libtorch,
    /// OpenVINO.
    Openvino,
    /// onnxruntime.
    Onnxruntime,
}

impl Engine {
    /// The engines that Python runs.
    pub(super) const PEERS: [Self; 3] =
        [Self::Openvino(Precision::Bf16), Self::Openvino(Precision::F32), Self::Onnxruntime];

    /// Its library.
    pub(super) fn family(self) -> Family {
        match self {
            Self::Kernel(_) => Family::Kernel,
            Self::Libtorch(_) => Family::Libtorch,
            Self::Openvino(_) => Family::Openvino,
            Self::Onnxruntime => Family::Onnxruntime,
        }
    }

    /// The precision of its products; `None` for integers.
    pub(super) fn precision(self) -> Option<Precision> {
        match self {
            Self::Kernel(path) if path.is_int8() => None,
            Self::Kernel(path) if path.is_bf16() => Some(Precision::Bf16),
            Self::Kernel(_) | Self::Onnxruntime => Some(Precision::F32),
            Self::Libtorch(precision) | Self::Openvino(precision) => Some(precision),
        }
    }
}

impl Family {
    /// The families that the kernel is compared with.
    pub(super) const OTHERS: [Self; 3] = [Self::Libtorch, Self::Openvino, Self::Onnxruntime];
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Libtorch => "libtorch",
            Self::Openvino => "openvino",
            Self::Onnxruntime => "onnxruntime",
        })
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(path) => path.fmt(f),
            Self::Libtorch(precision) | Self::Openvino(precision) => write!(f, "{} {precision}", self.family()),
            Self::Onnxruntime => write!(f, "{} {}", self.family(), Precision::F32),
        }
    }
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
