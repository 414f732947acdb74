//! Keeps an archive: a copy of the log in an object store (S3-compatible, or a directory), updated at intervals. A
//! server with an empty disk restores the log from the archive.
//!
//! Segments are identified by name and size. Segments are append-only, so a complete copy of a closed segment is never
//! replaced. The last segment is copied while it still grows; a restore drops an incomplete record at the end of the
//! copy. If the commit that wrote the end of the copy fails afterwards, other bytes of the same size may replace it, so
//! the next pass compares digests. Segments are copied oldest first, and a pass stops at the first failure, so the
//! archive never has a gap. Segments that the log has dropped are removed from the archive.
//!
//! An archive has one owner: the object `owner` holds the id of the archived log. A server with another log id
//! neither writes nor removes anything. A log restored from the archive becomes the owner. After a rollback of the
//! disk, a log that is shorter than the copy continues from the copy.
//!
//! [`Archive`] depends on a [`Store`] and a [`Folder`] only, not on a runtime or a clock; [`keep_up`] runs passes at
//! intervals. Start with [`Archive::open`].

mod folder;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::Path;
use std::time::Duration;

pub use folder::{DiskFolder, Folder};
use run_file::replay::archive_url;
use service::Drain;
pub use store::{Objects, Store, StoreError};

use crate::defect::{Defect, Planted};
use crate::log::SegmentNumber;
use crate::log::frame::{self, Unreadable};
use crate::metrics;

#[cfg(test)]
mod tests;

/// Time limit for the last pass, enough to upload a segment or two to a store on the internet.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);
/// Marker file in the log's directory; exists while a restore from the archive is incomplete.
const RESTORING: &str = "restoring";

/// Object with the id of the log that owns the archive.
const OWNER: &str = "owner";
/// File with the log id, in the log's directory.
const LOG_ID: &str = "archive-id";
/// Length of an id, in bytes: 16 hexadecimal digits.
const LOG_ID_BYTES: usize = 16;

/// A reason why the archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The address names no store.
    #[error("{url} is not an archive: {reason}")]
    Address {
        /// The configured address.
        url: String,
        /// The reason why the address is invalid.
        reason: String,
    },
    /// The store failed.
    #[error("cannot {action} {name} in the archive")]
    Store {
        /// The operation that failed, as a verb.
        action: &'static str,
        /// The object of the operation.
        name: String,
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// The disk failed.
    #[error("cannot {action} the replay log's file {name}")]
    Disk {
        /// The operation that failed, as a verb.
        action: &'static str,
        /// The file of the operation.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The archive belongs to another log.
    #[error(
        "the archive belongs to another replay log (id {owner}); give each replay server a separate archive, or, if \
         that log is lost, move the log directory away to restore from the archive"
    )]
    Owned {
        /// Id of the owning log.
        owner: String,
    },
    /// The objects in the store were not copied from this log.
    #[error(
        "the archive contains the log of another run, or a later state of this run ({found}); use another archive, or \
         move the log directory away to restore from the archive"
    )]
    Foreign {
        /// The difference that shows another log.
        found: String,
    },
}

/// The archive of a log, with the sizes of the copies in the store.
#[derive(Debug)]
pub struct Archive<S = Objects, F = DiskFolder> {
    store: S,
    folder: F,
    /// Id to give to a log that has none.
    fresh_id: u64,
    /// Size of the copy of each segment in the store, in bytes.
    copied: BTreeMap<SegmentNumber, u64>,
    /// The last copied segment, and the digest of the copy.
    last: Option<(SegmentNumber, blake3::Hash)>,
    /// True once the store has been read. Until then nothing is written, since the store may belong to another log.
    is_known: bool,
    planted: Planted,
}

/// The result of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Number of segments copied, for the first time or again.
    pub copied: usize,
    /// Number of segments removed from the store.
    pub dropped: usize,
}

/// The segments copied out of an archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Number of copied segments.
    pub segments: usize,
    /// Total size, in bytes.
    pub bytes: u64,
}

