//! Stores segments on the disk, or in tests on a simulated disk with faults.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Name of a file under construction that will replace another file.
const PARTIAL: &str = "replacement.part";

/// A directory of append-only files. Names have no path; changes are durable only after a sync.
pub trait Volume: Send {
    /// An open file.
    type File: VolumeFile;

    /// Lists all file names.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Creates an empty file, and overwrites what a failed attempt may have left.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing file for appending.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Renames a file, and replaces any file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes the name of a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> io::Result<()>;
    /// Writes the first bytes of a file, which are `bytes`, durably to the same place, and cuts off the rest. Needs no
    /// free space on most file systems; a volume without this operation reports a full disk.
    fn rewrite(&self, _name: &str, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Creates or replaces a file atomically and durably.
    ///
    /// The bytes are written to a new file, never to an existing file of the name: after a failed sync the kernel
    /// marks the pages of a file as clean, and later syncs succeed without writing them.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // A power loss during a rename may leave both names on one file, so a leftover is unlinked and not truncated.
        match self.remove(PARTIAL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        let written = self.create(PARTIAL).and_then(|mut file| file.append(bytes).and_then(|()| file.sync()));
        if let Err(error) = written.and_then(|()| self.rename(PARTIAL, name)) {
            // On a full disk, a partial file would use space that other files require.
            let _ = self.remove(PARTIAL);
            return Err(error);
        }
        self.sync()
    }
}

/// An append-only file.
pub trait VolumeFile: Send {
    /// Writes all of `bytes` at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to `length` bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// A directory on disk.
#[derive(Debug, Clone)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Creates a volume for an existing directory.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }
}

impl Volume for Disk {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.folder.join(name))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let file = OpenOptions::new().append(true).create(true).open(self.folder.join(name))?;
        file.set_len(0)?;
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().append(true).open(self.folder.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn rewrite(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.folder.join(name))?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()
    }
}

impl VolumeFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.sync_data()
    }
}
