use serde::{Deserialize, Serialize};

/// A weights version: the number of a publication, which grows by one with each publication of a run; 0 means no
/// network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WeightsVersion(pub u64);

impl std::fmt::Display for WeightsVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// A blake3 digest, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Parses 64 hexadecimal digits; returns `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is not a blake3 digest of 64 hexadecimal digits"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// The shape of a network, which an evaluator needs to build it before it loads the weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// The name of the game that the network was trained for, as in its spec.
    pub game: String,
    /// C: the number of planes of the observation.
    pub planes: usize,
    /// H: the height of the observation.
    pub height: usize,
    /// W: the width of the observation.
    pub width: usize,
    /// A: the number of actions of the policy head.
    pub actions: usize,
    /// The number of channels of the residual tower.
    pub channels: usize,
    /// The number of residual blocks of the tower.
    pub blocks: usize,
    /// S: the number of hidden units of the squeeze-and-excitation in every block (Hu et al. 2018); 0 for none.
    #[serde(default)]
    pub squeeze_excitation: usize,
    /// G: the number of channels pooled over the board in every third block (Wu 2019, section 3.3); 0 for none. Less
    /// than `channels`.
    #[serde(default)]
    pub global_pooling: usize,
    /// The model that the network implements.
    #[serde(default)]
    pub model: Model,
}

/// The model that a network implements, which determines its functions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Priors and win/draw/loss of a position whose rules are known: AlphaZero.
    #[default]
    Alphazero,
    /// Priors and the return of a position whose rules are known: AlphaZero in a game that is scored by its rewards.
    AlphazeroReturns {
        /// n: returns are categorical over the 2n + 1 integers from −n to n, after the invertible transform.
        support: usize,
    },
    /// Representation, dynamics and prediction (Schrittwieser et al. 2020): MuZero.
    Muzero {
        /// n: values and rewards are categorical over the 2n + 1 integers from −n to n, after the invertible transform.
        support: usize,
        /// Whether the reward head predicts value prefixes (Ye et al. 2021): sums of rewards, by an LSTM over the
        /// steps.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        value_prefix: bool,
    },
    /// MuZero with afterstates and chance codes (Antonoglou et al. 2022): Stochastic MuZero.
    StochasticMuzero {
        /// As in MuZero.
        support: usize,
        /// M: the number of chance codes.
        codes: usize,
    },
}

impl Model {
    /// Returns n, up to which values and rewards are categorical; `None` where values are those of wins, draws and
    /// losses.
    #[must_use]
    pub const fn support(self) -> Option<usize> {
        match self {
            Self::Alphazero => None,
            Self::AlphazeroReturns { support }
            | Self::Muzero { support, .. }
            | Self::StochasticMuzero { support, .. } => Some(support),
        }
    }

    /// Returns M, the number of chance codes; 0 for a model without chance.
    #[must_use]
    pub const fn codes(self) -> usize {
        match self {
            Self::Alphazero | Self::AlphazeroReturns { .. } | Self::Muzero { .. } => 0,
            Self::StochasticMuzero { codes, .. } => codes,
        }
    }

    /// Returns whether the model has dynamics, in which a search moves; without them it moves by the rules of the game.
    #[must_use]
    pub const fn has_dynamics(self) -> bool {
        match self {
            Self::Alphazero | Self::AlphazeroReturns { .. } => false,
            Self::Muzero { .. } | Self::StochasticMuzero { .. } => true,
        }
    }

    /// MuZero whose reward head predicts rewards.
    #[must_use]
    pub const fn muzero(support: usize) -> Self {
        Self::Muzero { support, value_prefix: false }
    }

    /// EfficientZero's form of MuZero, whose reward head predicts value prefixes.
    #[must_use]
    pub const fn muzero_with_value_prefix(support: usize) -> Self {
        Self::Muzero { support, value_prefix: true }
    }
}

/// The metadata of a weights version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version.
    pub version: WeightsVersion,
    /// The training step after which the version was published.
    pub training_step: u64,
    /// The digest of the bytes.
    pub digest: Digest,
    /// The number of bytes of the version.
    pub size_bytes: u64,
    /// The architecture of the network.
    pub architecture: Architecture,
}

#[cfg(test)]
mod tests {
    use super::{Architecture, Model};

    const PLAIN: &str = r#"{
    "game": "any", "planes": 2, "height": 3, "width": 3, "actions": 9, "channels": 8, "blocks": 1
}"#;

    #[test]
    fn architecture_options_missing_from_the_json_default_to_zero() {
        let plain: Architecture = serde_json::from_str(PLAIN).unwrap();
        assert_eq!((plain.squeeze_excitation, plain.global_pooling), (0, 0));
    }

    #[test]
    fn an_architecture_reads_back_as_it_was_written() {
        let plain: Architecture = serde_json::from_str(PLAIN).unwrap();
        let written = Architecture { squeeze_excitation: 16, global_pooling: 4, ..plain };
        let read: Architecture = serde_json::from_str(&serde_json::to_string(&written).unwrap()).unwrap();
        assert_eq!(read, written);
    }

    #[test]
    fn a_model_without_value_prefix_is_written_and_read_as_before() {
        let text = r#"{"muzero":{"support":5}}"#;
        assert_eq!(serde_json::to_string(&Model::muzero(5)).unwrap(), text);
        assert_eq!(serde_json::from_str::<Model>(text).unwrap(), Model::muzero(5));
        let with = Model::muzero_with_value_prefix(5);
        assert_eq!(serde_json::from_str::<Model>(&serde_json::to_string(&with).unwrap()).unwrap(), with);
    }
}
