//! What an actor remembers over restarts, in a folder of its own below the run directory.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::spool::{self, Owed};
use anyhow::Context as _;

#[cfg(test)]
mod tests;

/// `DIRECTORY/actors/ID`: the epoch and the spool. One process at a time has it.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    directory: PathBuf,
    _lock: Arc<File>,
}

impl Home {
    pub(crate) fn open(run: &Path, actor: u64) -> anyhow::Result<Self> {
        let directory = run.join("actors").join(actor.to_string());
        service::directory::writable(&directory)?;
        // Two actors with one id would give one id to two trajectories, and one of them would be lost.
        let lock = service::directory::lock(&directory)?;
        Ok(Self { directory, _lock: Arc::new(lock) })
    }

    /// A number above every epoch this actor has had; remembered before it is used.
    pub(crate) fn next_epoch(&self) -> anyhow::Result<u64> {
        let path = self.directory.join("epoch");
        let epoch = match fs::read(&path) {
            Ok(text) => after(&text).unwrap_or_else(|| {
                // Milliseconds since 1970 are above any count of starts.
                let epoch = milliseconds_since_1970();
                tracing::warn!(path = %path.display(), epoch, "the last epoch cannot be read, taking the time");
                epoch
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 1,
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        replace(&path, epoch.to_string().as_bytes()).with_context(|| format!("write {}", path.display()))?;
        Ok(epoch)
    }

    fn spool_path(&self) -> PathBuf {
        self.directory.join("unacknowledged.jsonl")
    }

    /// What earlier epochs finished and were never told to be safe.
    pub(crate) fn read_spool(&self) -> anyhow::Result<Vec<Owed>> {
        let path = self.spool_path();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let (owed, faults) = spool::decode(&text);
        for (line, fault) in faults {
            tracing::warn!(path = %path.display(), line, fault, "a spooled trajectory cannot be read and is left out");
        }
        Ok(owed)
    }

    /// Keeps these, and only these, for the next start.
    pub(crate) fn write_spool(&self, owed: &[Owed]) -> anyhow::Result<()> {
        let path = self.spool_path();
        let written = match owed {
            [] => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            some => replace(&path, spool::encode(some).as_bytes()),
        };
        written.with_context(|| format!("write {}", path.display()))
    }
}

/// The number after the one that `text` says.
fn after(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse::<u64>().ok()?.checked_add(1)
}

/// Puts a file in place whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    // The rename itself is durable once its directory is.
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn milliseconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
