//! A whole trajectory in one row of bytes, as the replay table keeps it.
//!
//! Nothing is rounded: [`PackedTrajectory::unpack`] gives back every bit, of any trajectory. It is no format of wire or
//! disk and may change with the program. Start with [`PackedTrajectory::pack`], which lays out the row.

mod action_width;
mod kind;
mod leb128;
mod policy_actions;
mod steps;

use std::hint::black_box;

use game::{Action, Outcome};
use weights::WeightsVersion;

use crate::{ActionProbability, Segment, StepKind, Target, Trajectory, TrajectoryId};
use action_width::ActionWidth;
use kind::{Kind, Kinds};
use policy_actions::PolicyActions;
use steps::{Steps, VersionRuns};

/// A [`Trajectory`] in one row of bytes, section after section over all of its steps.
///
/// A full step costs 6 bytes, 4 for each entry of its policy, and which actions the policy has: a bit for each that the
/// game has, or a byte for each entry. Where an action is above 255, what is a byte for each action is two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedTrajectory {
    id: TrajectoryId,
    outcome: Outcome,
    action_width: ActionWidth,
    policy_actions: PolicyActions,
    /// Kinds, actions, rewards, values, policies, the name of the game, weights versions.
    content: Box<[u8]>,
    /// Where each section begins; the first one at zero, the last one after the name.
    actions_at: usize,
    rewards_at: usize,
    values_at: usize,
    policies_at: usize,
    game_at: usize,
    /// Steps with a search policy that is a training target.
    full_steps: usize,
}

impl PackedTrajectory {
    /// Packs a trajectory, valid or not.
    #[must_use]
    pub fn pack(trajectory: &Trajectory) -> Self {
        let Trajectory { id, game, steps, outcome } = trajectory;
        let action_width = ActionWidth::of(trajectory);
        let policy_actions = PolicyActions::of(trajectory, action_width);
        let mut content = Vec::new();
        for step in steps {
            Kind::of(&step.kind).put(&mut content);
        }
        let actions_at = content.len();
        for step in steps {
            action_width.put(&mut content, step.action);
        }
        let rewards_at = content.len();
        // None at all where all are zero, as in games scored by their outcome. By their bits: −0 is no such zero.
        if steps.iter().any(|step| step.reward.to_bits() != 0) {
            content.extend(steps.iter().flat_map(|step| step.reward.to_le_bytes()));
        }
        let values_at = content.len();
        content.extend(steps.iter().filter_map(|step| value(&step.kind)).flat_map(f32::to_le_bytes));
        let policies_at = content.len();
        for policy in steps.iter().filter_map(|step| policy(&step.kind)) {
            policy_actions.put(&mut content, policy);
            content.extend(policy.iter().flat_map(|entry| entry.probability.to_le_bytes()));
        }
        let game_at = content.len();
        leb128::put(&mut content, game.len() as u64);
        content.extend(game.as_bytes());
        for run in steps.chunk_by(|before, after| before.weights_version == after.weights_version) {
            leb128::put(&mut content, run.len() as u64);
            leb128::put(&mut content, run[0].weights_version.0);
        }
        Self {
            id: *id,
            outcome: *outcome,
            action_width,
            policy_actions,
            content: content.into_boxed_slice(),
            actions_at,
            rewards_at,
            values_at,
            policies_at,
            game_at,
            full_steps: steps.iter().filter(|step| policy(&step.kind).is_some()).count(),
        }
    }

    /// The trajectory that was packed, bit for bit.
    #[must_use]
    pub fn unpack(&self) -> Trajectory {
        Trajectory {
            id: self.id,
            game: self.game().to_owned(),
            steps: self.steps_from(0).collect(),
            outcome: self.outcome,
        }
    }

    /// What [`Segment::cut`] cuts from the trajectory that was packed. Unpacks no step but those of the segment.
    #[must_use]
    pub fn segment(&self, ply: usize, unroll_steps: usize) -> Option<Segment> {
        let plies = self.plies();
        if ply >= plies {
            return None;
        }
        let end = ply.saturating_add(unroll_steps).min(plies - 1);
        Some(Segment {
            trajectory: self.id,
            ply,
            actions: self.actions().take(end).collect(),
            targets: self.steps_from(ply).take(end - ply + 1).map(Target::from).collect(),
            outcome: self.outcome,
            plies,
        })
    }

    /// Who made it, and which one it is.
    #[must_use]
    pub fn id(&self) -> TrajectoryId {
        self.id
    }

    /// The name of the game, as in its spec.
    #[must_use]
    pub fn game(&self) -> &str {
        std::str::from_utf8(self.game_and_versions().0).expect("the name was a string when it was packed")
    }

    /// How the episode ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// How many plies the episode had.
    #[must_use]
    pub fn plies(&self) -> usize {
        (self.rewards_at - self.actions_at) / self.action_width.bytes()
    }

    /// The actions in order.
    pub fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        let mut actions = &self.content[self.actions_at..self.rewards_at];
        std::iter::from_fn(move || self.action_width.take(&mut actions))
    }

    /// The plies whose search policy is a training target, ascending.
    pub fn full_plies(&self) -> impl Iterator<Item = usize> + '_ {
        let kinds = Kinds::new(&self.content[..self.actions_at]);
        kinds.enumerate().filter(|(_, kind)| matches!(kind, Kind::Full { .. })).map(|(ply, _)| ply)
    }

    /// How many plies [`PackedTrajectory::full_plies`] has.
    #[must_use]
    pub fn full_steps(&self) -> usize {
        self.full_steps
    }

    /// Reads a byte here and there of what [`PackedTrajectory::segment`] will read for the full ply that `item` others
    /// come before, at a guess: memory that no cache has is there when it is wanted. Done for several trajectories
    /// before the first is cut, all are waited for at once.
    pub fn fetch(&self, item: usize) {
        let past = |section: usize, end: usize| section + (end - section) * item / self.full_steps.max(1);
        let values = past(self.values_at, self.policies_at);
        let policies = past(self.policies_at, self.game_at);
        // A policy may lie in two lines of a cache.
        for at in [0, self.rewards_at, values, policies, policies + 32, self.game_at, self.content.len() - 1] {
            black_box(self.content.get(at).copied());
        }
    }

    /// The weights version that searched the last step; `None` without steps.
    #[must_use]
    pub fn last_weights_version(&self) -> Option<WeightsVersion> {
        VersionRuns::new(self.game_and_versions().1).last().map(|run| run.weights_version)
    }

    /// The bytes of memory it takes, its own and those it points to; what the allocator adds is not known here.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.content.len()
    }

    /// Steps from `ply` on; none if there is no such ply.
    fn steps_from(&self, ply: usize) -> Steps<'_> {
        let mut steps = Steps {
            action_width: self.action_width,
            policy_actions: self.policy_actions,
            kinds: Kinds::new(&self.content[..self.actions_at]),
            actions: &self.content[self.actions_at..self.rewards_at],
            rewards: &self.content[self.rewards_at..self.values_at],
            values: &self.content[self.values_at..self.policies_at],
            policies: &self.content[self.policies_at..self.game_at],
            versions: VersionRuns::new(self.game_and_versions().1),
        };
        steps.skip_plies(ply);
        steps
    }

    fn game_and_versions(&self) -> (&[u8], &[u8]) {
        let mut rest = &self.content[self.game_at..];
        let length = leb128::take(&mut rest).and_then(|length| usize::try_from(length).ok());
        rest.split_at(length.expect("the name was in memory when it was packed"))
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

#[cfg(test)]
mod tests;
