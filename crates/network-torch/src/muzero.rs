//! Passes of a MuZero network, or an AlphaZero network of returns, with batch norms in place: for training, and as
//! the reference for the folded form.

use network::{
    ChanceLayers, ConsistencyLayers, DynamicsLayers, Head, LatentLayers, Layer, NORM_EPSILON, Role, Transition, Trunk,
    is_vector,
};
use tch::{Kind, Tensor};
use weights::Architecture;

use crate::{
    Error, Network,
    consistency::Projections,
    layers::{self, Mode, size},
    tower::Tower,
};

/// Added to the range of a latent state in the rescaling, so that a constant state gives zeros.
pub(crate) const RANGE_EPSILON: f64 = 1e-5;

/// Predictions for B positions and the K steps after each, ordered by step and then by position. Logits are float32
/// or of the parameters' kind, whichever is wider.
#[derive(Debug)]
pub(crate) struct Unrolled {
    /// `[(K + 1) · B, A]`.
    pub(crate) policy: Tensor,
    /// `[(K + 1) · B, 2n + 1]`.
    pub(crate) value: Tensor,
    /// `[K · B, 2n + 1]`: rewards of the first to the last action. `None` without a step.
    pub(crate) reward: Option<Tensor>,
    /// Inputs of the consistency loss, if it is trained.
    pub(crate) projections: Option<Projections>,
    /// Predictions of a model with chance.
    pub(crate) chance: Option<UnrolledChance>,
}

/// Predictions for the afterstates of the K actions, ordered by step and then by position, and encodings of the
/// chance events after them.
#[derive(Debug)]
pub(crate) struct UnrolledChance {
    /// `[K · B, 2n + 1]`.
    pub(crate) value: Tensor,
    /// Logits of the codes, `[K · B, M]`.
    pub(crate) code: Tensor,
    /// `[K · B, M]`: the index of the largest number is the code.
    pub(crate) encoding: Tensor,
}

/// Unrolls `network` from observations `[B, C, H, W]` in any format along actions `[B, K]`, whole numbers below A of
/// any kind.
///
/// `dynamics_gradient` is the share of the gradient at the input of the dynamics that reaches the given latent state.
/// Batch norms of the heads see the states of all steps as one batch. `next_observations` after each action are
/// `[B, K, C, H, W]`: a network with chance encodes them. Without them or without consistency heads there are no
/// projections.
///
/// In a network with chance (Antonoglou et al. 2022) an action leads to an afterstate, and the code of the chance event
/// that follows leads to a state. The gradient is scaled once per step, where a state enters the afterstate dynamics.
pub(crate) fn unroll(
    latent: LatentTower<'_>,
    observations: &Tensor,
    actions: &Tensor,
    dynamics_gradient: f64,
    next_observations: Option<&Tensor>,
) -> Result<Unrolled, Error> {
    let (_, steps) = actions.size2()?;
    let layers = latent.layers;
    let encoded = match &layers.chance {
        Some(chance) => {
            let missing = training::Error::Batch { field: "next_observations", expected: 1, got: 0 };
            let [encoding, codes] = encoded(latent, chance, observations, next_observations.ok_or(missing)?)?;
            Some((chance, encoding, codes))
        }
        None => None,
    };
    let (mut states, mut afterstates) = (vec![latent.represent(observations)?], Vec::new());
    for step in 0..steps {
        let newest = states.last().expect("the root is a state");
        let (entered, actions) = (entering(newest, dynamics_gradient)?, actions.f_select(1, step)?);
        let next = match &encoded {
            None => latent.next(&entered, &actions)?,
            Some((chance, _, codes)) => {
                let afterstate = latent.act(chance, &entered, &actions)?;
                let next = latent.follow(&afterstate, &codes.f_select(0, step)?)?;
                afterstates.push(afterstate);
                next
            }
        };
        states.push(next);
    }
    let all = Tensor::f_cat(&states, 0)?;
    let (policy, value) = (latent.head(&layers.policy, &all)?, latent.head(&layers.value, &all)?);
    if steps == 0 {
        return Ok(Unrolled { policy, value, reward: None, projections: None, chance: None });
    }
    let after_actions = Tensor::f_cat(&states[1..], 0)?;
    let reward = Some(latent.head(&latent.dynamics()?.reward, &after_actions)?);
    let projections = latent.projections(&after_actions, next_observations)?;
    let chance = match encoded {
        Some((chance, encoding, _)) => {
            let afterstates = Tensor::f_cat(&afterstates, 0)?;
            let (value, code) = (latent.head(&chance.value, &afterstates)?, latent.head(&chance.code, &afterstates)?);
            Some(UnrolledChance { value, code, encoding })
        }
        None => None,
    };
    Ok(Unrolled { policy, value, reward, projections, chance })
}

