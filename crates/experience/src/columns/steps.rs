use weights::WeightsVersion;

use super::codes::{ActionWidth, Kind, Kinds, PolicyActions, put_number, take_number};
use crate::{ActionProbability, Step, StepKind};

/// An iterator over steps, which holds the unread bytes of each column.
#[derive(Debug, Clone)]
pub(super) struct Steps<'a> {
    pub(super) action_width: ActionWidth,
    pub(super) policy_actions: PolicyActions,
    pub(super) kinds: Kinds<'a>,
    pub(super) actions: &'a [u8],
    /// The rewards; empty if all are zero.
    pub(super) rewards: &'a [u8],
    /// The values, one for each full or fast step.
    pub(super) values: &'a [u8],
    /// The policies; for each, the actions and then the probabilities.
    pub(super) policies: &'a [u8],
    pub(super) versions: VersionRuns<'a>,
}

impl Steps<'_> {
    /// Skips `plies` steps; reads only the kinds.
    pub(super) fn skip_plies(&mut self, plies: usize) {
        let (mut value_bytes, mut policy_bytes) = (0, 0);
        for kind in self.kinds.by_ref().take(plies) {
            value_bytes += kind.values() * size_of::<f32>();
            policy_bytes +=
                kind.entries().map_or(0, |entries| self.policy_actions.bytes(entries) + entries * size_of::<f32>());
        }
        skip(&mut self.actions, plies.saturating_mul(self.action_width.bytes()));
        skip(&mut self.rewards, plies.saturating_mul(size_of::<f32>()));
        skip(&mut self.values, value_bytes);
        skip(&mut self.policies, policy_bytes);
        self.versions.skip_steps(plies);
    }

    fn policy(&mut self, entries: usize) -> Option<Vec<ActionProbability>> {
        let mut policy = Vec::with_capacity(entries);
        let (actions, probabilities) = self.policies.split_at_checked(self.policy_actions.bytes(entries))?;
        self.policies = probabilities;
        for action in self.policy_actions.unpack(actions) {
            policy.push(ActionProbability { action, probability: take_f32(&mut self.policies)? });
        }
        Some(policy)
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let kind = self.kinds.next()?;
        let action = self.action_width.take(&mut self.actions)?;
        let reward = take_f32(&mut self.rewards).unwrap_or(0.0);
        let kind = match kind {
            Kind::Opening => StepKind::Opening,
            Kind::Fast => StepKind::Fast { value: take_f32(&mut self.values)? },
            Kind::Full { entries } => {
                StepKind::Full { policy: self.policy(entries)?, value: take_f32(&mut self.values)? }
            }
        };
        Some(Step { action, reward, kind, weights_version: self.versions.step()? })
    }
}

/// A run of consecutive steps that one weights version searched.
#[derive(Debug, Clone, Copy)]
pub(super) struct VersionRun {
    /// The number of steps, at least one.
    pub(super) steps: usize,
    pub(super) weights_version: WeightsVersion,
}

impl VersionRun {
    pub(super) fn put(self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.steps as u64);
        put_number(bytes, self.weights_version.0);
    }

    pub(super) fn take(bytes: &mut &[u8]) -> Option<Self> {
        let steps = usize::try_from(take_number(bytes)?).ok()?;
        Some(Self { steps, weights_version: WeightsVersion(take_number(bytes)?) })
    }
}

/// The weights versions of all steps, read by runs or by steps.
#[derive(Debug, Clone)]
pub(super) struct VersionRuns<'a> {
    bytes: &'a [u8],
    /// The rest of a partly read run.
    begun: Option<VersionRun>,
}

impl<'a> VersionRuns<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, begun: None }
    }

    fn step(&mut self) -> Option<WeightsVersion> {
        let run = self.next()?;
        self.begun = (run.steps > 1).then_some(VersionRun { steps: run.steps - 1, ..run });
        Some(run.weights_version)
    }

    fn skip_steps(&mut self, mut steps: usize) {
        while steps > 0 {
            let Some(run) = self.next() else { return };
            self.begun = (run.steps > steps).then(|| VersionRun { steps: run.steps - steps, ..run });
            steps = steps.saturating_sub(run.steps);
        }
    }
}

impl Iterator for VersionRuns<'_> {
    type Item = VersionRun;

    fn next(&mut self) -> Option<VersionRun> {
        self.begun.take().or_else(|| VersionRun::take(&mut self.bytes))
    }
}

fn skip(bytes: &mut &[u8], count: usize) {
    *bytes = bytes.get(count..).unwrap_or_default();
}

fn take_f32(bytes: &mut &[u8]) -> Option<f32> {
    let (&number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(f32::from_le_bytes(number))
}
