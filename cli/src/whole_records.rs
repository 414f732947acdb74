//! A file that grows by whole records.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

#[cfg(test)]
mod tests;

/// A record that does not fit is taken back, so that whoever reads the file later finds only whole ones.
#[derive(Debug)]
pub struct WholeRecords {
    file: File,
    length: u64,
}

impl WholeRecords {
    /// Goes on with the file at `path`, or makes it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).read(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Appends a record whole or not at all.
    ///
    /// # Errors
    /// Those of the file system, with the file as it was.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(record) {
            // Shrinking takes no room. What cannot even be taken back is for the reader to pass over.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += record.len() as u64;
        Ok(())
    }

    /// The last byte; `None` of an empty file.
    pub fn last_byte(&mut self) -> io::Result<Option<u8>> {
        if self.length == 0 {
            return Ok(None);
        }
        let mut last = [0];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        Ok(Some(last[0]))
    }
}
