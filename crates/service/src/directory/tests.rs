use super::*;

#[test]
fn a_missing_directory_is_made_and_left_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs/first");
    writable(&path).unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn a_file_in_the_way_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs");
    fs::write(&path, "in the way").unwrap();
    let error = writable(&path.join("first")).unwrap_err();
    let expected =
        format!("cannot create the directory {} (choose a place that you may write to)", path.join("first").display());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_directory_that_takes_no_files_is_named() {
    // A kernel file system refuses new files to everyone, root included, whom permissions would not stop.
    let path = Path::new("/proc/self");
    if !path.exists() {
        return;
    }
    let error = writable(path).unwrap_err();
    let expected = "the directory /proc/self is not writable (change its permissions or choose another)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_directory_is_locked_by_one_until_they_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let first = lock(folder.path()).unwrap();
    let error = lock(folder.path()).unwrap_err().to_string();
    assert!(error.starts_with("another process uses the directory"), "{error}");
    drop(first);
    lock(folder.path()).unwrap();
}