impl Archive {
    /// Opens the archive at `url` for the log in `folder`, with the credentials in the environment of this process.
    ///
    /// # Errors
    /// [`ArchiveError::Address`].
    pub fn of_process(url: &str, folder: &Path) -> Result<Self, ArchiveError> {
        // A variable that is not Unicode cannot be a credential.
        let variable = |(key, value): (OsString, OsString)| Some((key.into_string().ok()?, value.into_string().ok()?));
        Self::open(url, std::env::vars_os().filter_map(variable), folder)
    }

    /// Opens the archive at `url` for the log in `folder`. The credentials for S3 come from `env`, as
    /// `AWS_ACCESS_KEY_ID` and related variables.
    ///
    /// # Errors
    /// [`ArchiveError::Address`].
    pub fn open(url: &str, env: impl Iterator<Item = (String, String)>, folder: &Path) -> Result<Self, ArchiveError> {
        let shown = if url.contains('@') { "the address" } else { url };
        let address = |reason: String| ArchiveError::Address { url: shown.to_owned(), reason };
        let parsed = archive_url(url).map_err(address)?;
        if parsed.scheme() == "s3" && cfg!(not(feature = "s3")) {
            let reason = "this build lacks s3 support; build the replay server with `--features s3`";
            return Err(address(reason.to_owned()));
        }
        let (store, prefix) = object_store::parse_url_opts(&parsed, env).map_err(|error| address(error.to_string()))?;
        // The keys of `RandomState` come from the system's entropy.
        let fresh_id = RandomState::new().hash_one(std::process::id());
        Ok(Self::of(Objects::new(store.into(), prefix), DiskFolder::new(folder), fresh_id, Planted::default()))
    }
}

impl<S: Store, F: Folder> Archive<S, F> {
    /// Returns the archive in `store` for the log in `folder`. The random `fresh_id` becomes the id of a log without
    /// one.
    pub fn of(store: S, folder: F, fresh_id: u64, planted: Planted) -> Self {
        Self { store, folder, fresh_id, copied: BTreeMap::new(), last: None, is_known: false, planted }
    }

    /// Fills an empty directory from the archive, or continues an interrupted restore; returns the number of restored
    /// segments. A directory with a log is compared with the archive and not restored.
    ///
    /// # Errors
    /// [`ArchiveError`]; the segments restored so far are kept, and the next call continues.
    pub async fn restore(&mut self) -> Result<usize, ArchiveError> {
        self.copied = self.stored().await?;
        let local = self.local().await?;
        if !local.is_empty() && !self.is_restoring().await? {
            self.compare(&local).await?;
            self.own().await?;
            self.go_on_from_copy(&local).await?;
            self.begin_passes(&local);
            return Ok(0);
        }
        if self.copied.is_empty() {
            self.is_known = true;
            return Ok(0);
        }
        self.folder.place(RESTORING, b"").await.map_err(disk("write", RESTORING))?;
        // The next pass of any previous owner detects the change of the owner and writes nothing.
        let id = self.log_id().await?;
        self.keep_id(&id).await?;
        self.store.put(OWNER, id.into_bytes()).await.map_err(store("write", OWNER))?;
        let mut came = 0;
        for (&number, &bytes) in &self.copied {
            if local.get(&number) != Some(&bytes) {
                // Each segment is placed atomically.
                let (name, copy) = (number.file_name(), self.copy_of(number).await?);
                self.folder.place(&name, &copy).await.map_err(disk("write", &name))?;
                came += 1;
            }
        }
        self.folder.remove(RESTORING).await.map_err(disk("remove", RESTORING))?;
        // The last segment may grow from here on: the next pass copies it again.
        self.copied.pop_last();
        self.is_known = true;
        Ok(came)
    }

