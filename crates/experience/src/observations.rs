use crate::columns::frames::FramesBuilder;
use crate::{Invalid, ObservationLayout};

/// Records the observations of one episode of an environment that rules cannot recompute, one for each step and the
/// final one, for [`Trajectory::of_recorded`](crate::Trajectory::of_recorded).
///
/// Each frame is stored once and frames are compressed while they arrive, so that a recorder holds little more than the
/// compressed observations.
#[derive(Debug, Clone, PartialEq)]
pub struct Observations {
    layout: ObservationLayout,
    count: usize,
    /// The last observation, encoded.
    last: Vec<u8>,
    frames: FramesBuilder,
}

impl Observations {
    /// Creates the recorder of an episode.
    ///
    /// # Errors
    /// [`Invalid`] if a size of the layout is out of range.
    pub fn new(layout: ObservationLayout) -> Result<Self, Invalid> {
        let layout = layout.check()?;
        Ok(Self { layout, count: 0, last: Vec::new(), frames: FramesBuilder::new(layout) })
    }

    /// Returns the number of observations recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records the next observation, `stack * frame_values` numbers.
    ///
    /// # Errors
    /// [`Invalid`] if the length differs, if the element type cannot hold a number, or if the frames do not continue
    /// the observation before. Nothing is recorded then.
    pub fn push(&mut self, observation: &[f32]) -> Result<(), Invalid> {
        let invalid = |reason| Invalid { field: format!("observations[{}]", self.count), reason };
        let expected = self.layout.observation_values();
        if observation.len() != expected {
            return Err(invalid(format!("has {} values, expected {expected}", observation.len())));
        }
        let mut bytes = Vec::with_capacity(expected * self.layout.element.bytes());
        for (at, &number) in observation.iter().enumerate() {
            let put = self.layout.element.put(number, &mut bytes);
            put.map_err(|reason| invalid(format!("value {at}: {reason}")))?;
        }
        let frame_bytes = self.layout.frame_bytes();
        let (repeated, newest) = bytes.split_at(bytes.len() - frame_bytes);
        if self.count > 0 && repeated != &self.last[frame_bytes..] {
            let stack = self.layout.stack;
            return Err(invalid(format!(
                "does not repeat the {} latest frames of the previous observation",
                stack - 1
            )));
        }
        let added = if self.count == 0 { &bytes } else { newest };
        added.chunks_exact(frame_bytes).for_each(|frame| self.frames.push(frame));
        self.last = bytes;
        self.count += 1;
        Ok(())
    }

    /// Encodes the column of observations for a trajectory with `plies` steps.
    pub(crate) fn column(self, plies: usize) -> Result<Vec<u8>, Invalid> {
        if self.count != plies + 1 {
            let reason = format!("are {}, expected one for each of {plies} steps and a final observation", self.count);
            return Err(Invalid { field: "observations".to_owned(), reason });
        }
        Ok(self.frames.finish())
    }
}
