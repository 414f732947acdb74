//! A simulated disk that keeps only synced data at a power loss.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::log::{Volume, VolumeFile};

/// Files whose unsynced bytes may be lost, torn or garbage after [`PowerDisk::lose_power`]; each unsynced change of a
/// name may be lost independently.
#[derive(Debug, Clone)]
pub(crate) struct PowerDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    faults: Faults,
    rng: ChaCha8Rng,
    handles_valid_from: u64,
}

/// The faults of the disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// The free space in bytes; `None` for unlimited.
    pub(crate) room: Option<usize>,
    /// The probability that a sync fails.
    pub(crate) sync: f64,
    /// The probability that a truncation or removal fails.
    pub(crate) cut: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Safety {
    Durable,
    Written,
    /// A sync failed: the page is marked as clean, and no later sync of this process writes it.
    Lost,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    content: Vec<u8>,
    safety: Vec<Safety>,
}

#[derive(Debug)]
pub(crate) struct PowerFile {
    disk: PowerDisk,
    inode: usize,
    /// The number of the process's start at which the file was opened.
    opened_at: u64,
}

impl PowerDisk {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            faults: Faults::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            handles_valid_from: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Simulates the end of the process: its written data is kept, its open files become invalid.
    pub(crate) fn end_process(&self) {
        let state = &mut *self.state();
        state.handles_valid_from += 1;
        // More lenient than some disks: pages that could not be written are retried.
        let lost =
            state.inodes.iter_mut().flat_map(|inode| &mut inode.safety).filter(|safety| **safety == Safety::Lost);
        lost.for_each(|safety| *safety = Safety::Written);
    }

    /// Simulates a power loss and a restart of the machine.
    pub(crate) fn lose_power(&self) {
        self.end_process();
        let state = &mut *self.state();
        let all: Vec<String> = state.names.keys().chain(state.durable_names.keys()).cloned().collect();
        for name in all {
            let (now, then) = (state.names.get(&name).copied(), state.durable_names.get(&name).copied());
            let kept = if state.rng.random() { now } else { then };
            match kept {
                Some(inode) => drop(state.names.insert(name, inode)),
                None => drop(state.names.remove(&name)),
            }
        }
        state.durable_names = state.names.clone();
        for inode in &mut state.inodes {
            inode.lose_power(&mut state.rng);
        }
    }
}

impl Inode {
    fn lose_power(&mut self, rng: &mut impl Rng) {
        let durable = self.safety.iter().rposition(|&safety| safety == Safety::Durable).map_or(0, |last| last + 1);
        // The file may end anywhere in its unsynced part, including its previous end.
        let end = match rng.random_range(0..3) {
            0 => durable,
            1 => self.content.len(),
            _ => rng.random_range(durable..=self.content.len()),
        };
        self.content.truncate(end);
        self.safety.truncate(end);
        let mut at = 0;
        while at < end {
            let run = rng.random_range(1..=400_usize).min(end - at);
            let fate = rng.random_range(0..4);
            for (byte, safety) in self.content[at..at + run].iter_mut().zip(&self.safety[at..at + run]) {
                match (safety, fate) {
                    (Safety::Durable, _) | (_, 0 | 1) => {}
                    (_, 2) => *byte = 0,
                    _ => *byte = rng.random(),
                }
            }
            at += run;
        }
        self.safety.fill(Safety::Durable);
    }
}

impl Volume for PowerDisk {
    type File = PowerFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.state();
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.inodes[inode].content.clone())
    }

    fn create(&self, name: &str) -> io::Result<PowerFile> {
        let state = &mut *self.state();
        if state.faults.room == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // As with `O_CREAT` and a truncation, an existing file keeps its inode.
        let new = state.inodes.len();
        let inode = *state.names.entry(name.to_owned()).or_insert(new);
        if inode == new {
            state.inodes.push(Inode::default());
        }
        state.inodes[inode] = Inode::default();
        Ok(PowerFile { disk: self.clone(), inode, opened_at: state.handles_valid_from })
    }

    fn open(&self, name: &str) -> io::Result<PowerFile> {
        let state = self.state();
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(PowerFile { disk: self.clone(), inode, opened_at: state.handles_valid_from })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.state();
        if state.rng.random_bool(state.faults.cut) {
            return Err(io::Error::other("remove failed"));
        }
        state.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.state();
        if state.rng.random_bool(state.faults.sync) {
            return Err(io::Error::other("sync of the folder failed"));
        }
        state.durable_names = state.names.clone();
        Ok(())
    }
}

impl PowerFile {
    /// Returns the file; panics if an earlier process opened it.
    fn inode<'a>(&self, state: &'a mut State) -> &'a mut Inode {
        assert_eq!(self.opened_at, state.handles_valid_from, "a file outlived its process");
        &mut state.inodes[self.inode]
    }
}

impl VolumeFile for PowerFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.state();
        // A disk that runs full writes the first part of the data.
        let fits = state.faults.room.unwrap_or(usize::MAX).min(bytes.len());
        state.faults.room = state.faults.room.map(|room| room - fits);
        let inode = self.inode(state);
        inode.content.extend_from_slice(&bytes[..fits]);
        inode.safety.resize(inode.content.len(), Safety::Written);
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let fails = state.rng.random_bool(state.faults.sync);
        let becomes = if fails { Safety::Lost } else { Safety::Durable };
        let written = self.inode(state).safety.iter_mut().filter(|safety| **safety == Safety::Written);
        written.for_each(|safety| *safety = becomes);
        if fails { Err(io::Error::other("sync failed")) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let state = &mut *self.disk.state();
        if state.rng.random_bool(state.faults.cut) {
            return Err(io::Error::other("cut failed"));
        }
        let inode = self.inode(state);
        inode.content.truncate(length as usize);
        inode.safety.truncate(length as usize);
        // As on a real disk, this truncates and syncs.
        self.inode(state)
            .safety
            .iter_mut()
            .filter(|safety| **safety == Safety::Written)
            .for_each(|safety| *safety = Safety::Durable);
        Ok(())
    }
}
