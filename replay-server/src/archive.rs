//! The archive: a copy of the log in an object store (S3-compatible, or a folder), updated at intervals; a server whose
//! disk is empty restores its log from it.
//!
//! It identifies the log's segments by name and size and does not read their contents. Segments are append-only, so one
//! that has been copied at its full size is never copied again; the last one is copied at its current size, and reading
//! it back truncates a torn record. Segments are copied oldest first, and a pass stops at the first failure, so the
//! archive never has a gap. Segments that the log has dropped are removed from the archive.
//!
//! An archive has one owner: the object `owner` holds the id of the log that is copied there, and a server whose log
//! has another id neither writes nor removes anything. A log that was restored from the archive becomes its owner. If
//! the disk was rolled back, so that its log ends earlier than the copy, the log continues from the copy. Start with
//! [`Archive::open`].

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode};
use service::Drain;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;
use url::Url;

use crate::log::SegmentNumber;
use crate::metrics;

#[cfg(test)]
mod tests;

/// The time limit of the last pass: enough to upload a segment or two to a store on the internet.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);
/// The marker file that exists in the log's folder while a restore from the archive is incomplete.
const RESTORING: &str = "restoring";

/// The object that holds the id of the log that the archive belongs to.
const OWNER: &str = "owner";
/// The file that holds the id of the log, in its folder.
const LOG_ID: &str = "archive-id";
/// The length of an id, in bytes: 16 hexadecimal digits.
const LOG_ID_BYTES: usize = 16;

/// The reason for which the archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The address names no store.
    #[error("{url} is no archive: {reason}")]
    Address {
        /// The configured address.
        url: String,
        /// The reason for which it is invalid.
        reason: String,
    },
    /// The store failed.
    #[error("cannot {action} {name} in the archive")]
    Store {
        /// The operation that failed.
        action: &'static str,
        /// The object that it failed on.
        name: String,
        /// The cause.
        #[source]
        source: object_store::Error,
    },
    /// The disk failed.
    #[error("cannot {action} the replay log's file {name}")]
    Disk {
        /// The operation that failed.
        action: &'static str,
        /// The file that it failed on.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The archive belongs to another log.
    #[error(
        "the archive belongs to another replay log (id {owner}): give each replay server an archive of its own, or, if that log is \
         lost, take the log's folder away to begin with the archive"
    )]
    Owned {
        /// The id of its owner.
        owner: String,
    },
    /// The objects of the store were not copied from this log.
    #[error(
        "the archive holds the log of another run, or a later state of this one ({found}): name another archive, or take \
         the log's folder away to begin with the archive"
    )]
    Foreign {
        /// The evidence of another log.
        found: String,
    },
}

/// The archive of a log, with the sizes of the copies in the store.
#[derive(Debug)]
pub struct Archive {
    store: Arc<dyn ObjectStore>,
    prefix: Key,
    folder: PathBuf,
    /// Bytes of each segment in the store.
    copied: BTreeMap<SegmentNumber, u64>,
    /// True once the store was read: nothing is written to a store that may belong to another log.
    is_known: bool,
}

/// The result of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Segments copied, for the first time or anew.
    pub copied: usize,
    /// Segments dropped from the store.
    pub dropped: usize,
}

impl Archive {
    /// Opens the archive at `url` of the log in `folder`. The credentials for S3 come from `env`, as
    /// `AWS_ACCESS_KEY_ID` and related variables.
    ///
    /// # Errors
    /// [`ArchiveError::Address`].
    pub fn open(url: &str, env: impl Iterator<Item = (String, String)>, folder: &Path) -> Result<Self, ArchiveError> {
        let address = |reason: String| ArchiveError::Address { url: url.to_owned(), reason };
        let parsed = Self::address(url).map_err(address)?;
        let (store, prefix) = object_store::parse_url_opts(&parsed, env).map_err(|error| address(error.to_string()))?;
        Ok(Self::of(store.into(), prefix, folder))
    }

    /// Parses the address of a store that [`open`](Self::open) supports.
    ///
    /// # Errors
    /// A human-readable reason why the address is invalid or unsupported.
    pub fn address(url: &str) -> Result<Url, String> {
        let parsed = url.parse::<Url>().map_err(|error| error.to_string())?;
        match parsed.scheme() {
            "file" if parsed.host_str().is_none_or(str::is_empty) => Ok(parsed),
            "file" => Err("a folder has no host: file:///FOLDER".to_owned()),
            "s3" if cfg!(feature = "s3") => Ok(parsed),
            "s3" => Err("this build supports folders only; build the replay server with `--features s3`".to_owned()),
            other => Err(format!("{other} is neither file nor s3")),
        }
    }

