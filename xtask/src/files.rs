//! Wraps functions of [`std::fs`] so that errors name the path.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

fn named<T>(result: io::Result<T>, verb: &str, path: &Path) -> Result<T> {
    result.with_context(|| format!("{verb} {}", path.display()))
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String> {
    named(fs::read_to_string(path), "read", path)
}

/// Writes a file in an existing directory.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    named(fs::write(path, text), "write", path)
}

/// Returns the size of a file in bytes.
pub(crate) fn size(path: &Path) -> Result<u64> {
    named(fs::metadata(path), "read the size of", path).map(|data| data.len())
}

/// Creates a directory and every directory above it.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    named(fs::create_dir_all(path), "create", path)
}

/// Removes a directory with the contents, if it exists.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    if path.exists() { named(fs::remove_dir_all(path), "remove", path) } else { Ok(()) }
}

/// Returns the sorted paths in a directory.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = |entries: fs::ReadDir| entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>();
    let mut paths: Vec<PathBuf> = named(fs::read_dir(folder).and_then(paths), "list", folder)?;
    paths.sort();
    Ok(paths)
}

/// Returns the paths of all files below a directory.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in WalkDir::new(folder) {
        let entry = entry.with_context(|| format!("list {}", folder.display()))?;
        if !entry.file_type().is_dir() {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

/// Copies a file with its permissions to another path; follows symbolic links.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    create_folder(to.parent().unwrap_or(to))?;
    named(fs::copy(from, to).map(drop), &format!("copy {} to", from.display()), to)
}

/// Moves a file to another path in the same file system; replaces an existing file.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    create_folder(to.parent().unwrap_or(to))?;
    named(fs::rename(from, to), &format!("move {} to", from.display()), to)
}

/// Returns the name of a file.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
