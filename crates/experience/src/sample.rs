use std::sync::OnceLock;

use bytes::Bytes;
use game::{Action, Outcome};
use weights::WeightsVersion;

use crate::columns::{Columns, Extent};
use crate::{Episode, Invalid, Limits, ObservationLayout, Step, TrajectoryId};

/// A position and the K steps that the learner unrolls from it; K is zero for AlphaZero. It is a part of a trajectory's
/// columns, and is sent over the wire in this form.
///
/// The seed and the actions before it determine the position, so that the rules can rebuild the observation. A segment
/// of an environment without such rules stores the observations of the steps.
#[derive(Debug, Clone)]
pub struct Segment {
    trajectory: TrajectoryId,
    columns: Columns,
    /// The decompressed frames of the stored observations. A segment that was cut only to be sent has none.
    frames: OnceLock<Bytes>,
}

/// Segments are equal if trajectory ids and columns are.
impl PartialEq for Segment {
    fn eq(&self, other: &Self) -> bool {
        (self.trajectory, &self.columns) == (other.trajectory, &other.columns)
    }
}

/// A segment as drawn from a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The segment that starts at the drawn position.
    pub segment: Segment,
    /// Probability of the draw, given the table at that moment.
    pub probability: f64,
    /// Number of items from which the table drew.
    pub table_items: u64,
}

impl Segment {
    /// Parses the columns of a segment with the checks of [`Trajectory::parse`](crate::Trajectory::parse), and keeps
    /// the buffer without a copy. Stored observations are decompressed, into at most 512 MiB.
    ///
    /// # Errors
    /// [`Invalid`] names the first field at fault.
    pub fn parse(trajectory: TrajectoryId, columns: Bytes, limits: Limits) -> Result<Self, Invalid> {
        let segment = Self::new(trajectory, Columns::parse(columns, limits, Extent::Part)?);
        if let Some(frames) = segment.columns.frames() {
            // The cell is empty, since the segment is new.
            let _ = segment.frames.set(frames.decode()?.into());
        }
        Ok(segment)
    }

    /// Creates the segment of checked columns.
    pub(crate) fn new(trajectory: TrajectoryId, columns: Columns) -> Self {
        Self { trajectory, columns, frames: OnceLock::new() }
    }

    /// Returns the bytes that [`Segment::parse`] reads. The layout is documented in `columns.rs` of this crate.
    #[must_use]
    pub fn columns(&self) -> &Bytes {
        &self.columns.bytes
    }

    /// Returns the id of the trajectory that the segment was cut from.
    #[must_use]
    pub fn trajectory(&self) -> TrajectoryId {
        self.trajectory
    }

    /// Returns the number of actions that lead to the position.
    #[must_use]
    pub fn ply(&self) -> usize {
        self.columns.layout.ply as usize
    }

    /// Returns the number of plies of the episode.
    #[must_use]
    pub fn plies(&self) -> usize {
        self.columns.layout.plies as usize
    }