/// Returns the encodings `[K · B, M]` of the chance events after the actions, ordered by step, and the one-hot codes
/// `[K, B, M]`, through which the gradient of a state passes straight to the encoding.
fn encoded(
    latent: LatentTower<'_>,
    chance: &ChanceLayers,
    observations: &Tensor,
    next_observations: &Tensor,
) -> Result<[Tensor; 2], Error> {
    // `[K, B, C, H, W]`, before and after each action.
    let after = next_observations.f_transpose(0, 1)?;
    let (steps, rows) = (after.size()[0], after.size()[1]);
    let before = Tensor::f_cat(&[&observations.f_unsqueeze(0)?, &after.f_narrow(0, 0, steps - 1)?], 0)?;
    let pairs = Tensor::f_cat(&[&before, &after], 2)?.f_flatten(0, 1)?;
    let encoding = centred(&latent.encode(chance, &pairs)?)?;
    let codes = straight_through(&encoding)?.f_view([steps, rows, -1])?;
    Ok([encoding, codes])
}

/// Returns a latent state that passes only a share of the gradient back.
fn entering(state: &Tensor, gradient: f64) -> Result<Tensor, Error> {
    let scaled = state.f_multiply_scalar(gradient)?;
    Ok(scaled.f_add(&state.f_detach()?.f_multiply_scalar(1.0 - gradient)?)?)
}

/// Returns encodings `[B, M]` minus the mean over the batch.
///
/// Without the subtraction the commitment loss soon gives every row the same code, before a code has become useful: a
/// code chosen once is chosen more and more often. Only training encodes, so no running mean is needed.
fn centred(encoding: &Tensor) -> Result<Tensor, Error> {
    Ok(encoding.f_sub(&encoding.f_mean_dim([0].as_slice(), true, None::<Kind>)?)?)
}

/// Returns the one-hot code of each encoding `[B, M]`: 1 at the largest number. The gradient goes to the encoding
/// (Bengio et al. 2013), as in a VQ-VAE (van den Oord et al. 2017) with the identity as code book.
fn straight_through(encoding: &Tensor) -> Result<Tensor, Error> {
    let code = one_hot(&encoding.f_detach()?.f_argmax(-1, false)?, encoding.size()[1], encoding.f_kind()?)?;
    Ok(code.f_add(encoding)?.f_sub(&encoding.f_detach()?)?)
}

/// Returns whole numbers `[B]` of any kind as one-hot rows `[B, count]`.
pub(crate) fn one_hot(numbers: &Tensor, count: i64, kind: Kind) -> Result<Tensor, Error> {
    let every = Tensor::f_arange(count, (numbers.f_kind()?, numbers.device()))?;
    Ok(numbers.f_unsqueeze(-1)?.f_eq_tensor(&every)?.f_to_kind(kind)?)
}

/// A network of latent states, and how to run it: convolutions and matrices in `kind`, norms in the kind of the norm
/// parameters and statistics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatentTower<'a> {
    tower: Tower<'a>,
    pub(crate) layers: &'a LatentLayers,
    consistency: Option<&'a ConsistencyLayers>,
}

impl<'a> LatentTower<'a> {
    /// # Errors
    /// [`network::Error::Model`] for an AlphaZero network that predicts win, draw and loss.
    pub(crate) fn new(network: &'a Network, kind: Kind, mode: Mode) -> Result<Self, Error> {
        let consistency = network.layers.consistency();
        Ok(Self { tower: Tower { network, kind, mode }, layers: network.layers.muzero()?, consistency })
    }

