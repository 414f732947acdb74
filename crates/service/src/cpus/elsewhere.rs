//! Systems without thread affinity.

use std::io;

pub(super) fn allowed() -> io::Result<Vec<usize>> {
    Err(unsupported())
}

pub(super) fn pin(_cpu: usize) -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn core(cpu: usize) -> usize {
    cpu
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system pins no threads")
}
