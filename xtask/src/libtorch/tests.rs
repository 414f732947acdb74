//! Claims about the stamp; fetching itself needs the package index and is tried by using it.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::stamp::Stamp;
use super::wheels::Platform;
use super::{Check, accept};

const PLATFORM: Platform = Platform::MacArm;

fn installed() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("include/torch")).unwrap();
    fs::create_dir_all(folder.path().join("lib")).unwrap();
    fs::write(folder.path().join("include/torch/torch.h"), "#pragma once").unwrap();
    for library in PLATFORM.libraries() {
        fs::write(folder.path().join(library), "machine code").unwrap();
    }
    Stamp::write(folder.path(), PLATFORM).unwrap();
    folder
}

fn complaint(folder: &Path, check: Check) -> String {
    Stamp::check(folder, PLATFORM, check).map_or_else(|error| error.to_string(), |()| "none".to_owned())
}

fn set_date(path: &Path, seconds: u64) {
    let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(date).unwrap();
}

#[test]
fn what_was_stamped_is_fine_by_dates_and_by_bytes() {
    let folder = installed();
    assert_eq!(complaint(folder.path(), Check::Stamp), "none");
    assert_eq!(complaint(folder.path(), Check::Bytes), "none");
}

#[test]
fn a_missing_library_is_noticed() {
    let folder = installed();
    fs::remove_file(folder.path().join("lib/libc10.dylib")).unwrap();
    assert_eq!(complaint(folder.path(), Check::Stamp), "`lib/libc10.dylib` is missing");
}

#[test]
fn a_library_cut_short_is_noticed() {
    let folder = installed();
    fs::write(folder.path().join("lib/libc10.dylib"), "machine").unwrap();
    assert_eq!(complaint(folder.path(), Check::Stamp), "`lib/libc10.dylib` has 7 bytes instead of 12");
}

#[test]
fn a_flipped_byte_is_noticed_when_the_date_changed_or_bytes_are_read() {
    let folder = installed();
    let library = folder.path().join("lib/libc10.dylib");
    set_date(&library, 1_000);
    assert_eq!(complaint(folder.path(), Check::Stamp), "none", "a new date on the same bytes is learnt");
    fs::write(&library, "machine coda").unwrap();
    assert_eq!(complaint(folder.path(), Check::Stamp), "`lib/libc10.dylib` is damaged");
    set_date(&library, 1_000);
    assert_eq!(complaint(folder.path(), Check::Stamp), "none", "sizes and dates do not show it");
    assert_eq!(complaint(folder.path(), Check::Bytes), "`lib/libc10.dylib` is damaged");
}

#[test]
fn a_lost_header_is_noticed() {
    let folder = installed();
    fs::remove_file(folder.path().join("include/torch/torch.h")).unwrap();
    assert_eq!(complaint(folder.path(), Check::Stamp), "headers are missing or damaged");
}

#[test]
fn a_folder_without_a_stamp_or_for_another_platform_is_fetched_again() {
    let folder = installed();
    let other = Stamp::check(folder.path(), Platform::LinuxX86, Check::Stamp).unwrap_err().to_string();
    assert!(other.ends_with("holds version 2.11.0 for macos-arm64"), "{other}");
    fs::write(folder.path().join("stamp.json"), "{").unwrap();
    assert_eq!(complaint(folder.path(), Check::Stamp), "stamp.json cannot be read");
    fs::remove_file(folder.path().join("stamp.json")).unwrap();
    assert!(complaint(folder.path(), Check::Stamp).ends_with("has no stamp.json"));
}

#[test]
fn a_wrong_libtorch_variable_is_named_with_what_it_lacks() {
    let folder = TempDir::new().unwrap();
    let error = accept(folder.path()).unwrap_err().to_string();
    assert!(error.contains("LIBTORCH is") && error.contains("has no `include/torch`"), "{error}");
}
