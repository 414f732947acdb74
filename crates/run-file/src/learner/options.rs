//! Training and network settings with a fixed set of values.

use serde::{Deserialize, Serialize};
use training::{MomentFormat, Recompute};

/// The setting `learner.moments`: the number format of the optimiser's moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MomentsKind {
    /// Moments in float32, unquantised.
    F32,
    /// Moments in bfloat16, half the size of float32.
    Bf16,
    /// Moments in 8 bits per value, with a scale per block of values.
    Int8,
}

impl MomentsKind {
    pub(crate) fn format(self) -> MomentFormat {
        match self {
            Self::F32 => MomentFormat::F32,
            Self::Bf16 => MomentFormat::Bf16,
            Self::Int8 => MomentFormat::Int8,
        }
    }
}

/// The setting `learner.recompute`: the activations to recompute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecomputeKind {
    /// All activations are kept for the backward pass.
    None,
    /// Activations within segments of residual blocks are recomputed in the backward pass.
    Blocks,
}

impl RecomputeKind {
    pub(crate) fn of_trainer(self) -> Recompute {
        match self {
            Self::None => Recompute::None,
            Self::Blocks => Recompute::Blocks,
        }
    }
}

/// The setting `network.preset`: a number of blocks with a matching number of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPreset {
    /// No preset: `network.channels` and `network.blocks` apply.
    None,
    /// 6 blocks of 96 channels.
    B6c96,
    /// 10 blocks of 128 channels.
    B10c128,
    /// 18 blocks of 192 channels.
    B18c192,
    /// 34 blocks of 256 channels.
    B34c256,
    /// 50 bottleneck blocks of 320 channels.
    B50c320,
}

impl NetworkPreset {
    /// All presets except [`NetworkPreset::None`].
    pub const SIZES: [Self; 5] = [Self::B6c96, Self::B10c128, Self::B18c192, Self::B34c256, Self::B50c320];

    /// Returns `[channels, blocks]` of the preset, which replace the configured values; `None` without a preset.
    #[must_use]
    pub fn size(self) -> Option<[usize; 2]> {
        match self {
            Self::None => None,
            Self::B6c96 => Some([96, 6]),
            Self::B10c128 => Some([128, 10]),
            Self::B18c192 => Some([192, 18]),
            Self::B34c256 => Some([256, 34]),
            Self::B50c320 => Some([320, 50]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NetworkPreset;
    use crate::learner::NetworkSection;

    #[test]
    fn a_preset_replaces_channels_and_blocks_by_those_of_its_name() {
        let size = |preset| {
            let section = NetworkSection { preset, channels: 17, blocks: 3, ..NetworkSection::default() };
            let architecture = section.architecture_of(&games::TicTacToe::new());
            (architecture.blocks, architecture.channels)
        };
        assert_eq!(size(NetworkPreset::None), (3, 17));
        for preset in NetworkPreset::SIZES {
            let name = serde_json::to_string(&preset).unwrap();
            let (blocks, channels) = size(preset);
            assert_eq!(name, format!("\"b{blocks}c{channels}\""));
        }
    }
}
