use std::sync::Arc;

use bytes::Bytes;
use game::{Action, Outcome, Player};
use weights::WeightsVersion;

use crate::columns::parse::check_surprises;
use crate::columns::{Columns, Extent, Kind};
use crate::{Episode, Invalid, Limits, Observations, Segment, Step, TrajectoryId, invalid};

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
    /// final observation.
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

    /// Parses a copy of a trajectory's columns. Valid columns are the unique encoding of a trajectory, with finite
    /// numbers, actions and steps within `limits`, and policies that ascend and sum to one. Stored observations are
    /// decompressed to check them, in one buffer of 16 frames.
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

    /// Returns the id of the trajectory, which includes the actor's id.
    #[must_use]
    pub fn id(&self) -> TrajectoryId {
        self.0.id
    }

    /// Returns the bytes that [`Trajectory::parse`] reads. The layout is documented in `columns.rs` of this crate.
    #[must_use]
    pub fn columns(&self) -> &Bytes {
        &self.0.columns.bytes
    }

    /// Returns the name of the game, as in the game's spec.
    #[must_use]
    pub fn game(&self) -> &str {
        self.0.columns.game()
    }

    /// Returns the outcome of the episode.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.columns.layout.outcome
    }

    /// Returns the facts of the episode other than the steps: seed, outcome, truncation value.
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

    /// Returns the actions of all plies, in order.
    pub fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        self.0.columns.actions()
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.0.columns.steps()
    }

    /// Returns the plies with a search policy as training target, ascending.
    pub fn full_plies(&self) -> impl Iterator<Item = usize> + '_ {
        let kinds = self.0.columns.kinds().enumerate();
        kinds.filter(|(_, kind)| matches!(kind, Kind::Full { .. })).map(|(ply, _)| ply)
    }

    /// Returns the length of [`Trajectory::full_plies`], in O(1).
    #[must_use]
    pub fn full_steps(&self) -> usize {
        self.0.columns.layout.full_steps as usize
    }

    /// Returns the number of steps that were chosen by a search, full or fast. O(plies).
    #[must_use]
    pub fn searched_steps(&self) -> usize {
        self.0.columns.kinds().filter(|kind| *kind != Kind::Opening).count()
    }

    /// Returns this trajectory with `positions`, the position hash of each full step, equal for all images under the
    /// symmetries of the game, and `surprises`, the divergence of the search policy from the prior in nats. Each list
    /// is empty if it is unknown.
    ///
    /// # Errors
    /// A list with another length than one for each full step, or a surprise that is negative or not finite.
    pub fn with_positions(&self, positions: &[u64], surprises: &[f32]) -> Result<Self, Invalid> {
        for (field, length) in [("positions", positions.len()), ("surprises", surprises.len())] {
            if length > 0 && length != self.full_steps() {
                let reason = format!("have length {length}, expected {} (one per full step)", self.full_steps());
                return Err(invalid(field, reason));
            }
        }
        check_surprises(surprises.iter().copied())?;
        let positions: Vec<u8> = positions.iter().flat_map(|position| position.to_le_bytes()).collect();
        let surprises: Vec<u8> = surprises.iter().flat_map(|surprise| surprise.to_le_bytes()).collect();
        let columns = &self.0.columns;
        Ok(Self::new(self.id(), columns.with(columns.observations(), &positions, &surprises)?))
    }

    /// Returns the position hash of each full step; empty if they are unknown.
    pub fn positions(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.0.columns.positions().iter().map(|&position| u64::from_le_bytes(position))
    }

    /// Returns the divergence of the search policy of each full step from the prior, in nats; empty if they are
    /// unknown. This is about policies, while [`Trajectory::surprise`] is about values.
    pub fn surprises(&self) -> impl ExactSizeIterator<Item = f32> + '_ {
        self.0.columns.surprises().iter().map(|&surprise| f32::from_le_bytes(surprise))
    }

    /// Returns the weights version that searched the last step.
    #[must_use]
    pub fn last_weights_version(&self) -> WeightsVersion {
        self.0.columns.last_weights_version().unwrap_or_default()
    }

    /// Returns this trajectory with the search policies, values and weights versions of `searched`: the same episode
    /// with positions searched again. Kinds of steps stay, so that the trajectory has the same items. The truncation
    /// value is taken from `searched`, since it is a value too. `searched` holds no observations and no different
    /// positions: this trajectory keeps the stored data. Surprises are taken from `searched`, or become unknown if
    /// `searched` has none: earlier surprises are about a policy and a prior that no longer exist.
    ///
    /// # Errors
    /// [`Invalid`] names the first field that the episodes do not share: id, game, outcome, seed, steps, actions,
    /// rewards, kinds; or the observations or positions of `searched`.
    pub fn revised_by(&self, searched: &Self) -> Result<Self, Invalid> {
        self.check_revision(searched)?;
        let (stored, searched) = (&self.0.columns, &searched.0.columns);
        let (positions, surprises) = (stored.positions().as_flattened(), searched.surprises().as_flattened());
        Ok(Self::new(self.id(), searched.with(stored.observations(), positions, surprises)?))
    }

    fn check_revision(&self, searched: &Self) -> Result<(), Invalid> {
        let unlike = |field: &str, stored: String, sent: String| {
            invalid(field, format!("is {sent}, the trajectory has {stored}"))
        };
        let same = |field: &str, stored: String, sent: String| {
            if stored == sent { Ok(()) } else { Err(unlike(field, stored, sent)) }
        };
        same("id", self.id().to_string(), searched.id().to_string())?;
        same("game", format!("{:?}", self.game()), format!("{:?}", searched.game()))?;
        same("outcome", format!("{:?}", self.outcome()), format!("{:?}", searched.outcome()))?;
        same("seed", self.episode().seed.to_string(), searched.episode().seed.to_string())?;
        same("plies", self.plies().to_string(), searched.plies().to_string())?;
        let has_others = searched.positions().len() > 0 && !searched.positions().eq(self.positions());
        let stays = [("observations", searched.has_observations()), ("positions", has_others)];
        if let Some((field, _)) = stays.into_iter().find(|(_, is_refused)| *is_refused) {
            return Err(invalid(field, "cannot be changed"));
        }
        let mut actions = self.actions().zip(searched.actions()).enumerate();
        if let Some((ply, (stored, sent))) = actions.find(|(_, (stored, sent))| stored != sent) {
            return Err(unlike(&format!("steps[{ply}].action"), stored.0.to_string(), sent.0.to_string()));
        }
        let mut rewards = self.0.columns.rewards().zip(searched.0.columns.rewards()).enumerate();
        if let Some((ply, (stored, sent))) = rewards.find(|(_, (stored, sent))| stored.to_bits() != sent.to_bits()) {
            return Err(unlike(&format!("steps[{ply}].reward"), stored.to_string(), sent.to_string()));
        }
        let mut kinds = self.0.columns.kinds().zip(searched.0.columns.kinds()).enumerate();
        if let Some((ply, (stored, sent))) = kinds.find(|(_, (stored, sent))| stored.name() != sent.name()) {
            return Err(unlike(&format!("steps[{ply}].kind"), stored.name().to_owned(), sent.name().to_owned()));
        }
        Ok(())
    }

    /// Cuts the segment that starts at `ply` and unrolls `unroll_steps` steps. If the episode ends sooner, the segment
    /// is shorter and holds the very last step. Returns `None` if there is no such ply.
    #[must_use]
    pub fn segment(&self, ply: usize, unroll_steps: usize) -> Option<Segment> {
        let left = self.plies().checked_sub(ply).filter(|&left| left > 0)?;
        let columns = self.0.columns.part(ply, unroll_steps.saturating_add(1).min(left));
        Some(Segment::new(self.id(), columns))
    }

    /// Prefetches the memory that [`Trajectory::segment`] will probably read for the full ply with index `item`. It
    /// should be called for several trajectories before the first is cut.
    pub fn fetch(&self, item: usize) {
        self.0.columns.fetch(item);
    }

    /// Returns the memory of the trajectory in bytes, which clones share. The allocator's overhead is not included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // The two counters of the `Arc`, the content, and the buffer.
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
    /// Returns `None` without a searched step, and in a game scored by rewards: there the distance would be from a
    /// return, which depends on the discount and the number of steps that the learner chooses.
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
        check(full(&[(0, 0.25), (1, 0.25)]), "steps[0].policy: sums to 0.5, expected 1");
        check(full(&[]), "steps[0].policy: is empty");
    }

    #[test]
    fn a_policy_lists_each_action_once_and_below_the_number_of_actions() {
        check(full(&[(1, 0.5), (1, 0.5)]), "steps[0].policy: is not in ascending order of action");
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

    fn episode() -> Vec<Step> {
        let kinds = [StepKind::Opening, StepKind::Fast { value: -0.5 }, full(&[(0, 0.25), (8, 0.75)])];
        let step =
            |(action, kind)| Step { action: Action(action), reward: 1.0, kind, weights_version: WeightsVersion(3) };
        (4..).zip(kinds).map(step).collect()
    }

    fn searched_again(mut steps: Vec<Step>) -> Vec<Step> {
        steps[1].kind = StepKind::Fast { value: 0.125 };
        steps[2].kind = full(&[(1, 0.5), (2, 0.25), (300, 0.25)]);
        steps[1..].iter_mut().for_each(|step| step.weights_version = WeightsVersion(9));
        steps
    }

    fn truncated(seed: u64, steps: &[Step], truncation_value: f32) -> Trajectory {
        let episode = Episode { seed, outcome: Outcome::Truncated, truncation_value };
        Trajectory::of_episode(ID, "tic_tac_toe", steps, episode).unwrap()
    }

    #[test]
    fn a_revision_has_the_new_policies_values_and_versions_and_everything_else_as_before() {
        let (before, searched) = (truncated(7, &episode(), 0.5), truncated(7, &searched_again(episode()), -0.5));
        let revised = before.revised_by(&searched).unwrap();
        assert_eq!(revised, searched);
        assert_eq!((revised.full_steps(), revised.searched_steps()), (1, 2));
        assert_eq!(revised.last_weights_version(), WeightsVersion(9));
        assert_eq!(Trajectory::parse(ID, revised.columns(), Limits::NONE), Ok(revised));
    }

    #[test]
    fn a_revision_keeps_the_stored_observations() {
        let layout = crate::ObservationLayout { element: crate::Element::F32, frame_values: 2, stack: 2 };
        let mut observations = crate::Observations::new(layout).unwrap();
        (0..4_u8).for_each(|k| observations.push(&[k, 2 * k, k + 1, 2 * (k + 1)].map(f32::from)).unwrap());
        let facts = Episode { seed: 7, outcome: Outcome::Truncated, truncation_value: 0.5 };
        let before = Trajectory::of_recorded(ID, "tic_tac_toe", &episode(), facts, observations).unwrap();
        let searched = truncated(7, &searched_again(episode()), -0.5);
        let revised = before.revised_by(&searched).unwrap();
        // The layout computed while copying must equal the layout found by parsing.
        let parsed = Trajectory::parse(ID, revised.columns(), Limits::NONE).unwrap();
        for revised in [&revised, &parsed] {
            assert!(revised.steps().eq(searched.steps()) && revised.episode() == searched.episode());
            let mut observation = [0.0; 4];
            revised.segment(1, 9).unwrap().observation(2, &mut observation).unwrap();
            assert_eq!(observation, [3.0, 6.0, 4.0, 8.0]);
        }
        let error = before.revised_by(&revised).unwrap_err();
        assert_eq!(error.field, "observations");
    }

    #[test]
    fn a_revision_keeps_positions_and_drops_surprises_which_are_about_the_searches_that_it_replaces() {
        let searched = truncated(7, &searched_again(episode()), -0.5);
        let before = truncated(7, &episode(), 0.5).with_positions(&[5], &[0.25]).unwrap();
        let revised = before.revised_by(&searched).unwrap();
        assert_eq!(revised, searched.with_positions(&[5], &[]).unwrap());
        assert_eq!(Trajectory::parse(ID, revised.columns(), Limits::NONE), Ok(revised));
        let surprised = searched.with_positions(&[], &[0.75]).unwrap();
        assert_eq!(before.revised_by(&surprised).unwrap(), searched.with_positions(&[5], &[0.75]).unwrap());
        assert_eq!(before.revised_by(&before), Ok(before.clone()));
        let error = before.revised_by(&searched.with_positions(&[6], &[]).unwrap()).unwrap_err();
        assert_eq!(error.field, "positions");
    }

    #[test]
    fn a_revision_of_another_episode_is_refused_by_the_field_that_differs() {
        let before = truncated(7, &episode(), 0.5);
        let changed = |change: fn(&mut Vec<Step>)| {
            let mut steps = searched_again(episode());
            change(&mut steps);
            truncated(7, &steps, 0.0)
        };
        let other_game = Trajectory::of_episode(ID, "hex", &searched_again(episode()), before.episode()).unwrap();
        let ended = Episode { outcome: Outcome::Finished, truncation_value: 0.0, ..before.episode() };
        let other_outcome = Trajectory::of_episode(ID, "tic_tac_toe", &episode(), ended).unwrap();
        let cases = [
            (changed(|_| ()).with_id(TrajectoryId { sequence: 4, ..ID }), "id"),
            (other_game, "game"),
            (other_outcome, "outcome"),
            (truncated(8, &episode(), 0.5), "seed"),
            (changed(|steps| drop(steps.pop())), "plies"),
            (changed(|steps| steps[0].action = Action(5)), "steps[0].action"),
            (changed(|steps| steps[2].reward = -1.0), "steps[2].reward"),
            (changed(|steps| steps[1].kind = StepKind::Opening), "steps[1].kind"),
            (changed(|steps| steps[2].kind = StepKind::Fast { value: 0.0 }), "steps[2].kind"),
        ];
        for (searched, field) in cases {
            assert_eq!(before.revised_by(&searched).unwrap_err().field, field);
        }
    }

    #[test]
    fn a_trajectory_without_searches_or_without_a_result_has_no_surprise() {
        assert_eq!(of(vec![StepKind::Opening], Outcome::Draw).unwrap().surprise(), None);
        assert_eq!(of(vec![StepKind::Fast { value: 0.5 }], Outcome::Finished).unwrap().surprise(), None);
    }
}
