use experience::Invalid;

use crate::settings::invalid;

/// Keeps the ratio of samples to inserts within a band: Reverb's `SampleToInsertRatio` (Cassirer et al. 2021), counted
/// in items.
///
/// Until `min_items` are held, every insert passes and every sample waits. From then on the cursor
/// `inserted · samples_per_insert − sampled` stays within `error` of `min_items · samples_per_insert`: above, inserts
/// wait for the learner; below, samples wait for the actors. Checking is separate from counting, so that the caller can
/// include items on the way to disk. The caller may also check only the first of several items that are inserted
/// together: the rest may then exceed the band.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimiter {
    settings: RateLimiterSettings,
    counts: RateLimiterCounts,
}

/// Settings of the limiter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimiterSettings {
    /// Average number of draws of an item until it is removed; above zero.
    pub samples_per_insert: f64,
    /// Number of items that must be held before any may be drawn; at least one.
    pub min_items: u64,
    /// Tolerated deviation from the ratio in either direction before one side waits, in samples; at least
    /// `max(1, samples_per_insert)`.
    pub error_items: f64,
}

/// Counters of the limiter, in items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimiterCounts {
    /// Items ever inserted.
    pub inserted: u64,
    /// Inserted items that may not be drawn: removed, exhausted or in quarantine. At most `inserted`.
    pub deleted: u64,
    /// Items ever drawn.
    pub sampled: u64,
}

/// The reason why one side has to wait.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Wait {
    /// The table does not yet hold the minimum.
    #[error("the table holds {held} of {min_items} items required for sampling")]
    MinItems {
        /// Number of items held.
        held: u64,
        /// Minimum number of items.
        min_items: u64,
    },
    /// The learner is ahead: more inserts must come first.
    #[error(
        "waiting for the actors: {sampled} samples of {inserted} inserted items exceed {samples_per_insert} samples \
         per insert by more than {error}"
    )]
    Inserts {
        /// Items drawn so far.
        sampled: u64,
        /// Items inserted so far.
        inserted: u64,
        /// The configured ratio.
        samples_per_insert: f64,
        /// The tolerated deviation, in samples.
        error: f64,
    },
    /// The actors are ahead: more samples must be drawn first.
    #[error(
        "waiting for the learner: {inserted} inserted items exceed {samples_per_insert} samples per insert by more \
         than {error} after {sampled} samples"
    )]
    Samples {
        /// Items drawn so far.
        sampled: u64,
        /// Items inserted so far.
        inserted: u64,
        /// The configured ratio.
        samples_per_insert: f64,
        /// The tolerated deviation, in samples.
        error: f64,
    },
}

impl RateLimiterSettings {
    /// Checks the range of each setting.
    ///
    /// # Errors
    /// [`Invalid`] names the first setting that is out of range. If `error_items` is too small, both sides could wait
    /// for each other forever.
    pub fn check(self) -> Result<Self, Invalid> {
        let Self { samples_per_insert, min_items, error_items: error } = self;
        if !(samples_per_insert > 0.0 && samples_per_insert.is_finite()) {
            let reason = format!("must be finite and above 0, got {samples_per_insert}");
            return Err(invalid("samples_per_insert", reason));
        }
        if min_items == 0 {
            return Err(invalid("min_items", "must be at least 1, got 0"));
        }
        let least = samples_per_insert.max(1.0);
        if error.is_nan() || error < least {
            let reason = format!("must be at least {least}, got {error}, which could block both sides forever");
            return Err(invalid("error_items", reason));
        }
        Ok(self)
    }

    /// Returns the maximum number of items of one draw without a deadlock: with more, the draw may wait for an insert
    /// that waits for this draw.
    #[must_use]
    pub fn batch_items_max(self) -> u64 {
        // The conversion saturates; valid settings make the result at least one.
        (2.0 * self.error_items - self.samples_per_insert) as u64
    }
}

