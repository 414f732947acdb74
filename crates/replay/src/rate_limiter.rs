use experience::{Invalid, invalid};

/// Keeps the ratio of samples to inserts within a band, like `SampleToInsertRatio` of Reverb (Cassirer et al. 2021),
/// but counted in items.
///
/// Until the table holds `min_items` items, every insert passes and every sample waits. After that, the cursor
/// `inserted · samples_per_insert − sampled` stays within `error_items` of `min_items · samples_per_insert`. Above the
/// band, inserts wait for the learner; below the band, samples wait for the actors. Checks do not change the counters,
/// so that the caller can include items not yet written to disk in a check. When inserting several items together, the
/// caller may check only the first item; the other items may then exceed the band.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimiter {
    settings: RateLimiterSettings,
    counts: RateLimiterCounts,
}

/// Settings of a [`RateLimiter`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimiterSettings {
    /// Target ratio of drawn to inserted items: the average number of draws for each item; above 0.
    pub samples_per_insert: f64,
    /// Number of items that the table must hold before sampling starts; at least 1.
    pub min_items: u64,
    /// Tolerated deviation from the target ratio in either direction, in samples, before one side waits; at least
    /// `max(1, samples_per_insert)`.
    pub error_items: f64,
}

/// Counters of a [`RateLimiter`], in items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimiterCounts {
    /// Items ever inserted.
    pub inserted: u64,
    /// Inserted items that cannot be drawn: removed or in quarantine. At most `inserted`.
    pub deleted: u64,
    /// Items ever drawn.
    pub sampled: u64,
}

/// The reason why an insert or a sample must wait.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Wait {
    /// The table holds fewer items than the minimum for sampling.
    #[error("the table holds {held} of {min_items} items required for sampling")]
    MinItems {
        /// Number of drawable items in the table.
        held: u64,
        /// Minimum number of items for sampling.
        min_items: u64,
    },
    /// A sample must wait for more inserts, because the learner is ahead of the actors.
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
    /// An insert must wait for more samples, because the actors are ahead of the learner.
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
    /// Checks that `error_items` is large enough. The run file checks the range of each number.
    ///
    /// # Errors
    /// [`Invalid`] if `error_items` is so small that inserts and samples could wait for each other forever.
    pub fn check(self) -> Result<Self, Invalid> {
        let (least, error) = (self.samples_per_insert, self.error_items);
        if error < least {
            let reason = format!("must be at least {least}, got {error}, which could block both sides forever");
            return Err(invalid("error_items", reason));
        }
        Ok(self)
    }

    /// Returns the maximum number of items that one call of [`RateLimiter::can_sample`] may request without a deadlock.
    /// With more items, the draw could wait for an insert that waits for the draw.
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

    /// Changes the settings, which must have passed [`RateLimiterSettings::check`], and keeps the counters. The limiter
    /// then behaves as if the settings had applied from the start.
    ///
    /// The ratio applies to all items ever inserted. A new ratio late in a run therefore moves the cursor far outside
    /// the band: with a lower ratio samples wait until the inserts catch up, and with a higher ratio inserts wait.
    pub fn change(&mut self, settings: RateLimiterSettings) {
        self.settings = settings;
    }

    /// Restores the counters from before a restart.
    pub fn resume(&mut self, counts: RateLimiterCounts) {
        self.counts = counts;
    }

    /// Checks that `items` more items may be inserted now.
    ///
    /// # Errors
    /// [`Wait`] if the insert must wait.
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

    /// Checks that `items` items may be drawn now.
    ///
    /// # Errors
    /// [`Wait`] if the draw must wait.
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

    /// Adds `items` to the number of inserted items.
    pub fn insert(&mut self, items: u64) {
        self.counts.inserted += items;
    }

    /// Adds `items` to the number of deleted items, which can no longer be drawn: removed or quarantined.
    ///
    /// # Panics
    /// If more items would be deleted than were inserted.
    pub fn delete(&mut self, items: u64) {
        self.counts.deleted += items;
        assert!(self.counts.deleted <= self.counts.inserted, "more items were deleted than inserted");
    }

    /// Reverts the deletion of `items` items that can be drawn again, for example after a release from quarantine.
    ///
    /// Only the number of held items grows. As with a deletion, the cursor does not change, because the items still
    /// count as inserted.
    ///
    /// # Panics
    /// If more items would be restored than were deleted.
    pub fn restore(&mut self, items: u64) {
        assert!(items <= self.counts.deleted, "more items were restored than deleted");
        self.counts.deleted -= items;
    }

    /// Adds `items` to the number of drawn items.
    pub fn sample(&mut self, items: u64) {
        self.counts.sampled += items;
    }

    /// Returns the current counters.
    #[must_use]
    pub fn counts(&self) -> RateLimiterCounts {
        self.counts
    }

    /// Returns the current settings.
    #[must_use]
    pub fn settings(&self) -> RateLimiterSettings {
        self.settings
    }

    /// Returns the cursor `inserted · samples_per_insert − sampled`, in samples.
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
