use ::network::GROUP_CHANNELS;
use game::{Game, ObservationShape, Scoring, Spec};
use serde::{Deserialize, Serialize};
use service::ConfigError;
use weights::{Activation, Architecture, BlockKind, Design, HeadKind, Model, NormKind};

use super::NetworkPreset;

/// The section `[network]`: design and size of the network.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSection {
    /// Size of the network: `b6c96`, `b10c128`, `b18c192`, `b34c256` or `b50c320` sets `blocks` and `channels` to the
    /// two numbers of the name, and `b50c320` also sets `block = "bottleneck"`. `none` uses the keys of this section.
    pub preset: NetworkPreset,
    /// Number of channels in the residual tower, from 1 to 2,048.
    pub channels: usize,
    /// Number of residual blocks in the tower, up to 256.
    pub blocks: usize,
    /// Number of hidden units for squeeze-and-excitation in every block; 0 disables it.
    pub squeeze_excitation: usize,
    /// Number of channels with global pooling over the board, in every third block. It must be below the number of
    /// channels in the 3×3 convolutions; 0 disables global pooling.
    pub global_pooling: usize,
    /// Activation after each norm: `relu`, `mish`, `silu` or `gelu`. Any value except `relu` requires the model
    /// `alphazero` and a game scored by outcome.
    pub activation: Activation,
    /// Convolutions of a block: `residual`, with two 3×3 convolutions, or `bottleneck`, with half of the channels in
    /// the 3×3 convolutions. `bottleneck` requires the model `alphazero` and a game scored by outcome.
    pub block: BlockKind,
    /// Norm after convolutions: `batch`, `layer` or `group`. `layer` and `group` normalise each position separately,
    /// without running statistics, and require the model `alphazero` and a game scored by outcome.
    pub norm: NormKind,
    /// Number of attention blocks after the residual blocks, up to 256; 0 disables attention. Attention blocks require
    /// the model `alphazero` and a game scored by outcome. With attention blocks, `blocks` may be 0.
    pub attention: usize,
    /// Number of heads in each attention block; it must divide the number of channels.
    pub attention_heads: usize,
    /// Policy and value heads: `flattened`, for a single board size, or `pooled`, for one network on all boards of a
    /// game. `pooled` requires the model `alphazero` and a game scored by outcome, with an action for each cell.
    pub heads: HeadKind,
    /// Kind of model: `alphazero`, for search with the game rules; `muzero`, for search with learned dynamics; or
    /// `stochastic_muzero`, for search with learned dynamics and chance events.
    pub model: ModelKind,
    /// With `muzero`, `stochastic_muzero`, and `alphazero` in games scored by rewards: the largest integer S of the
    /// support. Values and rewards are categorical over the integers from -S to S, after an invertible transform that
    /// maps 10 to 2.3, 100 to 9.1, and 500 to 21.9.
    pub support: usize,
    /// With `stochastic_muzero`: M, the number of chance codes. It limits the number of chance outcomes per action that
    /// the model can distinguish; the paper uses 32.
    pub chance_codes: usize,
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

impl Default for NetworkSection {
    fn default() -> Self {
        // The convolutions cover a small board without pooling, so the optional layers are off.
        Self {
            preset: NetworkPreset::None,
            channels: 64,
            blocks: 4,
            squeeze_excitation: 0,
            global_pooling: 0,
            activation: Activation::Relu,
            block: BlockKind::Residual,
            norm: NormKind::Batch,
            attention: 0,
            // With the default of 64 channels, 16 channels per head.
            attention_heads: 4,
            heads: HeadKind::Flattened,
            model: ModelKind::Alphazero,
            support: 25,
            chance_codes: 32,
        }
    }
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

    /// Checks that attention heads and norm groups divide the channels.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key.
    pub(super) fn check_attention_and_norm(&self) -> Result<(), ConfigError> {
        let ([channels, _], heads) = (self.size(), self.attention_heads);
        if self.attention > 0 && !channels.is_multiple_of(heads) {
            let reason = format!("{heads} heads do not divide {channels} channels");
            return Err(ConfigError::invalid("network.attention_heads", reason));
        }
        let multiple = if self.design().block == BlockKind::Bottleneck { 2 * GROUP_CHANNELS } else { GROUP_CHANNELS };
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
        assert!(error.contains("network.blocks") && error.contains("must be from 1 to 256"), "{error}");
    }
}
