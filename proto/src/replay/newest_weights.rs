use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use experience::WeightsVersion;

/// The newest weights version that a learner has published, for its samplers to send. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct NewestWeights {
    /// Zero while there is none, as on the wire: versions count from 1.
    version: Arc<AtomicU64>,
}

impl NewestWeights {
    /// This is the newest from now on.
    pub fn set(&self, version: WeightsVersion) {
        self.version.store(version.0, Ordering::Relaxed);
    }

    /// As it goes out with credit.
    pub(super) fn on_wire(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}
