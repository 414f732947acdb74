use tch::{Kind, Tensor};
use training::{LOSSES, Losses};

use crate::{Error, tower::Logits};

/// Logit of an illegal action: the prior is exactly zero, and zero times the log prior is zero and not NaN.
const ILLEGAL: f64 = -1e9;

/// Targets of a batch, or a range of rows, on the device.
#[derive(Debug)]
pub(crate) struct Targets {
    /// Denominator of means: all batch rows, so that the losses and gradients of parts add up to the whole.
    pub(crate) positions: i64,
    /// `max(1, Σᵢ wᵢ)` over the whole batch.
    pub(crate) policy_weight: Tensor,
    /// `[B, A]`.
    pub(crate) policies: Tensor,
    /// `[B, A]`, true where illegal.
    pub(crate) illegal: Tensor,
    /// `[B, 3]`.
    pub(crate) wdl: Tensor,
    /// `[B]`.
    pub(crate) policy_weights: Tensor,
    /// `[B]`; `None` if all rows have equal importance.
    pub(crate) importance: Option<Tensor>,
}

impl Targets {
    /// Returns the rows `start..start + len` as a part of the same batch.
    pub(crate) fn rows(&self, start: i64, len: i64) -> Result<Self, Error> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, len);
        Ok(Self {
            positions: self.positions,
            policy_weight: self.policy_weight.shallow_clone(),
            policies: part(&self.policies)?,
            illegal: part(&self.illegal)?,
            wdl: part(&self.wdl)?,
            policy_weights: part(&self.policy_weights)?,
            importance: self.importance.as_ref().map(part).transpose()?,
        })
    }
}

/// Returns the sum of policy weights, at least 1, by which a policy loss is divided.
pub(crate) fn policy_weight(policy_weights: &Tensor) -> Result<Tensor, Error> {
    Ok(policy_weights.f_sum(None::<Kind>)?.f_clamp_min(1.0)?)
}

/// Losses on the device.
#[derive(Debug)]
pub(crate) struct LossTensors {
    /// Gradient norm and L2 term are 0.
    pub(crate) scalars: Losses<Tensor>,
    /// `[B]`: distance of the value for the player to move from the target; only with importance. An AlphaZero value
    /// is win minus loss.
    pub(crate) value_errors: Option<Tensor>,
}

impl LossTensors {
    /// Adds the total to the losses of a network; all other losses are 0.
    pub(crate) fn new(
        losses: Losses<Option<Tensor>>,
        weights: &Losses,
        value_errors: Option<Tensor>,
    ) -> Result<Self, Error> {
        let mut total: Option<Tensor> = None;
        for (loss, (_, weight)) in losses.each_ref().into_array().into_iter().zip(weights.parts()) {
            let Some(loss) = loss else { continue };
            // A multiplication by 1 would be one more kernel of every step.
            let weighted = if weight == 1.0 { loss.shallow_clone() } else { loss.f_multiply_scalar(weight)? };
            total = Some(match total {
                Some(total) => total.f_add(&weighted)?,
                None => weighted,
            });
        }
        let total = total.expect("every network has a policy");
        let zero = total.f_detach()?.f_zeros_like()?;
        let scalars = losses.into_array().map(|loss| loss.unwrap_or_else(|| zero.shallow_clone()));
        Ok(Self { scalars: Losses { total, ..Losses::from_array(scalars) }, value_errors })
    }

    /// Returns the losses of this part of a batch and the next one together.
    pub(crate) fn join(&self, next: &Self) -> Result<Self, Error> {
        let [sum, terms] = [self, next].map(|part| Ok::<_, Error>(stacked(&part.scalars)?.f_detach()?));
        let rows = |a: &Tensor, b: &Tensor| Tensor::f_cat(&[a, b], 0);
        Ok(Self {
            scalars: unstacked(&sum?.f_add(&terms?)?)?,
            value_errors: match (&self.value_errors, &next.value_errors) {
                (Some(a), Some(b)) => Some(rows(a, b)?),
                _ => None,
            },
        })
    }
}

/// Joins losses to a tensor `[LOSSES]`.
pub(crate) fn stacked(losses: &Losses<Tensor>) -> Result<Tensor, Error> {
    Ok(Tensor::f_stack(&losses.each_ref().into_array(), 0)?)
}

/// Splits a tensor `[LOSSES]` into losses.
pub(crate) fn unstacked(losses: &Tensor) -> Result<Losses<Tensor>, Error> {
    let losses: [Tensor; LOSSES] = losses.f_unbind(0)?.try_into().expect("there is a number for each loss");
    Ok(Losses::from_array(losses))
}