    /// Copies every segment into the directory, which holds no segments yet, without taking ownership of the archive
    /// or changing anything in it. The owner may drop and copy segments meanwhile.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn copy_out(&self) -> Result<Copied, ArchiveError> {
        let mut copied = Copied::default();
        for &number in self.stored().await?.keys() {
            let name = number.file_name();
            let found = self.store.get(&name).await.map_err(store("read", &name))?;
            // The owner drops the oldest segments.
            let Some(bytes) = found else { continue };
            self.folder.place(&name, &bytes).await.map_err(disk("write", &name))?;
            copied = Copied { segments: copied.segments + 1, bytes: copied.bytes + bytes.len() as u64 };
        }
        Ok(copied)
    }

    /// Runs one pass: copies the segments that have grown and removes the segments that the log has dropped.
    ///
    /// # Errors
    /// [`ArchiveError`]; the next pass continues.
    pub async fn keep_up(&mut self) -> Result<Pass, ArchiveError> {
        let local = self.local().await?;
        if local.is_empty() {
            // A server never removes all files of the log, so the copies are kept.
            return Ok(Pass::default());
        }
        if !self.is_known {
            self.copied = self.stored().await?;
            self.compare(&local).await?;
        }
        self.own().await?;
        if !self.is_known {
            // The log is being written to, so it cannot continue from the copy now.
            if let Some((number, here, there)) = self.longer_copy(&local) {
                return Err(differs(number, there, here));
            }
            self.begin_passes(&local);
        }
        let mut pass = Pass::default();
        for (&number, &bytes) in &local {
            let may_differ = self.last.is_some_and(|(last, _)| last == number);
            if may_differ || self.copied.get(&number).is_none_or(|&copied| copied != bytes) {
                pass.copied += usize::from(self.copy(number).await?);
            }
        }
        let Some((&oldest, _)) = local.first_key_value() else { return Ok(pass) };
        while let Some((&number, _)) = self.copied.first_key_value()
            && number < oldest
        {
            let name = number.file_name();
            self.store.remove(&name).await.map_err(store("remove", &name))?;
            self.copied.pop_first();
            pass.dropped += 1;
        }
        Ok(pass)
    }

    /// Returns true if the directory holds a complete log, which can be served even if the store is unreachable.
    ///
    /// # Errors
    /// [`ArchiveError::Disk`].
    pub async fn has_log(&self) -> Result<bool, ArchiveError> {
        Ok(!self.local().await?.is_empty() && !self.is_restoring().await?)
    }

    /// Returns true while the restore from the archive is incomplete.
    async fn is_restoring(&self) -> Result<bool, ArchiveError> {
        let marker = self.folder.read(RESTORING).await.map_err(disk("look for", RESTORING))?;
        Ok(marker.is_some() && !self.planted.is(Defect::RestoreTakenAsComplete))
    }

    /// Returns the known size of the archive in the store, in bytes.
    pub fn bytes(&self) -> u64 {
        self.copied.values().sum()
    }

    /// Checks that the copies belong to this log. Every segment but the last in the store is complete, so the sizes
    /// on disk and in the store must match. The last must start with the same records.
    async fn compare(&self, local: &BTreeMap<SegmentNumber, u64>) -> Result<(), ArchiveError> {
        let (Some((newest, _)), Some((newest_here, _))) = (self.copied.last_key_value(), local.last_key_value()) else {
            return Ok(());
        };
        if newest > newest_here {
            let found = format!("it has {}, the disk ends with {}", newest.file_name(), newest_here.file_name());
            return Err(ArchiveError::Foreign { found });
        }
        for (number, bytes) in self.copied.iter() {
            let Some(here) = local.get(number) else { continue };
            // The last copy may be shorter than the segment, or longer after a rollback of the disk without growth
            // since.
            let is_expected = here == bytes || number == newest && (here > bytes || number == newest_here);
            if !is_expected {
                return Err(differs(*number, *bytes, *here));
            }
        }
        let newest = *newest;
        if local.contains_key(&newest) { self.compare_records(newest).await } else { Ok(()) }
    }

    /// Checks that a segment and its copy hold the same records up to the length of the shorter. Without this check, a
    /// disk that was rolled back, and has since written more than the copy holds, would overwrite acknowledged records.
    async fn compare_records(&self, number: SegmentNumber) -> Result<(), ArchiveError> {
        let Some(here) = self.segment(number).await? else { return Ok(()) };
        let there = self.copy_of(number).await?;
        if here.starts_with(&there) || there.starts_with(&here) || agree(number, &here, &there) {
            return Ok(());
        }
        let found = format!("{} has different records in the archive and on the disk", number.file_name());
        Err(ArchiveError::Foreign { found })
    }

    /// Returns the number and size of the last segment on disk and the size of the copy, if the copy is larger.
    fn longer_copy(&self, local: &BTreeMap<SegmentNumber, u64>) -> Option<(SegmentNumber, u64, u64)> {
        let (&number, &here) = local.last_key_value()?;
        self.copied.get(&number).filter(|&&there| there > here).map(|&there| (number, here, there))
    }

    fn begin_passes(&mut self, local: &BTreeMap<SegmentNumber, u64>) {
        // The end of the last segment may have been truncated and rewritten.
        if let Some((last, _)) = local.last_key_value() {
            self.copied.remove(last);
        }
        self.is_known = true;
    }

    /// Replaces the last segment by the copy if the copy is longer, since a disk that was rolled back would otherwise
    /// overwrite acknowledged records. If the disk had truncated an incomplete record that the copy still holds,
    /// reading the log truncates it again.
    async fn go_on_from_copy(&self, local: &BTreeMap<SegmentNumber, u64>) -> Result<(), ArchiveError> {
        let Some((number, here, there)) = self.longer_copy(local) else { return Ok(()) };
        let (name, copy) = (number.file_name(), self.copy_of(number).await?);
        if self.segment(number).await?.is_some_and(|segment| !holds(number, &copy, &segment)) {
            return Ok(());
        }
        tracing::warn!(name, here, there, "the replay log ends before the archive; continuing from the archive");
        self.folder.place(&name, &copy).await.map_err(disk("write", &name))
    }

    /// Checks that this log owns the archive; takes ownership of an archive without an owner.
    async fn own(&self) -> Result<(), ArchiveError> {
        let id = self.log_id().await?;
        let owner = match self.store.get(OWNER).await.map_err(store("read", OWNER))? {
            Some(owner) => owner,
            None => {
                self.keep_id(&id).await?;
                // Only one of two logs that start at the same time creates the object.
                if self.store.create(OWNER, id.into_bytes()).await.map_err(store("write", OWNER))? {
                    return Ok(());
                }
                return Err(ArchiveError::Owned { owner: "of a log started at the same time".to_owned() });
            }
        };
        if owner == id.as_bytes() {
            return Ok(());
        }
        let owner = String::from_utf8_lossy(&owner[..owner.len().min(LOG_ID_BYTES)]).into_owned();
        Err(ArchiveError::Owned { owner })
    }

    /// Returns the id of the log in the directory, or the fresh id if there is none.
    async fn log_id(&self) -> Result<String, ArchiveError> {
        let id = self.folder.read(LOG_ID).await.map_err(disk("read", LOG_ID))?;
        let id = id.filter(|id| id.len() == LOG_ID_BYTES).map(|id| String::from_utf8_lossy(&id).into_owned());
        Ok(id.unwrap_or_else(|| format!("{:016x}", self.fresh_id)))
    }

    /// Makes the id durable before the store names it as the owner. Writes the file again even if it exists, because an
    /// earlier sync may have failed: if a power loss then removed the file, the log would be locked out of the archive.
    async fn keep_id(&self, id: &str) -> Result<(), ArchiveError> {
        self.folder.place(LOG_ID, id.as_bytes()).await.map_err(disk("write", LOG_ID))
    }

    async fn stored(&self) -> Result<BTreeMap<SegmentNumber, u64>, ArchiveError> {
        let objects = self.store.list().await.map_err(store("list", "segments"))?;
        let segment = |(name, bytes): (String, u64)| Some((SegmentNumber::from_file_name(&name)?, bytes));
        Ok(objects.into_iter().filter_map(segment).collect())
    }

    async fn local(&self) -> Result<BTreeMap<SegmentNumber, u64>, ArchiveError> {
        self.folder.segments().await.map_err(disk("list", "."))
    }

    /// Copies a segment; returns false if it no longer existed or has not changed.
    async fn copy(&mut self, number: SegmentNumber) -> Result<bool, ArchiveError> {
        let Some(bytes) = self.segment(number).await? else { return Ok(false) };
        let (name, size, last) = (number.file_name(), bytes.len() as u64, Some((number, blake3::hash(&bytes))));
        if self.copied.get(&number) == Some(&size) && self.last == last {
            return Ok(false);
        }
        self.store.put(&name, bytes).await.map_err(store("write", &name))?;
        self.copied.insert(number, size);
        self.last = last;
        Ok(true)
    }

    async fn segment(&self, number: SegmentNumber) -> Result<Option<Vec<u8>>, ArchiveError> {
        let name = number.file_name();
        self.folder.read(&name).await.map_err(disk("read", &name))
    }

    async fn copy_of(&self, number: SegmentNumber) -> Result<Vec<u8>, ArchiveError> {
        let name = number.file_name();
        let found = self.store.get(&name).await.map_err(store("read", &name))?;
        found.ok_or_else(|| store("read", &name)("listed in the archive, but missing".into()))
    }
}

