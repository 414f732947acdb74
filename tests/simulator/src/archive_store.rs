//! The object store of the first server's archive: in memory, independent of the disks, and failing from a given step
//! on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use replay_server::archive::{Store, StoreError};
use replay_server::log::SegmentNumber;

/// Objects of an archive. Clones share the same store.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArchiveStore(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    failing: Failing,
}

/// Failing steps of a store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Failing {
    /// Number of steps that succeed before all further steps fail; `None` if no step fails.
    pub(crate) after: Option<u32>,
    /// Effect of the first failing step.
    pub(crate) effect: Effect,
}

/// Effect of a failing step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Effect {
    /// The request did not arrive.
    #[default]
    None,
    /// The response did not arrive.
    Full,
}

impl ArchiveStore {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no step panics")
    }

    pub(crate) fn set_failing(&self, failing: Failing) {
        self.state().failing = failing;
    }

    /// Returns all objects.
    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.state().objects.clone()
    }

    /// Returns true if a segment was copied to this store.
    pub(crate) fn has_segments(&self) -> bool {
        self.state().objects.keys().any(|name| SegmentNumber::from_file_name(name).is_some())
    }

    fn step<T>(&self, run: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T) -> Result<T, StoreError> {
        let State { objects, failing } = &mut *self.state();
        let fails = failing.after == Some(0);
        failing.after = failing.after.map(|after| after.saturating_sub(1));
        if !fails {
            return Ok(run(objects));
        }
        if std::mem::take(&mut failing.effect) == Effect::Full {
            run(objects);
        }
        Err("the store does not answer".into())
    }
}

impl Store for ArchiveStore {
    async fn list(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.step(|objects| objects.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect())
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.step(|objects| objects.get(name).cloned())
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<(), StoreError> {
        self.step(|objects| drop(objects.insert(name.to_owned(), content)))
    }

    async fn create(&self, name: &str, content: Vec<u8>) -> Result<bool, StoreError> {
        self.step(|objects| {
            let is_new = !objects.contains_key(name);
            objects.entry(name.to_owned()).or_insert(content);
            is_new
        })
    }

    async fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.step(|objects| drop(objects.remove(name)))
    }
}
