use experience::{ActionProbability, Step, StepKind, Trajectory};
use prost::Message as _;

use super::policies::{self, Empty};
use super::{Invalid, dense_rewards, finite, invalid, length, name, outcome, required, sparse_rewards, versions};
use crate::limits::{STEPS_MAX, TRAJECTORY_BYTES_MAX};
use crate::replay::v1;

impl From<&Trajectory> for v1::Trajectory {
    fn from(trajectory: &Trajectory) -> Self {
        let Trajectory { id, game, steps, outcome: ended } = trajectory;
        Self {
            id: Some((*id).into()),
            game: game.clone(),
            outcome: outcome::to_wire(*ended),
            actions: policies::actions_to_wire(steps.iter().map(|step| step.action)),
            kinds: steps.iter().map(|step| kind_to_wire(&step.kind)).collect(),
            values: steps.iter().filter_map(|step| value(&step.kind)).collect(),
            policies: Some(policies::to_wire(steps.iter().filter_map(|step| policy(&step.kind)))),
            rewards: sparse_rewards(steps.iter().map(|step| step.reward).collect()),
            versions: versions::to_wire(steps.iter().map(|step| step.weights_version)),
        }
    }
}

impl TryFrom<v1::Trajectory> for Trajectory {
    type Error = Invalid;

    fn try_from(message: v1::Trajectory) -> Result<Self, Invalid> {
        let bytes = message.encoded_len();
        if bytes > TRAJECTORY_BYTES_MAX {
            return Err(invalid("trajectory", format!("has {bytes} bytes, the limit is {TRAJECTORY_BYTES_MAX}")));
        }
        let v1::Trajectory { id, game, outcome: ended, actions, kinds, values, policies, rewards, versions } = message;
        let id = required("id", id)?.into();
        let game = name("game", game)?;
        let outcome = outcome::from_wire(ended)?;
        let actions = policies::actions_from_wire(&actions, STEPS_MAX)?;
        if actions.is_empty() {
            return Err(invalid("actions", "is empty"));
        }
        length("kinds", kinds.len(), actions.len())?;
        let kinds = kinds.iter().enumerate().map(kind_from_wire).collect::<Result<Vec<_>, _>>()?;
        let count = |wanted: &[v1::StepKind]| kinds.iter().filter(|kind| wanted.contains(kind)).count();
        let full = count(&[v1::StepKind::Full]);
        length("values", values.len(), count(&[v1::StepKind::Full, v1::StepKind::Fast]))?;
        finite("values", &values)?;
        let rewards = dense_rewards(rewards, actions.len())?;
        let versions = versions::from_wire(versions, actions.len())?;
        let mut policies = policies::from_wire(policies, full, Empty::Illegal)?.into_iter();
        let mut values = values.into_iter();
        let mut value = || values.next().expect("as many values as full and fast steps");
        let kinds = kinds.into_iter().map(|kind| match kind {
            v1::StepKind::Full => {
                StepKind::Full { policy: policies.next().expect("as many policies as full steps"), value: value() }
            }
            v1::StepKind::Fast => StepKind::Fast { value: value() },
            v1::StepKind::Opening | v1::StepKind::Unspecified => StepKind::Opening,
        });
        let steps = actions
            .into_iter()
            .zip(rewards)
            .zip(versions)
            .zip(kinds)
            .map(|(((action, reward), weights_version), kind)| Step { action, reward, kind, weights_version })
            .collect();
        Ok(Self { id, game, steps, outcome })
    }
}

fn kind_to_wire(kind: &StepKind) -> u8 {
    let kind = match kind {
        StepKind::Full { .. } => v1::StepKind::Full,
        StepKind::Fast { .. } => v1::StepKind::Fast,
        StepKind::Opening => v1::StepKind::Opening,
    };
    kind as u8
}

/// Never `Unspecified`.
fn kind_from_wire((ply, &kind): (usize, &u8)) -> Result<v1::StepKind, Invalid> {
    match v1::StepKind::try_from(i32::from(kind)) {
        Ok(v1::StepKind::Unspecified) | Err(_) => {
            Err(invalid(format!("kinds[{ply}]"), format!("{kind} is not a step kind")))
        }
        Ok(kind) => Ok(kind),
    }
}

fn value(kind: &StepKind) -> Option<f32> {
    match kind {
        StepKind::Full { value, .. } | StepKind::Fast { value } => Some(*value),
        StepKind::Opening => None,
    }
}

fn policy(kind: &StepKind) -> Option<&[ActionProbability]> {
    match kind {
        StepKind::Full { policy, .. } => Some(policy),
        StepKind::Fast { .. } | StepKind::Opening => None,
    }
}
