//! Simulates a disk in memory, with injected faults, that keeps only synced data at a power loss.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Volume, VolumeFile};

/// Files with unsynced bytes that [`PowerDisk::lose_power`] may lose, tear or garble; each unsynced change of a name
/// may be lost independently. Clones share the disk.
#[derive(Debug, Clone)]
pub struct PowerDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    faults: Faults,
    rng: ChaCha8Rng,
    handles_valid_from: u64,
    failures: u64,
}

/// The probabilities, limits and bursts of injected faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Free space in bytes; `None` is unlimited.
    pub room: Option<usize>,
    /// Probability that a sync fails.
    pub sync: f64,
    /// Probability that a truncation or a removal fails.
    pub cut: f64,
    /// Probability that any operation fails (EIO); a failing append then writes a part of the bytes.
    pub io: f64,
    /// Number of operations before every later operation fails without effect, as after the death of the process;
    /// `None` is unlimited.
    pub operations_left: Option<u32>,
    /// A coming burst of failures.
    pub burst: Burst,
}

/// A countdown: after `after` successes, `count` operations fail; a count of 0 disables it. A failing operation may
/// take partial effect: a file is created, a truncation is not synced.
#[derive(Debug, Clone, Copy, Default)]
pub struct Burst {
    /// Number of operations that succeed first.
    pub after: u32,
    /// Number of operations that fail.
    pub count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Safety {
    Durable,
    Written,
    /// A sync failed: the page is marked as clean, so that every process can read it and no later sync writes it.
    Lost,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    content: Vec<u8>,
    safety: Vec<Safety>,
    /// The content before an unsynced truncation, which a power loss may bring back.
    before_truncation: Option<(Vec<u8>, Vec<Safety>)>,
}

/// An open file of a [`PowerDisk`].
#[derive(Debug)]
pub struct PowerFile {
    disk: PowerDisk,
    inode: usize,
    /// The number of the process start that opened the file.
    opened_at: u64,
}

impl PowerDisk {
    /// Creates an empty disk without faults; `seed` determines later faults.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            faults: Faults::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            handles_valid_from: 0,
            failures: 0,
        })))
    }

    /// Creates a disk with `files`, all durable.
    pub fn with(seed: u64, files: BTreeMap<String, Vec<u8>>) -> Self {
        let disk = Self::new(seed);
        let state = &mut *disk.state();
        for (number, (name, content)) in files.into_iter().enumerate() {
            let safety = vec![Safety::Durable; content.len()];
            state.inodes.push(Inode { content, safety, before_truncation: None });
            state.names.insert(name, number);
        }
        state.durable_names.clone_from(&state.names);
        disk.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Sets the faults for all later operations.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Makes `seed` determine all later faults, independent of earlier operations.
    pub fn reseed(&self, seed: u64) {
        self.state().rng = ChaCha8Rng::seed_from_u64(seed);
    }

    /// Returns the number of failed operations so far.
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Returns the content of all files, as seen by a process.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state.names.iter().map(|(name, &inode)| (name.clone(), state.inodes[inode].content.clone())).collect()
    }

    /// Flips bits in one byte of a file, which no later operation notices; returns false if there is no such byte.
    pub fn rot(&self, name: &str, offset: usize, bits: u8) -> bool {
        let state = &mut *self.state();
        let Some(&inode) = state.names.get(name) else { return false };
        let Some(byte) = state.inodes[inode].content.get_mut(offset) else { return false };
        *byte ^= bits;
        true
    }

    /// Simulates the exit of the process: written bytes can be read, unsynced bytes are as unsafe as before, and open
    /// files become invalid.
    pub fn end_process(&self) {
        self.state().handles_valid_from += 1;
    }

    /// Simulates a power loss and a restart of the machine.
    pub fn lose_power(&self) {
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

impl State {
    /// Counts an operation; returns the error if a burst makes the operation fail.
    fn burst(&mut self) -> Option<io::Error> {
        let Burst { after, count } = &mut self.faults.burst;
        if *count == 0 {
            return None;
        }
        if *after > 0 {
            *after -= 1;
            return None;
        }
        *count -= 1;
        self.failures += 1;
        let is_full = self.rng.random();
        Some(if is_full { io::ErrorKind::StorageFull.into() } else { io::Error::other("input/output error") })
    }

    /// Returns the error of a burst as a result.
    fn fails_in_burst(&mut self) -> io::Result<()> {
        self.burst().map_or(Ok(()), Err)
    }

    /// Fails with this probability, and always after the last permitted operation.
    fn may_fail(&mut self, probability: f64, what: &str) -> io::Result<()> {
        let is_dead = self.faults.operations_left == Some(0);
        self.faults.operations_left = self.faults.operations_left.map(|left| left.saturating_sub(1));
        if is_dead || probability > 0.0 && self.rng.random_bool(probability.min(1.0)) {
            self.failures += 1;
            return Err(io::Error::other(format!("{what} failed")));
        }
        Ok(())
    }

    fn full(&mut self) -> io::Error {
        self.failures += 1;
        io::ErrorKind::StorageFull.into()
    }
}

impl Inode {
    fn lose_power(&mut self, rng: &mut impl Rng) {
        if let Some((content, safety)) = self.before_truncation.take()
            && rng.random()
        {
            // Bytes appended after the truncation overwrite the old bytes.
            let kept = self.content.len().min(content.len());
            self.content.extend_from_slice(&content[kept..]);
            self.safety.extend_from_slice(&safety[kept..]);
        }
        let durable = self.safety.iter().rposition(|&safety| safety == Safety::Durable).map_or(0, |last| last + 1);
        // The file may end anywhere in the unsynced part, including the previous end.
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

    fn sync(&mut self, becomes: Safety) {
        let written = self.safety.iter_mut().filter(|safety| **safety == Safety::Written);
        written.for_each(|safety| *safety = becomes);
        if becomes == Safety::Durable {
            self.before_truncation = None;
        }
    }
}

impl Volume for PowerDisk {
    type File = PowerFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let state = &mut *self.state();
        state.fails_in_burst()?;
        state.may_fail(state.faults.io, "list")?;
        Ok(state.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = &mut *self.state();
        state.fails_in_burst()?;
        state.may_fail(state.faults.io, "read")?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.inodes[inode].content.clone())
    }

    fn create(&self, name: &str) -> io::Result<PowerFile> {
        let state = &mut *self.state();
        let burst = state.burst();
        match burst {
            // A failing creation leaves an empty file, or none.
            Some(error) if state.rng.random() => return Err(error),
            Some(_) => {}
            None => state.may_fail(state.faults.io, "create")?,
        }
        if state.faults.room == Some(0) {
            return Err(state.full());
        }
        // As with `O_CREAT` and a truncation, an existing file keeps the inode.
        let new = state.inodes.len();
        let inode = *state.names.entry(name.to_owned()).or_insert(new);
        if inode == new {
            state.inodes.push(Inode::default());
        }
        state.inodes[inode] = Inode::default();
        burst.map_or_else(|| Ok(PowerFile { disk: self.clone(), inode, opened_at: state.handles_valid_from }), Err)
    }

    fn open(&self, name: &str) -> io::Result<PowerFile> {
        let state = &mut *self.state();
        state.fails_in_burst()?;
        state.may_fail(state.faults.io, "open")?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(PowerFile { disk: self.clone(), inode, opened_at: state.handles_valid_from })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let state = &mut *self.state();
        let burst = state.burst();
        match burst {
            // A failing rename may take effect.
            Some(error) if state.rng.random() => return Err(error),
            Some(_) => {}
            None => state.may_fail(state.faults.io, "rename")?,
        }
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        burst.map_or(Ok(()), Err)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.state();
        state.fails_in_burst()?;
        state.may_fail(state.faults.cut.max(state.faults.io), "remove")?;
        state.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.state();
        state.fails_in_burst()?;
        state.may_fail(state.faults.sync.max(state.faults.io), "sync of the folder")?;
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn rewrite(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open(name)?;
        // The same bytes replace those on the disk, which no power loss garbles.
        for safety in file.inode(&mut self.state()).safety.iter_mut().take(bytes.len()) {
            if *safety == Safety::Lost {
                *safety = Safety::Written;
            }
        }
        file.truncate(bytes.len() as u64)
    }
}

impl PowerFile {
    /// Returns the inode of the file; panics if an earlier process opened the file.
    fn inode<'a>(&self, state: &'a mut State) -> &'a mut Inode {
        assert_eq!(self.opened_at, state.handles_valid_from, "a file outlived its process");
        &mut state.inodes[self.inode]
    }
}