    fn of(store: Arc<dyn ObjectStore>, prefix: Key, folder: &Path) -> Self {
        Self { store, prefix, folder: folder.to_owned(), copied: BTreeMap::new(), is_known: false }
    }

    /// Fills an empty folder from the archive, or continues an interrupted restore; returns the number of restored
    /// segments. A folder that holds a log is compared with the archive and not restored.
    ///
    /// # Errors
    /// [`ArchiveError`]; the segments restored so far are kept, and the next call continues.
    pub async fn restore(&mut self) -> Result<usize, ArchiveError> {
        self.copied = self.stored().await?;
        let local = self.local().await?;
        let marker = self.folder.join(RESTORING);
        if !local.is_empty() && !self.is_restoring().await? {
            self.compare(&local)?;
            self.own().await?;
            self.go_on_from_copy(&local).await?;
            self.begin_passes(&local);
            return Ok(0);
        }
        if self.copied.is_empty() {
            self.is_known = true;
            return Ok(0);
        }
        write(&marker, b"").await.map_err(disk("write", RESTORING))?;
        self.take_over().await?;
        let mut came = 0;
        for (&number, &bytes) in &self.copied {
            if local.get(&number) != Some(&bytes) {
                self.fetch(number).await?;
                came += 1;
            }
        }
        fs::remove_file(&marker).await.map_err(disk("remove", RESTORING))?;
        // The newest segment may grow from here on: the next pass copies it again.
        self.copied.pop_last();
        self.is_known = true;
        Ok(came)
    }

    /// Runs one pass: copies the segments that have grown and removes those that the log has dropped.
    ///
    /// # Errors
    /// [`ArchiveError`]; the next pass continues.
    pub async fn keep_up(&mut self) -> Result<Pass, ArchiveError> {
        let local = self.local().await?;
        if local.is_empty() {
            // A server never removes all files of its log: its copies are kept.
            return Ok(Pass::default());
        }
        if !self.is_known {
            self.copied = self.stored().await?;
            self.compare(&local)?;
        }
        self.own().await?;
        if !self.is_known {
            // The log is being written to: it cannot continue from its copy now.
            if let Some((number, here, there)) = self.longer_copy(&local) {
                return Err(differs(number, there, here));
            }
            self.begin_passes(&local);
        }
        let mut pass = Pass::default();
        for (&number, &bytes) in &local {
            if self.copied.get(&number).is_none_or(|&copied| copied != bytes) {
                pass.copied += usize::from(self.copy(number).await?);
            }
        }
        let Some((&oldest, _)) = local.first_key_value() else { return Ok(pass) };
        while let Some((&number, _)) = self.copied.first_key_value()
            && number < oldest
        {
            self.drop_copy(number).await?;
            pass.dropped += 1;
        }
        Ok(pass)
    }

    /// Returns true if the folder holds a complete log, which can be served even if the store is unreachable.
    ///
    /// # Errors
    /// [`ArchiveError::Disk`].
    pub async fn has_log(&self) -> Result<bool, ArchiveError> {
        Ok(!self.local().await?.is_empty() && !self.is_restoring().await?)
    }

    /// Returns true while the restore from the archive is incomplete.
    async fn is_restoring(&self) -> Result<bool, ArchiveError> {
        fs::try_exists(self.folder.join(RESTORING)).await.map_err(disk("look for", RESTORING))
    }

    /// Returns the known size of the archive in the store, in bytes.
    pub fn bytes(&self) -> u64 {
        self.copied.values().sum()
    }

