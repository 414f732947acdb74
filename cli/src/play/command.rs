use std::io::{self, BufRead, Read as _};

/// The text of the command `help`.
pub(super) const HELP: &str = "\
a move   play it, in the notation of the game
back     take back your last move and the answer to it
hint     show the move that the program would play for you
sides    swap sides
new      start a new game
help     show this list
quit     leave";

/// Longest accepted line in bytes.
const LINE_BYTES_MAX: u64 = 1_000;

/// A parsed line of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Nothing,
    Move(&'a str),
    Back,
    Hint,
    Sides,
    New,
    Help,
    Quit,
}

impl<'a> Command<'a> {
    /// Parses a line. Text that is not a command is a move.
    pub(super) fn read(text: &'a str) -> Self {
        let text = text.trim();
        match text.to_lowercase().as_str() {
            "" => Self::Nothing,
            "back" => Self::Back,
            "hint" => Self::Hint,
            "sides" => Self::Sides,
            "new" => Self::New,
            "help" | "?" => Self::Help,
            "quit" | "exit" => Self::Quit,
            _ => Self::Move(text),
        }
    }
}

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    TooLong,
    End,
}

/// Reads a line. Bytes that are not UTF-8 become replacement characters, which occur in no move.
pub(super) fn read_line(input: &mut impl BufRead) -> io::Result<Line> {
    let mut bytes = Vec::new();
    if input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(Line::End);
    }
    if bytes.len() as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
        skip_line(input)?;
        return Ok(Line::TooLong);
    }
    Ok(Line::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Skips the rest of a line without storing it.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let is_over = end.is_some() || buffer.is_empty();
        let bytes = end.map_or(buffer.len(), |end| end + 1);
        input.consume(bytes);
        if is_over {
            return Ok(());
        }
    }
}