    /// Returns the outcome of the episode.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.columns.layout.outcome
    }

    /// Returns the facts of the episode other than the steps: seed, outcome, truncation value.
    #[must_use]
    pub fn episode(&self) -> Episode {
        self.columns.episode()
    }

    /// Returns true if the last step of the segment is the last of the episode. After it, returns end with 0 or, if the
    /// outcome is [`Truncated`](Outcome::Truncated), bootstrap from the truncation value of [`Segment::episode`].
    #[must_use]
    pub fn reaches_end(&self) -> bool {
        self.columns.layout.span().reaches_end()
    }

    /// Returns true if the segment has observations, because rules cannot recompute them.
    #[must_use]
    pub fn has_observations(&self) -> bool {
        self.observation_layout().is_some()
    }

    /// Returns the layout of the observations; `None` if the rules recompute them.
    #[must_use]
    pub fn observation_layout(&self) -> Option<ObservationLayout> {
        Some(self.columns.frames()?.layout)
    }

    /// Writes observation `k`, counted from the segment's position, into `out`, which has the length of an observation:
    /// the frames of the stack, the oldest first. There is one for each step, and the final one at [`Segment::len`] if
    /// the segment [reaches the end](Segment::reaches_end).
    ///
    /// Returns `None`, and leaves `out` as it is, if there is no such observation or `out` has another length.
    ///
    /// The first call on a segment that was cut rather than parsed decompresses the frames.
    #[must_use]
    pub fn observation(&self, k: usize, out: &mut [f32]) -> Option<()> {
        let frames = self.columns.frames()?;
        let layout = frames.layout;
        if k >= frames.observations() || out.len() != layout.observation_values() {
            return None;
        }
        let decode = || Bytes::from(frames.decode().expect("the blocks were checked with their trajectory"));
        let (bytes, frame_bytes) = (self.frames.get_or_init(decode), layout.frame_bytes());
        layout.element.decode(&bytes[k * frame_bytes..(k + layout.stack) * frame_bytes], out);
        Some(())
    }

    /// Returns the actions from the start of the episode: [`Segment::ply`] actions before the position, then the
    /// actions of the segment's steps.
    pub fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        self.columns.actions()
    }

    /// Returns the weights version that searched the position.
    #[must_use]
    pub fn weights_version(&self) -> WeightsVersion {
        self.columns.first_weights_version().unwrap_or_default()
    }

    /// Returns the number of the segment's steps: `1 + K`, or fewer if the episode ends sooner.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.layout.steps as usize
    }

    /// Returns false: a segment has at least the step at the position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the step at the position, then the unrolled steps: the training targets.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.columns.steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActionProbability, StepKind, Trajectory};

    fn trajectory() -> Trajectory {
        let step =
            |action: u16, kind| Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(7) };
        let full =
            StepKind::Full { policy: vec![ActionProbability { action: Action(2), probability: 1.0 }], value: 0.5 };
        let steps = [step(4, StepKind::Opening), step(2, full), step(0, StepKind::Fast { value: -0.5 })];
        Trajectory::of(TrajectoryId { actor: 1, epoch: 1, sequence: 0 }, "any", &steps, Outcome::Draw).unwrap()
    }

    fn values(segment: &Segment) -> Vec<Option<f32>> {
        segment.steps().map(|step| step.kind.value()).collect()
    }

    #[test]
    fn a_segment_without_unroll_holds_the_actions_that_lead_to_its_position_and_its_own_step() {
        let segment = trajectory().segment(1, 0).unwrap();
        assert_eq!((segment.ply(), segment.plies()), (1, 3));
        assert_eq!(segment.actions().collect::<Vec<_>>(), [Action(4), Action(2)]);
        assert_eq!(values(&segment), [Some(0.5)]);
    }

    #[test]
    fn a_segment_near_the_end_is_shorter_and_holds_the_last_action() {
        let segment = trajectory().segment(1, 5).unwrap();
        assert_eq!(segment.actions().collect::<Vec<_>>(), [Action(4), Action(2), Action(0)]);
        assert_eq!(values(&segment), [Some(0.5), Some(-0.5)]);
        assert_eq!(trajectory().segment(1, usize::MAX), Some(segment));
    }

    #[test]
    fn a_segment_at_the_end_of_an_episode_shows_whether_it_was_truncated_and_the_value_to_bootstrap_from() {
        let steps: Vec<_> = trajectory().steps().collect();
        let episode = Episode { seed: 7, outcome: Outcome::Truncated, truncation_value: 0.25 };
        let truncated = Trajectory::of_episode(trajectory().id(), "any", &steps, episode).unwrap();
        let terminal =
            Trajectory::of_episode(trajectory().id(), "any", &steps, Episode::of(Outcome::Finished)).unwrap();
        for (trajectory, expected) in [(truncated, episode), (terminal, Episode::of(Outcome::Finished))] {
            let ends = [(0, 0), (0, 1), (0, 2), (1, 1), (2, 0), (2, 9)].map(|(ply, unroll_steps)| {
                let segment = trajectory.segment(ply, unroll_steps).unwrap();
                assert_eq!(segment.episode(), expected);
                segment.reaches_end()
            });
            assert_eq!(ends, [false, false, true, true, true, true]);
        }
    }

    #[test]
    fn there_is_no_segment_past_the_end() {
        assert_eq!(trajectory().segment(3, 0), None);
    }
}