/// Returns `policy = Σᵢ rᵢ wᵢ Σₐ −πᵢₐ ln pᵢₐ / max(1, Σᵢ wᵢ)` with p the softmax over legal actions and r the
/// importance, 1 without, and `value = mean over i of rᵢ Σₖ −zᵢₖ ln vᵢₖ` with v the softmax over win, draw and loss.
pub(crate) fn losses(logits: &Logits, targets: &Targets, weights: &Losses) -> Result<LossTensors, Error> {
    let rows = |cross: Tensor| cross.f_sum_dim_intlist([-1].as_slice(), false, None::<Kind>);
    let log_priors = logits.policy.f_masked_fill(&targets.illegal, ILLEGAL)?.f_log_softmax(-1, None::<Kind>)?;
    let log_values = logits.value.f_log_softmax(-1, None::<Kind>)?;

    let mean = |rows: Tensor| rows.f_sum(None::<Kind>)?.f_divide_scalar(targets.positions);
    let policy = rows(targets.policies.f_mul(&log_priors)?)?;
    let policy = important(policy.f_mul(&targets.policy_weights)?, targets)?;
    let policy = policy.f_sum(None::<Kind>)?.f_div(&targets.policy_weight)?.f_neg()?;
    let value = mean(important(rows(targets.wdl.f_mul(&log_values)?)?, targets)?)?.f_neg()?;

    let (log_priors, log_values) = (log_priors.f_detach()?, log_values.f_detach()?);
    let policy_entropy = mean(rows(log_priors.f_exp()?.f_mul(&log_priors)?)?)?.f_neg()?;
    let right = log_values.f_argmax(-1, false)?.f_eq_tensor(&targets.wdl.f_argmax(-1, false)?)?;
    let value_accuracy = mean(right.f_to_kind(policy.f_kind()?)?)?;
    let value_errors = targets.importance.as_ref().map(|_| value_errors(&log_values, &targets.wdl)).transpose()?;
    let losses = Losses {
        policy: Some(policy),
        value: Some(value),
        policy_entropy: Some(policy_entropy),
        value_accuracy: Some(value_accuracy),
        ..Losses::default()
    };
    LossTensors::new(losses, weights, value_errors)
}

/// Weights rows `[B]` by importance.
fn important(rows: Tensor, targets: &Targets) -> Result<Tensor, Error> {
    Ok(match &targets.importance {
        Some(importance) => rows.f_mul(importance)?,
        None => rows,
    })
}

/// Returns the distance of win − loss from the target for each row, `[B]`, from 0 to 2.
fn value_errors(log_values: &Tensor, wdl: &Tensor) -> Result<Tensor, Error> {
    let apart = log_values.f_exp()?.f_sub(wdl)?;
    Ok(apart.f_select(-1, 0)?.f_sub(&apart.f_select(-1, 2)?)?.f_abs()?)
}

#[cfg(test)]
pub(crate) mod tests {
    use tch::{Kind, Tensor};
    use training::{Losses, TrainingBatch};

    use super::{Targets, losses, policy_weight};
    use crate::layers::size;
    use crate::tower::Logits;

    const WEIGHTS: Losses = Losses { policy: 1.0, value: 0.5, ..Losses::ZERO };

    /// Returns the targets of a batch without importance.
    pub(crate) fn targets(batch: &TrainingBatch, kind: Kind) -> Targets {
        let positions = size(batch.policy_weights.len());
        let by_row = |values: &[f32]| Tensor::from_slice(values).to_kind(kind).view([positions, -1]);
        let policy_weights = by_row(&batch.policy_weights).view([-1]);
        Targets {
            positions,
            policy_weight: policy_weight(&policy_weights).unwrap(),
            policies: by_row(&batch.policies),
            illegal: Tensor::from_slice(&batch.legal).view([positions, -1]).eq(0),
            wdl: by_row(&batch.wdl),
            policy_weights,
            importance: None,
        }
    }

