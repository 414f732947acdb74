//! Stores the state that an actor keeps across restarts, in a subdirectory of the run directory for each actor.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::spool::{self, PendingUpload};
use anyhow::Context as _;
use proto::replay::next_epoch;
use service::directory::{DirectoryError, if_exists, replace};

/// The directory `DIRECTORY/actors/ID`, with the epoch and the spool. Locked by one process at a time.
#[derive(Debug, Clone)]
pub(crate) struct ActorStateDir {
    directory: PathBuf,
    _lock: Arc<File>,
}

/// Number of bits in a random actor id, so that a 64-bit float represents the id exactly. Among a million actors, the
/// probability of two equal ids is one in ten thousand; within one run directory the lock prevents equal ids.
const DRAWN_ID_BITS: u32 = 53;
/// Maximum number of damaged spools to keep; the oldest are removed first.
const DAMAGED_MAX: usize = 4;
/// Maximum number of attempts to draw an unused id; the first attempt normally succeeds.
const DRAWS_MAX: usize = 16;

impl ActorStateDir {
    /// Opens the state directory with the smallest unlocked id in `run`, or creates a directory for a new actor;
    /// returns the id and the directory. The next new replica thus uploads the spool of a removed replica.
    pub(crate) fn claim(run: &Path) -> anyhow::Result<(u64, Self)> {
        for actor in ids(&run.join("actors"))? {
            if let Some(state_dir) = unless_taken(Self::open(run, actor))? {
                return Ok((actor, state_dir));
            }
        }
        for _ in 0..DRAWS_MAX {
            // `RandomState` is seeded with the system's entropy; ids need not be reproducible.
            let actor = RandomState::new().hash_one(std::process::id()) >> (u64::BITS - DRAWN_ID_BITS);
            if let Some(state_dir) = unless_taken(Self::open(run, actor))? {
                return Ok((actor, state_dir));
            }
        }
        anyhow::bail!("no unused actor id found in {}", run.display())
    }

    pub(crate) fn open(run: &Path, actor: u64) -> anyhow::Result<Self> {
        let directory = run.join("actors").join(actor.to_string());
        service::directory::writable(&directory)?;
        // Two actors with the same id would give the same id to two trajectories, and one trajectory would be lost.
        let lock = service::directory::lock(&directory)?;
        Ok(Self { directory, _lock: Arc::new(lock) })
    }

    /// Stores and returns an epoch above `highest` and above the epoch in the actor's file: see [`next_epoch`]. Without
    /// a file, the actor is new or the file was lost; epochs then start at the time in milliseconds since 1970, which
    /// is above the epochs of earlier starts.
    pub(crate) fn next_epoch(&self, highest: u64) -> anyhow::Result<u64> {
        let path = self.directory.join("epoch");
        let last = if_exists(fs::read(&path)).with_context(|| format!("read {}", path.display()))?;
        // An epoch without a successor counts as damage.
        let parse = |text: &[u8]| std::str::from_utf8(text).ok()?.trim().parse::<u64>().ok();
        let number = last.as_deref().and_then(parse).filter(|&number| number < u64::MAX);
        if last.is_some() && number.is_none() {
            tracing::warn!(path = %path.display(), "cannot read the last epoch; using the time as the next epoch");
        }
        // `RandomState` is seeded with the system's entropy; the cast keeps half of the bits.
        let gap = RandomState::new().hash_one(highest) as u32;
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let milliseconds = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        let epoch = next_epoch(number, highest, milliseconds, gap);
        let epoch = epoch.context("choose the next epoch: the highest possible epoch is in use")?;
        replace(&path, epoch.to_string().as_bytes())?;
        Ok(epoch)
    }

    fn spool_path(&self) -> PathBuf {
        self.directory.join("unacknowledged.spool")
    }

    /// Reads the unacknowledged trajectories of earlier epochs.
    pub(crate) fn read_spool(&self) -> anyhow::Result<Vec<PendingUpload>> {
        let path = self.spool_path();
        let text = if_exists(fs::read(&path)).with_context(|| format!("read {}", path.display()))?;
        let Some(text) = text else { return Ok(Vec::new()) };
        let (pending, faults) = spool::decode(&text);
        if !faults.is_empty() {
            // The next spool replaces this one.
            let kept = self.keep_damaged(&text)?;
            for (record, fault) in faults {
                let (path, kept) = (path.display(), kept.display());
                tracing::warn!(%path, %kept, record, fault, "cannot read a spooled trajectory; skipping it");
            }
        }
        Ok(pending)
    }

