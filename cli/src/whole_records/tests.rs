use std::fs;

use super::*;

/// A limit of the size of files, which holds for this whole process; below it nothing else of this crate's tests writes.
const BYTES_MAX: u64 = 64 << 20;

/// A file that may not grow beyond [`BYTES_MAX`], and room for `free` more bytes in it.
fn nearly_full(path: &Path, free: u64) -> WholeRecords {
    // SAFETY: plain numbers and a handler that ignores; without it the signal would end the process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit { rlim_cur: BYTES_MAX, rlim_max: libc::RLIM_INFINITY };
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
    }
    // Sparse: it takes no room.
    File::create(path).unwrap().set_len(BYTES_MAX - free).unwrap();
    WholeRecords::open(path).unwrap()
}

#[test]
fn a_record_that_does_not_fit_leaves_the_file_as_it_was_and_the_next_one_may_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    let mut records = nearly_full(&path, 5);
    assert!(records.append(b"longer\n").is_err());
    assert_eq!(fs::metadata(&path).unwrap().len(), BYTES_MAX - 5);
    records.append(b"fit\n").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), BYTES_MAX - 1);
    assert_eq!(records.last_byte().unwrap(), Some(b'\n'));
}
