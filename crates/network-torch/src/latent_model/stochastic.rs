use network::ChanceLayers;
use tch::{Kind, Tensor};
use weights::Architecture;

use super::{heads, size};
use crate::{
    Error, Network, Precision, categorical,
    layers::Mode,
    muzero::{LatentTower, one_hot},
};

/// A Stochastic MuZero network for inference, dense or residual, with its batch norms in place. Latent states and
/// afterstates are rows `[B, H]` or `[B, C · H · W]`.
#[derive(Debug)]
pub(super) struct Stochastic {
    network: Network,
    kind: Kind,
}

impl Stochastic {
    /// Copies a network.
    pub(super) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let kind = precision.kind();
        Ok(Self { network: network.copy(kind)?, kind })
    }

    pub(super) fn state_size(&self) -> usize {
        let &Architecture { channels, height, width, .. } = self.network.architecture();
        channels * height * width
    }

    /// Observations `[B, C, H, W]` to states.
    pub(super) fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        Ok(self.tower()?.represent(observations)?.f_flatten(1, -1)?)
    }

    /// States and actions `[B]` to afterstates.
    pub(super) fn act(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        Ok(self.tower()?.act(self.chance()?, &self.shaped(states)?, actions)?.f_flatten(1, -1)?)
    }

    /// Afterstates and chance codes `[B]` to states.
    pub(super) fn follow(&self, afterstates: &Tensor, codes: &Tensor) -> Result<Tensor, Error> {
        let codes = one_hot(codes, size(self.network.architecture().model.codes()), self.kind)?;
        Ok(self.tower()?.follow(&self.shaped(afterstates)?, &codes)?.f_flatten(1, -1)?)
    }

    /// States to policy logits, values and rewards, `[B, A + 2]`, float32.
    pub(super) fn predict(&self, states: &Tensor) -> Result<Tensor, Error> {
        let (tower, states) = (self.tower()?, self.shaped(states)?);
        let reward = &tower.dynamics()?.reward;
        let [policy, value, reward] =
            [&tower.layers.policy, &tower.layers.value, reward].map(|head| tower.head(head, &states));
        heads::answers(&policy?, &Tensor::f_stack(&[value?, reward?], 0)?)
    }

    /// Afterstates to logits of the chance codes and values, `[B, M + 1]`, float32.
    pub(super) fn predict_afterstates(&self, afterstates: &Tensor) -> Result<Tensor, Error> {
        let (tower, afterstates, chance) = (self.tower()?, self.shaped(afterstates)?, self.chance()?);
        let codes = tower.head(&chance.code, &afterstates)?.f_to_kind(Kind::Float)?;
        let values = categorical::value(&tower.head(&chance.value, &afterstates)?.f_to_kind(Kind::Float)?)?;
        Ok(Tensor::f_cat(&[codes, values.f_unsqueeze(-1)?], 1)?)
    }

    fn tower(&self) -> Result<LatentTower<'_>, Error> {
        LatentTower::new(&self.network, self.kind, Mode::Evaluation)
    }

    fn chance(&self) -> Result<&ChanceLayers, Error> {
        let chance = self.network.layers.muzero()?.chance.as_ref();
        chance.ok_or_else(|| network::Error::Model { expected: "stochastic_muzero" }.into())
    }

    /// Rows as the layers take them.
    fn shaped(&self, rows: &Tensor) -> Result<Tensor, Error> {
        let architecture = self.network.architecture();
        if network::is_vector(architecture) {
            return Ok(rows.shallow_clone());
        }
        let &Architecture { channels, height, width, .. } = architecture;
        Ok(rows.f_view([-1, size(channels), size(height), size(width)])?)
    }
}
