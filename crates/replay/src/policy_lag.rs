use std::time::Duration;

use experience::WeightsVersion;

/// How long a version counts as the newest after it last came: a learner that went on from an older checkpoint gives lower
/// numbers, and must not be refused for ever.
pub const NEWEST_KEPT: Duration = Duration::from_secs(300);

/// How far the weights of what comes in are behind the newest that came in lately, whatever the tables still hold.
///
/// Kept as the newest version of two spans of [`NEWEST_KEPT`], the one under way and the one before.
#[derive(Debug, Clone, Default)]
pub struct PolicyLag {
    current: Option<WeightsVersion>,
    previous: Option<WeightsVersion>,
    /// When the span under way began.
    began: Option<Duration>,
}

impl PolicyLag {
    /// `newest` came in lately.
    #[must_use]
    pub fn new(newest: Option<WeightsVersion>) -> Self {
        Self { current: newest, previous: None, began: None }
    }

    /// A trajectory of this version comes in at `now`; by how many versions it is behind the newest.
    pub fn of(&mut self, version: WeightsVersion, now: Duration) -> u64 {
        let began = *self.began.get_or_insert(now);
        let passed = now.saturating_sub(began);
        if passed >= NEWEST_KEPT {
            // After two spans nothing is left of either.
            self.previous = self.current.take().filter(|_| passed < 2 * NEWEST_KEPT);
            self.began = Some(now);
        }
        self.current = self.current.max(Some(version));
        self.current.max(self.previous).map_or(0, |newest| newest.0.saturating_sub(version.0))
    }
}

#[cfg(test)]
mod tests;
