//! Input lines of limited length: [`Line`], [`Input`], [`Lines`] for files, and [`Background`] for pipes, which a
//! [`Stopper`] stops.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

/// Number of lines read ahead. The other side waits if there are more.
const LINES_AHEAD: usize = 16;

/// A line of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Text without the line feed. Bytes that are not UTF-8 are replaced.
    Text(String),
    /// A line beyond the limit, which was skipped.
    TooLong,
    /// End of the input, or a failure to read it. Returned repeatedly.
    End,
}

/// Input lines that a session reads, even while it searches.
pub trait Input {
    /// Waits for the next line and returns it.
    fn next(&mut self) -> Line;

    /// Waits for the next line and returns it without removing it.
    fn peek(&mut self) -> &Line;

    /// Returns the line that [`next`](Self::next) would return without waiting; `None` if it has not arrived.
    fn waiting(&mut self) -> Option<&Line>;
}

/// Lines of a file, which have all arrived.
#[derive(Debug)]
pub struct Lines<R> {
    source: R,
    bytes_max: usize,
    waiting: Option<Line>,
}

impl<R: BufRead> Lines<R> {
    /// Returns the lines of a source, each of at most `bytes_max` bytes.
    pub const fn new(source: R, bytes_max: usize) -> Self {
        Self { source, bytes_max, waiting: None }
    }
}

impl<R: BufRead> Input for Lines<R> {
    fn next(&mut self) -> Line {
        self.waiting.take().unwrap_or_else(|| read_line(&mut self.source, self.bytes_max))
    }

    fn peek(&mut self) -> &Line {
        let Self { source, bytes_max, waiting } = self;
        waiting.get_or_insert_with(|| read_line(source, *bytes_max))
    }

    fn waiting(&mut self) -> Option<&Line> {
        Some(self.peek())
    }
}

/// Lines that a thread reads from a pipe or a socket.
///
/// The thread stops with the source. It is not joined: a session may stop on a command while the thread waits for
/// input that never comes.
#[derive(Debug)]
pub struct Background {
    lines: Receiver<Line>,
    /// The next line, if it was peeked at; [`Line::End`] remains.
    waiting: Option<Line>,
    stopper: Stopper,
}

/// Stops the lines of a [`Background`] from another thread, for example a signal handler.
#[derive(Debug, Clone)]
pub struct Stopper {
    is_stopped: Arc<AtomicBool>,
    lines: SyncSender<Line>,
}

impl Stopper {
    /// Stops the input: the next line is [`Line::End`], even for a session that is waiting.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        // A waiting session has an empty channel.
        let _ = self.lines.try_send(Line::End);
    }
}

impl Background {
    /// Starts a thread that reads lines of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(source: impl Read + Send + 'static, bytes_max: usize) -> io::Result<Self> {
        let (sender, lines) = sync_channel(LINES_AHEAD);
        let stopper = Stopper { is_stopped: Arc::default(), lines: sender.clone() };
        let read = move || {
            let mut source = BufReader::new(source);
            loop {
                let line = read_line(&mut source, bytes_max);
                let is_last = line == Line::End;
                if sender.send(line).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name("input".into()).spawn(read)?;
        Ok(Self { lines, waiting: None, stopper })
    }

    /// Returns a handle that stops the input.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    fn look_for_stop(&mut self) {
        if self.stopper.is_stopped.load(Ordering::Acquire) {
            self.waiting = Some(Line::End);
        }
    }
}

impl Input for Background {
    fn next(&mut self) -> Line {
        if *self.peek() == Line::End {
            return Line::End;
        }
        self.waiting.take().unwrap_or(Line::End)
    }

    fn peek(&mut self) -> &Line {
        self.look_for_stop();
        let lines = &self.lines;
        self.waiting.get_or_insert_with(|| lines.recv().unwrap_or(Line::End))
    }

    fn waiting(&mut self) -> Option<&Line> {
        self.look_for_stop();
        if self.waiting.is_none() {
            self.waiting = match self.lines.try_recv() {
                Ok(line) => Some(line),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Line::End),
            };
        }
        self.waiting.as_ref()
    }
}

/// Reads a line of at most `bytes_max` bytes, without the line feed; skips the rest of a longer line.
pub(crate) fn read_line(source: &mut impl BufRead, bytes_max: usize) -> Line {
    let (mut bytes, mut is_long, mut is_end) = (Vec::new(), false, true);
    loop {
        let chunk: &[u8] = match source.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => &[],
        };
        if chunk.is_empty() {
            break;
        }
        is_end = false;
        let line_feed = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..line_feed.unwrap_or(chunk.len())];
        is_long |= bytes.len() + part.len() > bytes_max;
        if !is_long {
            bytes.extend_from_slice(part);
        }
        let used = part.len() + usize::from(line_feed.is_some());
        source.consume(used);
        if line_feed.is_some() {
            break;
        }
    }
    match (is_end, is_long) {
        (true, _) => Line::End,
        (_, true) => Line::TooLong,
        _ => Line::Text(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_within_the_limit_are_read_and_longer_ones_skipped() {
        let text = |line: &str| Line::Text(line.into());
        let mut input = Background::start(&b"one\n\n12345678\n123456789\nlast"[..], 8).unwrap();
        assert_eq!(input.next(), text("one"));
        assert_eq!(input.next(), text(""));
        assert_eq!(input.next(), text("12345678"));
        assert_eq!(input.next(), Line::TooLong);
        assert_eq!(input.next(), text("last"));
        assert_eq!([input.next(), input.next()], [Line::End, Line::End]);
        assert_eq!(input.waiting(), Some(&Line::End));
    }

    #[test]
    fn a_line_that_waits_is_the_next_one() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = Background::start(reader, 8).unwrap();
        assert_eq!(input.waiting(), None);
        io::Write::write_all(&mut writer, b"a\n").unwrap();
        while input.waiting().is_none() {
            thread::yield_now();
        }
        assert_eq!(input.next(), Line::Text("a".into()));
        assert_eq!(input.waiting(), None);
    }

    #[test]
    fn a_stopped_input_is_at_its_end_whether_lines_wait_or_the_session_does() {
        let mut input = Background::start(&b"a\nb\n"[..], 8).unwrap();
        assert_eq!(input.next(), Line::Text("a".into()));
        input.stopper().stop();
        assert_eq!(input.waiting(), Some(&Line::End));
        assert_eq!([input.next(), input.next()], [Line::End, Line::End]);

        let (reader, _writer) = io::pipe().unwrap();
        let mut input = Background::start(reader, 8).unwrap();
        let stopper = input.stopper();
        let session = thread::spawn(move || input.next());
        stopper.stop();
        assert_eq!(session.join().unwrap(), Line::End);
    }
}
