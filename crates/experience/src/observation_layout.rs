use crate::{Element, Invalid, invalid};

/// Maximum size of one frame in bytes: an image of 512×512 pixels in four colours, or 262,144 float32 numbers.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;
/// Maximum number of frames that one observation stacks: 32 in the published MuZero for Atari.
pub(crate) const STACK_MAX: usize = 64;

/// The layout of stored observations: `stack` frames of `frame_values` numbers each, the oldest frame first. The planes
/// of an image come one after another, so that a stack of 4 images `[1, 84, 84]` is an observation `[4, 84, 84]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservationLayout {
    /// Stored type of the numbers.
    pub element: Element,
    /// Numbers per frame, at least 1; at most 1 MiB in the stored type.
    pub frame_values: usize,
    /// Frames per observation, 1 to 64; 1 if observations share no data. Each further observation repeats all frames of
    /// the preceding one but the oldest, and adds one.
    pub stack: usize,
}

impl ObservationLayout {
    /// Returns the number of values in an observation.
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
            return Err(invalid("observations", reason));
        }
        if stack == 0 || stack > STACK_MAX {
            let reason = format!("stack {stack} frames, expected 1 to {STACK_MAX}");
            return Err(invalid("observations", reason));
        }
        Ok(self)
    }
}
