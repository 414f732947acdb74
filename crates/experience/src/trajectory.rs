use std::sync::Arc;

use bytes::Bytes;
use game::{Action, Outcome, Player};
use weights::WeightsVersion;

use crate::columns::{Columns, Extent, Kind};
use crate::{Episode, Invalid, Limits, Observations, Segment, Step, TrajectoryId};

/// Every step of one episode, validated, in one immutable buffer that is cheap to clone.
///
/// The wire, the log, the spool and the replay tables use the same bytes. The id is separate from the buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Trajectory(Arc<Inner>);

#[derive(Debug, PartialEq)]
struct Inner {
    id: TrajectoryId,
    columns: Columns,
}

impl Trajectory {
    fn new(id: TrajectoryId, columns: Columns) -> Self {
        Self(Arc::new(Inner { id, columns }))
    }

    /// Builds a trajectory of `steps`.
    ///
    /// # Errors
    /// As [`Trajectory::parse`], except for limits.
    pub fn of<'a>(
        id: TrajectoryId,
        game: &str,
        steps: impl IntoIterator<Item = &'a Step>,
        outcome: Outcome,
    ) -> Result<Self, Invalid> {
        Self::of_episode(id, game, steps, Episode::of(outcome))
    }

    /// Builds a trajectory of the `steps` of an episode that may depend on a seed or be truncated.
    ///
    /// # Errors
    /// As [`Trajectory::of`], and for a truncation value that is not finite, or not 0 although the outcome is not
    /// [`Truncated`](Outcome::Truncated).
    pub fn of_episode<'a>(
        id: TrajectoryId,
        game: &str,
        steps: impl IntoIterator<Item = &'a Step>,
        episode: Episode,
    ) -> Result<Self, Invalid> {
        Ok(Self::new(id, Columns::of(steps, game, episode, None)?))
    }

    /// Builds a trajectory of an environment that rules cannot recompute, with the observation of every step and the
    /// final one.
    ///
    /// # Errors
    /// As [`Trajectory::of_episode`], and for a number of observations other than one for each step and the final one.
    pub fn of_recorded<'a>(
        id: TrajectoryId,
        game: &str,
        steps: impl IntoIterator<Item = &'a Step>,
        episode: Episode,
        observations: Observations,
    ) -> Result<Self, Invalid> {
        Ok(Self::new(id, Columns::of(steps, game, episode, Some(observations))?))
    }

    /// Parses a copy of the columns of a trajectory. Valid columns are the unique encoding of their trajectory, with
    /// finite numbers, actions and steps within `limits`, and policies that ascend and sum to one. Stored observations
    /// are decompressed to check them, in one buffer of 16 frames.
    ///
    /// # Errors
    /// [`Invalid`] names the first field at fault.
    pub fn parse(id: TrajectoryId, columns: &[u8], limits: Limits) -> Result<Self, Invalid> {
        // The bytes are copied, because they may be a small slice of a large receive buffer.
        let check = Columns::parse(Bytes::copy_from_slice(columns), limits, Extent::Whole)?;
        Ok(Self::new(id, check))
    }

    /// Returns the same episode with another id.
    #[must_use]
    pub fn with_id(&self, id: TrajectoryId) -> Self {
        Self::new(id, self.0.columns.clone())
    }

    /// Returns the id of the trajectory, which includes that of its actor.
    #[must_use]
    pub fn id(&self) -> TrajectoryId {
        self.0.id
    }

    /// Returns the bytes that [`Trajectory::parse`] reads. Their layout is documented in `columns.rs` of this crate.
    #[must_use]
    pub fn columns(&self) -> &Bytes {
        &self.0.columns.bytes
    }

    /// Returns the name of the game, as in its spec.
    #[must_use]
    pub fn game(&self) -> &str {
        self.0.columns.game()
    }

    /// Returns the outcome of the episode.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.columns.layout.outcome
    }

    /// Returns the facts of the episode other than its steps: seed, outcome, truncation value.
    #[must_use]
    pub fn episode(&self) -> Episode {
        self.0.columns.episode()
    }

    /// Returns true if the trajectory stores observations, because rules cannot recompute them; a [`Segment`] reads
    /// them.
    #[must_use]
    pub fn has_observations(&self) -> bool {
        self.0.columns.frames().is_some()
    }

    /// Returns the number of plies of the episode.
    #[must_use]
    pub fn plies(&self) -> usize {
        self.0.columns.layout.plies as usize
    }

    /// Returns the actions in order.
    pub fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        self.0.columns.actions()
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.0.columns.steps()
    }

    /// Returns the plies whose search policy is a training target, ascending.
    pub fn full_plies(&self) -> impl Iterator<Item = usize> + '_ {
        let kinds = self.0.columns.kinds().enumerate();
        kinds.filter(|(_, kind)| matches!(kind, Kind::Full { .. })).map(|(ply, _)| ply)
    }

    /// Returns the length of [`Trajectory::full_plies`].
    #[must_use]
    pub fn full_steps(&self) -> usize {
        self.0.columns.layout.full_steps as usize
    }

    /// Returns the weights version that searched the last step.
    #[must_use]
    pub fn last_weights_version(&self) -> WeightsVersion {
        self.0.columns.last_weights_version().unwrap_or_default()
    }

    /// Cuts the segment that begins at `ply` and unrolls `unroll_steps` steps; shorter if the episode ends sooner, in
    /// which case it holds the very last step. Returns `None` if there is no such ply.
    #[must_use]
    pub fn segment(&self, ply: usize, unroll_steps: usize) -> Option<Segment> {
        let left = self.plies().checked_sub(ply).filter(|&left| left > 0)?;
        let columns = self.0.columns.part(ply, unroll_steps.saturating_add(1).min(left));
        Some(Segment::new(self.id(), columns))
    }

    /// Prefetches the memory that [`Trajectory::segment`] will probably read for the full ply with index `item`. Should
    /// be called for several trajectories before the first is cut.
    pub fn fetch(&self, item: usize) {
        self.0.columns.fetch(item);
    }

    /// Returns the memory of the trajectory in bytes, which clones share. The allocator's overhead is not included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // The two counters of the `Arc`, its content, and the buffer.
        2 * size_of::<usize>() + size_of::<Inner>() + self.columns().len()
    }

    /// Returns the number of clones that share the buffer, including this one.
    #[must_use]
    pub fn clones(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Returns the surprise: the mean over all searched steps of `|search value - outcome|`, both from the point of
    /// view of the player to move, 0 to 2 if values are within `[-1, 1]`. Assumes that players alternate.
    ///
    /// Returns `None` without a searched step, and in a game scored by its rewards alone: there the distance would be
    /// from a return, which depends on the discount and the number of steps that the learner chooses.
    #[must_use]
    pub fn surprise(&self) -> Option<f64> {
        let outcome = self.outcome();
        if matches!(outcome, Outcome::Finished | Outcome::Truncated) {
            return None;
        }
        let (mut sum, mut steps) = (0.0, 0_u32);
        for (ply, value) in self.0.columns.values() {
            let player = if ply % 2 == 0 { Player::First } else { Player::Second };
            sum += f64::from((value - outcome.value_for(player)).abs());
            steps += 1;
        }
        (steps > 0).then(|| sum / f64::from(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActionProbability, StepKind};

    const ID: TrajectoryId = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };

    fn of(kinds: Vec<StepKind>, outcome: Outcome) -> Result<Trajectory, Invalid> {
        let step = |kind| Step { action: Action(1), reward: 0.0, kind, weights_version: WeightsVersion(3) };
        Trajectory::of(ID, "tic_tac_toe", &kinds.into_iter().map(step).collect::<Vec<_>>(), outcome)
    }

    fn full(probabilities: &[(u16, f32)]) -> StepKind {
        let policy = probabilities
            .iter()
            .map(|&(action, probability)| ActionProbability { action: Action(action), probability })
            .collect();
        StepKind::Full { policy, value: 0.25 }
    }

    fn check(kind: StepKind, expected: &str) {
        let limits = Limits { steps_max: 9, actions: 9 };
        let built = of(vec![kind], Outcome::Draw);
        let result = built.and_then(|trajectory| Trajectory::parse(ID, trajectory.columns(), limits));
        assert_eq!(
            result.map(drop).map_err(|invalid| invalid.to_string()),
            if expected.is_empty() { Ok(()) } else { Err(expected.into()) }
        );
    }

    #[test]
    fn a_policy_that_sums_to_one_is_accepted() {
        check(full(&[(0, 0.25), (8, 0.75)]), "");
    }

    #[test]
    fn a_step_without_a_search_needs_no_policy() {
        check(StepKind::Opening, "");
    }

    #[test]
    fn a_nan_is_refused_by_name() {
        check(StepKind::Fast { value: f32::NAN }, "values[0]: is not finite");
        check(full(&[(0, f32::NAN)]), "steps[0].policy: NaN is not a probability");
    }

    #[test]
    fn a_policy_must_sum_to_one() {
        check(full(&[(0, 0.25), (1, 0.25)]), "steps[0].policy: sums to 0.5");
        check(full(&[]), "steps[0].policy: is empty");
    }

    #[test]
    fn a_policy_lists_each_action_once_and_below_the_number_of_actions() {
        check(full(&[(1, 0.5), (1, 0.5)]), "steps[0].policy: is not ascending by action");
        check(full(&[(9, 1.0)]), "steps[0].policy: 9 is not below 9");
    }

    #[test]
    fn surprise_is_the_mean_distance_of_searched_values_from_the_outcome_as_the_player_to_move_sees_it() {
        let kinds = vec![
            StepKind::Opening,
            // The second player lost: the first value is off by a half, the second is completely wrong.
            StepKind::Fast { value: -0.5 },
            StepKind::Opening,
            StepKind::Full { policy: vec![ActionProbability { action: Action(0), probability: 1.0 }], value: 1.0 },
        ];
        assert_eq!(of(kinds, Outcome::Win(Player::First)).unwrap().surprise(), Some((0.5 + 2.0) / 2.0));
    }

    #[test]
    fn a_trajectory_without_searches_or_without_a_result_has_no_surprise() {
        assert_eq!(of(vec![StepKind::Opening], Outcome::Draw).unwrap().surprise(), None);
        assert_eq!(of(vec![StepKind::Fast { value: 0.5 }], Outcome::Finished).unwrap().surprise(), None);
    }
}
