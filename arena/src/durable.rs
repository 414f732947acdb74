//! Files that are whole or not there: written beside, synced, then renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the file at `path` by `contents`; after a crash it holds either what it held or all of `contents`.
///
/// # Errors
/// Those of the file system; the old file is then untouched.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let mut file = File::create(&fresh)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}
