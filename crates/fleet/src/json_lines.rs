//! Reads a file of lines while another process appends to it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::marker::PhantomData;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;
use service::directory::if_exists;

/// Maximum number of bytes read at a time.
const READ_BYTES_MAX: u64 = 4 << 20;

/// Reads the new lines of a file, each a JSON object of the type `T`.
#[derive(Debug)]
pub struct JsonLines<T> {
    path: PathBuf,
    /// Number of bytes read so far, up to the end of the last complete line.
    read: u64,
    line: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> JsonLines<T> {
    /// Creates a reader from the start of a file, which need not exist yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: 0, line: PhantomData }
    }

    /// Calls `take` with each line appended since the last call.
    ///
    /// # Errors
    /// The same errors as [`read`](Self::read).
    pub fn each(&mut self, mut take: impl FnMut(T)) -> anyhow::Result<()> {
        loop {
            let lines = self.read()?;
            if lines.is_empty() {
                return Ok(());
            }
            lines.into_iter().for_each(&mut take);
        }
    }

    /// Returns lines appended since the last call; none if the file does not exist yet. A long file takes several
    /// calls. A later call returns a line that is still incomplete.
    ///
    /// # Errors
    /// The file cannot be read or has become shorter, or a line is too long.
    pub fn read(&mut self) -> anyhow::Result<Vec<T>> {
        let named = || format!("read {}", self.path.display());
        let Some(mut file) = if_exists(File::open(&self.path)).with_context(named)? else { return Ok(Vec::new()) };
        if file.metadata().with_context(named)?.len() < self.read {
            return Err(anyhow!("the file has become shorter")).with_context(named);
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.read))
            .and_then(|_| file.take(READ_BYTES_MAX).read_to_end(&mut bytes))
            .with_context(named)?;
        let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else {
            let is_endless = bytes.len() as u64 == READ_BYTES_MAX;
            return if is_endless { Err(anyhow!("a line is too long")).with_context(named) } else { Ok(Vec::new()) };
        };
        self.read += end as u64 + 1;
        let lines = bytes[..end].split(|&byte| byte == b'\n');
        // Skips lines that a crash truncated.
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_are_read_once_and_as_a_whole_while_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut reader = JsonLines::<f64>::new(path.clone());
        let mut read = || reader.read().unwrap();
        assert_eq!(read(), [0.0; 0]);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"5.5\n6.").unwrap();
        assert_eq!(read(), [5.5]);
        assert_eq!(read(), [0.0; 0]);
        file.write_all(b"25\n{\"torn\n7.0\n").unwrap();
        assert_eq!(read(), [6.25, 7.0]);
        let mut sum = 0.0;
        JsonLines::<f64>::new(path).each(|number| sum += number).unwrap();
        assert_eq!(sum, 5.5 + 6.25 + 7.0);
    }
}
