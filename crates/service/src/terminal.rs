//! The size of a terminal.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _};

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of characters per line.
    pub columns: usize,
    /// Number of lines.
    pub rows: usize,
}

/// Returns the size of a terminal; `None` for a file or a pipe, and for a terminal that does not report it.
#[must_use]
pub fn size(output: &impl AsFd) -> Option<Size> {
    let mut size = MaybeUninit::<libc::winsize>::uninit();
    // SAFETY: the call writes a size, which is read only after a success.
    let size = unsafe {
        let status = libc::ioctl(output.as_fd().as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr());
        (status == 0).then(|| size.assume_init())?
    };
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (columns > 0 && rows > 0).then_some(Size { columns, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_no_size() {
        let (output, _input) = std::io::pipe().unwrap();
        assert_eq!(size(&output), None);
    }
}