    /// Returns the layers of a step.
    ///
    /// # Errors
    /// [`network::Error::Model`] for an AlphaZero network, which has none.
    pub(crate) fn dynamics(&self) -> Result<&'a DynamicsLayers, Error> {
        self.layers.dynamics.as_ref().ok_or_else(|| network::Error::Model { expected: "muzero" }.into())
    }

    /// Maps observations `[B, C, H, W]` to latent states `[B, F, H, W]`, or `[B, F]` in a dense network.
    pub(crate) fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        self.rescaled(&self.trunk(&self.layers.representation, &self.input(observations)?)?)
    }

    /// Converts observations `[B, C, H, W]` for the first layer: to `[B, C]` in a dense network.
    fn input(&self, observations: &Tensor) -> Result<Tensor, Error> {
        let observations = observations.f_to_kind(self.tower.activation_kind())?;
        let is_vector = is_vector(self.architecture());
        Ok(if is_vector { observations.f_reshape([observations.size()[0], -1])? } else { observations })
    }

    /// Maps latent states and actions `[B]` to the next latent states.
    pub(crate) fn next(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        self.follow(states, &one_hot(actions, size(self.architecture().actions), self.tower.activation_kind())?)
    }

    /// Maps latent states and actions `[B]` to afterstates.
    pub(crate) fn act(&self, chance: &ChanceLayers, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        let one_hot = one_hot(actions, size(self.architecture().actions), self.tower.activation_kind())?;
        self.transition(&chance.afterstate, states, &one_hot)
    }

    /// Maps afterstates and one-hot chance codes `[B, M]` to the next latent states.
    pub(crate) fn follow(&self, afterstates: &Tensor, codes: &Tensor) -> Result<Tensor, Error> {
        let codes = codes.f_to_kind(self.tower.activation_kind())?;
        self.transition(&self.dynamics()?.transition, afterstates, &codes)
    }

    /// Maps pairs of observations `[B, 2C, H, W]` to encodings `[B, M]`.
    fn encode(&self, chance: &ChanceLayers, pairs: &Tensor) -> Result<Tensor, Error> {
        self.head(&chance.encoding, &self.trunk(&chance.encoder, &self.input(pairs)?)?)
    }

    /// Applies a transition to latent states and one-hot choices, and rescales the outputs.
    fn transition(&self, of: &Transition, states: &Tensor, choices: &Tensor) -> Result<Tensor, Error> {
        let &Architecture { height, width, .. } = self.architecture();
        let beside = match &of.action {
            None => choices.shallow_clone(),
            Some(planes) => {
                let planes = self.tower.affine(planes)?.linear(choices)?;
                planes.f_view([-1, size(::network::ACTION_PLANES), size(height), size(width)])?
            }
        };
        self.rescaled(&self.trunk(&of.trunk, &Tensor::f_cat(&[states, &beside], 1)?)?)
    }

    /// Maps latent states to the logits of a head, `[B, outputs]`.
    pub(crate) fn head(&self, head: &Head, states: &Tensor) -> Result<Tensor, Error> {
        let Head { convolution, hidden, output } = head;
        let logits = match (convolution, hidden) {
            (Some(convolution), None) => self.tower.head(convolution, output, states)?,
            (Some(convolution), Some(hidden)) => {
                let mut hidden = self.tower.head(convolution, hidden, states)?;
                let _ = hidden.f_relu_()?;
                self.linear(output, &hidden)?
            }
            (None, Some(hidden)) => self.linear(output, &self.dense(hidden, states)?)?,
            (None, None) => self.tower.affine(output)?.linear(states)?,
        };
        self.tower.widened(&logits)
    }

    /// Applies a matrix with bias to hidden units `[B, in]`.
    fn linear(&self, layer: &Layer, hidden: &Tensor) -> Result<Tensor, Error> {
        self.tower.affine(layer)?.linear(&hidden.f_to_kind(self.tower.activation_kind())?)
    }

    /// Returns the projections of latent states after actions and of the observations there, if the network has the
    /// heads and there are observations.
    fn projections(&self, states: &Tensor, next_observations: Option<&Tensor>) -> Result<Option<Projections>, Error> {
        let Some((heads, observations)) = self.consistency.zip(next_observations) else { return Ok(None) };
        Ok(Some(Projections {
            predicted: self.predict_projection(heads, states)?,
            observed: self.observed_projection(heads, observations)?,
        }))
    }

    /// Maps latent states after actions to predicted projections of the observations, `[B, P]`.
    fn predict_projection(&self, heads: &ConsistencyLayers, states: &Tensor) -> Result<Tensor, Error> {
        let hidden = self.dense(&heads.predictor_hidden, &self.project(heads, states)?)?;
        self.tower.widened(&self.linear(&heads.predictor_output, &hidden)?)
    }

    /// Maps observations after actions, `[B, K, C, H, W]`, to projections `[K · B, P]`, ordered by step. No gradient
    /// flows back; batch norms see the observations of all steps as one batch, which updates the running statistics.
    fn observed_projection(&self, heads: &ConsistencyLayers, observations: &Tensor) -> Result<Tensor, Error> {
        let _guard = tch::no_grad_guard();
        let by_step = observations.f_transpose(0, 1)?.f_flatten(0, 1)?;
        self.tower.widened(&self.project(heads, &self.represent(&by_step)?)?)
    }

    /// Maps latent states to projections `[B, P]`.
    fn project(&self, heads: &ConsistencyLayers, states: &Tensor) -> Result<Tensor, Error> {
        let [first, second, last] = &heads.projector;
        let by_cell = match states.dim() {
            4 => states.f_permute([0, 2, 3, 1])?.f_reshape([states.size()[0], -1])?,
            _ => states.shallow_clone(),
        };
        self.normed(last, &self.dense(second, &self.dense(first, &by_cell)?)?)
    }

    fn architecture(&self) -> &Architecture {
        self.tower.network.architecture()
    }

    fn trunk(&self, trunk: &Trunk, x: &Tensor) -> Result<Tensor, Error> {
        match trunk {
            Trunk::Residual { stem, blocks } => self.tower.trunk(stem, blocks, x),
            Trunk::Dense { input, blocks } => {
                let mut x = self.dense(input, x)?;
                for [first, second] in blocks {
                    let mut y = self.normed(second, &self.dense(first, &x)?)?;
                    let _ = y.f_add_(&x)?.f_relu_()?;
                    x = y;
                }
                Ok(x)
            }
        }
    }

    /// Applies a dense layer: `[B, in]` to `[B, out]`.
    fn dense(&self, layer: &Layer, x: &Tensor) -> Result<Tensor, Error> {
        let mut y = self.normed(layer, x)?;
        let _ = y.f_relu_()?;
        Ok(y)
    }

    /// Applies the matrix of a dense layer, then layer norm: `[B, in]` to `[B, out]`.
    ///
    /// CUDA supports no layer norm with two kinds, so it is computed in the kind of the norm's parameters, which do
    /// not become bfloat16 in training.
    fn normed(&self, layer: &Layer, x: &Tensor) -> Result<Tensor, Error> {
        let part = |role| self.tower.network.of(layer, role);
        let (scale, shift) = (part(Role::NormScale), part(Role::NormShift));
        let kind = self.tower.network.product_kind(layer, self.tower.kind);
        let weight = part(Role::Linear).f_to_kind(kind)?;
        let mut y = x.f_to_kind(kind)?.f_linear(&weight, None::<&Tensor>)?.f_to_kind(scale.f_kind()?)?;
        if let Some(shadow) = self.tower.network.shadow(layer, Role::Linear) {
            let low = x.f_detach()?.f_to_kind(shadow.f_kind()?)?;
            y = layers::beside(&y, &low.f_linear(shadow, None::<&Tensor>)?)?;
        }
        Ok(y.f_layer_norm(scale.size().as_slice(), Some(scale), Some(shift), NORM_EPSILON, true)?)
    }

    fn rescaled(&self, states: &Tensor) -> Result<Tensor, Error> {
        Ok(rescale(states)?.f_to_kind(self.tower.activation_kind())?)
    }
}

/// Rescales each state of `[B, …]` to `[0, 1]`: `(x − min) / (max − min + 1e-5)` over all elements.
pub(crate) fn rescale(states: &Tensor) -> Result<Tensor, Error> {
    let elements: Vec<i64> = (1..size(states.dim())).collect();
    let least = states.f_amin(elements.as_slice(), true)?;
    let range = states.f_amax(elements.as_slice(), true)?.f_sub(&least)?.f_add_scalar(RANGE_EPSILON)?;
    Ok(states.f_sub(&least)?.f_div(&range)?)
}

#[cfg(test)]
mod tests;
