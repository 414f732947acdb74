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
fn what_is_there_already_is_not_taken() {
    let parent = tempfile::tempdir().unwrap();
    let folder = TemporaryFolder::new(Some(parent.path())).unwrap();
    let error = TemporaryFolder::new(Some(parent.path())).unwrap_err();
    assert!(format!("{error:#}").contains("zerofleet-bench-"), "{error:#}");
    assert!(folder.path().is_dir());
}
