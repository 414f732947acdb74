use std::fmt;

use network_cpu::Path;
use network_torch::Precision;
use serde::{Serialize, Serializer};

/// Something that evaluates positions on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The kernel, on one of its paths.
    Kernel(Path),
    /// libtorch.
    Libtorch(Precision),
    /// OpenVINO.
    Openvino(Precision),
    /// onnxruntime, which computes in float32 only.
    Onnxruntime,
}

/// Whose engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Ours.
    Kernel,
    /// libtorch.
    Libtorch,
    /// OpenVINO.
    Openvino,
    /// onnxruntime.
    Onnxruntime,
}

impl Engine {
    /// Those that Python runs.
    pub const PEERS: [Self; 3] = [Self::Openvino(Precision::Bf16), Self::Openvino(Precision::F32), Self::Onnxruntime];

    /// Whose it is.
    #[must_use]
    pub fn family(self) -> Family {
        match self {
            Self::Kernel(_) => Family::Kernel,
            Self::Libtorch(_) => Family::Libtorch,
            Self::Openvino(_) => Family::Openvino,
            Self::Onnxruntime => Family::Onnxruntime,
        }
    }

    /// What it multiplies; `None` for integers.
    #[must_use]
    pub fn precision(self) -> Option<Precision> {
        match self {
            Self::Kernel(path) if path.is_int8() => None,
            Self::Kernel(path) if path.is_bf16() => Some(Precision::Bf16),
            Self::Kernel(_) | Self::Onnxruntime => Some(Precision::F32),
            Self::Libtorch(precision) | Self::Openvino(precision) => Some(precision),
        }
    }
}

impl Family {
    /// Those the kernel is compared with.
    pub const OTHERS: [Self; 3] = [Self::Libtorch, Self::Openvino, Self::Onnxruntime];
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

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