    /// Copies a damaged spool to a separate file, unless the latest copy already has the same bytes; returns the copy's
    /// path.
    fn keep_damaged(&self, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let list = || format!("list {}", self.directory.display());
        let entries = fs::read_dir(&self.directory).with_context(list)?.filter_map(Result::ok);
        let mut kept: Vec<u64> = entries.filter_map(|entry| damaged_number(entry.file_name().to_str()?)).collect();
        kept.sort_unstable();
        let path = |number| self.directory.join(damaged_name(number));
        let newest = kept.last().copied().unwrap_or(0);
        let last = if_exists(fs::read(path(newest))).with_context(|| format!("read {}", path(newest).display()))?;
        if last.is_some_and(|last| last == bytes) {
            return Ok(path(newest));
        }
        let new = path(newest.checked_add(1).context("number the damaged spool: no number is left")?);
        let excess = (kept.len() + 1).saturating_sub(DAMAGED_MAX);
        for &oldest in &kept[..excess] {
            if_exists(fs::remove_file(path(oldest))).with_context(|| format!("remove {}", path(oldest).display()))?;
        }
        replace(&new, bytes)?;
        Ok(new)
    }

    /// Replaces the contents of the spool; removes the file if there are no trajectories.
    pub(crate) fn write_spool(&self, pending: &[PendingUpload]) -> anyhow::Result<()> {
        let path = self.spool_path();
        if !pending.is_empty() {
            return Ok(replace(&path, &spool::encode(pending))?);
        }
        if_exists(fs::remove_file(&path)).with_context(|| format!("remove {}", path.display()))?;
        Ok(())
    }
}

fn damaged_name(number: u64) -> String {
    format!("damaged-{number:04}.spool")
}

/// Parses the name of a damaged spool.
fn damaged_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("damaged-")?.strip_suffix(".spool")?.parse().ok()?;
    (damaged_name(number) == name).then_some(number)
}

