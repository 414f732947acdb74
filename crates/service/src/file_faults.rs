//! Words for files and directories that cannot be used: the cause, and what the operator can do.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

/// Returns true if the file system or the quota of the user has no room.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns cause and remedy of a failed operation on `path`, in parentheses after a space; `otherwise` for an error
/// without a known remedy. Every message about a file or directory that cannot be used takes the remedy from here.
#[must_use]
pub fn remedy(path: &Path, error: &io::Error, otherwise: &str) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The operation may have failed before the file existed.
    let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(&absolute);
    let (place, user) = (existing.display(), rustix::process::geteuid().as_raw());
    match (error.kind(), fs::metadata(existing)) {
        (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _) => format!(
            " (no space left for user {user} on the file system of {place}, or in the quota: remove files there, which \
             `df -h {place}` and `df -i {place}` count, or choose a directory on another disk)"
        ),
        (io::ErrorKind::ReadOnlyFilesystem, _) => format!(
            " (the file system of {place} is mounted read-only: mount it writable, or choose a directory on another)"
        ),
        (io::ErrorKind::PermissionDenied, Ok(metadata)) => {
            // The owner of a directory above the path stays: it may be `/` or `/home`.
            let remedy = if existing == absolute && existing.parent().is_some() {
                format!("run `chown -R {user} {place}`")
            } else {
                format!("as the owner, create {} and give that to user {user}", absolute.display())
            };
            format!(
                " ({place} belongs to user {} with mode {:04o}, and this process runs as user {user}: {remedy}, or \
                 permit other users with `chmod` (`chmod a+r` a file that is not secret), or choose another)",
                metadata.uid(),
                metadata.mode() & 0o7777
            )
        }
        _ => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DirectoryError;

    #[test]
    fn each_cause_of_a_refused_write_has_its_own_remedy_that_names_an_existing_place() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("replay/later");
        let said = |kind: io::ErrorKind| {
            let failed = DirectoryError::NotWritable { path: missing.clone(), source: kind.into() };
            (failed.to_string(), is_full(&kind.into()))
        };
        let place = std::path::absolute(folder.path()).unwrap().display().to_string();
        for (kind, words, is_full) in [
            (io::ErrorKind::StorageFull, " on the file system of ", true),
            (io::ErrorKind::QuotaExceeded, " or in the quota: remove files there", true),
            (io::ErrorKind::ReadOnlyFilesystem, "is mounted read-only: mount it writable", false),
            (io::ErrorKind::PermissionDenied, "and this process runs as user ", false),
        ] {
            let (text, full) = said(kind);
            assert!(text.contains(words) && text.contains(&place) && !text.contains("later ("), "{kind}: {text}");
            assert_eq!(full, is_full, "{kind}");
        }
        assert!(!said(io::ErrorKind::PermissionDenied).0.contains("chown"), "the place above has other owners");
        assert!(said(io::ErrorKind::Other).0.ends_with("is not writable (choose another)"));
    }

    #[test]
    fn a_file_that_this_process_may_not_use_is_described_by_owner_mode_user_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        fs::write(&file, "").unwrap();
        let metadata = fs::metadata(&file).unwrap();
        // The owner of a new file is the user of the process.
        let (user, mode, path) = (metadata.uid(), metadata.mode() & 0o7777, file.display());
        let text = remedy(&file, &io::ErrorKind::PermissionDenied.into(), "");
        let state =
            format!(" ({path} belongs to user {user} with mode {mode:04o}, and this process runs as user {user}: ");
        assert!(text.starts_with(&state) && text.contains(&format!("`chown -R {user} {path}`")), "{text}");
    }
}
