//! The charset of a file: [`decode`].

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Maximum number of characters quoted from the name of a charset.
const NAME_CHARACTERS_MAX: usize = 40;
/// Largest character of two bytes in UTF-8. Text in a two-byte charset is rarely valid UTF-8 with larger characters,
/// and text in a single-byte charset rarely with any beyond ASCII.
const TWO_BYTES_MAX: char = '\u{7ff}';

/// Text in UTF-8, and a note if the charset was unclear.
pub(super) type Decoded<'a> = (Cow<'a, str>, Option<String>);

/// Returns the charset of a file with a byte order mark, and how long the mark is. In UTF-16 without a mark, one byte
/// of the first character, `(`, is zero.
pub(super) fn by_beginning(bytes: &[u8]) -> Option<(&'static Encoding, usize)> {
    Encoding::for_bom(bytes).or(match bytes {
        [b'(', 0, ..] => Some((UTF_16LE, 0)),
        [0, b'(', ..] => Some((UTF_16BE, 0)),
        _ => None,
    })
}

/// Decodes a file with a byte order mark or in UTF-16, or with this value of `CA`. Without a known one, text other than
/// UTF-8 is Latin-1 by the specification; Windows-1252 has the same letters.
pub(super) fn decode<'a>(bytes: &'a [u8], charset: Option<&str>) -> Decoded<'a> {
    if let Some((encoding, mark)) = by_beginning(bytes) {
        return decode_by(encoding, &bytes[mark..]);
    }
    let utf8 = std::str::from_utf8(bytes).ok();
    let name: String = charset.map_or("", str::trim).chars().take(NAME_CHARACTERS_MAX).collect();
    let Some(encoding) = named(&name) else {
        let encoding = if utf8.is_some() { UTF_8 } else { WINDOWS_1252 };
        let reason = if name.is_empty() { "there is no CA".into() } else { format!("CA[{name}] is no known charset") };
        let note = || format!("{reason}: the file is read as {}", encoding.name());
        return (decode_by(encoding, bytes).0, (!name.is_empty() || utf8.is_none()).then(note));
    };
    let (text, note) = decode_by(encoding, bytes);
    let limit = if encoding.is_single_byte() { '\u{7f}' } else { TWO_BYTES_MAX };
    let is_certain = |text: &&str| note.is_some() || text.chars().any(|c| c > limit);
    match utf8.filter(|_| encoding != UTF_8).filter(is_certain) {
        Some(text) => (text.into(), Some(format!("CA[{name}] is wrong: the file is read as UTF-8"))),
        None => (text, note),
    }
}

fn decode_by<'a>(encoding: &'static Encoding, bytes: &'a [u8]) -> Decoded<'a> {
    let (text, has_errors) = encoding.decode_without_bom_handling(bytes);
    (text, has_errors.then(|| format!("some bytes are not {}: they are read as U+FFFD", encoding.name())))
}

/// Returns the first value of `CA` in a file that is not UTF-8. Values are not skipped, since a value that ends with
/// the byte of `\` or `]` as a half of a character has no clear end before the charset is known.
pub(super) fn declared(bytes: &[u8]) -> Option<String> {
    let value = (0..bytes.len()).find_map(|at| {
        let value = bytes[at..].strip_prefix(b"CA")?.trim_ascii_start().strip_prefix(b"[")?;
        matches!(bytes[..at].trim_ascii_end().last(), Some(b'(' | b';' | b']')).then_some(value)
    })?;
    value.split(|&byte| byte == b']').next().map(|name| String::from_utf8_lossy(name).into_owned())
}

/// Returns the encoding with this [label](https://encoding.spec.whatwg.org/#names-and-labels), or with another name
/// that SGF editors write, such as a code page. There is none for UTF-16, in which the name would not be readable.
fn named(name: &str) -> Option<&'static Encoding> {
    let compact: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let compact = compact.to_ascii_lowercase();
    let page = compact.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let label = match (page, compact.as_str()) {
        ("932", _) | (_, "shiftjis") => "shift_jis",
        ("936", _) | (_, "euccn") => "gbk",
        ("949", _) | (_, "euckr" | "uhc") => "euc-kr",
        ("950", _) | (_, "big5hkscs") => "big5",
        ("65001", _) => "utf-8",
        (_, "eucjp") => "euc-jp",
        (_, compact) => compact,
    };
    let labels = [name, label, &format!("cp{page}")];
    let known = labels.into_iter().find_map(|label| Encoding::for_label(label.as_bytes()));
    known.filter(|encoding| encoding.output_encoding() == *encoding)
}