/// Returns true if two states of a segment may belong to one log: no record in one state is at the offset of a
/// different record in the other. Torn or damaged bytes do not count as records.
fn agree(number: SegmentNumber, here: &[u8], there: &[u8]) -> bool {
    let (here, there) = match (frame::scan(number, here), frame::scan(number, there)) {
        (Ok(here), Ok(there)) => (here, there),
        // The creation of one state was interrupted: it holds no record.
        (Err(Unreadable::Torn), _) | (_, Err(Unreadable::Torn)) => return true,
        (Err(_), _) | (_, Err(_)) => return false,
    };
    let frames: BTreeMap<usize, &[u8]> = here.frames.into_iter().collect();
    let differs = |(offset, payload): &(usize, &[u8])| frames.get(offset).is_some_and(|other| other != payload);
    here.prologue == there.prologue && !there.frames.iter().any(differs)
}

/// Returns true if a copy that agrees with a segment holds all records of the segment. Comparing lengths does not
/// suffice: an incomplete record in the copy may be longer than the records that have since been written in its place.
fn holds(number: SegmentNumber, copy: &[u8], segment: &[u8]) -> bool {
    let offsets =
        |bytes| frame::scan(number, bytes).map_or(Vec::new(), |scan| scan.frames).into_iter().map(|(at, _)| at);
    let copied: BTreeSet<usize> = offsets(copy).collect();
    offsets(segment).all(|offset| copied.contains(&offset))
}

