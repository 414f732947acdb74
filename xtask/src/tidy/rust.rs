//! Rust source as the counts need it: lines by kind, code without comments and literals, tests marked.

use super::{Source, has_extension};

/// The content of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// Nothing but whitespace.
    Blank,
    /// A comment alone.
    Comment,
    /// Code of the program.
    Code,
    /// Anything inside an item marked `#[cfg(test)]`, the mark included.
    Test,
}

/// A file of Rust.
#[derive(Debug)]
pub(super) struct File<'a> {
    /// Relative to the root, with `/`.
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    /// The text with comments, literals and test items blanked out; as many bytes and lines as the text.
    pub(super) code: String,
    /// One kind for each line.
    pub(super) lines: Vec<Line>,
    /// True for a file outside the program: tests, benches, fuzz targets.
    pub(super) is_test: bool,
}

/// Every Rust file of the tree.
pub(super) fn files(sources: &[Source]) -> Vec<File<'_>> {
    sources.iter().filter(|source| has_extension(&source.path, "rs")).map(File::new).collect()
}

impl<'a> File<'a> {
    fn new(source: &'a Source) -> Self {
        let text = source.text.as_str();
        let mut code = without_comments_and_literals(text);
        let mut lines: Vec<Line> = text
            .lines()
            .map(|line| match line.trim_start() {
                "" => Line::Blank,
                line if line.starts_with("//") => Line::Comment,
                _ => Line::Code,
            })
            .collect();
        for item in test_items(&code) {
            // A declaration, `mod tests;`, has nothing inside.
            if code[item.clone()].ends_with('}') {
                let first = code[..item.start].matches('\n').count();
                let count = code[item.clone()].matches('\n').count() + 1;
                lines[first..first + count].fill(Line::Test);
            }
            let blanked: String = code[item.clone()].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            code.replace_range(item, &blanked);
        }
        Self { path: &source.path, text, code, lines, is_test: is_test(&source.path) }
    }

    /// The count of lines of a kind.
    pub(super) fn count(&self, kind: Line) -> usize {
        self.lines.iter().filter(|line| **line == kind).count()
    }
}

/// True for a path outside the program.
fn is_test(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| ["tests", "fuzz", "benches", "tests.rs"].contains(&part))
}

/// The text with every comment, string and character literal replaced by as many spaces; lines stay where they are.
fn without_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !follows_word(bytes, at) => raw_string_end(bytes, at),
            b'\'' => character_end(bytes, at),
            _ => at,
        };
        let blank = &mut code[at..end];
        blank.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end.max(at + 1);
    }
    // Whole literals were blanked, so no character was cut; anything else would be a bug of the scan.
    String::from_utf8_lossy(&code).into_owned()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |len| at + len)
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0, at);
    while end < bytes.len() {
        match &bytes[end..] {
            [b'/', b'*', ..] => (depth, end) = (depth + 1, end + 2),
            [b'*', b'/', ..] => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            break;
        }
    }
    end
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// Behind `r"…"` or `r#"…"#`; `at` if no raw string begins there.
fn raw_string_end(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return at;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let inside = &bytes[open + 1..];
    let len = inside.windows(close.len()).position(|window| window == close);
    len.map_or(bytes.len(), |len| open + 1 + len + close.len())
}

/// Behind `'x'` or `'\n'`; `at` for a lifetime or a label.
fn character_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at + 1) {
        Some(b'\\') => {
            let closing = bytes.iter().skip(at + 3).position(|byte| *byte == b'\'');
            closing.map_or(bytes.len(), |len| at + 3 + len + 1)
        }
        // A character has up to four bytes; a lifetime has no second quote that near unless it is one letter in a pair.
        Some(first) => {
            let len = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            if bytes.get(at + 1 + len) == Some(&b'\'') { at + len + 2 } else { at }
        }
        None => at,
    }
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// The bytes of every item marked `#[cfg(test)]` in code without comments and literals, in order.
fn test_items(code: &str) -> Vec<std::ops::Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for (start, _) in code.match_indices(MARK) {
        if found.last().is_none_or(|last| start >= last.end) {
            found.push(start..item_end(code, start + MARK.len()));
        }
    }
    found
}

/// Behind the item whose first byte or attribute is at `at`: its closing brace, or its semicolon or comma.
fn item_end(code: &str, at: usize) -> usize {
    let (mut depth, mut in_attribute) = (0_usize, false);
    let bytes = code.as_bytes();
    for (index, &byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'#' if depth == 0 => in_attribute = true,
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                if depth == 0 {
                    return index;
                }
                depth -= 1;
                if depth == 0 && in_attribute {
                    in_attribute = false;
                } else if depth == 0 && byte == b'}' && bytes.get(index + 1) != Some(&b';') {
                    return index + 1;
                }
            }
            b';' | b',' if depth == 0 => return index + 1,
            _ => {}
        }
    }
    code.len()
}