    /// Two positions with three actions; the second has no policy target, and action 2 is illegal in the first.
    fn example() -> (Logits, Targets) {
        let logits = Logits {
            policy: Tensor::from_slice(&[0.0_f32, 1.0, 9.0, 5.0, -5.0, 0.0]).view([2, 3]),
            value: Tensor::from_slice(&[2.0_f32, 0.0, 0.0, 0.0, 0.0, 1.0]).view([2, 3]),
        };
        let batch = TrainingBatch {
            policies: vec![0.25, 0.75, 0.0, 0.0, 0.0, 0.0],
            legal: vec![1, 1, 0, 1, 1, 1],
            wdl: vec![1.0, 0.0, 0.0, 0.5, 0.5, 0.0],
            policy_weights: vec![1.0, 0.0],
            ..TrainingBatch::default()
        };
        (logits, targets(&batch, Kind::Float))
    }

    fn close(got: &Tensor, expected: f64) {
        let got = got.double_value(&[]);
        assert!((got - expected).abs() < 1e-5, "{got} instead of {expected}");
    }

    #[test]
    fn losses_are_cross_entropies_over_legal_actions_and_results() {
        let (logits, targets) = example();
        let losses = losses(&logits, &targets, &WEIGHTS).unwrap().scalars;
        let e = std::f64::consts::E;
        let policy = -(0.25 * (1.0 / (1.0 + e)).ln() + 0.75 * (e / (1.0 + e)).ln());
        let value = -((e * e / (e * e + 2.0)).ln() + (1.0 / (2.0 + e)).ln()) / 2.0;
        close(&losses.policy, policy);
        close(&losses.value, value);
        close(&losses.total, policy + 0.5 * value);
    }

    #[test]
    fn value_accuracy_is_the_share_of_correct_predictions() {
        let (logits, targets) = example();
        close(&losses(&logits, &targets, &WEIGHTS).unwrap().scalars.value_accuracy, 0.5);
    }

    #[test]
    fn losses_are_weighted_by_importance_and_value_errors_are_returned_per_row() {
        let (logits, mut targets) = example();
        targets.importance = Some(Tensor::from_slice(&[0.5_f32, 0.25]));
        let weighted = losses(&logits, &targets, &WEIGHTS).unwrap();
        let e = std::f64::consts::E;
        let policy = -(0.25 * (1.0 / (1.0 + e)).ln() + 0.75 * (e / (1.0 + e)).ln());
        close(&weighted.scalars.policy, 0.5 * policy);
        close(&weighted.scalars.value, -(0.5 * (e * e / (e * e + 2.0)).ln() + 0.25 * (1.0 / (2.0 + e)).ln()) / 2.0);
        let errors = weighted.value_errors.unwrap();
        let (first, second) = ((e * e - 1.0) / (e * e + 2.0), (1.0 - e) / (2.0 + e));
        close(&errors.get(0), 1.0 - first);
        close(&errors.get(1), 0.5 - second);
        targets.importance = Some(Tensor::from_slice(&[1.0_f32, 1.0]));
        close(&losses(&logits, &targets, &WEIGHTS).unwrap().scalars.total, policy + 0.5 * weighted_alike(e));
    }

    /// Returns the value loss of the example with equal importance.
    fn weighted_alike(e: f64) -> f64 {
        -((e * e / (e * e + 2.0)).ln() + (1.0 / (2.0 + e)).ln()) / 2.0
    }

    #[test]
    fn a_batch_without_any_policy_target_has_a_policy_loss_of_zero() {
        let (logits, mut targets) = example();
        targets.policy_weights = Tensor::from_slice(&[0.0_f32, 0.0]);
        targets.policy_weight = policy_weight(&targets.policy_weights).unwrap();
        close(&losses(&logits, &targets, &WEIGHTS).unwrap().scalars.policy, 0.0);
    }

    #[test]
    fn the_losses_of_the_parts_of_a_batch_add_up_to_its_own() {
        let (logits, mut targets) = example();
        targets.importance = Some(Tensor::from_slice(&[0.5_f32, 0.25]));
        let whole = losses(&logits, &targets, &WEIGHTS).unwrap();
        let part = |row| {
            let logits = Logits { policy: logits.policy.narrow(0, row, 1), value: logits.value.narrow(0, row, 1) };
            losses(&logits, &targets.rows(row, 1).unwrap(), &WEIGHTS).unwrap()
        };
        let both = part(0).join(&part(1)).unwrap();
        let scalars =
            |losses: &super::LossTensors| losses.scalars.each_ref().into_array().map(|scalar| scalar.double_value(&[]));
        for (got, expected) in scalars(&both).into_iter().zip(scalars(&whole)) {
            assert!((got - expected).abs() < 1e-6, "{got} instead of {expected}");
        }
        assert_eq!(both.value_errors.unwrap(), whole.value_errors.unwrap());
    }
}
