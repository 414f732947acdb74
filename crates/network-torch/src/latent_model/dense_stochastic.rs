use network::ChanceLayers;
use tch::{Kind, Tensor};

use super::{heads, size};
use crate::{
    Error, Network, categorical,
    layers::Mode,
    muzero::{LatentTower, one_hot},
};
use inference::Precision;

/// A dense Stochastic MuZero network for inference. Latent states and afterstates are `[B, H]`.
#[derive(Debug)]
pub(super) struct DenseStochastic {
    network: Network,
    kind: Kind,
}

impl DenseStochastic {
    /// Copies a network, with numbers in `precision`.
    pub(super) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let kind = crate::rules::kind(precision);
        Ok(Self { network: network.copy(kind)?, kind })
    }

    /// Maps observations `[B, C, 1, 1]` to states.
    pub(super) fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        self.tower()?.represent(observations)
    }

    /// Maps states and actions `[B]` to afterstates.
    pub(super) fn act(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        self.tower()?.act(self.chance()?, states, actions)
    }

    /// Maps afterstates and chance codes `[B]` to states.
    pub(super) fn follow(&self, afterstates: &Tensor, codes: &Tensor) -> Result<Tensor, Error> {
        let codes = one_hot(codes, size(self.network.architecture().model.codes()), self.kind)?;
        self.tower()?.follow(afterstates, &codes)
    }

    /// Maps states to policy logits, values and rewards, `[B, A + 2]`, float32.
    pub(super) fn predict(&self, states: &Tensor) -> Result<Tensor, Error> {
        let tower = self.tower()?;
        let reward = &tower.dynamics()?.reward;
        let [policy, value, reward] =
            [&tower.layers.policy, &tower.layers.value, reward].map(|head| tower.head(head, states));
        heads::answers(&policy?, &Tensor::f_stack(&[value?, reward?], 0)?)
    }

    /// Maps afterstates to logits of the chance codes and values, `[B, M + 1]`, float32.
    pub(super) fn predict_afterstates(&self, afterstates: &Tensor) -> Result<Tensor, Error> {
        let (tower, chance) = (self.tower()?, self.chance()?);
        let codes = tower.head(&chance.code, afterstates)?.f_to_kind(Kind::Float)?;
        let values = categorical::value(&tower.head(&chance.value, afterstates)?.f_to_kind(Kind::Float)?)?;
        Ok(Tensor::f_cat(&[codes, values.f_unsqueeze(-1)?], 1)?)
    }

    fn tower(&self) -> Result<LatentTower<'_>, Error> {
        LatentTower::new(&self.network, self.kind, Mode::Evaluation)
    }

    fn chance(&self) -> Result<&ChanceLayers, Error> {
        let chance = self.network.layers.muzero()?.chance.as_ref();
        chance.ok_or_else(|| network::Error::Model { expected: "stochastic_muzero" }.into())
    }
}
