use serde::{Deserialize, Serialize};

/// A weights version: a publication number that grows by one with each publication of a run; 0 means no network.
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

    /// Returns the first 64 bits, as a cache key within a process: a chance collision within one run is negligible.
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

/// Shape of a network, from which an evaluator builds it before loading the weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// Name of the game that the network was trained for, as in the game's spec.
    pub game: String,
    /// C: planes of the observation.
    pub planes: usize,
    /// H: height of the observation.
    pub height: usize,
    /// W: width of the observation.
    pub width: usize,
    /// A: actions of the policy head.
    pub actions: usize,
    /// Channels of the residual tower.
    pub channels: usize,
    /// Residual blocks of the tower.
    pub blocks: usize,
    /// S: hidden units of squeeze-and-excitation in every block (Hu et al. 2018); 0 for none.
    #[serde(default)]
    pub squeeze_excitation: usize,
    /// G: channels pooled over the board in every third block (Wu 2019, section 3.3); 0 for none. Less than
    /// `channels`.
    #[serde(default)]
    pub global_pooling: usize,
    /// Kinds of layers in the tower; a manifest without the field has the default design.
    #[serde(default, skip_serializing_if = "Design::is_default")]
    pub design: Design,
    /// Model that the network implements.
    #[serde(default)]
    pub model: Model,
}

impl Architecture {
    /// Returns a residual tower of AlphaZero without optional parts, for observations `[C, H, W]`, A actions, and
    /// `[channels, blocks]`.
    #[must_use]
    pub fn plain(
        game: impl Into<String>,
        [planes, height, width]: [usize; 3],
        actions: usize,
        [channels, blocks]: [usize; 2],
    ) -> Self {
        Self {
            game: game.into(),
            planes,
            height,
            width,
            actions,
            channels,
            blocks,
            squeeze_excitation: 0,
            global_pooling: 0,
            design: Design::default(),
            model: Model::Alphazero,
        }
    }
}

/// Kinds of layers that a whole tower shares, independent of depth and width.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Design {
    /// Function after convolution norms, in the hidden layer of the value head, and in the feed-forward of attention
    /// blocks.
    pub activation: Activation,
    /// Convolutions of a block.
    pub block: BlockKind,
    /// Norm after every convolution.
    #[serde(skip_serializing_if = "is_default")]
    pub norm: NormKind,
    /// Number of attention blocks after the residual blocks.
    #[serde(skip_serializing_if = "is_default")]
    pub attention: usize,
    /// Heads of each attention block, a divisor of the channels; 0 without attention blocks.
    #[serde(skip_serializing_if = "is_default")]
    pub attention_heads: usize,
    /// Layers of the policy head and of the value head.
    #[serde(skip_serializing_if = "is_default")]
    pub heads: HeadKind,
}

/// Returns whether serialisation omits a part of a design.
fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

impl Design {
    /// Returns whether the design is the default, which manifests omit.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Implements the list of all variants, and the name of each in run files and manifests.
macro_rules! named {
    ($Kind:ident: $($Variant:ident = $name:literal),+) => {
        impl $Kind {
            /// Every variant, in order of declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// Returns the name in run files and manifests.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $Kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

/// Convolutions of a residual block of C channels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// Two 3×3 convolutions between C channels (He et al. 2016).
    #[default]
    Residual,
    /// 1×1 to C / 2 channels, two 3×3 between C / 2, and 1×1 to C: the bottleneck of He et al. 2016 with the width
    /// and the second 3×3 convolution of KataGo, since a block should see two cells far.
    Bottleneck,
}

named!(BlockKind: Residual = "residual", Bottleneck = "bottleneck");

impl BlockKind {
    /// Returns the channels of the 3×3 convolutions in a block of `channels`.
    #[must_use]
    pub const fn inner_channels(self, channels: usize) -> usize {
        match self {
            Self::Residual => channels,
            Self::Bottleneck => channels / 2,
        }
    }
}

/// Norm after a convolution: `(y − μ) / √(σ² + ε) · γ + β` with γ and β per channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Mean and variance of each channel: over the batch in training, running statistics in evaluation (Ioffe and
    /// Szegedy 2015).
    #[default]
    Batch,
    /// Mean and variance of each cell of a position, over the channels (Ba et al. 2016; placed in convolutional
    /// networks as by Liu et al. 2022).
    Layer,
    /// Mean and variance of each group of adjacent channels, over a position's cells (Wu and He 2018).
    Group,
}

named!(NormKind: Batch = "batch", Layer = "layer", Group = "group");

/// Layers of a head after the 1×1 convolution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadKind {
    /// A matrix over the features of all cells, as in AlphaZero: the size depends on the board.
    #[default]
    Flattened,
    /// Actions of a cell from the features of that cell; all other actions and the value from features pooled over
    /// the board, as in the policy head of KataGo (Wu 2019). No tensor depends on the board.
    Pooled,
}

named!(HeadKind: Flattened = "flattened", Pooled = "pooled");

/// Activation function, applied to every number of a feature map. All are 0 at 0 and grow like the identity.
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
    /// `x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2` (Hendrycks and Gimpel 2016, tanh form).
    Gelu,
}

