/// The number format of convolutions and matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// float32.
    F32,
    /// bfloat16, sums in 32 bits.
    Bf16,
    /// float16, sums in 32 bits; numbers end at 65,504. Training scales the loss, and a network with larger numbers is
    /// evaluated in float32.
    F16,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}
