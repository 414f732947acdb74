//! The log directory of the first server as the archive uses it: on the simulated disk, with all disk faults.

use std::collections::BTreeMap;
use std::io;

use replay_server::archive::Folder;
use replay_server::log::power_disk::PowerDisk;
use replay_server::log::{SegmentNumber, Volume as _, VolumeFile as _};

/// The only directory of a disk. Each method does the same operations as `replay_server::archive::DiskFolder`.
#[derive(Debug)]
pub(crate) struct ArchiveFolder(pub(crate) PowerDisk);

impl Folder for ArchiveFolder {
    async fn segments(&self) -> io::Result<BTreeMap<SegmentNumber, u64>> {
        let (names, files) = (self.0.list()?, self.0.files());
        let size = |name: String| Some((SegmentNumber::from_file_name(&name)?, files.get(&name)?.len() as u64));
        Ok(names.into_iter().filter_map(size).collect())
    }

    async fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self.0.read(name) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn place(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let partial = format!("{name}.part");
        let mut file = self.0.create(&partial)?;
        file.append(content)?;
        file.sync()?;
        self.0.rename(&partial, name)?;
        self.0.sync()
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)?;
        self.0.sync()
    }
}
