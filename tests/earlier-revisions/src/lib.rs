//! Files written by earlier revisions; `tests/testdata/README.md` describes how to add a revision.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata")
}

/// Returns the path of this file or directory in every revision that has it.
///
/// # Errors
/// The revisions cannot be listed, or none has the file.
pub fn of_each(name: &str) -> io::Result<Vec<PathBuf>> {
    let revisions = fs::read_dir(testdata())?.map(|entry| Ok(entry?.path().join(name)));
    let mut paths = revisions.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.exists());
    if paths.is_empty() { Err(io::Error::other(format!("no revision has {name}"))) } else { Ok(paths) }
}

/// Makes the directory of a new revision, named by `ZEROFLEET_REVISION`.
///
/// # Errors
/// The variable is not set, or the directory cannot be made.
pub fn make_new() -> io::Result<PathBuf> {
    let name = env::var("ZEROFLEET_REVISION").map_err(io::Error::other)?;
    let folder = testdata().join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