named!(Activation: Relu = "relu", Mish = "mish", Silu = "silu", Gelu = "gelu");

/// Model that a network implements, which determines the network's functions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Model {
    /// Priors and win/draw/loss of a position with known rules: AlphaZero.
    #[default]
    Alphazero,
    /// Priors and the return of a position with known rules: AlphaZero in a game scored by rewards.
    AlphazeroReturns {
        /// n: returns are categorical over the 2n + 1 integers from −n to n, after the invertible transform.
        support: usize,
    },
    /// Representation, dynamics and prediction (Schrittwieser et al. 2020): MuZero.
    Muzero {
        /// n: values and rewards are categorical over the 2n + 1 integers from −n to n, after the invertible transform.
        support: usize,
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
    /// Returns the name in manifests. Run files have one name for both models of AlphaZero; the scoring of the game
    /// decides between them.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alphazero => "alphazero",
            Self::AlphazeroReturns { .. } => "alphazero_returns",
            Self::Muzero { .. } => "muzero",
            Self::StochasticMuzero { .. } => "stochastic_muzero",
        }
    }

    /// Returns n, the bound of categorical values and rewards; `None` if values predict win, draw and loss.
    #[must_use]
    pub const fn support(self) -> Option<usize> {
        match self {
            Self::Alphazero => None,
            Self::AlphazeroReturns { support } | Self::Muzero { support } | Self::StochasticMuzero { support, .. } => {
                Some(support)
            }
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

    /// Returns whether the model has dynamics, with which a search moves; without them it moves by the rules of the
    /// game.
    #[must_use]
    pub const fn has_dynamics(self) -> bool {
        match self {
            Self::Alphazero | Self::AlphazeroReturns { .. } => false,
            Self::Muzero { .. } | Self::StochasticMuzero { .. } => true,
        }
    }
}

/// The metadata of a weights version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version number.
    pub version: WeightsVersion,
    /// Training step after which the version was published.
    pub training_step: u64,
    /// Digest of the bytes.
    pub digest: Digest,
    /// Number of bytes.
    pub size_bytes: u64,
    /// Architecture of the network.
    pub architecture: Architecture,
}

impl Manifest {
    /// Describes `bytes`, published as `version` after training step `training_step`.
    #[must_use]
    pub fn of(bytes: &[u8], version: WeightsVersion, training_step: u64, architecture: Architecture) -> Self {
        Self { version, training_step, digest: Digest::of(bytes), size_bytes: bytes.len() as u64, architecture }
    }
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
    fn every_model_is_written_by_its_name() {
        for model in [
            Model::Alphazero,
            Model::AlphazeroReturns { support: 5 },
            Model::Muzero { support: 5 },
            Model::StochasticMuzero { support: 5, codes: 6 },
        ] {
            let text = serde_json::to_string(&model).unwrap();
            assert!(text.trim_start_matches('{').starts_with(&format!("\"{}\"", model.name())), "{text}");
        }
    }

    #[test]
    fn a_model_is_written_and_read_by_its_fields_and_value_prefixes_of_earlier_builds_are_refused() {
        let text = r#"{"muzero":{"support":5}}"#;
        assert_eq!(serde_json::to_string(&Model::Muzero { support: 5 }).unwrap(), text);
        assert_eq!(serde_json::from_str::<Model>(text).unwrap(), Model::Muzero { support: 5 });
        let with_prefix = r#"{"muzero":{"support":5,"value_prefix":true}}"#;
        let error = serde_json::from_str::<Model>(with_prefix).unwrap_err().to_string();
        assert!(error.contains("unknown field `value_prefix`"), "{error}");
    }
}
