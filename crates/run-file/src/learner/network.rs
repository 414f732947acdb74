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
    /// `b6c96`, `b10c128`, `b18c192`, `b34c256` or `b50c320`: sets `blocks` and `channels`; `b50c320` also sets
    /// bottleneck blocks. `none` takes the keys below.
    pub preset: NetworkPreset,
    /// Channels of the residual tower.
    pub channels: usize,
    /// Residual blocks of the tower.
    pub blocks: usize,
    /// Hidden units of squeeze-and-excitation in every block; 0 disables it.
    pub squeeze_excitation: usize,
    /// Channels pooled over the board in every third block, fewer than `channels`; 0 disables global pooling.
    pub global_pooling: usize,
    /// Activation after norms: `relu`, `mish`, `silu` or `gelu`. All but `relu` require `alphazero` in games scored
    /// by outcome.
    pub activation: Activation,
    /// Convolutions of a block: `residual`, or `bottleneck` with half of the channels in the 3×3 convolutions. The
    /// latter requires the same models as activations other than `relu`.
    pub block: BlockKind,
    /// Norm after convolutions: `batch`, or `layer` and `group`, which normalise single positions and have no running
    /// statistics. The latter two require the same models as activations other than `relu`.
    pub norm: NormKind,
    /// Attention blocks after the residual blocks, which may then be absent; require the same models.
    pub attention: usize,
    /// Heads per attention block, a divisor of the channels.
    pub attention_heads: usize,
    /// The heads: `flattened`, with tensors for a single board, or `pooled`, for one network on all boards of a game.
    /// The latter require the same models as activations other than `relu`.
    pub heads: HeadKind,
    /// `alphazero`, for search by the game rules; `muzero`, for search by learned dynamics; or `stochastic_muzero`,
    /// for search by learned dynamics with chance.
    pub model: ModelKind,
    /// For `muzero`, `stochastic_muzero`, and `alphazero` in environments scored by rewards: values and rewards are
    /// categorical over the integers from minus to plus this value, after the invertible transform, which maps 10 to
    /// 2.3, 100 to 9.1 and 500 to 21.9.
    pub support: usize,
    /// For `stochastic_muzero`: M, the number of chance codes, which bounds the action results that the model
    /// distinguishes. 32 as published.
    pub chance_codes: usize,
}

/// The setting `network.model`: the kind of search and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// One network for priors and values of positions; the values are returns in games scored by rewards.
    Alphazero,
    /// Networks for representation, dynamics and prediction.
    Muzero,
    /// As MuZero, with afterstates and chance codes.
    StochasticMuzero,
}

impl Default for NetworkSection {
    fn default() -> Self {
        // On boards of a few cells the convolutions see the whole board anyway, so the options are off.
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
            // 16 channels each by default.
            attention_heads: 4,
            heads: HeadKind::Flattened,
            model: ModelKind::Alphazero,
            support: 25,
            chance_codes: 32,
        }
    }
}

impl NetworkSection {
    /// Returns the model to train in a game.
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

    /// Returns the design of the tower: the kinds of layers.
    #[must_use]
    pub fn design(&self) -> Design {
        let block = if self.preset == NetworkPreset::B50c320 { BlockKind::Bottleneck } else { self.block };
        let attention_heads = if self.attention == 0 { 0 } else { self.attention_heads };
        let &Self { activation, norm, attention, heads, .. } = self;
        Design { activation, block, norm, attention, attention_heads, heads }
    }

    /// Returns channels and blocks, from the preset or as set.
    #[must_use]
    pub fn size(&self) -> [usize; 2] {
        self.preset.size().unwrap_or([self.channels, self.blocks])
    }

    /// Checks that heads and groups fit the channels.
    ///
    /// # Errors
    /// Names the invalid key.
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

    /// Checks that no setting is used that requires a network of wins, draws and losses.
    ///
    /// # Errors
    /// Names the invalid key.
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
                    "`{value}` needs an alphazero network in a game scored by outcome, unlike the network of {game}; \
                     leave it out"
                );
                Err(ConfigError::invalid(key, reason))
            }
            None => Ok(()),
        }
    }

    /// Checks that the game has the actions for pooled heads.
    ///
    /// # Errors
    /// Names the invalid key.
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

    /// Returns the architecture of the network to train in a game.
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

    /// Returns the checked `[network]` for a run of tic-tac-toe, or the error.
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