impl VolumeFile for PowerFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let error = state.fails_in_burst().and_then(|()| state.may_fail(state.faults.io, "append")).err();
        let taken = if error.is_some() { state.rng.random_range(0..=bytes.len()) } else { bytes.len() };
        // A disk without enough space writes the first part of the data.
        let fits = state.faults.room.unwrap_or(usize::MAX).min(taken);
        state.faults.room = state.faults.room.map(|room| room - fits);
        let inode = self.inode(state);
        inode.content.extend_from_slice(&bytes[..fits]);
        inode.safety.resize(inode.content.len(), Safety::Written);
        match error {
            Some(error) => Err(error),
            None if fits < bytes.len() => Err(state.full()),
            None => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let synced =
            state.fails_in_burst().and_then(|()| state.may_fail(state.faults.sync.max(state.faults.io), "sync"));
        self.inode(state).sync(if synced.is_err() { Safety::Lost } else { Safety::Durable });
        synced
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let burst = state.burst();
        match burst {
            Some(error) if state.rng.random() => return Err(error),
            Some(_) => {}
            None => state.may_fail(state.faults.cut.max(state.faults.io), "cut")?,
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let inode = self.inode(state);
        if burst.is_some() {
            inode.before_truncation.get_or_insert_with(|| (inode.content.clone(), inode.safety.clone()));
        }
        inode.content.truncate(length);
        inode.safety.truncate(length);
        // As on a real disk, this truncates and syncs.
        inode.sync(if burst.is_some() { Safety::Lost } else { Safety::Durable });
        burst.map_or(Ok(()), Err)
    }
}
