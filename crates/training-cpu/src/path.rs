use training::Precision;

use crate::vector::{Formats, Task, portable};
#[cfg(target_arch = "x86_64")]
use crate::vector::{avx2, avx512, avx512_bf16};

/// Instruction set of the kernels. Sums, and everything other than products of activations and weights, are float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Matrix tiles (AMX) with bfloat16 products; AVX-512 with bfloat16 products for shapes that do not suit tiles.
    Amx,
    /// AVX-512 with bfloat16 products.
    Avx512Bf16,
    /// AVX-512 with float32 products.
    Avx512,
    /// AVX2 with FMA.
    Avx2,
    /// Plain Rust.
    Portable,
}

impl Path {
    /// Every path, fastest first within each precision.
    pub const ALL: [Self; 5] = [Self::Amx, Self::Avx512Bf16, Self::Avx512, Self::Avx2, Self::Portable];

    /// Returns the fastest path of this CPU with products in `precision`; `None` if there is none.
    #[must_use]
    pub fn fastest(precision: Precision) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.precision() == precision && path.is_available())
    }

    /// Returns the fastest path of this CPU with float32 products.
    #[must_use]
    pub fn widest() -> Self {
        Self::fastest(Precision::F32).unwrap_or(Self::Portable)
    }

    /// Returns the number format of products.
    #[must_use]
    pub fn precision(self) -> Precision {
        match self {
            Self::Amx | Self::Avx512Bf16 => Precision::Bf16,
            Self::Avx512 | Self::Avx2 | Self::Portable => Precision::F32,
        }
    }

    /// Returns the name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amx => "amx-bf16",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Avx512 => "avx512-f32",
            Self::Avx2 => "avx2-f32",
            Self::Portable => "portable-f32",
        }
    }

    /// Returns whether this CPU has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Amx => cpu::grants_amx() && Self::Avx512Bf16.is_available(),
            Self::Avx512Bf16 => is_x86_feature_detected!("avx512bf16") && Self::Avx512.is_available(),
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && Self::Avx2.is_available()
            }
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Portable => true,
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Portable
        }
    }

    /// Runs `task` with these instructions; on AMX with AVX-512, as tiles have separate kernels. The path must be
    /// available: [`Trainer`](crate::Trainer) checks the given path.
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        debug_assert!(self.is_available(), "{} is not available", self.name());
        match self {
            // SAFETY: the path is available.
            #[cfg(target_arch = "x86_64")]
            Self::Amx | Self::Avx512Bf16 if const { !matches!(T::FORMATS, Formats::F32) } => unsafe {
                avx512_bf16::run(task)
            },
            _ if const { matches!(T::FORMATS, Formats::Bf16) } => unreachable!("{self} has no bfloat16"),
            // SAFETY: the path is available.
            #[cfg(target_arch = "x86_64")]
            Self::Amx | Self::Avx512Bf16 | Self::Avx512 => unsafe { avx512::run(task) },
            // SAFETY: the path is available.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::run(task) },
            _ => portable::run(task),
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