/// Rejects a directory in which a restore from an archive was interrupted, because it holds only a part of a log.
///
/// # Errors
/// The marker of the restore exists.
pub fn check_restored(folder: &Path) -> anyhow::Result<()> {
    let (is_restoring, folder) = (folder.join(RESTORING).exists(), folder.display());
    anyhow::ensure!(
        !is_restoring,
        "incomplete restore of {folder} from the archive; set replay.archive again, or move the directory away"
    );
    Ok(())
}

/// Runs a pass at each `interval` until the drain fires, then returns the archive. Logs once that the store fails,
/// and once that it works again.
pub async fn keep_up(mut archive: Archive, interval: Duration, drain: Drain) -> Archive {
    let mut is_failing = false;
    loop {
        // The last pass continues where a pass that the drain interrupts stopped.
        let pass = async {
            tokio::time::sleep(interval).await;
            archive.keep_up().await.map_err(anyhow::Error::from)
        };
        let Some(passed) = drain.unless_started(pass).await else { return archive };
        match (&passed, is_failing) {
            (Err(error), false) => {
                tracing::warn!(error = service::chain(error), "cannot update the archive of the replay log; retrying");
            }
            (Ok(_), true) => tracing::info!("updating the archive of the replay log again"),
            _ => {}
        }
        is_failing = passed.is_err();
        metrics::archived(archive.bytes(), !is_failing);
    }
}

/// Runs the last pass, after the last write to the log; an unresponsive store delays the exit by at most a minute.
pub async fn finish(mut archive: Archive) {
    let passed = tokio::time::timeout(FINISH_TIMEOUT, archive.keep_up()).await;
    let error = match passed {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => service::chain(&error.into()),
        Err(_) => format!("no response from the store within {} s", FINISH_TIMEOUT.as_secs()),
    };
    tracing::warn!(error, "the archive of the replay log lacks the latest records");
}

fn differs(number: SegmentNumber, there: u64, here: u64) -> ArchiveError {
    ArchiveError::Foreign { found: format!("{} has {there} bytes in the archive, {here} on disk", number.file_name()) }
}

fn store(action: &'static str, name: &str) -> impl FnOnce(StoreError) -> ArchiveError {
    let name = name.to_owned();
    move |source| ArchiveError::Store { action, name, source }
}

fn disk(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> ArchiveError {
    let name = name.to_owned();
    move |source| ArchiveError::Disk { action, name, source }
}
