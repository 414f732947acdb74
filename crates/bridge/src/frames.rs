use game::Frame;

use crate::description::Description;
use crate::settings;

/// The latest frames of all environments, as received.
#[derive(Debug)]
pub(crate) struct Frames {
    values: Values,
    /// Number of values in a frame, C · H · W.
    frame: usize,
    /// Number of frames in an observation.
    stack: usize,
    /// Index of each environment's latest frame in a ring of `stack` frames.
    newest: Vec<usize>,
}

/// Frame values, `[N, stack, C, H, W]`.
#[derive(Debug)]
enum Values {
    Bytes(Vec<u8>),
    Floats(Vec<f32>),
}

/// The rejection of a frame with NaN or infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotFinite;

impl Frames {
    pub(crate) fn new(environments: usize, stack: usize, description: &Description) -> Self {
        let frame = description.frame.len();
        let len = environments * stack * frame;
        let values = match description.values {
            settings::Values::U8 => Values::Bytes(vec![0; len]),
            settings::Values::F32 => Values::Floats(vec![0.0; len]),
        };
        Self { values, frame, stack, newest: vec![0; environments] }
    }

    /// Fills the whole stack of an environment with the first frame.
    pub(crate) fn begin(&mut self, environment: usize, bytes: &[u8]) -> Result<(), NotFinite> {
        for _ in 0..self.stack {
            self.push(environment, bytes)?;
        }
        Ok(())
    }

    /// Replaces the oldest frame of an environment.
    pub(crate) fn push(&mut self, environment: usize, bytes: &[u8]) -> Result<(), NotFinite> {
        let slot = (self.newest[environment] + 1) % self.stack;
        self.newest[environment] = slot;
        let range = self.range(environment, slot);
        match &mut self.values {
            Values::Bytes(values) => values[range].copy_from_slice(bytes),
            Values::Floats(values) => {
                for (value, bytes) in values[range.clone()].iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
                if !values[range].iter().all(|value| value.is_finite()) {
                    return Err(NotFinite);
                }
            }
        }
        Ok(())
    }

    /// Writes the stacked observation of an environment, the oldest frame first; bytes become `[0, 1]`.
    pub(crate) fn observe(&self, environment: usize, observation: &mut [f32]) {
        assert_eq!(observation.len(), self.stack * self.frame, "the length of an observation");
        for (age, target) in observation.chunks_exact_mut(self.frame).enumerate() {
            let range = self.range(environment, (self.newest[environment] + 1 + age) % self.stack);
            match &self.values {
                Values::Floats(values) => target.copy_from_slice(&values[range]),
                Values::Bytes(values) => {
                    for (target, value) in target.iter_mut().zip(&values[range]) {
                        *target = f32::from(*value) / 255.0;
                    }
                }
            }
        }
    }

    /// Returns the latest frame of an environment.
    pub(crate) fn newest(&self, environment: usize) -> Frame<'_> {
        let range = self.range(environment, self.newest[environment]);
        match &self.values {
            Values::Bytes(values) => Frame::Bytes(&values[range]),
            Values::Floats(values) => Frame::Floats(&values[range]),
        }
    }

    fn range(&self, environment: usize, slot: usize) -> std::ops::Range<usize> {
        let start = (environment * self.stack + slot) * self.frame;
        start..start + self.frame
    }
}

#[cfg(test)]
mod tests {
    use game::ObservationShape;

    use super::*;

    fn frames(stack: usize, values: settings::Values) -> Frames {
        let frame = ObservationShape { planes: 2, height: 1, width: 1 };
        let description = Description { count: 2, actions: 2, steps_max: None, values, frame, draws: false };
        Frames::new(2, stack, &description)
    }

    fn observed(frames: &Frames, environment: usize) -> Vec<f32> {
        let mut observation = vec![f32::NAN; 2 * frames.stack];
        frames.observe(environment, &mut observation);
        observation
    }

    #[test]
    fn an_observation_stacks_the_newest_frames_the_oldest_first() {
        let mut frames = frames(3, settings::Values::U8);
        frames.begin(1, &[255, 0]).unwrap();
        assert_eq!(observed(&frames, 1), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0], "the first frame fills the stack");
        for pushed in 1..=4 {
            frames.push(1, &[0, 51 * pushed]).unwrap();
        }
        assert_eq!(observed(&frames, 1), [0.0, 0.4, 0.0, 0.6, 0.0, 0.8]);
        assert_eq!(frames.newest(1), Frame::Bytes(&[0, 204]));
        assert_eq!(observed(&frames, 0), [0.0; 6], "other environments are not touched");
    }

    #[test]
    fn floats_are_unchanged_and_those_that_are_not_finite_are_refused() {
        let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let mut frames = frames(1, settings::Values::F32);
        frames.begin(0, &bytes([-7.5, 3e38])).unwrap();
        assert_eq!(observed(&frames, 0), [-7.5, 3e38]);
        assert_eq!(frames.newest(0), Frame::Floats(&[-7.5, 3e38]));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(frames.push(0, &bytes([0.0, value])), Err(NotFinite), "{value}");
        }
    }
}
