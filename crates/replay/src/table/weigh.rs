use std::num::NonZeroU32;

use experience::WeightsVersion;

use super::entry::Entry;
use crate::tree::Leaf;
use crate::{Selector, TableSettings};

/// The greatest weight of an item: 10^12 of them still have a finite sum.
const WEIGHT_MAX: f64 = 1e296;

/// The priority that is assumed where none is known.
pub(super) const PRIORITY_DEFAULT: f64 = 1.0;

/// The weights of items under the settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weigh {
    selector: Selector,
    max_times_sampled: Option<NonZeroU32>,
    /// The weights version that weighs one, for staleness.
    base: WeightsVersion,
}

impl Weigh {
    pub(super) fn new(settings: &TableSettings, base: WeightsVersion) -> Self {
        let TableSettings { selector, max_times_sampled, .. } = *settings;
        Self { selector, max_times_sampled, base }
    }

    /// Returns true if an item drawn that many times is deleted from sampling.
    pub(super) fn exhausts(self, times_sampled: u32) -> bool {
        self.max_times_sampled.is_some_and(|max| times_sampled >= max.get())
    }

    /// Returns the tree's leaves for an entry's `items` items.
    pub(super) fn leaves(self, entry: &Entry, items: usize) -> impl ExactSizeIterator<Item = Leaf> + '_ {
        let staleness = self.staleness(entry);
        (0..items).map(move |item| self.leaf_of(entry, item, staleness))
    }

    /// Returns the tree's leaf for one item of an entry.
    pub(super) fn leaf(self, entry: &Entry, item: usize) -> Leaf {
        self.leaf_of(entry, item, self.staleness(entry))
    }

    fn leaf_of(self, entry: &Entry, item: usize, staleness: Option<f64>) -> Leaf {
        if entry.is_quarantined() || entry.is_exhausted_at(item, self) {
            return Leaf::VACANT;
        }
        Leaf::new(staleness.unwrap_or_else(|| self.weight(entry.priority(item).unwrap_or(PRIORITY_DEFAULT))))
    }

    /// The weight of an item by its priority, where the age of its trajectory does not decide.
    fn weight(self, priority: f64) -> f64 {
        match self.selector {
            Selector::Prioritised { exponent } if priority > 0.0 => {
                // The bounds are beyond any sensible priority: an item of a priority above zero can always be drawn.
                priority.powf(exponent).clamp(f64::MIN_POSITIVE, WEIGHT_MAX)
            }
            Selector::Prioritised { exponent } => priority.powf(exponent),
            Selector::MinHeap | Selector::MaxHeap => priority,
            Selector::Uniform | Selector::Fifo | Selector::Lifo | Selector::StalenessAware { .. } => 1.0,
        }
    }

    /// The weight of all items of an entry, if its age decides: `2^((version - base) / half_life)`.
    fn staleness(self, entry: &Entry) -> Option<f64> {
        let Selector::StalenessAware { half_life_versions } = self.selector else { return None };
        let version = entry.last_weights_version;
        // Exact to 2^53 versions.
        let newer = (i128::from(version.0) - i128::from(self.base.0)) as f64;
        Some((newer / half_life_versions).exp2().min(WEIGHT_MAX))
    }
}
