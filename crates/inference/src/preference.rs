use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Upper bound on the number of CUDA devices in a machine.
const CUDA_DEVICES_MAX: usize = 1024;

/// The preferred device: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DevicePreference {
    /// The first CUDA device, else MPS, else the CPU.
    #[default]
    Auto,
    /// The CPU alone, without an accelerator.
    Cpu,
    /// The CUDA device with this index.
    Cuda(usize),
    /// The GPU of an Apple machine.
    Mps,
}

impl DevicePreference {
    /// Returns true if the preference names an accelerator, which no other device may replace.
    #[must_use]
    pub fn is_accelerator(self) -> bool {
        matches!(self, Self::Cuda(_) | Self::Mps)
    }
}

impl fmt::Display for DevicePreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Mps => f.write_str("mps"),
        }
    }
}

impl FromStr for DevicePreference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is not a device: expected auto, cpu, cuda, cuda:N or mps");
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "mps" => Ok(Self::Mps),
            _ => {
                let index = text.strip_prefix("cuda:").and_then(|index| index.parse().ok());
                index.filter(|&index| index < CUDA_DEVICES_MAX).map(Self::Cuda).ok_or_else(unknown)
            }
        }
    }
}

/// Implements [`Display`](fmt::Display) and [`FromStr`] by the names of the variants.
macro_rules! named {
    ($type:ident, $expected:literal, [$($name:literal $variant:ident),+]) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $name,)+
                })
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(format!("`{text}` is not a {}", $expected)),
                }
            }
        }
    };
}

/// The preferred precision: `auto`, `f32`, `bf16`, `f16` or `int8`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PrecisionPreference {
    /// The faster of float32 and bfloat16 on the device, or float16 on a GPU without bfloat16; self-play also chooses
    /// eight-bit integers if they are much faster.
    #[default]
    Auto,
    /// Float32.
    F32,
    /// Bfloat16, with sums in float32.
    Bf16,
    /// Float16, with sums in float32; a version with larger numbers is evaluated in float32, and so are learned models.
    /// In libtorch only: the CPU kernel computes in float32.
    F16,
    /// Eight-bit integers, calibrated on recent positions; only the CPU kernel supports them.
    Int8,
}

named!(
    PrecisionPreference,
    "precision: expected auto, f32, bf16, f16 or int8",
    ["auto" Auto, "f32" F32, "bf16" Bf16, "f16" F16, "int8" Int8]
);

/// The preferred training precision: `auto`, `f32`, `bf16`, `f16` or `adaptive`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TrainingPrecision {
    /// `Adaptive` if the device trains faster in a lower precision, else float32.
    #[default]
    Auto,
    /// Float32.
    F32,
    /// Bfloat16, with sums and weights in float32.
    Bf16,
    /// Float16 with loss scaling, with sums and weights in float32.
    F16,
    /// Bfloat16, or float16 on a device without it; a layer returns to float32 if the gradient loses too much.
    Adaptive,
}

named!(
    TrainingPrecision,
    "training precision: expected auto, f32, bf16, f16 or adaptive",
    ["auto" Auto, "f32" F32, "bf16" Bf16, "f16" F16, "adaptive" Adaptive]
);

/// The training backend: `auto` or `libtorch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainingKernel {
    /// On a CPU the crate `training-cpu`: float32 with AVX2 or AVX-512, bfloat16 with AVX-512 BF16 or matrix tiles.
    /// Otherwise libtorch.
    Auto,
    /// Always libtorch.
    Libtorch,
}

/// Implements serialization of a configuration type by [`FromStr`] and [`Display`](fmt::Display).
#[macro_export]
macro_rules! configured_as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

configured_as_text!(DevicePreference);
configured_as_text!(PrecisionPreference);
configured_as_text!(TrainingPrecision);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_written_as_they_are_read() {
        for text in ["auto", "cpu", "cuda", "cuda:3", "mps"] {
            assert_eq!(text.parse::<DevicePreference>().unwrap().to_string(), text);
        }
        for text in ["auto", "f32", "bf16", "f16", "int8"] {
            assert_eq!(text.parse::<PrecisionPreference>().unwrap().to_string(), text);
        }
        for text in ["auto", "f32", "bf16", "f16", "adaptive"] {
            assert_eq!(text.parse::<TrainingPrecision>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn unknown_devices_and_precisions_are_refused_with_what_is_expected() {
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999"] {
            let error = text.parse::<DevicePreference>().unwrap_err();
            assert_eq!(error, format!("`{text}` is not a device: expected auto, cpu, cuda, cuda:N or mps"));
        }
        let error = "fp8".parse::<PrecisionPreference>().unwrap_err();
        assert_eq!(error, "`fp8` is not a precision: expected auto, f32, bf16, f16 or int8");
        let error = "int8".parse::<TrainingPrecision>().unwrap_err();
        assert_eq!(error, "`int8` is not a training precision: expected auto, f32, bf16, f16 or adaptive");
    }
}
