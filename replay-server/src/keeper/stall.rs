use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use replay::Wait;

/// The reason for which a request waits for a table.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Hold {
    /// The limiter blocks it.
    #[error(transparent)]
    Limiter(#[from] Wait),
    /// The limiter does not, but there is nothing that may be drawn.
    #[error("no item in the window may be drawn: all had their last draw, or have priority 0")]
    NothingToDraw,
}

impl Hold {
    /// Its kind, as metrics label it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Limiter(Wait::MinItems { .. }) => "min_items",
            Self::Limiter(Wait::Inserts { .. }) => "inserts",
            Self::Limiter(Wait::Samples { .. }) => "samples",
            Self::NothingToDraw => "nothing_to_draw",
        }
    }
}

/// The reason for which one side of a table is blocked, and the total time so far.
#[derive(Debug, Default)]
pub(super) struct Stall {
    hold: Option<Hold>,
    since: Option<Instant>,
    totals: BTreeMap<&'static str, Duration>,
}

impl Stall {
    pub(super) fn update(&mut self, hold: Option<Hold>, now: Instant) {
        if let (Some(since), Some(hold)) = (self.since, self.hold) {
            *self.totals.entry(hold.kind()).or_default() += now.saturating_duration_since(since);
        }
        (self.since, self.hold) = (hold.map(|_| now), hold);
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// By the kind of reason.
    pub(super) fn totals(&self) -> impl Iterator<Item = (&'static str, Duration)> + '_ {
        self.totals.iter().map(|(&kind, &total)| (kind, total))
    }

    pub(super) fn total(&self) -> Duration {
        self.totals.values().sum()
    }
}
