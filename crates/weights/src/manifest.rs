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

    /// The first 64 bits, as a key of caches within a process: two digests of one run do not share them by chance.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.0.iter().take(8).fold(0, |key, &byte| key << 8 | u64::from(byte))
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
    /// What the layers of the tower are made of; a manifest that does not name it means the default.
    #[serde(default, skip_serializing_if = "Design::is_default")]
    pub design: Design,
    /// The model that the network implements.
    #[serde(default)]
    pub model: Model,
}

/// The parts of a tower that are the same in all its layers, whatever their number and width.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Design {
    /// The function behind the norms of convolutions, in the hidden layer of the value head, and in the feed-forward of
    /// attention blocks.
    pub activation: Activation,
    /// The convolutions of a block.
    pub block: BlockKind,
    /// The norm behind every convolution.
    #[serde(skip_serializing_if = "is_default")]
    pub norm: NormKind,
    /// The number of attention blocks behind the residual ones.
    #[serde(skip_serializing_if = "is_default")]
    pub attention: usize,
    /// The number of heads of each attention block, a divisor of the channels; 0 without attention blocks.
    #[serde(skip_serializing_if = "is_default")]
    pub attention_heads: usize,
    /// The layers of the policy head and of the value head.
    #[serde(skip_serializing_if = "is_default")]
    pub heads: HeadKind,
}

/// Returns whether a part of a design is not written.
fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

impl Design {
    /// Returns whether it is that of networks whose manifest names none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The convolutions of a residual block of C channels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// Two of 3×3 between C channels (He et al. 2016).
    #[default]
    Residual,
    /// One of 1×1 to C / 2 channels, two of 3×3 between these, one of 1×1 to C: the bottleneck of He et al. 2016 with
    /// the width and the second 3×3 convolution of KataGo, since a block should see two cells far.
    Bottleneck,
}

impl BlockKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Residual, Self::Bottleneck];

    /// Returns its name in run files and manifests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Residual => "residual",
            Self::Bottleneck => "bottleneck",
        }
    }

    /// Returns the channels of the 3×3 convolutions of a block of `channels`.
    #[must_use]
    pub const fn inner_channels(self, channels: usize) -> usize {
        match self {
            Self::Residual => channels,
            Self::Bottleneck => channels / 2,
        }
    }
}

impl std::fmt::Display for BlockKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The norm behind a convolution: `(y − μ) / √(σ² + ε) · γ + β` with γ and β of each channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Mean and variance of each channel over the batch in training, and running ones in evaluation (Ioffe and Szegedy
    /// 2015).
    #[default]
    Batch,
    /// Mean and variance of each cell of a position over its channels (Ba et al. 2016, in the place that Liu et al.
    /// 2022 give it in convolutional networks).
    Layer,
    /// Mean and variance of each group of adjacent channels over all cells of a position (Wu and He 2018).
    Group,
}

impl NormKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Batch, Self::Layer, Self::Group];

    /// Returns its name in run files and manifests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Layer => "layer",
            Self::Group => "group",
        }
    }
}

impl std::fmt::Display for NormKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The layers of a head behind its 1×1 convolution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadKind {
    /// A matrix of the features of all cells, as in AlphaZero: its size depends on the board.
    #[default]
    Flattened,
    /// The actions of a cell from the features of that cell, the other actions and the value from features pooled over
    /// the board, as the policy head of KataGo pools them (Wu 2019): no tensor depends on the board.
    Pooled,
}

impl HeadKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Flattened, Self::Pooled];

    /// Returns its name in run files and manifests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flattened => "flattened",
            Self::Pooled => "pooled",
        }
    }
}

impl std::fmt::Display for HeadKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A function of one number, applied to every number of a feature map. All are 0 at 0 and grow like the identity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x · tanh(ln(1 + eˣ))` (Misra 2020), as in Leela Chess Zero and KataGo.
    Mish,
    /// `x · sigmoid(x)` (Elfwing et al. 2018), also called swish.
    Silu,
    /// `x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2` (Hendrycks and Gimpel 2016, their form with tanh).
    Gelu,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Mish, Self::Silu, Self::Gelu];

    /// Returns its name in run files and manifests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Mish => "mish",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
        }
    }
}

impl std::fmt::Display for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
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
    use super::{Activation, Architecture, BlockKind, Design, HeadKind, Model, NormKind};

    const PLAIN: &str = r#"{
    "game": "any", "planes": 2, "height": 3, "width": 3, "actions": 9, "channels": 8, "blocks": 1
}"#;

    #[test]
    fn architecture_options_missing_from_the_json_default_to_zero() {
        let plain: Architecture = serde_json::from_str(PLAIN).unwrap();
        assert_eq!((plain.squeeze_excitation, plain.global_pooling), (0, 0));
    }

    #[test]
    fn a_manifest_without_a_design_means_relu_and_a_default_design_is_not_written() {
        let plain: Architecture = serde_json::from_str(PLAIN).unwrap();
        assert_eq!(plain.design.activation, Activation::Relu);
        assert!(!serde_json::to_string(&plain).unwrap().contains("design"));
    }

    #[test]
    fn every_design_is_written_and_read_by_its_names_and_another_is_refused() {
        for (activation, block) in Activation::ALL.into_iter().flat_map(|it| BlockKind::ALL.map(|block| (it, block))) {
            let design = Design { activation, block, ..Design::default() };
            let text = serde_json::to_string(&design).unwrap();
            assert_eq!(text, format!(r#"{{"activation":"{activation}","block":"{block}"}}"#));
            assert_eq!(serde_json::from_str::<Design>(&text).unwrap(), design);
        }
        let partly: Design = serde_json::from_str(r#"{"activation":"silu"}"#).unwrap();
        assert_eq!(partly, Design { activation: Activation::Silu, ..Design::default() });
        let error = serde_json::from_str::<Design>(r#"{"activation":"tanh"}"#).unwrap_err().to_string();
        assert!(error.contains("`tanh`") && error.contains("`relu`, `mish`, `silu`, `gelu`"), "{error}");
    }

    #[test]
    fn norms_and_attention_are_written_by_their_names_where_they_are_not_the_default() {
        for norm in NormKind::ALL {
            let design = Design { norm, attention: 3, attention_heads: 4, ..Design::default() };
            let text = serde_json::to_string(&design).unwrap();
            let of_norm = if norm == NormKind::Batch { String::new() } else { format!(r#""norm":"{norm}","#) };
            assert!(text.ends_with(&format!(r#","block":"residual",{of_norm}"attention":3,"attention_heads":4}}"#)));
            assert_eq!(serde_json::from_str::<Design>(&text).unwrap(), design);
        }
        let error = serde_json::from_str::<Design>(r#"{"norm":"instance"}"#).unwrap_err().to_string();
        assert!(error.contains("`instance`") && error.contains("`batch`, `layer`, `group`"), "{error}");
    }

    #[test]
    fn heads_are_written_by_their_name_where_they_are_not_the_default() {
        for heads in HeadKind::ALL {
            let design = Design { heads, ..Design::default() };
            let text = serde_json::to_string(&design).unwrap();
            let of_heads = if heads == HeadKind::Flattened { "" } else { r#","heads":"pooled""# };
            assert_eq!(text, format!(r#"{{"activation":"relu","block":"residual"{of_heads}}}"#));
            assert_eq!(serde_json::from_str::<Design>(&text).unwrap(), design);
        }
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
