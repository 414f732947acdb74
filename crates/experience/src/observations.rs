use crate::columns::FramesBuilder;
use crate::{Element, Invalid};

/// The maximum size of one frame in bytes: an image of 512×512 pixels in four colours, or 262,144 float32 numbers.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;
/// The maximum number of frames that one observation stacks: 32 in the published MuZero for Atari.
pub(crate) const STACK_MAX: usize = 64;

/// The form of stored observations: `stack` frames of `frame_values` numbers each, the oldest frame first. The planes
/// of an image come one after another, so that a stack of 4 images `[1, 84, 84]` is an observation `[4, 84, 84]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservationLayout {
    /// The type of the numbers.
    pub element: Element,
    /// The numbers of one frame: 1 to 1 MiB in their type.
    pub frame_values: usize,
    /// The frames of an observation, 1 to 64; 1 if observations share no data. Each further observation repeats all
    /// frames of its predecessor but the oldest, and adds one.
    pub stack: usize,
}

impl ObservationLayout {
    /// Returns the numbers of an observation.
    #[must_use]
    pub fn observation_values(self) -> usize {
        self.frame_values * self.stack
    }

    pub(crate) fn frame_bytes(self) -> usize {
        self.frame_values * self.element.bytes()
    }

    pub(crate) fn check(self) -> Result<Self, Invalid> {
        let Self { element, frame_values, stack } = self;
        let frame_values_max = FRAME_BYTES_MAX / element.bytes();
        if frame_values == 0 || frame_values > frame_values_max {
            let reason = format!("have {frame_values} values per frame, expected 1 to {frame_values_max}");
            return Err(Invalid { field: "observations".to_owned(), reason });
        }
        if stack == 0 || stack > STACK_MAX {
            let reason = format!("stack {stack} frames, expected 1 to {STACK_MAX}");
            return Err(Invalid { field: "observations".to_owned(), reason });
        }
        Ok(self)
    }
}

/// Records the observations of one episode of an environment that rules cannot recompute, one for each step and the
/// final one, for [`Trajectory::of_recorded`](crate::Trajectory::of_recorded).
///
/// Each frame is stored once and frames are compressed while they arrive, so that a recorder holds little more than
/// the compressed observations.
#[derive(Debug, Clone)]
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
    /// A size out of range.
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
            return Err(invalid(format!("does not repeat the {} newest frames of the one before", stack - 1)));
        }
        let added = if self.count == 0 { &bytes } else { newest };
        added.chunks_exact(frame_bytes).for_each(|frame| self.frames.push(frame));
        self.last = bytes;
        self.count += 1;
        Ok(())
    }

    /// Encodes the column of observations of a trajectory of `plies` steps.
    pub(crate) fn column(self, plies: usize) -> Result<Vec<u8>, Invalid> {
        if self.count != plies + 1 {
            let reason = format!("are {}, expected one for each of {plies} steps and the final one", self.count);
            return Err(Invalid { field: "observations".to_owned(), reason });
        }
        Ok(self.frames.finish())
    }
}
