//! Keeps the served weights versions: the latest few, each with an evaluator per thread.

use std::collections::VecDeque;
use std::sync::Arc;

use game::ObservationShape;
use inference::Evaluator;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use weights::Manifest;

use crate::metrics::Triton;

/// A served version. Requests that already hold the version can still use it after it is no longer served.
pub(crate) struct Version {
    pub(crate) manifest: Manifest,
    /// Human-readable name of the evaluator.
    pub(crate) name: Arc<str>,
    pub(crate) triton: Triton,
    /// One evaluator per thread; only that thread locks it.
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
        let triton = Triton::new(&manifest.architecture.game, manifest.version.0);
        Self { manifest, name, triton, evaluators: evaluators.into_iter().map(Mutex::new).collect() }
    }

    pub(crate) fn number(&self) -> u64 {
        self.manifest.version.0
    }

    /// Returns the key of the weights, which distinguishes weights with the same version number.
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

    /// Returns the evaluator for a thread.
    pub(crate) fn evaluator(&self, thread: usize) -> &Mutex<Box<dyn Evaluator>> {
        &self.evaluators[thread]
    }
}

/// The collection of served versions.
#[derive(Debug)]
pub(crate) struct Versions {
    kept: usize,
    /// Versions in order of arrival: the last is the latest, regardless of the number.
    shelf: RwLock<VecDeque<Arc<Version>>>,
    newest: watch::Sender<Option<u64>>,
}

impl Versions {
    /// Creates a collection for the latest `kept` versions.
    pub(crate) fn new(kept: usize) -> Self {
        Self { kept, shelf: RwLock::default(), newest: watch::Sender::new(None) }
    }

    /// Adds a version as the latest.
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

    /// Returns the numbers of the served versions, ascending.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.shelf.read().iter().map(|version| version.number()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the keys of the served weights, in order of arrival.
    pub(crate) fn keys(&self) -> Vec<u64> {
        self.shelf.read().iter().map(|version| version.key()).collect()
    }

    /// Returns a receiver for the number of the latest version.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<u64>> {
        self.newest.subscribe()
    }
}
