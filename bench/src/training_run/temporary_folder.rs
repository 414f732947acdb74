use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A new directory that is removed with the contents on drop.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    path: PathBuf,
}

impl TemporaryFolder {
    /// Creates the directory below `parent`, or below the system's temporary directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn new(parent: Option<&Path>) -> anyhow::Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        fs::create_dir_all(&parent).with_context(|| format!("create {}", parent.display()))?;
        let path = parent.join(format!("zerofleet-bench-{}", std::process::id()));
        // An existing directory must not be removed on drop, so it is an error.
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the run directory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_leaves_nothing_behind() {
        let parent = tempfile::tempdir().unwrap();
        let folder = TemporaryFolder::new(Some(parent.path())).unwrap();
        fs::write(folder.path().join("config.toml"), "x").unwrap();
        drop(folder);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_existing_folder_is_not_taken_over() {
        let parent = tempfile::tempdir().unwrap();
        let folder = TemporaryFolder::new(Some(parent.path())).unwrap();
        let error = TemporaryFolder::new(Some(parent.path())).unwrap_err();
        assert!(format!("{error:#}").contains("zerofleet-bench-"), "{error:#}");
        assert!(folder.path().is_dir());
    }
}