    /// Checks that the copies belong to this log: every segment but the newest one in the store is complete, so its
    /// size must be the same on disk and in the store.
    fn compare(&self, local: &BTreeMap<SegmentNumber, u64>) -> Result<(), ArchiveError> {
        let (Some((newest, _)), Some((newest_here, _))) = (self.copied.last_key_value(), local.last_key_value()) else {
            return Ok(());
        };
        if newest > newest_here {
            let found = format!("it has {}, the disk goes to {}", newest.file_name(), newest_here.file_name());
            return Err(ArchiveError::Foreign { found });
        }
        for (number, bytes) in self.copied.iter() {
            let Some(here) = local.get(number) else { continue };
            // The newest copy may be shorter than the segment, or longer if the disk was rolled back and has not grown
            // since.
            let is_expected = here == bytes || number == newest && (here > bytes || number == newest_here);
            if !is_expected {
                return Err(differs(*number, *bytes, *here));
            }
        }
        Ok(())
    }

    /// Returns the number and size of the last segment on disk and the size of its copy, if the copy is larger.
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

    /// Replaces the last segment by its copy if the copy is longer and begins with the segment: otherwise a disk that
    /// was rolled back would overwrite acknowledged records. A torn tail that was truncated on disk is truncated again
    /// as the log is read.
    async fn go_on_from_copy(&self, local: &BTreeMap<SegmentNumber, u64>) -> Result<(), ArchiveError> {
        let Some((number, here, there)) = self.longer_copy(local) else { return Ok(()) };
        let name = number.file_name();
        let bytes = fs::read(self.folder.join(&name)).await.map_err(disk("read", &name))?;
        if !self.copy_of(number).await?.starts_with(&bytes) {
            return Err(differs(number, there, here));
        }
        tracing::warn!(name, here, there, "the replay log ends earlier than its archive and goes on from there");
        self.fetch(number).await
    }

    /// Checks that this log owns the archive; takes ownership of an archive without an owner.
    async fn own(&self) -> Result<(), ArchiveError> {
        let id = self.log_id().await?;
        let key = self.prefix.clone().join(OWNER);
        let owner = match self.store.get(&key).await {
            Ok(found) => found.bytes().await.map_err(store("read", OWNER))?,
            Err(object_store::Error::NotFound { .. }) => {
                // Only one of two logs that start at the same time creates the object.
                return match self.store.put_opts(&key, id.into(), PutMode::Create.into()).await {
                    Ok(_) => Ok(()),
                    Err(object_store::Error::AlreadyExists { .. }) => {
                        Err(ArchiveError::Owned { owner: "that began at the same time".to_owned() })
                    }
                    Err(error) => Err(store("write", OWNER)(error)),
                };
            }
            Err(error) => return Err(store("read", OWNER)(error)),
        };
        if *owner == *id.as_bytes() {
            return Ok(());
        }
        let owner = String::from_utf8_lossy(&owner[..owner.len().min(LOG_ID_BYTES)]).into_owned();
        Err(ArchiveError::Owned { owner })
    }

    /// Makes this log the owner, even if another log was: that log's next pass detects it and writes nothing.
    async fn take_over(&self) -> Result<(), ArchiveError> {
        let (key, id) = (self.prefix.clone().join(OWNER), self.log_id().await?);
        self.store.put(&key, id.into()).await.map_err(store("write", OWNER))?;
        Ok(())
    }

    /// Returns the id of the log in the folder; generates it and makes it durable at the first use.
    async fn log_id(&self) -> Result<String, ArchiveError> {
        let path = self.folder.join(LOG_ID);
        match fs::read(&path).await {
            Ok(id) if id.len() == LOG_ID_BYTES => return Ok(String::from_utf8_lossy(&id).into_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(disk("read", LOG_ID)(error)),
        }
        // The keys of `RandomState` come from the system's entropy.
        let id = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        self.place(LOG_ID, id.as_bytes()).await.map_err(disk("write", LOG_ID))?;
        Ok(id)
    }

    async fn stored(&self) -> Result<BTreeMap<SegmentNumber, u64>, ArchiveError> {
        let found: Vec<_> =
            self.store.list(Some(&self.prefix)).try_collect().await.map_err(store("list", "segments"))?;
        let segment = |meta: &object_store::ObjectMeta| {
            let number = SegmentNumber::from_file_name(meta.location.filename()?)?;
            // Objects in folders below the prefix belong to other archives.
            (meta.location == self.key(number)).then_some((number, meta.size))
        };
        Ok(found.iter().filter_map(segment).collect())
    }

    async fn local(&self) -> Result<BTreeMap<SegmentNumber, u64>, ArchiveError> {
        let mut entries = fs::read_dir(&self.folder).await.map_err(disk("list", "."))?;
        let mut segments = BTreeMap::new();
        while let Some(entry) = entries.next_entry().await.map_err(disk("list", "."))? {
            let Some(number) = entry.file_name().to_str().and_then(SegmentNumber::from_file_name) else { continue };
            match entry.metadata().await {
                Ok(metadata) => drop(segments.insert(number, metadata.len())),
                // The log has dropped it in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(disk("list", ".")(error)),
            }
        }
        Ok(segments)
    }

    /// Copies a segment; returns false if it no longer existed.
    async fn copy(&mut self, number: SegmentNumber) -> Result<bool, ArchiveError> {
        let name = number.file_name();
        let bytes = match fs::read(self.folder.join(&name)).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(disk("read", &name)(error)),
        };
        let size = bytes.len() as u64;
        self.store.put(&self.key(number), bytes.into()).await.map_err(store("write", &name))?;
        self.copied.insert(number, size);
        Ok(true)
    }

