//! The range of action values, and the rescaling of values for the selection rules.

use crate::settings::ValueRange;

/// The least and greatest action value in the tree so far, between which values are rescaled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    range: ValueRange,
    least: f32,
    greatest: f32,
}

/// The rescaling `(value − least) · factor`; the identity for board games. Subtracting first preserves the precision of
/// large values with small differences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    least: f32,
    factor: f32,
}

/// The smallest value range that is rescaled to `[0, 1]`, as in mctx. A smaller range is multiplied by the same factor,
/// to avoid amplified rounding errors and overflow.
const RANGE_MIN: f32 = 1e-8;

impl Bounds {
    pub(crate) fn new(range: ValueRange) -> Self {
        Self { range, least: f32::INFINITY, greatest: f32::NEG_INFINITY }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.range);
    }

    /// Extends the range to include an action value. Does nothing for board games.
    #[inline]
    pub(crate) fn include(&mut self, value: f32) {
        if self.range == ValueRange::Normalised {
            self.least = self.least.min(value);
            self.greatest = self.greatest.max(value);
        }
    }

    /// Returns true for board games, where values are used without rescaling.
    #[inline]
    pub(crate) fn is_board(&self) -> bool {
        self.range == ValueRange::Board
    }

    /// Returns the current rescaling of values: `(value − least) / (greatest − least)`, or the identity until two
    /// different values have been included.
    #[inline]
    pub(crate) fn scale(&self) -> Scale {
        if self.range == ValueRange::Board || self.least >= self.greatest {
            return Scale::IDENTITY;
        }
        Scale::spanning(self.least, self.greatest)
    }

    /// Returns the current rescaling of values. Until two different values have been included, every value maps to
    /// almost 0.
    #[inline]
    pub(crate) fn scale_or_flat(&self) -> Scale {
        if self.least < self.greatest { Scale::spanning(self.least, self.greatest) } else { Scale::FLAT }
    }
}

/// The identity rescaling, for board games.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unscaled;

/// A rescaling of values.
pub(crate) trait Rescale: Copy {
    /// Returns the rescaled value.
    fn apply(self, value: f32) -> f32;
}

impl Rescale for Unscaled {
    #[inline(always)]
    fn apply(self, value: f32) -> f32 {
        value
    }
}

impl Scale {
    pub(crate) const IDENTITY: Self = Self { least: 0.0, factor: 1.0 };
    /// Maps every finite value to almost 0, and leaves the −∞ of an unavailable edge unchanged. A factor of 0 would
    /// turn −∞ into NaN.
    const FLAT: Self = Self { least: 0.0, factor: f32::MIN_POSITIVE };

    /// Returns the scale that maps the range from `least` to `greatest` onto `[0, 1]`.
    pub(crate) fn spanning(least: f32, greatest: f32) -> Self {
        Self { least, factor: 1.0 / (greatest - least).max(RANGE_MIN) }
    }
}

impl Rescale for Scale {
    #[inline(always)]
    fn apply(self, value: f32) -> f32 {
        (value - self.least) * self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn board_values_are_not_rescaled() {
        let mut bounds = Bounds::new(ValueRange::Board);
        bounds.include(-0.5);
        bounds.include(0.75);
        assert_eq!(bounds.scale(), Scale::IDENTITY);
    }

    #[test]
    fn normalised_values_span_zero_to_one() {
        let mut bounds = Bounds::new(ValueRange::Normalised);
        [3.0, 11.0, 7.0].into_iter().for_each(|value| bounds.include(value));
        let scale = bounds.scale();
        assert_eq!([3.0, 7.0, 11.0].map(|value| scale.apply(value)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn one_value_alone_is_flat_where_differences_alone_count() {
        let mut bounds = Bounds::new(ValueRange::Normalised);
        assert!(bounds.scale_or_flat().apply(200.0) < 1e-30);
        bounds.include(200.0);
        assert!(bounds.scale_or_flat().apply(100.0) < 1e-30);
        bounds.include(100.0);
        assert_eq!(bounds.scale_or_flat().apply(150.0), 0.5);
    }

    #[test]
    fn values_that_differ_by_rounding_errors_stay_finite_and_close() {
        let scale = Scale::spanning(0.0, 1e-42);
        assert!(scale.apply(1e-42) < 1e-30, "{}", scale.apply(1e-42));
        let scale = Scale::spanning(1000.0, 1000.5);
        assert_eq!([1000.0, 1000.25, 1000.5].map(|value| scale.apply(value)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn one_value_alone_is_not_rescaled() {
        let mut bounds = Bounds::new(ValueRange::Normalised);
        bounds.include(42.0);
        assert_eq!(bounds.scale(), Scale::IDENTITY);
        bounds.include(43.0);
        bounds.clear();
        assert_eq!(bounds.scale(), Scale::IDENTITY);
    }
}
