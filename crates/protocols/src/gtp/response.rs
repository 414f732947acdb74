//! Responses from an engine: [`Event`], [`read`].

use std::io::BufRead;

use crate::input::{Line, read_line};

/// A part of an engine's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A whole response.
    Response(Response),
    /// A response beyond the limit.
    TooLong,
    /// The end of the output.
    End,
}

/// A response from an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Response {
    /// True if the command succeeded.
    pub(super) is_success: bool,
    /// The id of the command, if the response has one.
    pub(super) id: Option<u32>,
    /// Text, without the id and trailing line feeds.
    pub(super) text: String,
}

/// Reads the next response of at most `bytes_max` bytes. Skips lines outside responses: some engines print a greeting.
pub(super) fn read(source: &mut impl BufRead, bytes_max: usize) -> Event {
    let mut text: Option<String> = None;
    loop {
        let line = match read_line(source, bytes_max) {
            Line::Text(line) => line,
            Line::TooLong if text.is_none() => continue,
            Line::TooLong => return Event::TooLong,
            Line::End => return Event::End,
        };
        let line = line.trim_end();
        match &mut text {
            None if line.starts_with(['=', '?']) => text = Some(line.to_owned()),
            None => {}
            Some(text) if line.is_empty() => return Event::Response(parse(text)),
            Some(text) if text.len() + line.len() >= bytes_max => return Event::TooLong,
            Some(text) => {
                text.push('\n');
                text.push_str(line);
            }
        }
    }
}

/// Parses a response that starts with `=` or `?`.
fn parse(text: &str) -> Response {
    let (mark, rest) = text.split_at(1);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (id, text) = rest.split_at(digits);
    // No command has an id out of range.
    let id = (digits > 0).then(|| id.parse().unwrap_or(u32::MAX));
    Response { is_success: mark == "=", id, text: text.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str, bytes_max: usize) -> Vec<Event> {
        let mut source = text.as_bytes();
        let mut events = Vec::new();
        loop {
            events.push(read(&mut source, bytes_max));
            if events.last() == Some(&Event::End) {
                return events;
            }
        }
    }

    fn response(is_success: bool, id: Option<u32>, text: &str) -> Event {
        Event::Response(Response { is_success, id, text: text.into() })
    }

    #[test]
    fn responses_are_found_between_other_output() {
        let text = "a greeting\n=1 D4\n\n\nnoise\n?2 illegal move\r\n\r\n=\n\n=3 a\n b\n\n=99999999999 c\n\n= half";
        let expected = vec![
            response(true, Some(1), "D4"),
            response(false, Some(2), "illegal move"),
            response(true, None, ""),
            response(true, Some(3), "a\n b"),
            response(true, Some(u32::MAX), "c"),
            Event::End,
        ];
        assert_eq!(events(text, 100), expected);
    }

    #[test]
    fn a_response_that_is_too_long_is_refused_and_noise_of_any_length_is_skipped() {
        let long = "x".repeat(100);
        assert_eq!(events(&format!("{long}\n=1 a\n\n"), 20), [response(true, Some(1), "a"), Event::End]);
        assert_eq!(events(&format!("=1 {long}\n"), 20), [Event::End], "a line without a beginning is noise");
        assert_eq!(events("=1 a\nbbbbbbbb\ncccccccc\ndddddddd\n\n", 20)[0], Event::TooLong);
    }
}
