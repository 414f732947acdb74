//! Passes and restores that stop at any step, polled without a runtime.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt as _;

use super::*;

/// A store and a directory in memory that fail from a given step on.
#[derive(Debug, Default, Clone)]
struct Memory {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    failing: Arc<Mutex<Failing>>,
}

/// Number of steps before the failure, and true in `takes_effect` if the failing step takes effect.
#[derive(Debug, Default, Clone, Copy)]
struct Failing {
    after: Option<usize>,
    takes_effect: bool,
}

impl Memory {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.files.lock().unwrap()
    }

    fn write(&self, number: u64, content: &str) {
        self.files().insert(SegmentNumber(number).file_name(), content.into());
    }

    fn segments(&self) -> BTreeMap<SegmentNumber, Vec<u8>> {
        let files = self.files();
        files
            .iter()
            .filter_map(|(name, content)| Some((SegmentNumber::from_file_name(name)?, content.clone())))
            .collect()
    }

    /// Runs one step, which may fail.
    fn step<T>(&self, run: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T) -> io::Result<T> {
        let mut failing = self.failing.lock().unwrap();
        let Failing { after, takes_effect } = *failing;
        let fails = after == Some(0);
        failing.after = after.map(|after| after.saturating_sub(1));
        // Only the first failing step takes effect.
        failing.takes_effect &= !fails;
        if fails && !takes_effect {
            return Err(io::Error::other("interrupted"));
        }
        let ran = run(&mut self.files());
        if fails { Err(io::Error::other("interrupted")) } else { Ok(ran) }
    }
}

impl Store for Memory {
    async fn list(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let sizes = |files: &mut BTreeMap<String, Vec<u8>>| {
            files.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect()
        };
        Ok(self.step(sizes)?)
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.step(|files| files.get(name).cloned())?)
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<(), StoreError> {
        Ok(self.step(|files| drop(files.insert(name.to_owned(), content)))?)
    }

    async fn create(&self, name: &str, content: Vec<u8>) -> Result<bool, StoreError> {
        let created = |files: &mut BTreeMap<String, Vec<u8>>| {
            let is_new = !files.contains_key(name);
            files.entry(name.to_owned()).or_insert(content);
            is_new
        };
        Ok(self.step(created)?)
    }

    async fn remove(&self, name: &str) -> Result<(), StoreError> {
        Ok(self.step(|files| drop(files.remove(name)))?)
    }
}

impl Folder for Memory {
    async fn segments(&self) -> io::Result<BTreeMap<SegmentNumber, u64>> {
        self.step(|_| ())?;
        Ok(Memory::segments(self).into_iter().map(|(number, content)| (number, content.len() as u64)).collect())
    }

    async fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.step(|files| files.get(name).cloned())
    }

    async fn place(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.step(|files| drop(files.insert(name.to_owned(), content.to_owned())))
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.step(|files| drop(files.remove(name)))
    }
}

/// A log with an archive, and a common count of steps.
#[derive(Debug, Default)]
struct Pair {
    store: Memory,
    folder: Memory,
}

impl Pair {
    fn new() -> Self {
        let failing = Arc::<Mutex<Failing>>::default();
        let memory = || Memory { files: Arc::default(), failing: Arc::clone(&failing) };
        Self { store: memory(), folder: memory() }
    }

    fn archive(&self) -> Archive<Memory, Memory> {
        Archive::of(self.store.clone(), self.folder.clone(), 1, Planted::default())
    }

    fn fail(&self, failing: Failing) {
        *self.store.failing.lock().unwrap() = failing;
    }

    /// Runs one pass in a new process.
    fn pass(&self) -> Result<Pass, ArchiveError> {
        self.archive().keep_up().now_or_never().expect("nothing waits")
    }

    fn restore(&self) -> Result<usize, ArchiveError> {
        self.archive().restore().now_or_never().expect("nothing waits")
    }

    /// Returns an empty directory with a copy of this archive.
    fn replaced(&self) -> Self {
        let store = Memory { failing: Arc::default(), files: Arc::new(Mutex::new(self.store.files().clone())) };
        let folder = Memory { failing: Arc::clone(&store.failing), files: Arc::default() };
        Self { store, folder }
    }
}

/// Returns every failing step of a run, before and after the step takes effect.
fn failures() -> impl Iterator<Item = Failing> {
    (0..).flat_map(|after| [false, true].map(|takes_effect| Failing { after: Some(after), takes_effect }))
}

#[test]
fn a_pass_that_ends_anywhere_leaves_copies_without_a_gap_and_the_next_one_completes_them() {
    let mut interrupted = 0;
    for failing in failures() {
        let pair = Pair::new();
        (1..4).for_each(|number| pair.folder.write(number, "text"));
        pair.pass().unwrap();
        pair.folder.files().remove(&SegmentNumber(1).file_name());
        pair.folder.write(3, "text and more");
        (4..6).for_each(|number| pair.folder.write(number, "later"));
        pair.fail(failing);
        let passed = pair.pass();
        pair.fail(Failing::default());

        let lost = pair.replaced();
        lost.restore().unwrap();
        let numbers: Vec<u64> = lost.folder.segments().keys().map(|number| number.0).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{failing:?}: {numbers:?}");
        assert!(numbers.contains(&2) && numbers.contains(&3), "{failing:?}: {numbers:?}");

        pair.pass().unwrap();
        assert_eq!(pair.store.segments(), pair.folder.segments(), "{failing:?}");
        if passed.is_ok() {
            break;
        }
        interrupted += 1;
    }
    assert!(interrupted > 20, "{interrupted}");
}

#[test]
fn a_restore_that_ends_anywhere_is_no_log_and_the_next_one_completes_it() {
    let source = Pair::new();
    (1..4).for_each(|number| source.folder.write(number, "text"));
    source.pass().unwrap();
    let mut interrupted = 0;
    for failing in failures() {
        let pair = source.replaced();
        pair.fail(failing);
        let restored = pair.restore();
        pair.fail(Failing::default());
        let has_log = pair.archive().has_log().now_or_never().expect("nothing waits").unwrap();
        assert!(!has_log || pair.folder.segments() == source.folder.segments(), "{failing:?}");
        if restored.is_ok() {
            break;
        }
        pair.restore().unwrap();
        assert_eq!(pair.folder.segments(), source.folder.segments(), "{failing:?}");
        interrupted += 1;
    }
    assert!(interrupted > 10, "{interrupted}");
}