impl RateLimiter {
    /// Creates a limiter with all counters at zero. The settings must have passed [`RateLimiterSettings::check`].
    #[must_use]
    pub fn new(settings: RateLimiterSettings) -> Self {
        Self { settings, counts: RateLimiterCounts::default() }
    }

    /// Changes the settings, which must have passed [`RateLimiterSettings::check`], and keeps the counts: the limiter
    /// decides as if the settings had been in force from the start.
    ///
    /// Late in a run, another ratio moves the cursor far outside the band, since it applies to all items ever inserted:
    /// a lower ratio makes samples wait until inserts have caught up, a higher one makes inserts wait.
    pub fn change(&mut self, settings: RateLimiterSettings) {
        self.settings = settings;
    }

    /// Continues from the counts of an earlier start.
    pub fn resume(&mut self, counts: RateLimiterCounts) {
        self.counts = counts;
    }

    /// Checks that another `items` items may be inserted now.
    ///
    /// # Errors
    /// [`Wait`] gives the reason.
    pub fn can_insert(&self, items: u64) -> Result<(), Wait> {
        let RateLimiterSettings { samples_per_insert, min_items, error_items: error } = self.settings;
        let RateLimiterCounts { inserted, sampled, .. } = self.counts;
        if self.held() + items <= min_items {
            return Ok(());
        }
        let cursor = (inserted + items) as f64 * samples_per_insert - sampled as f64;
        if cursor <= self.offset() + error {
            return Ok(());
        }
        Err(Wait::Samples { sampled, inserted, samples_per_insert, error })
    }

    /// Checks that `items` may be drawn now.
    ///
    /// # Errors
    /// [`Wait`] gives the reason.
    pub fn can_sample(&self, items: u64) -> Result<(), Wait> {
        let RateLimiterSettings { samples_per_insert, min_items, error_items: error } = self.settings;
        let RateLimiterCounts { inserted, sampled, .. } = self.counts;
        if self.held() < min_items {
            return Err(Wait::MinItems { held: self.held(), min_items });
        }
        if self.cursor() - items as f64 >= self.offset() - error {
            return Ok(());
        }
        Err(Wait::Inserts { sampled, inserted, samples_per_insert, error })
    }

    /// Counts `items` inserted items.
    pub fn insert(&mut self, items: u64) {
        self.counts.inserted += items;
    }

    /// Counts `items` items that can no longer be drawn: they were removed, quarantined or exhausted.
    ///
    /// # Panics
    /// If more are deleted than were inserted.
    pub fn delete(&mut self, items: u64) {
        self.counts.deleted += items;
        assert!(self.counts.deleted <= self.counts.inserted, "more items were deleted than inserted");
    }

    /// Reverts the deletion of `items` items that may be drawn again, such as after a release from quarantine.
    ///
    /// Only the number of items held grows. The cursor does not change, because the deletion did not change it either:
    /// the items still count as inserted, and other items were sampled instead.
    ///
    /// # Panics
    /// If more are restored than were deleted.
    pub fn restore(&mut self, items: u64) {
        assert!(items <= self.counts.deleted, "more items came back than were deleted");
        self.counts.deleted -= items;
    }

    /// Counts `items` drawn items.
    pub fn sample(&mut self, items: u64) {
        self.counts.sampled += items;
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> RateLimiterCounts {
        self.counts
    }

    /// Returns the settings in force.
    #[must_use]
    pub fn settings(&self) -> RateLimiterSettings {
        self.settings
    }

    /// Returns the cursor `inserted · samples_per_insert − sampled`, which grows with inserts and falls with samples.
    fn cursor(&self) -> f64 {
        self.counts.inserted as f64 * self.settings.samples_per_insert - self.counts.sampled as f64
    }

    fn held(&self) -> u64 {
        self.counts.inserted - self.counts.deleted
    }

    fn offset(&self) -> f64 {
        self.settings.min_items as f64 * self.settings.samples_per_insert
    }
}

#[cfg(test)]
mod tests;
