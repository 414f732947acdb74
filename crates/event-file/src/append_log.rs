use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// An append-only file. A partially written record is truncated away.
#[derive(Debug)]
pub struct AppendLog {
    file: File,
    length: u64,
}

impl AppendLog {
    /// Opens the file at `path`, or creates it.
    ///
    /// # Errors
    /// A file system error.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).read(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Appends a record completely or not at all.
    ///
    /// # Errors
    /// A file system error; the file is unchanged.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(record) {
            // Truncation needs no space. If it fails too, readers skip the torn record.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += record.len() as u64;
        Ok(())
    }

    /// Waits until all records are durable.
    ///
    /// # Errors
    /// A file system error.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Terminates a line that a crash cut short, which would otherwise damage the next line.
    ///
    /// # Errors
    /// A file system error.
    pub fn end_last_line(&mut self) -> io::Result<()> {
        match self.last_byte()? {
            None | Some(b'\n') => Ok(()),
            Some(_) => self.append(b"\n"),
        }
    }

    /// Returns the last byte; `None` for an empty file.
    fn last_byte(&mut self) -> io::Result<Option<u8>> {
        if self.length == 0 {
            return Ok(None);
        }
        let mut last = [0];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        Ok(Some(last[0]))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// File size limit (RLIMIT_FSIZE) for the whole test process; no other test in this crate writes files this large.
    const BYTES_MAX: u64 = 64 << 20;

    /// Returns a file that can grow by only `free` more bytes, up to [`BYTES_MAX`].
    fn nearly_full(path: &Path, free: u64) -> AppendLog {
        // SAFETY: plain numbers and a handler that ignores the signal; without it SIGXFSZ would end the process.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: BYTES_MAX, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        // The file is sparse, so it takes no disk space.
        File::create(path).unwrap().set_len(BYTES_MAX - free).unwrap();
        AppendLog::open(path).unwrap()
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_the_file_as_it_was_and_the_next_one_may_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut records = nearly_full(&path, 5);
        assert!(records.append(b"longer\n").is_err());
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES_MAX - 5);
        records.append(b"fit\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES_MAX - 1);
        assert_eq!(records.last_byte().unwrap(), Some(b'\n'));
    }
}
