use network::ChanceLayers;
use tch::{Kind, Tensor};

use super::heads::{self, Layers};
use super::size;
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

    fn tower(&self) -> Result<LatentTower<'_>, Error> {
        LatentTower::new(&self.network, self.kind, Mode::Evaluation)
    }

    fn chance(&self) -> Result<&ChanceLayers, Error> {
        self.network.layers.muzero()?.chance.as_ref().ok_or(heads::NO_CHANCE)
    }
}

impl Layers for DenseStochastic {
    fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        self.tower()?.represent(observations)
    }

    fn act(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        self.tower()?.act(self.chance()?, states, actions)
    }

    fn next(&self, afterstates: &Tensor, codes: &Tensor) -> Result<Tensor, Error> {
        let codes = one_hot(codes, size(self.network.architecture().model.codes()), self.kind)?;
        self.tower()?.follow(afterstates, &codes)
    }

    fn predict(&self, states: &Tensor) -> Result<Tensor, Error> {
        let tower = self.tower()?;
        let reward = &tower.dynamics()?.reward;
        let [policy, value, reward] =
            [&tower.layers.policy, &tower.layers.value, reward].map(|head| tower.head(head, states));
        heads::answers(&policy?, &Tensor::f_stack(&[value?, reward?], 0)?)
    }

    fn predict_afterstates(&self, afterstates: &Tensor) -> Result<Tensor, Error> {
        let (tower, chance) = (self.tower()?, self.chance()?);
        let codes = tower.head(&chance.code, afterstates)?.f_to_kind(Kind::Float)?;
        let values = categorical::value(&tower.head(&chance.value, afterstates)?.f_to_kind(Kind::Float)?)?;
        Ok(Tensor::f_cat(&[codes, values.f_unsqueeze(-1)?], 1)?)
    }
}
