//! The storage of segments: the disk, or in tests a simulated one that fails.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A folder of append-only files. Names have no path; changes are not durable before they are synced.
pub trait Volume: Send {
    /// An open file.
    type File: VolumeFile;

    /// Lists the names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Creates an empty file; a file that a failed attempt left under the name is overwritten.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing file to append to it.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Unlinks a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations and removals durable.
    fn sync(&self) -> io::Result<()>;
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

/// A folder on disk.
#[derive(Debug, Clone)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Creates a volume of an existing folder.
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

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
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
