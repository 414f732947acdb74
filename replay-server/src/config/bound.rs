//! Bounds that may be missing, as the run file writes them: 0 is none, for TOML has no other word.
//!
//! A key without a written form would be missing from the defaults, and a key that is missing there cannot be set.

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of which 0 bounds nothing.
pub(super) trait Bound: Copy {
    /// The number with its 0.
    type Written: Default + PartialEq + Serialize + for<'de> Deserialize<'de>;

    fn write(self) -> Self::Written;

    /// Of what is not 0.
    fn read(written: Self::Written) -> Option<Self>;
}

impl Bound for u64 {
    type Written = Self;

    fn write(self) -> Self {
        self
    }

    fn read(written: Self) -> Option<Self> {
        Some(written)
    }
}

impl Bound for f64 {
    type Written = Self;

    fn write(self) -> Self {
        self
    }

    fn read(written: Self) -> Option<Self> {
        Some(written)
    }
}

impl Bound for NonZeroU32 {
    type Written = u32;

    fn write(self) -> u32 {
        self.get()
    }

    fn read(written: u32) -> Option<Self> {
        Self::new(written)
    }
}

#[expect(clippy::ref_option, reason = "what serde asks for")]
pub(super) fn serialize<T: Bound, S: Serializer>(bound: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    bound.map_or_else(T::Written::default, T::write).serialize(serializer)
}

pub(super) fn deserialize<'de, T: Bound, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let written = T::Written::deserialize(deserializer)?;
    Ok(if written == T::Written::default() { None } else { T::read(written) })
}
