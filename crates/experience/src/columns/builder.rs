use bytes::Bytes;
use game::{Action, Outcome};

use super::codes::{ActionWidth, Kind, Kinds, PolicyActions};
use super::steps::VersionRun;
use super::{Columns, Extent, Header, OBSERVATIONS, POSITIONS, REWARDS, SEED, SURPRISES, TRUNCATION};
use crate::{ActionProbability, Episode, Invalid, Limits, Observations, Step, StepKind, invalid};

/// Builds columns step by step. The width of actions and the form of policies depend on all steps, so the buffer is
/// written at the end.
#[derive(Default)]
pub(super) struct ColumnsBuilder {
    kinds: Vec<u8>,
    actions: Vec<Action>,
    values: Vec<f32>,
    /// The entries of all policies, one after another.
    policies: Vec<ActionProbability>,
    versions: Vec<VersionRun>,
    rewards: Vec<f32>,
    /// The first full step with an empty policy, which the format cannot represent.
    without_policy: Option<usize>,
}

impl ColumnsBuilder {
    pub(super) fn push(&mut self, step: &Step) {
        let Step { action, reward, kind, weights_version } = step;
        let (code, value, policy) = match kind {
            StepKind::Opening => (Kind::Opening, None, [].as_slice()),
            StepKind::Fast { value } => (Kind::Fast, Some(*value), [].as_slice()),
            StepKind::Full { policy, value } => (Kind::Full { entries: policy.len() }, Some(*value), policy.as_slice()),
        };
        if code == (Kind::Full { entries: 0 }) {
            self.without_policy.get_or_insert(self.actions.len());
        }
        code.put(&mut self.kinds);
        self.actions.push(*action);
        self.values.extend(value);
        self.policies.extend_from_slice(policy);
        self.rewards.push(*reward);
        match self.versions.last_mut() {
            Some(run) if run.weights_version == *weights_version => run.steps += 1,
            _ => self.versions.push(VersionRun { steps: 1, weights_version: *weights_version }),
        }
    }

    /// Encodes the columns of the whole episode and validates them.
    pub(super) fn finish(
        &self,
        game: &str,
        episode: Episode,
        observations: Option<Observations>,
    ) -> Result<Columns, Invalid> {
        let Episode { seed, outcome, truncation_value } = episode;
        if let Some(ply) = self.without_policy {
            return Err(invalid(format!("steps[{ply}].policy"), "is empty"));
        }
        if outcome != Outcome::Truncated && truncation_value.to_bits() != 0 {
            let reason = format!("is {truncation_value} for an episode that is not truncated");
            return Err(invalid("truncation", reason));
        }
        let observations = observations.map(|recorded| recorded.column(self.actions.len())).transpose()?;
        let observations = observations.unwrap_or_default();
        let entries = || self.policies.iter().map(|entry| entry.action);
        let action_width = ActionWidth::of(self.actions.iter().copied().chain(entries()));
        let policy_actions = PolicyActions::of(self.each_policy(), action_width);
        let plies = self.actions.len();
        // The bits are compared, because −0 must be kept.
        let has_rewards = self.rewards.iter().any(|reward| reward.to_bits() != 0);
        let header = Header {
            outcome,
            action_width,
            policy_actions,
            game,
            plies,
            ply: 0,
            steps: plies,
            kinds_bytes: self.kinds.len(),
            optional: [
                (REWARDS, if has_rewards { plies * size_of::<f32>() } else { 0 }),
                (OBSERVATIONS, observations.len()),
                (TRUNCATION, if outcome == Outcome::Truncated { size_of::<f32>() } else { 0 }),
                (SEED, if seed == 0 { 0 } else { size_of::<u64>() }),
                (POSITIONS, 0),
                (SURPRISES, 0),
            ],
        };
        let mut out = Vec::new();
        header.put(&mut out);
        out.extend_from_slice(&self.kinds);
        self.actions.iter().for_each(|&action| action_width.put(&mut out, action));
        out.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        for policy in self.each_policy() {
            policy_actions.put(&mut out, policy);
            out.extend(policy.iter().flat_map(|entry| entry.probability.to_le_bytes()));
        }
        self.versions.iter().for_each(|run| run.put(&mut out));
        if has_rewards {
            out.extend(self.rewards.iter().flat_map(|reward| reward.to_le_bytes()));
        }
        out.extend_from_slice(&observations);
        if outcome == Outcome::Truncated {
            out.extend_from_slice(&truncation_value.to_le_bytes());
        }
        if seed != 0 {
            out.extend_from_slice(&seed.to_le_bytes());
        }
        Columns::parse(Bytes::from(out.into_boxed_slice()), Limits::NONE, Extent::Whole)
    }

    fn each_policy(&self) -> impl Iterator<Item = &[ActionProbability]> + Clone {
        let mut rest = self.policies.as_slice();
        Kinds::new(&self.kinds).filter_map(Kind::entries).map(move |entries| {
            let (policy, others) = rest.split_at(entries);
            rest = others;
            policy
        })
    }
}
