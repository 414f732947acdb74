use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::log::SegmentNumber;

/// The operations of the archive on the directory of a log, while the log may write there.
pub trait Folder: Send + Sync {
    /// Returns the segments with sizes in bytes.
    fn segments(&self) -> impl Future<Output = io::Result<BTreeMap<SegmentNumber, u64>>> + Send;

    /// Returns the content of a file; `None` if there is no such file.
    fn read(&self, name: &str) -> impl Future<Output = io::Result<Option<Vec<u8>>>> + Send;

    /// Creates or replaces a file atomically and durably.
    fn place(&self, name: &str, content: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Removes a file durably.
    fn remove(&self, name: &str) -> impl Future<Output = io::Result<()>> + Send;
}

/// A directory on a disk. (The functions of `service::directory` would block the runtime.)
#[derive(Debug)]
pub struct DiskFolder(PathBuf);

impl DiskFolder {
    /// Creates the handle for the directory at `path`.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    async fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.0).await?.sync_all().await
    }
}

impl Folder for DiskFolder {
    async fn segments(&self) -> io::Result<BTreeMap<SegmentNumber, u64>> {
        let mut entries = fs::read_dir(&self.0).await?;
        let mut segments = BTreeMap::new();
        while let Some(entry) = entries.next_entry().await? {
            let Some(number) = entry.file_name().to_str().and_then(SegmentNumber::from_file_name) else { continue };
            match entry.metadata().await {
                Ok(metadata) => drop(segments.insert(number, metadata.len())),
                // The log has dropped the segment in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(segments)
    }

    async fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.0.join(name)).await {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn place(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let partial = self.0.join(format!("{name}.part"));
        let mut file = fs::File::create(&partial).await?;
        file.write_all(content).await?;
        file.sync_all().await?;
        fs::rename(&partial, self.0.join(name)).await?;
        self.sync().await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name)).await?;
        self.sync().await
    }
}
