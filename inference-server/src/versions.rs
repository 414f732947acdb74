//! The weights versions that are served: the newest few, each with an evaluator for every thread.

use std::collections::VecDeque;
use std::sync::Arc;

use game::ObservationShape;
use inference::Evaluator;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use weights::Manifest;

/// A served version. It continues to answer for its holders after it was removed from the served ones.
pub(crate) struct Version {
    pub(crate) manifest: Manifest,
    /// The human-readable name of the evaluator.
    pub(crate) name: Arc<str>,
    /// The evaluator of each thread, which only that thread locks.
    evaluators: Vec<Mutex<Box<dyn Evaluator>>>,
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Version").field("number", &self.number()).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Version {
    /// # Panics
    /// Without an evaluator.
    pub(crate) fn new(manifest: Manifest, evaluators: Vec<Box<dyn Evaluator>>) -> Self {
        let name = evaluators.first().expect("at least one thread evaluates").attributes().name;
        Self { manifest, name, evaluators: evaluators.into_iter().map(Mutex::new).collect() }
    }

    pub(crate) fn number(&self) -> u64 {
        self.manifest.version.0
    }

    /// The key of the weights, which differs from that of other weights with the same number.
    pub(crate) fn key(&self) -> u64 {
        self.manifest.digest.key()
    }

    pub(crate) fn shape(&self) -> ObservationShape {
        let architecture = &self.manifest.architecture;
        ObservationShape { planes: architecture.planes, height: architecture.height, width: architecture.width }
    }

    pub(crate) fn actions(&self) -> usize {
        self.manifest.architecture.actions
    }

    /// The evaluator of the given thread.
    pub(crate) fn evaluator(&self, thread: usize) -> &Mutex<Box<dyn Evaluator>> {
        &self.evaluators[thread]
    }
}

/// The collection of served versions.
#[derive(Debug)]
pub(crate) struct Versions {
    kept: usize,
    /// The versions in the order of arrival: the last is the newest, regardless of its number.
    shelf: RwLock<VecDeque<Arc<Version>>>,
    newest: watch::Sender<Option<u64>>,
}

impl Versions {
    /// Creates a collection for the newest `kept` versions.
    pub(crate) fn new(kept: usize) -> Self {
        Self { kept, shelf: RwLock::default(), newest: watch::Sender::new(None) }
    }

    /// Adds a version as the newest one.
    pub(crate) fn add(&self, version: Version) {
        let number = version.number();
        let mut shelf = self.shelf.write();
        // A learner that resumed from an older checkpoint gives the same number to different weights.
        shelf.retain(|resident| resident.number() != number);
        shelf.push_back(Arc::new(version));
        while shelf.len() > self.kept {
            shelf.pop_front();
        }
        drop(shelf);
        self.newest.send_replace(Some(number));
    }

    pub(crate) fn newest(&self) -> Option<Arc<Version>> {
        self.shelf.read().back().cloned()
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Version>> {
        self.shelf.read().iter().find(|version| version.number() == number).cloned()
    }

    /// The numbers of the served versions, ascending.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.shelf.read().iter().map(|version| version.number()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The keys of the served weights, in the order of arrival.
    pub(crate) fn keys(&self) -> Vec<u64> {
        self.shelf.read().iter().map(|version| version.key()).collect()
    }

    /// Returns a receiver of the newest version.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<u64>> {
        self.newest.subscribe()
    }
}
