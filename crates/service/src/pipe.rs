//! The reader of an output.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec};

/// Returns false once the reader of a pipe or socket has closed it. A file always has a reader.
#[must_use]
pub fn has_reader(output: &impl AsFd) -> bool {
    let mut outputs = [PollFd::new(output, PollFlags::empty())];
    let polled = rustix::event::poll(&mut outputs, Some(&Timespec::default()));
    // Linux reports an error for a pipe without reader, macOS the end.
    polled.is_err() || !outputs[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_a_reader_until_it_is_closed_and_a_file_always() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(has_reader(&writer) && has_reader(&tempfile::tempfile().unwrap()));
        drop(reader);
        assert!(!has_reader(&writer));
    }
}
