use ::network::{
    ATTENTION_MAX, BLOCKS_MAX, CHANNELS_MAX, CODES_MAX, GROUP_CHANNELS, SQUEEZE_EXCITATION_MAX, SUPPORT_MAX,
};
use game::{Game, ObservationShape, Scoring, Spec};
use serde::{Deserialize, Serialize};
use service::ConfigError;
use weights::{Activation, Architecture, BlockKind, Design, HeadKind, Model, NormKind};

service::section! {
    /// The section `[network]`: design and size of the network.
    #[serde(deny_unknown_fields)]
    pub struct NetworkSection {
        /// Size of the network: `b6c96`, `b10c128`, `b18c192`, `b34c256` or `b50c320` sets `blocks` and `channels` to
        /// the two numbers of the name, and `b50c320` also sets `block = "bottleneck"`. `none` uses the keys of this
        /// section.
        preset: NetworkPreset = NetworkPreset::None, page "devices.md#the-memory-of-training";
        /// Number of channels in the residual tower, or of hidden units in dense networks for vector observations.
        channels: usize = 64, in 1..=CHANNELS_MAX;
        /// Number of residual blocks in the tower; at least 1 without attention blocks.
        blocks: usize = 4, in 0..=BLOCKS_MAX;
        /// Number of hidden units for squeeze-and-excitation in every block; 0 disables it.
        // The convolutions cover a small board without pooling, so the optional layers are off.
        squeeze_excitation: usize = 0, in 0..=SQUEEZE_EXCITATION_MAX;
        /// Number of channels with global pooling over the board, in every third block. It must be below the number of
        /// channels in the 3×3 convolutions; 0 disables global pooling.
        global_pooling: usize = 0;
        /// Activation after each norm: `relu`, `mish`, `silu` or `gelu`. Any value except `relu` requires the model
        /// `alphazero` and a game scored by outcome.
        activation: Activation = Activation::Relu;
        /// Convolutions of a block: `residual`, with two 3×3 convolutions, or `bottleneck`, with half of the channels
        /// in the 3×3 convolutions. `bottleneck` requires the model `alphazero` and a game scored by outcome.
        block: BlockKind = BlockKind::Residual;
        /// Norm after convolutions: `batch`, `layer` or `group`. `layer` and `group` normalise each position
        /// separately, without running statistics, and require the model `alphazero` and a game scored by outcome.
        norm: NormKind = NormKind::Batch, page "networks.md#norms";
        /// Number of attention blocks after the residual blocks; 0 disables attention. Attention blocks require the
        /// model `alphazero` and a game scored by outcome. With attention blocks, `blocks` may be 0.
        attention: usize = 0, in 0..=ATTENTION_MAX, page "networks.md#attention";
        /// Number of heads in each attention block; it must divide the number of channels.
        // With the default of 64 channels, 16 channels per head.
        attention_heads: usize = 4, in 1..=CHANNELS_MAX;
        /// Policy and value heads: `flattened`, for a single board size, or `pooled`, for one network on all boards of
        /// a game. `pooled` requires the model `alphazero` and a game scored by outcome, with an action for each cell.
        heads: HeadKind = HeadKind::Flattened, page "networks.md#several-boards";
        /// Kind of model: `alphazero`, for search with the game rules; `muzero`, for search with learned dynamics; or
        /// `stochastic_muzero`, for search with learned dynamics and chance events.
        model: ModelKind = ModelKind::Alphazero, page "muzero.md";
        /// With `muzero`, `stochastic_muzero`, and `alphazero` in games scored by rewards: the largest integer S of the
        /// support. Values and rewards are categorical over the integers from -S to S, after an invertible transform
        /// that maps 10 to 2.3, 100 to 9.1, and 500 to 21.9.
        support: usize = 25, in 1..=SUPPORT_MAX, page "muzero.md#keys";
        /// With `stochastic_muzero`: M, the number of chance codes. It limits the number of chance outcomes per action
        /// that the model can distinguish; the paper uses 32.
        chance_codes: usize = 32, in 1..=CODES_MAX;
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

/// The setting `network.model`: the kind of model, which determines the kind of search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// A network for policy and value of a position; in games scored by rewards, the value is the return.
    Alphazero,
    /// MuZero: representation, dynamics and prediction networks.
    Muzero,
    /// Stochastic MuZero: MuZero with afterstates and chance codes.
    StochasticMuzero,
}

impl NetworkSection {
    /// Returns the model to train in this game.
    #[must_use]
    pub fn model_of<G: Game>(&self, game: &G) -> Model {
        let &Self { model, support, chance_codes, .. } = self;
        match (model, game.spec().scoring) {
            (ModelKind::Alphazero, Scoring::Outcome) => Model::Alphazero,
            (ModelKind::Alphazero, Scoring::Rewards) => Model::AlphazeroReturns { support },
            (ModelKind::Muzero, _) => Model::Muzero { support },
            (ModelKind::StochasticMuzero, _) => Model::StochasticMuzero { support, codes: chance_codes },
        }
    }

    /// Returns the design of the tower: the kinds of layers, without their number and width.
    #[must_use]
    pub fn design(&self) -> Design {
        let block = if self.preset == NetworkPreset::B50c320 { BlockKind::Bottleneck } else { self.block };
        let attention_heads = if self.attention == 0 { 0 } else { self.attention_heads };
        let &Self { activation, norm, attention, heads, .. } = self;
        Design { activation, block, norm, attention, attention_heads, heads }
    }

    /// Returns `[channels, blocks]`, from the preset or the keys.
    #[must_use]
    pub fn size(&self) -> [usize; 2] {
        self.preset.size().unwrap_or([self.channels, self.blocks])
    }

    /// Checks that blocks, attention heads, norm groups and pooled channels suit the number of channels.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key.
    pub(super) fn check_design(&self) -> Result<(), ConfigError> {
        let ([channels, blocks], heads, block) = (self.size(), self.attention_heads, self.design().block);
        ConfigError::within("network.blocks", blocks, usize::from(self.attention == 0)..=BLOCKS_MAX)?;
        if block == BlockKind::Bottleneck && !channels.is_multiple_of(2) {
            let reason = format!("{channels} is odd; bottleneck blocks need an even number");
            return Err(ConfigError::invalid("network.channels", reason));
        }
        ConfigError::within("network.global_pooling", self.global_pooling, 0..=block.inner_channels(channels) - 1)?;
        if self.attention > 0 && !channels.is_multiple_of(heads) {
            let reason = format!("{heads} heads do not divide {channels} channels");
            return Err(ConfigError::invalid("network.attention_heads", reason));
        }
        let multiple = if block == BlockKind::Bottleneck { 2 * GROUP_CHANNELS } else { GROUP_CHANNELS };
        if self.norm == NormKind::Group && !channels.is_multiple_of(multiple) {
            let reason = format!("`group` needs a multiple of {multiple} channels, got {channels}");
            return Err(ConfigError::invalid("network.norm", reason));
        }
        Ok(())
    }

    /// Checks that all design keys have the default values, as required outside AlphaZero networks for games scored by
    /// outcome.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key.
    pub(super) fn check_default_design(&self, game: &str) -> Result<(), ConfigError> {
        let Design { activation, block, norm, attention, attention_heads: _, heads } = self.design();
        let is_set = [
            ("network.activation", activation != Activation::Relu, activation.to_string()),
            ("network.block", block != BlockKind::Residual, block.to_string()),
            ("network.norm", norm != NormKind::Batch, norm.to_string()),
            ("network.attention", attention > 0, attention.to_string()),
            ("network.heads", heads != HeadKind::Flattened, heads.to_string()),
        ];
        match is_set.into_iter().find(|(_, is_set, _)| *is_set) {
            Some((key, _, value)) => {
                let reason = format!(
                    "`{value}` requires the model alphazero and a game scored by outcome, unlike this run of {game}; \
                     leave it out"
                );
                Err(ConfigError::invalid(key, reason))
            }
            None => Ok(()),
        }
    }

    /// Checks that the game has an action for each cell if the heads are pooled.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key.
    pub(super) fn check_heads(&self, spec: &Spec) -> Result<(), ConfigError> {
        let ObservationShape { height, width, .. } = spec.observation;
        if self.heads == HeadKind::Flattened || spec.actions >= height * width {
            return Ok(());
        }
        let reason = format!(
            "`pooled` needs an action per cell, but {} has {} actions on {height}x{width} cells; leave it out",
            spec.name, spec.actions
        );
        Err(ConfigError::invalid("network.heads", reason))
    }

    /// Returns the architecture of the network to train in this game.
    #[must_use]
    pub fn architecture_of<G: Game>(&self, game: &G) -> Architecture {
        let Spec { name, actions, observation, .. } = game.spec().clone();
        let ObservationShape { planes, height, width } = observation;
        let &Self { squeeze_excitation, global_pooling, .. } = self;
        let [channels, blocks] = self.size();
        let model = self.model_of(game);
        Architecture {
            game: name,
            planes,
            height,
            width,
            actions,
            channels,
            blocks,
            squeeze_excitation,
            global_pooling,
            design: self.design(),
            model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    /// Returns the checked section for a run of tic-tac-toe, or the error message.
    fn answered(network: NetworkSection) -> Result<NetworkSection, String> {
        let mut config = Config { network, ..Config::default() };
        config.run.game = "tic_tac_toe".to_owned();
        config.settings().map(|settings| settings.network).map_err(|error| error.to_string())
    }

    #[test]
    fn squeeze_excitation_and_global_pooling_reach_the_settings_and_are_off_by_default() {
        let network = NetworkSection::default();
        assert_eq!((network.squeeze_excitation, network.global_pooling), (0, 0));
        let network = answered(NetworkSection { squeeze_excitation: 16, global_pooling: 63, ..network }).unwrap();
        assert_eq!((network.squeeze_excitation, network.global_pooling), (16, 63));
    }

    #[test]
    fn options_of_the_network_out_of_range_are_refused_by_their_key() {
        let refused = |network| answered(network).map(drop).unwrap_err();
        let error = refused(NetworkSection { squeeze_excitation: 2049, ..NetworkSection::default() });
        assert!(error.contains("network.squeeze_excitation") && error.contains("must be from 0 to 2048"), "{error}");
        let error = refused(NetworkSection { global_pooling: 64, ..NetworkSection::default() });
        assert!(error.contains("network.global_pooling") && error.contains("must be from 0 to 63"), "{error}");
    }

    #[test]
    fn an_activation_is_read_by_its_name_and_refused_for_networks_that_have_relu_only() {
        let read = |text: &str| serde_json::from_str::<NetworkSection>(text).map_err(|error| error.to_string());
        let network = answered(read(r#"{"activation": "mish"}"#).unwrap()).unwrap();
        assert_eq!(network.design(), Design { activation: Activation::Mish, ..Design::default() });
        assert_eq!(NetworkSection::default().design(), Design::default());
        let error = read(r#"{"activation": "elu"}"#).unwrap_err();
        assert!(error.contains("`elu`") && error.contains("`relu`, `mish`, `silu`, `gelu`"), "{error}");
        let error = answered(NetworkSection { model: ModelKind::Muzero, ..network }).unwrap_err();
        assert!(error.contains("network.activation") && error.contains("`mish`"), "{error}");
    }

    #[test]
    fn bottleneck_blocks_are_read_by_their_name_and_refused_where_they_cannot_be_built() {
        let read = |text: &str| serde_json::from_str::<NetworkSection>(text).map_err(|error| error.to_string());
        let network = read(r#"{"block": "bottleneck"}"#).unwrap();
        assert_eq!(answered(network.clone()).unwrap().design().block, BlockKind::Bottleneck);
        assert!(read(r#"{"block": "dense"}"#).unwrap_err().contains("expected `residual` or `bottleneck`"));
        let error = answered(NetworkSection { channels: 63, ..network.clone() }).unwrap_err();
        assert!(error.contains("network.channels") && error.contains("63"), "{error}");
        let error = answered(NetworkSection { global_pooling: 32, ..network.clone() }).unwrap_err();
        assert!(error.contains("network.global_pooling") && error.contains("must be from 0 to 31"), "{error}");
        let error = answered(NetworkSection { model: ModelKind::Muzero, ..network }).unwrap_err();
        assert!(error.contains("network.block") && error.contains("`bottleneck`"), "{error}");
    }

    #[test]
    fn pooled_heads_are_read_by_their_name_and_refused_where_they_cannot_be_built() {
        let read = |text: &str| serde_json::from_str::<NetworkSection>(text).map_err(|error| error.to_string());
        let network = read(r#"{"heads": "pooled"}"#).unwrap();
        assert_eq!(answered(network.clone()).unwrap().design().heads, HeadKind::Pooled);
        assert!(read(r#"{"heads": "dense"}"#).unwrap_err().contains("expected `flattened` or `pooled`"));
        let error = answered(NetworkSection { model: ModelKind::Muzero, ..network.clone() }).unwrap_err();
        assert!(error.contains("network.heads") && error.contains("`pooled`"), "{error}");
        let columns = Config { network, ..Config::default() };
        assert_eq!(columns.run.game, "connect_four");
        let error = columns.settings().unwrap_err().to_string();
        assert!(error.contains("network.heads") && error.contains("7 actions on 6x7 cells"), "{error}");
    }

    #[test]
    fn attention_and_norms_are_read_by_their_names_and_refused_where_they_cannot_be_built() {
        let read = |text: &str| serde_json::from_str::<NetworkSection>(text).map_err(|error| error.to_string());
        let network = read(r#"{"norm": "group", "attention": 3, "attention_heads": 8, "blocks": 0}"#).unwrap();
        let design = answered(network.clone()).unwrap().design();
        assert_eq!((design.norm, design.attention, design.attention_heads), (NormKind::Group, 3, 8));
        let refused = |network| answered(network).map(drop).unwrap_err();
        assert!(read(r#"{"norm": "instance"}"#).unwrap_err().contains("expected one of `batch`, `layer`, `group`"));
        for (network, key, reason) in [
            (NetworkSection { attention_heads: 5, ..network.clone() }, "network.attention_heads", "do not divide 64"),
            (NetworkSection { attention_heads: 0, ..network.clone() }, "network.attention_heads", "from 1 to 2048"),
            (NetworkSection { attention: 257, ..network.clone() }, "network.attention", "from 0 to 256"),
            (NetworkSection { attention: 0, ..network.clone() }, "network.blocks", "from 1 to 256"),
            (NetworkSection { channels: 40, ..network.clone() }, "network.norm", "multiple of 16"),
            (
                NetworkSection { channels: 48, block: BlockKind::Bottleneck, ..network.clone() },
                "network.norm",
                "multiple of 32",
            ),
            (NetworkSection { model: ModelKind::Muzero, ..network.clone() }, "network.norm", "`group`"),
            (NetworkSection { model: ModelKind::Muzero, norm: NormKind::Batch, ..network }, "network.attention", "`3`"),
        ] {
            let error = refused(network);
            assert!(error.contains(key) && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_network_wider_or_deeper_than_the_network_crate_makes_is_refused_by_its_key() {
        let refused = |network| answered(network).map(drop).unwrap_err();
        let error = refused(NetworkSection { channels: 2049, ..NetworkSection::default() });
        assert!(error.contains("network.channels") && error.contains("must be from 1 to 2048"), "{error}");
        let error = refused(NetworkSection { chance_codes: 0, ..NetworkSection::default() });
        assert!(error.contains("network.chance_codes"), "{error}");
        let error = refused(NetworkSection { blocks: 257, ..NetworkSection::default() });
        assert!(error.contains("network.blocks") && error.contains("must be from 0 to 256"), "{error}");
    }

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