    async fn drop_copy(&mut self, number: SegmentNumber) -> Result<(), ArchiveError> {
        match self.store.delete(&self.key(number)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(store("remove", &number.file_name())(error)),
        }
        self.copied.remove(&number);
        Ok(())
    }

    /// Downloads a segment into the folder atomically.
    async fn fetch(&self, number: SegmentNumber) -> Result<(), ArchiveError> {
        let (name, bytes) = (number.file_name(), self.copy_of(number).await?);
        self.place(&name, &bytes).await.map_err(disk("write", &name))
    }

    async fn copy_of(&self, number: SegmentNumber) -> Result<Vec<u8>, ArchiveError> {
        let name = number.file_name();
        let found = self.store.get(&self.key(number)).await.map_err(store("read", &name))?;
        Ok(found.bytes().await.map_err(store("read", &name))?.into())
    }

    /// Writes a file into the folder atomically. (`service::directory::replace` would block the runtime.)
    async fn place(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let partial = self.folder.join(format!("{name}.part"));
        write(&partial, bytes).await?;
        fs::rename(&partial, self.folder.join(name)).await?;
        fs::File::open(&self.folder).await?.sync_all().await
    }

    fn key(&self, number: SegmentNumber) -> Key {
        self.prefix.clone().join(number.file_name().as_str())
    }
}

/// Runs a pass at this interval until the drain fires, then returns the archive. A failing store is logged once, and
/// once more when it works again.
pub async fn keep_up(mut archive: Archive, interval: Duration, drain: Drain) -> Archive {
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = drain.wait() => return archive,
            () = tokio::time::sleep(interval) => {}
        }
        let passed = tokio::select! {
            // The last pass continues where this one stopped.
            () = drain.wait() => return archive,
            passed = archive.keep_up() => passed.map_err(anyhow::Error::from),
        };
        match (&passed, is_failing) {
            (Err(error), false) => {
                tracing::warn!(
                    error = service::chain(error),
                    "cannot keep up the archive of the replay log; trying again"
                );
            }
            (Ok(_), true) => tracing::info!("the archive of the replay log is kept up again"),
            _ => {}
        }
        is_failing = passed.is_err();
        metrics::archived(archive.bytes(), !is_failing);
    }
}

/// Runs the last pass, once the log is no longer written to; an unresponsive store delays the exit by at most a minute.
pub async fn finish(mut archive: Archive) {
    let passed = tokio::time::timeout(FINISH_TIMEOUT, archive.keep_up()).await;
    let error = match passed {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => service::chain(&error.into()),
        Err(_) => format!("the store did not answer within {} s", FINISH_TIMEOUT.as_secs()),
    };
    tracing::warn!(error, "the archive of the replay log lacks what was written last");
}

fn differs(number: SegmentNumber, there: u64, here: u64) -> ArchiveError {
    ArchiveError::Foreign { found: format!("{} has {there} bytes there and {here} here", number.file_name()) }
}

fn store(action: &'static str, name: &str) -> impl FnOnce(object_store::Error) -> ArchiveError {
    let name = name.to_owned();
    move |source| ArchiveError::Store { action, name, source }
}

fn disk(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> ArchiveError {
    let name = name.to_owned();
    move |source| ArchiveError::Disk { action, name, source }
}

/// Writes a file, which is durable when this returns.
async fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path).await?;
    file.write_all(bytes).await?;
    file.sync_all().await
}