/// Returns the ids with a directory in `actors`, ascending.
fn ids(actors: &Path) -> anyhow::Result<Vec<u64>> {
    let entries = if_exists(fs::read_dir(actors)).with_context(|| format!("list {}", actors.display()))?;
    let names = entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<u64> = names.filter_map(|name| name.parse().ok()).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Returns `None` if another process has locked the directory.
fn unless_taken(state_dir: anyhow::Result<ActorStateDir>) -> anyhow::Result<Option<ActorStateDir>> {
    match state_dir {
        Ok(state_dir) => Ok(Some(state_dir)),
        Err(error) if matches!(error.downcast_ref(), Some(DirectoryError::InUse { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ActorStateDir {
        /// Returns the state directory of an actor, with first epoch 1.
        pub(crate) fn with_epochs_from_1(run: &Path, actor: u64) -> Self {
            let state_dir = Self::open(run, actor).unwrap();
            let path = state_dir.directory.join("epoch");
            if !path.exists() {
                fs::write(path, "0").unwrap();
            }
            state_dir
        }
    }

    #[test]
    fn epochs_grow_with_every_start() {
        let run = tempfile::tempdir().unwrap();
        let epochs = [0; 3].map(|_| ActorStateDir::with_epochs_from_1(run.path(), 7).next_epoch(0).unwrap());
        assert_eq!(epochs, [1, 2, 3]);
        assert_eq!(
            ActorStateDir::with_epochs_from_1(run.path(), 8).next_epoch(0).unwrap(),
            1,
            "actors do not share them"
        );
    }

    #[test]
    fn an_actor_without_an_epoch_begins_above_those_of_the_file_that_it_may_have_lost() {
        let run = tempfile::tempdir().unwrap();
        let state_dir = ActorStateDir::open(run.path(), 7).unwrap();
        let lost = state_dir.next_epoch(0).unwrap();
        assert!(lost > 1_000_000_000_000);
        fs::remove_file(state_dir.directory.join("epoch")).unwrap();
        assert!(state_dir.next_epoch(lost).unwrap() > lost, "within the same millisecond, too");
    }

    #[test]
    fn an_epoch_is_above_the_highest_that_a_server_has_stored_and_so_are_the_next() {
        let run = tempfile::tempdir().unwrap();
        let state_dir = ActorStateDir::with_epochs_from_1(run.path(), 7);
        let [first, above, next] = [0, 40, 3].map(|highest| state_dir.next_epoch(highest).unwrap());
        assert_eq!((first, above > 40, next), (1, true, above + 1));
        assert!(state_dir.next_epoch(u64::MAX).is_err());
    }

    #[test]
    fn a_damaged_epoch_is_replaced_by_a_larger_one() {
        let run = tempfile::tempdir().unwrap();
        let state_dir = ActorStateDir::open(run.path(), 7).unwrap();
        for damaged in [&b"x"[..], b"", b"\xff\xfe", b"18446744073709551615"] {
            fs::write(state_dir.directory.join("epoch"), damaged).unwrap();
            let epoch = state_dir.next_epoch(0).unwrap();
            assert!(epoch > 1_000_000_000_000);
            assert_eq!(state_dir.next_epoch(0).unwrap(), epoch + 1);
        }
    }

    #[test]
    fn two_processes_do_not_share_an_actor() {
        let run = tempfile::tempdir().unwrap();
        let first = ActorStateDir::open(run.path(), 7).unwrap();
        let error = ActorStateDir::open(run.path(), 7).unwrap_err().to_string();
        assert!(error.contains("another process uses"), "{error}");
        drop(first);
        ActorStateDir::open(run.path(), 7).unwrap();
    }

    #[test]
    fn the_spool_holds_the_trajectories_of_the_last_write() {
        let run = tempfile::tempdir().unwrap();
        let state_dir = ActorStateDir::open(run.path(), 7).unwrap();
        assert_eq!(state_dir.read_spool().unwrap(), []);
        let trajectories = spool::examples();
        state_dir.write_spool(&trajectories).unwrap();
        assert_eq!(state_dir.read_spool().unwrap(), trajectories);
        state_dir.write_spool(&trajectories[1..]).unwrap();
        assert_eq!(state_dir.read_spool().unwrap(), trajectories[1..]);
        state_dir.write_spool(&[]).unwrap();
        assert_eq!(state_dir.read_spool().unwrap(), []);
    }

    #[test]
    fn damaged_spools_are_kept_once_and_the_oldest_make_room() {
        let run = tempfile::tempdir().unwrap();
        let state_dir = ActorStateDir::open(run.path(), 7).unwrap();
        let examples = spool::examples();
        let whole = spool::encode(&examples);
        for round in 1..=6 {
            fs::write(state_dir.spool_path(), &whole[..whole.len() - round]).unwrap();
            // A second start before the spool is written again.
            for _ in 0..2 {
                assert_eq!(state_dir.read_spool().unwrap(), examples[..examples.len() - 1]);
            }
        }
        let kept = |number: usize| fs::read(state_dir.directory.join(damaged_name(number as u64))).ok();
        assert_eq!([1, 2, 7].map(kept), [None, None, None]);
        assert_eq!([3, 4, 5, 6].map(kept), [3, 4, 5, 6].map(|round| Some(whole[..whole.len() - round].to_vec())));
        state_dir.write_spool(&[]).unwrap();
        assert_eq!((state_dir.read_spool().unwrap(), kept(6).is_some()), (Vec::new(), true));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let run = tempfile::tempdir().unwrap();
        let blocked = run.path().join("file");
        fs::write(&blocked, "").unwrap();
        let error = ActorStateDir::open(&blocked, 7).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }

    #[test]
    fn each_replica_claims_its_own_state_directory_or_takes_over_a_released_one() {
        let run = tempfile::tempdir().unwrap();
        let mut replicas: Vec<(u64, ActorStateDir)> =
            (0..4).map(|_| ActorStateDir::claim(run.path()).unwrap()).collect();
        let mut ids: Vec<u64> = replicas.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), replicas.len(), "no two are the same actor");
        assert!(ids.iter().all(|id| id >> DRAWN_ID_BITS == 0));

        let (gone, state_dir) = replicas.swap_remove(2);
        let (epoch, pending) = (state_dir.next_epoch(0).unwrap(), spool::examples());
        state_dir.write_spool(&pending).unwrap();
        drop(state_dir);
        let (id, state_dir) = ActorStateDir::claim(run.path()).unwrap();
        assert_eq!(id, gone, "a free state directory is used before a new one is made");
        assert_eq!((state_dir.next_epoch(0).unwrap(), state_dir.read_spool().unwrap()), (epoch + 1, pending));
    }

    #[test]
    fn a_directory_without_an_actor_id_is_not_claimed() {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir_all(run.path().join("actors/backup")).unwrap();
        fs::write(run.path().join("actors/notes"), "").unwrap();
        let (id, state_dir) = ActorStateDir::claim(run.path()).unwrap();
        assert!(state_dir.directory.ends_with(id.to_string()));
        let error = ActorStateDir::claim(&run.path().join("actors/notes")).unwrap_err().to_string();
        assert!(error.contains("notes"), "{error}");
    }
}
