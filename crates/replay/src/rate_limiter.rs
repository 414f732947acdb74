use experience::Invalid;

use crate::settings::invalid;

/// Keeps sampling and inserting in one ratio: Reverb's `SampleToInsertRatio` (Cassirer et al. 2021), counted in items.
///
/// Until `min_items` are held, every insert passes and every sample waits. From then on the cursor `inserted ·
/// samples_per_insert − sampled` stays within `error` of `min_items · samples_per_insert`: above, inserts wait for the
/// learner; below, samples wait for the actors. Checking is separate from counting, so that the caller can include
/// items in flight to the disk, and check only one item of several that are inserted together: the others then leave
/// the band above.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimiter {
    settings: RateLimiterSettings,
    counts: RateLimiterCounts,
}

/// The settings of the limiter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimiterSettings {
    /// The average number of times that an item is drawn over its lifetime. Above zero.
    pub samples_per_insert: f64,
    /// Items that must be held before any may be drawn. At least one.
    pub min_items: u64,
    /// The tolerated deviation from the ratio, in samples either way, before one side waits. At least `max(1,
    /// samples_per_insert)`.
    pub error_items: f64,
}

/// The limiter's counters, in items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimiterCounts {
    /// Ever inserted.
    pub inserted: u64,
    /// Of these, such as may not be drawn: removed, exhausted or in quarantine. Never more than were inserted.
    pub deleted: u64,
    /// Ever drawn.
    pub sampled: u64,
}

/// The reason for which one side has to wait.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Wait {
    /// The table does not yet hold its minimum.
    #[error("the table holds {held} of the {min_items} items that sampling needs")]
    MinItems {
        /// Items held.
        held: u64,
        /// Items needed.
        min_items: u64,
    },
    /// The learner is ahead: more inserts must come first.
    #[error(
        "{sampled} samples of {inserted} inserted items are ahead of {samples_per_insert} samples per insert by more \
         than the allowed {error}: waiting for the actors"
    )]
    Inserts {
        /// Items drawn so far.
        sampled: u64,
        /// Items inserted so far.
        inserted: u64,
        /// The ratio held to.
        samples_per_insert: f64,
        /// The slack around it, in samples.
        error: f64,
    },
    /// The actors are ahead: more samples must be drawn first.
    #[error(
        "{inserted} inserted items are ahead of {samples_per_insert} samples per insert by more than the allowed \
         {error} after {sampled} samples: waiting for the learner"
    )]
    Samples {
        /// Items drawn so far.
        sampled: u64,
        /// Items inserted so far.
        inserted: u64,
        /// The ratio held to.
        samples_per_insert: f64,
        /// The slack around it, in samples.
        error: f64,
    },
}

impl RateLimiterSettings {
    /// Checks the range of each setting.
    ///
    /// # Errors
    /// The first setting out of range. With too small an error both sides could wait for each other forever.
    pub fn check(self) -> Result<Self, Invalid> {
        let Self { samples_per_insert, min_items, error_items: error } = self;
        if !(samples_per_insert > 0.0 && samples_per_insert.is_finite()) {
            let reason = format!("{samples_per_insert} samples per insert is not a number above 0");
            return Err(invalid("samples_per_insert", reason));
        }
        if min_items == 0 {
            return Err(invalid("min_items", "the minimum is 0 items, it must be at least 1"));
        }
        let least = samples_per_insert.max(1.0);
        if error.is_nan() || error < least {
            let reason =
                format!("an error of {error} samples could block both sides for ever, it must be at least {least}");
            return Err(invalid("error_items", reason));
        }
        Ok(self)
    }

    /// Returns the most items of one draw without a deadlock: with more, a moment exists at which this draw waits for
    /// an insert that waits for this draw.
    #[must_use]
    pub fn batch_items_max(self) -> u64 {
        // Saturates; the settings make it at least one.
        (2.0 * self.error_items - self.samples_per_insert) as u64
    }
}

impl RateLimiter {
    /// A limiter that has counted nothing. The settings must have passed [`RateLimiterSettings::check`].
    #[must_use]
    pub fn new(settings: RateLimiterSettings) -> Self {
        Self { settings, counts: RateLimiterCounts::default() }
    }

    /// Holds to other settings from now on, which must have passed [`RateLimiterSettings::check`], and keeps its
    /// counts: it decides as if they had held from the beginning.
    ///
    /// Far into a run another ratio puts the cursor far outside its band, since all that ever came in is counted with
    /// it: a lower ratio makes samples wait until inserts have caught up, a higher one makes inserts wait.
    pub fn change(&mut self, settings: RateLimiterSettings) {
        self.settings = settings;
    }

    /// Continues from the counts of an earlier start.
    pub fn resume(&mut self, counts: RateLimiterCounts) {
        self.counts = counts;
    }

    /// Checks that `items` more may be inserted now.
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

    /// Counts `items` that came in.
    pub fn insert(&mut self, items: u64) {
        self.counts.inserted += items;
    }

    /// Counts `items` that can no longer be drawn: they left the table, went into quarantine, or had their last draw.
    ///
    /// # Panics
    /// If more are deleted than were inserted.
    pub fn delete(&mut self, items: u64) {
        self.counts.deleted += items;
        assert!(self.counts.deleted <= self.counts.inserted, "more items were deleted than inserted");
    }

    /// Takes back that `items` were deleted: they came back from quarantine, and may be drawn again.
    ///
    /// Only the number of items held grows. The cursor stays, because a deletion had not moved it either: the items
    /// count as inserted since they were, and their share of samples was drawn from others in the meantime.
    ///
    /// # Panics
    /// If more come back than were deleted.
    pub fn restore(&mut self, items: u64) {
        assert!(items <= self.counts.deleted, "more items came back than were deleted");
        self.counts.deleted -= items;
    }

    /// Counts `items` that were drawn.
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

    /// `inserted · samples_per_insert − sampled`: grows with inserts, falls with samples.
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
