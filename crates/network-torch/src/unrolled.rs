//! Losses of MuZero over a position and the K steps after it (Schrittwieser et al. 2020, appendix G). With K = 0 they
//! are the losses of an AlphaZero network of returns.

use tch::{Device, Kind, Tensor};
use training::Losses;

use crate::{
    Error, categorical,
    consistency::NextStates,
    losses::LossTensors,
    muzero::{self, Unrolled, UnrolledChance},
};

/// Share of a latent state's gradient that flows through the dynamics to the previous state.
pub(crate) const DYNAMICS_GRADIENT: f64 = 0.5;

/// A root value counts as accurate within this share of `1 + |target|`.
const ACCURATE: f64 = 0.1;

/// Targets of an unrolled batch, or a range of rows, on the device.
#[derive(Debug)]
pub(crate) struct UnrolledTargets {
    /// Denominator of means: all batch rows, so that the losses and gradients of parts add up to the whole.
    pub(crate) positions: i64,
    /// [`policy_weight`] of the whole batch.
    pub(crate) policy_weight: Tensor,
    /// `[B, K]`, whole numbers.
    pub(crate) actions: Tensor,
    /// `[B, K + 1, A]`.
    pub(crate) policies: Tensor,
    /// `[B, K + 1]`.
    pub(crate) policy_weights: Tensor,
    /// `[B, K + 1]`, before the transform.
    pub(crate) values: Tensor,
    /// `[B, K + 1]`.
    pub(crate) value_weights: Tensor,
    /// `[B, K]`, before the transform.
    pub(crate) rewards: Tensor,
    /// Inputs of the chance encoder and of the consistency loss, if either is trained.
    pub(crate) next_states: Option<NextStates>,
    /// `[B]`; `None` if all rows have equal importance.
    pub(crate) importance: Option<Tensor>,
}

impl UnrolledTargets {
    /// Returns the rows `start..start + len` as a part of the same batch.
    pub(crate) fn rows(&self, start: i64, len: i64) -> Result<Self, Error> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, len);
        Ok(Self {
            positions: self.positions,
            policy_weight: self.policy_weight.shallow_clone(),
            actions: part(&self.actions)?,
            policies: part(&self.policies)?,
            policy_weights: part(&self.policy_weights)?,
            values: part(&self.values)?,
            value_weights: part(&self.value_weights)?,
            rewards: part(&self.rewards)?,
            next_states: self.next_states.as_ref().map(|next| next.rows(start, len)).transpose()?,
            importance: self.importance.as_ref().map(part).transpose()?,
        })
    }
}

/// Returns `max(1, Σₖ sₖ Σᵢ wᵢₖ / Σₖ sₖ)`, the policy weight of a batch per step, which divides the policy loss;
/// `policy_weights` w is `[B, K + 1]`, s as in [`losses`].
pub(crate) fn policy_weight(policy_weights: &Tensor) -> Result<Tensor, Error> {
    let (_, states) = policy_weights.size2()?;
    let shares = step_shares(states - 1, (policy_weights.f_kind()?, policy_weights.device()))?;
    let weights = policy_weights.f_mul(&shares)?.f_sum(None::<Kind>)?;
    Ok(weights.f_div(&shares.f_sum(None::<Kind>)?)?.f_clamp_min(1.0)?)
}

