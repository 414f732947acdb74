//! An in-memory [`Volume`].

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use crate::log::{Volume, VolumeFile};

/// In-memory files on a disk that may become full and have failing syncs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    state: Arc<Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    files: BTreeMap<String, Vec<u8>>,
    /// Free space in bytes; `None` is unlimited.
    room: Option<usize>,
    syncs_fail: bool,
    cuts_fail: bool,
    copies_on_write: bool,
    syncs: usize,
}

#[derive(Debug)]
pub(crate) struct MemoryFile {
    memory: Memory,
    name: String,
}

impl Memory {
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.state.lock().unwrap().files.clone()
    }

    pub(crate) fn with(files: BTreeMap<String, Vec<u8>>) -> Self {
        let memory = Self::default();
        memory.state.lock().unwrap().files = files;
        memory
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.state.lock().unwrap().syncs_fail = fail;
    }

    pub(crate) fn fail_cuts(&self, fail: bool) {
        self.state.lock().unwrap().cuts_fail = fail;
    }

    /// Makes a rewrite in place need space, too.
    pub(crate) fn copy_on_write(&self) {
        self.state.lock().unwrap().copies_on_write = true;
    }

    /// Returns the number of file syncs so far.
    pub(crate) fn syncs(&self) -> usize {
        self.state.lock().unwrap().syncs
    }

    pub(crate) fn set_room(&self, room: Option<usize>) {
        self.state.lock().unwrap().room = room;
    }
}

impl Volume for Memory {
    type File = MemoryFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().into_keys().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files().remove(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        self.state.lock().unwrap().files.insert(name.to_owned(), Vec::new());
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        Ok(MemoryFile { memory: self.clone(), name: name.to_owned() })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let files = &mut self.state.lock().unwrap().files;
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state.lock().unwrap().files.remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn rewrite(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.state.lock().unwrap();
        if state.copies_on_write && state.room.is_some_and(|room| room < bytes.len()) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = state.files.get_mut(name).unwrap();
        assert!(file.starts_with(bytes), "a rewrite changes no byte");
        file.truncate(bytes.len());
        Ok(())
    }
}

impl VolumeFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.memory.state.lock().unwrap();
        // A disk without enough space writes the first part of the data.
        let fits = state.room.unwrap_or(usize::MAX).min(bytes.len());
        state.files.get_mut(&self.name).unwrap().extend_from_slice(&bytes[..fits]);
        state.room = state.room.map(|room| room - fits);
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.memory.state.lock().unwrap();
        state.syncs += 1;
        if state.syncs_fail { Err(io::Error::other("sync failed")) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.memory.state.lock().unwrap();
        if state.cuts_fail {
            return Err(io::Error::other("cut failed"));
        }
        state.files.get_mut(&self.name).unwrap().truncate(length as usize);
        Ok(())
    }
}
