/// Observations `[B, C, H, W]` in host memory. They are stored as bytes if all values are whole numbers from 0 to 255,
/// as in games with planes that mark cells; otherwise as float32. The network receives the same values in both cases.
#[derive(Debug, Clone, PartialEq)]
pub enum Observations {
    /// Whole numbers from 0 to 255.
    Bytes(Vec<u8>),
    /// Arbitrary float32 values.
    Floats(Vec<f32>),
}

impl Default for Observations {
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

impl Observations {
    /// Creates empty observations with capacity for `values` one-byte values.
    #[must_use]
    pub fn with_capacity(values: usize) -> Self {
        Self::Bytes(Vec::with_capacity(values))
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Floats(floats) => floats.len(),
        }
    }

    /// Returns true if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends values without rounding. The first value that is not a whole number from 0 to 255 converts the storage
    /// to float32.
    pub fn push(&mut self, values: &[f32]) {
        if let Self::Bytes(bytes) = self {
            let before = bytes.len();
            // The cast saturates and turns NaN into 0; converting back detects every inexact cast.
            bytes.extend(values.iter().map(|&value| value as u8));
            if values.iter().zip(&bytes[before..]).all(|(&value, &byte)| f32::from(byte) == value) {
                return;
            }
            bytes.truncate(before);
            *self = Self::Floats(self.to_floats());
        }
        let Self::Floats(floats) = self else { unreachable!("bytes were converted above") };
        floats.extend_from_slice(values);
    }

    /// Converts the values to float32.
    #[must_use]
    pub fn to_floats(&self) -> Vec<f32> {
        match self {
            Self::Bytes(bytes) => bytes.iter().copied().map(f32::from).collect(),
            Self::Floats(floats) => floats.clone(),
        }
    }
}

impl FromIterator<f32> for Observations {
    fn from_iter<I: IntoIterator<Item = f32>>(values: I) -> Self {
        let mut observations = Self::default();
        observations.extend(values);
        observations
    }
}

impl Extend<f32> for Observations {
    fn extend<I: IntoIterator<Item = f32>>(&mut self, values: I) {
        let values: Vec<f32> = values.into_iter().collect();
        self.push(&values);
    }
}

#[cfg(test)]
mod tests {
    use super::Observations;

    #[test]
    fn observations_take_a_byte_each_until_a_value_needs_more_and_stay_exact() {
        let mut observations = Observations::default();
        observations.push(&[0.0, 1.0, 255.0]);
        assert_eq!(observations, Observations::Bytes(vec![0, 1, 255]));
        for other in [0.5, -1.0, 256.0, f32::INFINITY] {
            let mut observations = observations.clone();
            observations.push(&[1.0, other]);
            assert_eq!(observations, Observations::Floats(vec![0.0, 1.0, 255.0, 1.0, other]));
        }
        observations.push(&[f32::NAN]);
        assert!(observations.to_floats()[3].is_nan());
        assert_eq!(observations.len(), 4);
    }
}