/// Returns the losses. With `s₀ = 1`, `sₖ = 1 / K`, r the importance (1 without), w the weights and B the rows of the
/// whole batch:
///
/// `policy = Σᵢₖ sₖ rᵢ wᵢₖ Σₐ −πᵢₖₐ ln pᵢₖₐ / policy_weight` with p the softmax over all actions,
/// `value = Σᵢₖ sₖ rᵢ wᵢₖ H(two-hot of zᵢₖ, vᵢₖ) / B` and, over k ≥ 1,
/// `reward = Σᵢₖ sₖ rᵢ wᵢₖ₋₁ H(two-hot of uᵢₖ, ûᵢₖ) / B` with the cross-entropy H. A reward has the value weight of
/// the state before the action. The consistency loss is [`NextStates::loss`].
///
/// In a model with chance (Antonoglou et al. 2022) the afterstate of action k has the value target of the state
/// before the action, so the value loss gains `Σᵢₖ sₖ rᵢ wᵢₖ₋₁ H(two-hot of zᵢₖ₋₁, Qᵢₖ) / B` over k ≥ 1. With the
/// encoding e, the one-hot code c of e and the chance weight u,
/// `chance = Σᵢₖ sₖ rᵢ uᵢₖ (−ln σᵢₖ(cᵢₖ) + ‖cᵢₖ − eᵢₖ‖²) / B`, where c has no gradient: the cross-entropy of the
/// codes, and the commitment of the encoder.
///
/// Without a step (K = 0) the reward loss is 0.
///
/// Entropy, accuracy and value errors are for the roots. A value is accurate if it is within `0.1 (1 + |z|)` of the
/// target z. The value error of a root without value target is 0.
pub(crate) fn losses(
    predictions: &Unrolled,
    targets: &UnrolledTargets,
    weights: &Losses,
) -> Result<LossTensors, Error> {
    let (rows, steps) = targets.actions.size2()?;
    let shares = step_shares(steps, (predictions.value.f_kind()?, predictions.value.device()))?.f_unsqueeze(-1)?;
    // `[K + 1, B]`.
    let shares = match &targets.importance {
        Some(importance) => shares.f_mul(importance)?,
        None => shares.f_expand([steps + 1, rows], false)?,
    };
    let sum = |losses: &Tensor, weights: &Tensor| losses.f_mul(weights)?.f_sum(None::<Kind>);
    let mean = |rows: Tensor| rows.f_sum(None::<Kind>)?.f_divide_scalar(targets.positions);

    let log_priors = predictions.policy.f_log_softmax(-1, None::<Kind>)?.f_view([steps + 1, rows, -1])?;
    let policies = targets.policies.f_transpose(0, 1)?;
    let policy = policies.f_mul(&log_priors)?.f_sum_dim_intlist([-1].as_slice(), false, None::<Kind>)?.f_neg()?;
    let policy_weights = targets.policy_weights.f_transpose(0, 1)?.f_mul(&shares)?;
    let policy = sum(&policy, &policy_weights)?.f_div(&targets.policy_weight)?;

    let values = predictions.value.f_view([steps + 1, rows, -1])?;
    let value_targets = targets.values.f_transpose(0, 1)?;
    let value_weights = targets.value_weights.f_transpose(0, 1)?;
    let value = sum(&categorical::cross_entropy(&values, &value_targets)?, &value_weights.f_mul(&shares)?)?;
    let mut value = value.f_divide_scalar(targets.positions)?;

    let after_actions = shares.f_narrow(0, 1, steps)?;
    let reward_weights = value_weights.f_narrow(0, 0, steps)?.f_mul(&after_actions)?;
    let reward = match &predictions.reward {
        Some(rewards) => {
            let rewards = rewards.f_view([steps, rows, -1])?;
            let reward = categorical::cross_entropy(&rewards, &targets.rewards.f_transpose(0, 1)?)?;
            Some(sum(&reward, &reward_weights)?.f_divide_scalar(targets.positions)?)
        }
        None => None,
    };
    let mut chance = None;
    if let Some((predicted, next)) = predictions.chance.as_ref().zip(targets.next_states.as_ref()) {
        let afterstates = predicted.value.f_view([steps, rows, -1])?;
        let of_afterstates = categorical::cross_entropy(&afterstates, &value_targets.f_narrow(0, 0, steps)?)?;
        value = value.f_add(&sum(&of_afterstates, &reward_weights)?.f_divide_scalar(targets.positions)?)?;
        let chance_weights = next.chance_weights.f_transpose(0, 1)?.f_mul(&after_actions)?;
        let loss = sum(&chance_losses(predicted)?.f_view([steps, rows])?, &chance_weights)?;
        chance = Some(loss.f_divide_scalar(targets.positions)?);
    }
    let consistency = match (&targets.next_states, &predictions.projections) {
        (Some(next), Some(projections)) => Some(next.loss(projections, &after_actions, targets.positions)?),
        _ => None,
    };

    let guard = tch::no_grad_guard();
    let root_priors = log_priors.f_select(0, 0)?;
    let policy_entropy = mean(root_priors.f_exp()?.f_mul(&root_priors)?)?.f_neg()?;
    let root_targets = value_targets.f_select(0, 0)?;
    let errors = categorical::value(&values.f_select(0, 0)?)?.f_sub(&root_targets)?.f_abs()?;
    let tolerance = root_targets.f_abs()?.f_add_scalar(1.0)?.f_multiply_scalar(ACCURATE)?;
    let value_accuracy = mean(errors.f_le_tensor(&tolerance)?.f_to_kind(policy.f_kind()?)?)?;
    let root_weights = value_weights.f_select(0, 0)?;
    let value_errors = targets.importance.as_ref().map(|_| errors.f_mul(&root_weights)).transpose()?;
    drop(guard);
    let losses = Losses {
        policy: Some(policy),
        value: Some(value),
        reward,
        consistency,
        chance,
        policy_entropy: Some(policy_entropy),
        value_accuracy: Some(value_accuracy),
        ..Losses::default()
    };
    LossTensors::new(losses, weights, value_errors)
}

/// Returns `−ln σ(c) + ‖c − e‖²` of each step, `[K · B]`.
fn chance_losses(UnrolledChance { code, encoding, .. }: &UnrolledChance) -> Result<Tensor, Error> {
    let named = encoding.f_detach()?.f_argmax(-1, true)?;
    let cross_entropy =
        code.f_log_softmax(-1, None::<Kind>)?.f_gather(-1, &named, false)?.f_squeeze_dim(-1)?.f_neg()?;
    let one_hot = muzero::one_hot(&named.f_squeeze_dim(-1)?, encoding.size()[1], encoding.f_kind()?)?;
    let commitment = encoding.f_sub(&one_hot)?.f_square()?.f_sum_dim_intlist([-1].as_slice(), false, None::<Kind>)?;
    Ok(cross_entropy.f_add(&commitment)?)
}

/// Returns the shares s of the steps in a loss, `[K + 1]`.
fn step_shares(steps: i64, options: (Kind, Device)) -> Result<Tensor, Error> {
    let root = Tensor::f_ones([1_i64], options)?;
    Ok(Tensor::f_cat(&[root, Tensor::f_full([steps], 1.0 / steps.max(1) as f64, options)?], 0)?)
}

#[cfg(test)]
mod tests;
