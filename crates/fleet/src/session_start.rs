//! Starts a session in a run directory, and restores the directory if the session is refused.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use service::directory::{if_exists, replace};

use crate::plan::Plan;
use crate::run_directory::RunDirectory;

/// A session that has locked the run directory and may still be refused.
///
/// Dropping this value before a call of [`succeeded`](Self::succeeded) restores the run directory: the directory of a
/// new run is removed, and an existing run gets the old configuration and progress.
#[derive(Debug)]
pub struct SessionStart {
    run: RunDirectory,
    before: Option<Before>,
    _lock: File,
}

/// The state of a run directory before a session.
#[derive(Debug)]
struct Before {
    /// Directories that did not exist before the session: the run directory, then the directory of all runs.
    missing: Vec<PathBuf>,
    entries: BTreeSet<OsString>,
    /// Files that every session replaces, if they existed.
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl SessionStart {
    /// Creates and locks the directory of a run, and writes the run file.
    ///
    /// # Errors
    /// Another process is training the run, or a file or directory cannot be written.
    pub fn new(plan: &Plan) -> anyhow::Result<Self> {
        let run = &plan.run;
        let missing = run.path().ancestors().take(2).filter(|folder| !folder.exists()).map(Path::to_owned).collect();
        service::directory::writable(run.path())?;
        let lock = run.lock()?;
        let start = Self { run: run.clone(), before: Some(Before::read(run, missing)?), _lock: lock };
        run.create()?;
        plan.write_config()?;
        Ok(start)
    }

    /// Marks the start as successful: a later drop keeps all files of the session.
    pub fn succeeded(&mut self) {
        self.before = None;
    }
}

impl Drop for SessionStart {
    fn drop(&mut self) {
        // An error here is ignored, since the refusal is the error to report.
        let _ = self.before.take().map(|before| before.restore(&self.run));
    }
}

impl Before {
    fn read(run: &RunDirectory, missing: Vec<PathBuf>) -> io::Result<Self> {
        let mut entries = BTreeSet::new();
        if missing.is_empty() {
            for entry in fs::read_dir(run.path())? {
                entries.insert(entry?.file_name());
            }
        }
        let mut files = Vec::new();
        for path in [run.config(), run.progress_file()] {
            files.extend(if_exists(fs::read(&path))?.map(|contents| (path, contents)));
        }
        Ok(Self { missing, entries, files })
    }

    fn restore(self, run: &RunDirectory) -> anyhow::Result<()> {
        for entry in fs::read_dir(run.path())? {
            let entry = entry?;
            if self.entries.contains(&entry.file_name()) {
                continue;
            }
            if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
        }
        for (path, contents) in &self.files {
            replace(path, contents)?;
        }
        // This fails if another run was started in the directory of all runs.
        for folder in &self.missing {
            fs::remove_dir(folder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_directory::Progress;

    /// Returns every path below a directory, sorted: files with the contents, and directories with `None`.
    fn contents(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                found.extend(contents(&path));
                found.push((path, None));
            } else {
                let text = fs::read(&path).ok();
                found.push((path, text));
            }
        }
        found.sort();
        found
    }

    fn plan(runs: &Path, sets: &[&str]) -> Plan {
        crate::plan::tests::planned(runs, sets)
    }

    #[test]
    fn a_refused_start_of_a_new_run_leaves_neither_its_folder_nor_that_of_all_runs() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let start = SessionStart::new(&plan(&runs, &[])).unwrap();
        assert!(runs.join("first/config.toml").exists());
        fs::write(runs.join("first/logs/learner.log"), "error: refused").unwrap();
        drop(start);
        assert_eq!(contents(folder.path()), []);
        fs::create_dir_all(runs.join("second")).unwrap();
        drop(SessionStart::new(&plan(&runs, &[])).unwrap());
        assert_eq!(contents(&runs), [(runs.join("second"), None)]);
    }

    #[test]
    fn a_refused_session_of_an_earlier_run_leaves_its_files_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let first = plan(folder.path(), &[]);
        SessionStart::new(&first).unwrap().succeeded();
        first.run.keep_progress(&Progress { minutes: 30.0, ..Progress::default() }).unwrap();
        let before = contents(folder.path());
        let second = plan(folder.path(), &["learner.batch_size=32"]);
        let start = SessionStart::new(&second).unwrap();
        second.run.keep_progress(&Progress { minutes: 60.0, ..Progress::default() }).unwrap();
        fs::write(second.run.fleet(), "[]").unwrap();
        assert_ne!(contents(folder.path()), before);
        drop(start);
        assert_eq!(contents(folder.path()), before);
    }

    #[test]
    fn a_start_that_succeeds_keeps_its_folder_and_its_run_file() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path(), &["learner.batch_size=32"]);
        let mut start = SessionStart::new(&plan).unwrap();
        start.succeeded();
        drop(start);
        assert!(fs::read_to_string(plan.run.config()).unwrap().contains("batch_size = 32"));
    }

    #[test]
    fn a_run_that_another_process_trains_keeps_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path(), &[]);
        let first = SessionStart::new(&plan).unwrap();
        let before = contents(folder.path());
        let error = SessionStart::new(&plan).unwrap_err().to_string();
        assert!(error.contains("is being trained by process"), "{error}");
        assert_eq!(contents(folder.path()), before);
        drop(first);
    }
}
