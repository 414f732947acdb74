use std::io::{self, BufRead, Read as _};

/// What the person may type.
pub(super) const HELP: &str = "\
a move   play it, in the notation of the game
back     take back your last move and the answer to it
hint     what the program would play in your place, and why
sides    change sides
new      begin again
help     this list
quit     leave";

/// A line longer than this is no move.
const LINE_BYTES_MAX: u64 = 1_000;

/// What the person wants.
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
    /// What is no command is a move.
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

/// Reads a line. Whatever the bytes are, they are text afterwards: what is not UTF-8 becomes what no game calls a move.
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

/// Drops what is left of a line without keeping it.
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
