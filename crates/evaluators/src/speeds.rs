use std::collections::BTreeMap;
use std::fmt;

use inference::Speed;
use serde::{Deserialize, Serialize};

/// Measured speeds: for each machine, network and load, those of each evaluator by its name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Speeds(pub(crate) BTreeMap<String, BTreeMap<String, Measurement>>);

/// The speed of one evaluator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Batches in flight on a device that threads share; else 1.
    pub(crate) in_flight: usize,
    /// Batch, and evaluations/s of all threads with that many in flight.
    pub(crate) speeds: Vec<(usize, f64)>,
}

impl Measurement {
    pub(crate) fn speeds(&self) -> Vec<Speed> {
        let speed = |&(batch, evaluations_per_second): &_| Speed { batch, evaluations_per_second };
        self.speeds.iter().map(speed).collect()
    }
}

type Read = dyn Fn() -> Option<Vec<u8>> + Send + Sync;
type Write = dyn Fn(&[u8]) + Send + Sync;

/// Keeps measured speeds from one start to the next, as text of a format that belongs to this crate.
pub struct Store {
    read: Box<Read>,
    write: Box<Write>,
}

impl Store {
    /// A store of the caller's. `read` gives what `write` got last. Both report their own failures: speeds that are
    /// lost are measured again.
    pub fn new(
        read: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static,
        write: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { read: Box::new(read), write: Box::new(write) }
    }

    /// A store that forgets: every start measures.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|| None, |_| ())
    }

    pub(crate) fn load(&self) -> Speeds {
        let Some(text) = (self.read)() else { return Speeds::default() };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, "remembered speeds cannot be read; measuring again");
            Speeds::default()
        })
    }

    pub(crate) fn save(&self, speeds: &Speeds) {
        match serde_json::to_vec_pretty(speeds) {
            Ok(text) => (self.write)(&text),
            Err(error) => tracing::warn!(%error, "measured speeds cannot be remembered"),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
