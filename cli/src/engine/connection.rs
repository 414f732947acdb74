//! Runs protocol sessions over standard input and output: [`converse`].

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::time::Instant;

use anyhow::Context as _;
use protocols::{Background, Host, Input};
use service::Drain;
use tokio::runtime::Runtime;

/// Runs a protocol session over standard input and output until the session ends or `drain` starts. A drain closes the
/// input and discards unwritten output.
///
/// # Errors
/// Standard output is closed, or the session failed.
pub(super) fn converse(
    runtime: &Runtime,
    drain: &Drain,
    line_bytes_max: usize,
    session: impl FnOnce(&mut dyn Input, &mut dyn Write, &Host<'_>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut input = Background::start(io::stdin(), line_bytes_max).context("read standard input")?;
    let (stopper, started) = (input.stopper(), drain.clone());
    runtime.spawn(async move {
        started.wait().await;
        stopper.stop();
    });
    let start = Instant::now();
    let clock = move || start.elapsed();
    let host = Host { clock: &clock, read_file: &read_file };
    let mut output = UntilDrained { inner: io::stdout(), drain: drain.clone() };
    match session(&mut input, &mut output, &host) {
        Err(_) if drain.started() => Ok(()),
        ended => ended.context("write to standard output"),
    }
}

/// Reads a whole file of at most `bytes_max` bytes.
pub(super) fn read_file(path: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("the file has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// A writer that fails once a drain has started, so that a session with many open requests stops.
struct UntilDrained<W> {
    inner: W,
    drain: Drain,
}

impl<W: Write> Write for UntilDrained<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.drain.started() {
            return Err(io::Error::other("the session is interrupted"));
        }
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("game.sgf");
        std::fs::write(&path, b"(;GM[1])").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(read_file(path, 8).unwrap(), b"(;GM[1])");
        assert_eq!(read_file(path, 7).unwrap_err().to_string(), "the file has more than 7 bytes");
        assert!(read_file("/nowhere/game.sgf", 8).is_err());
    }

    #[test]
    fn nothing_is_written_once_the_drain_has_started() {
        let drain = Drain::new();
        let mut output = UntilDrained { inner: Vec::new(), drain: drain.clone() };
        output.write_all(b"= 2\n\n").unwrap();
        drain.start();
        assert!(output.write_all(b"= 3\n\n").is_err());
        assert_eq!(output.inner, b"= 2\n\n");
    }
}
