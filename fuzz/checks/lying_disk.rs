//! A simulated disk that loses what was not synced, and fails after a countdown.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use replay_server::log::{Volume, VolumeFile};

/// A countdown to I/O errors: `count` operations fail after `after` others; none with a count of 0.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) after: u32,
    pub(crate) count: u32,
}

/// A simulated disk that keeps only synced data at a power loss, and any part of the rest.
#[derive(Debug, Clone)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    faults: Faults,
    random: Random,
    process: u64,
}

/// The fate of a byte at a power loss.
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
    /// The content before a truncation that was not synced, which a power loss may bring back.
    before_truncation: Option<(Vec<u8>, Vec<Safety>)>,
}

#[derive(Debug)]
pub(crate) struct DiskFile {
    disk: Disk,
    inode: usize,
    process: u64,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            faults: Faults::default(),
            random: Random::new(seed + 1),
            process: 0,
        })))
    }

    /// Sets the countdown.
    pub(crate) fn fail(&self, faults: Faults) {
        self.state().faults = faults;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder of the lock panics")
    }

    /// Keeps everything that was written. Pages that a sync could not write are written by a later one, which is more
    /// lenient than some disks.
    pub(crate) fn end_process(&self) {
        let state = &mut *self.state();
        state.process += 1;
        let lost = state.inodes.iter_mut().flat_map(|inode| &mut inode.safety);
        lost.filter(|safety| **safety == Safety::Lost).for_each(|safety| *safety = Safety::Written);
    }

    /// Keeps what was synced, and any part of the rest.
    pub(crate) fn lose_power(&self) {
        let state = &mut *self.state();
        state.process += 1;
        let all: BTreeSet<String> = state.names.keys().chain(state.durable_names.keys()).cloned().collect();
        for name in all {
            let is_kept = state.random.coin();
            let kept = if is_kept { state.names.get(&name) } else { state.durable_names.get(&name) }.copied();
            match kept {
                Some(inode) => drop(state.names.insert(name, inode)),
                None => drop(state.names.remove(&name)),
            }
        }
        state.durable_names = state.names.clone();
        for inode in &mut state.inodes {
            inode.lose_power(&mut state.random);
        }
    }
}

impl State {
    /// Counts one operation; true if it fails.
    fn fails(&mut self) -> bool {
        let Faults { after, count } = &mut self.faults;
        if *count == 0 {
            return false;
        }
        if *after > 0 {
            *after -= 1;
            return false;
        }
        *count -= 1;
        true
    }

    fn failure(&mut self) -> io::Error {
        if self.random.coin() { io::ErrorKind::StorageFull.into() } else { io::Error::other("input/output error") }
    }

    /// Runs the check that stands before every operation.
    fn operation(&mut self) -> io::Result<()> {
        if self.fails() { Err(self.failure()) } else { Ok(()) }
    }
}

impl Inode {
    fn lose_power(&mut self, random: &mut Random) {
        if let Some((content, safety)) = self.before_truncation.take()
            && random.coin()
        {
            // What was appended after the truncation lies over the old bytes.
            let kept = self.content.len().min(content.len());
            self.content.extend_from_slice(&content[kept..]);
            self.safety.extend_from_slice(&safety[kept..]);
        }
        let durable = self.safety.iter().rposition(|safety| *safety == Safety::Durable).map_or(0, |last| last + 1);
        let end = match random.below(3) {
            0 => durable,
            1 => self.content.len(),
            _ => durable + random.below(self.content.len() - durable + 1),
        };
        self.content.truncate(end);
        self.safety.truncate(end);
        let mut at = 0;
        while at < end {
            let run = (1 + random.below(200)).min(end - at);
            let fate = random.below(4);
            for (byte, safety) in self.content[at..at + run].iter_mut().zip(&self.safety[at..at + run]) {
                match (safety, fate) {
                    (Safety::Durable, _) | (_, 0 | 1) => {}
                    (_, 2) => *byte = 0,
                    _ => *byte = random.next() as u8,
                }
            }
            at += run;
        }
        self.safety.fill(Safety::Durable);
    }

    fn sync(&mut self, becomes: Safety) {
        self.safety.iter_mut().filter(|safety| **safety == Safety::Written).for_each(|safety| *safety = becomes);
        if becomes == Safety::Durable {
            self.before_truncation = None;
        }
    }
}

impl Volume for Disk {
    type File = DiskFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.operation()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.operation()?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.inodes[inode].content.clone())
    }

    fn create(&self, name: &str) -> io::Result<DiskFile> {
        let state = &mut *self.state();
        let fails = state.fails();
        // A failed creation leaves an empty file, or none.
        if !fails || state.random.coin() {
            let new = state.inodes.len();
            let inode = *state.names.entry(name.to_owned()).or_insert(new);
            if inode == new {
                state.inodes.push(Inode::default());
            }
            state.inodes[inode] = Inode::default();
        }
        if fails {
            return Err(state.failure());
        }
        Ok(DiskFile { disk: self.clone(), inode: state.names[name], process: state.process })
    }

    fn open(&self, name: &str) -> io::Result<DiskFile> {
        let mut state = self.state();
        state.operation()?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(DiskFile { disk: self.clone(), inode, process: state.process })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operation()?;
        state.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.state();
        state.operation()?;
        state.durable_names = state.names.clone();
        Ok(())
    }
}

impl DiskFile {
    /// Returns the state; the file belongs to the running process.
    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.disk.state();
        assert_eq!(self.process, state.process, "a file outlived its process");
        state
    }
}

impl VolumeFile for DiskFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.state();
        let fails = state.fails();
        let written = if fails { state.random.below(bytes.len() + 1) } else { bytes.len() };
        let inode = &mut state.inodes[self.inode];
        inode.content.extend_from_slice(&bytes[..written]);
        inode.safety.resize(inode.content.len(), Safety::Written);
        if fails { Err(state.failure()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.state();
        let fails = state.fails();
        state.inodes[self.inode].sync(if fails { Safety::Lost } else { Safety::Durable });
        if fails { Err(state.failure()) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let state = &mut *self.state();
        let fails = state.fails();
        // A failed truncation changes nothing, or is not synced.
        if fails && state.random.coin() {
            return Err(state.failure());
        }
        let length = usize::try_from(length).expect("a simulated file is small");
        let inode = &mut state.inodes[self.inode];
        if fails {
            inode.before_truncation.get_or_insert_with(|| (inode.content.clone(), inode.safety.clone()));
        }
        inode.content.truncate(length);
        inode.safety.truncate(length);
        inode.sync(if fails { Safety::Lost } else { Safety::Durable });
        if fails { Err(state.failure()) } else { Ok(()) }
    }
}

/// A pseudo-random generator (xorshift64*), so that an input alone decides everything.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next()).unwrap_or(0) % bound.max(1)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}
