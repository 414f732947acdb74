//! Wraps functions of [`std::fs`] so that errors name the path.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
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

/// Copies the files in a directory and below, with permissions, to another directory.
pub(crate) fn copy_below(from: &Path, to: &Path) -> Result<()> {
    for file in below(from)? {
        copy(&file, &to.join(file.strip_prefix(from).unwrap_or(&file)))?;
    }
    Ok(())
}

/// Moves a file to another path in the same file system; replaces an existing file.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    create_folder(to.parent().unwrap_or(to))?;
    named(fs::rename(from, to), &format!("move {} to", from.display()), to)
}

/// Permits all users to read and execute what the owner may in a directory and below, because containers run as other
/// users. Under umask 027 or 077, a checkout and a build forbid it.
pub(crate) fn share_with_all(folder: &Path) -> Result<()> {
    for entry in WalkDir::new(folder) {
        let entry = entry.with_context(|| format!("list {}", folder.display()))?;
        // The target of a link may be a private file elsewhere.
        if entry.path_is_symlink() {
            continue;
        }
        let mode = named(fs::metadata(entry.path()), "read the mode of", entry.path())?.permissions().mode();
        let shared = mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6;
        if shared != mode {
            let set = fs::set_permissions(entry.path(), fs::Permissions::from_mode(shared));
            named(set, "make readable for all users, as containers need it (chmod a+rX):", entry.path())?;
        }
    }
    Ok(())
}

/// Returns the name of a file.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_checkout_under_umask_077_become_readable_and_only_programs_executable() {
        let folder = tempfile::tempdir().unwrap();
        let [inner, text, program] = ["inner", "inner/run.toml", "inner/program"].map(|name| folder.path().join(name));
        create_folder(&inner).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for path in [&text, &program] {
            write(path, "").unwrap();
        }
        set(&text, 0o600);
        set(&program, 0o700);
        set(&inner, 0o700);
        share_with_all(folder.path()).unwrap();
        assert_eq!([&inner, &text, &program].map(|path| mode(path)), [0o755, 0o644, 0o755]);
        set(&inner, 0o1777);
        share_with_all(folder.path()).unwrap();
        assert_eq!(mode(&inner), 0o1777);
    }
}
