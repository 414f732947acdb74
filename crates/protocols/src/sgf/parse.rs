//! The parser for files: [`Tree::parse`].

use std::cmp::Reverse;

use super::charset;
use super::tree::{BYTES_MAX, Node, Property, Tree};

/// Maximum number of nodes in a tree.
const NODES_MAX: usize = 300_000;
/// Maximum depth of nested variations. Some programs open one at every move.
const DEPTH_MAX: usize = 100_000;
/// Maximum number of values in all properties.
const VALUES_MAX: usize = 600_000;
/// Maximum number of letters in a property name.
const NAME_LETTERS_MAX: usize = 64;

/// The error for text that is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {problem}")]
pub struct Error {
    /// Number of bytes before the problem, in the text as UTF-8 without a byte order mark.
    pub offset: usize,
    /// The kind of problem.
    pub problem: Problem,
}

/// A problem in text that is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file exceeds the limit of bytes, nodes, values or nested variations.
    #[error("more than {max} {what}")]
    TooMany {
        /// Name of the counted things, such as `nodes`.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The text differs from the expected text.
    #[error("expected {expected}")]
    Expected {
        /// Description of the expected text.
        expected: &'static str,
    },
    /// The value of a property is invalid, or contradicts another value.
    #[error("{name}[{value}]: expected {expected}")]
    Value {
        /// Name of the property.
        name: String,
        /// The value, possibly truncated.
        value: String,
        /// Description of valid values.
        expected: String,
    },
}

impl Tree {
    /// Parses the first tree in a file. Decodes the text as the byte order mark or the property `CA` of the root
    /// states, which becomes `UTF-8`, or as UTF-16 if the first character has a zero byte. Reads a root without `;` and
    /// a file that ends early, and skips other text between properties; [`notes`](Self::notes) has a line for each of
    /// these and for further text after the tree.
    ///
    /// # Errors
    /// [`Error`] for text that is no tree, or that has more than 300,000 nodes, 600,000 values, 100,000 nested
    /// variations, or [`BYTES_MAX`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > BYTES_MAX {
            return Err(Error { offset: BYTES_MAX, problem: Problem::TooMany { what: "bytes", max: BYTES_MAX } });
        }
        let declared = charset::declared(bytes);
        // Text is decoded before it is parsed: a byte of `]` or `\` may be half of a character.
        let (mut tree, note) = if let Ok(text) = std::str::from_utf8(bytes)
            && charset::by_beginning(bytes).is_none()
        {
            let tree = Parser::new(text).tree()?;
            let (decoded, note) = charset::decode(bytes, tree.nodes[0].value("CA"));
            (if decoded == text { tree } else { Parser::new(&decoded).tree()? }, note)
        } else {
            let (decoded, note) = charset::decode(bytes, declared.as_deref());
            (Parser::new(&decoded).tree()?, note)
        };
        if let Some(name) = &declared
            && bytes.windows(2).any(|pair| !pair[0].is_ascii() && pair[1] == b'\\')
            && let Ok(escaped) = Self::parse_escaped(bytes, name)
            && escaped.clarity() > tree.clarity()
        {
            tree = escaped;
        }
        tree.notes.extend(note);
        for property in tree.nodes[0].properties.iter_mut().filter(|property| property.name == "CA") {
            property.values = vec!["UTF-8".into()];
        }
        Ok(tree)
    }

    /// Parses a file in which halves of characters are escaped if they are the bytes of `]` or `\`, as sgfmill writes.
    fn parse_escaped(bytes: &[u8], charset: &str) -> Result<Self, Error> {
        let text: String = bytes.iter().copied().map(char::from).collect();
        let mut tree = Parser::new(&text).tree()?;
        let properties = tree.nodes.iter_mut().flat_map(|node| &mut node.properties);
        for value in properties.flat_map(|property| &mut property.values) {
            let bytes: Vec<u8> = value.chars().filter_map(|c| u8::try_from(c).ok()).collect();
            *value = charset::decode(&bytes, Some(charset)).0.into_owned();
        }
        Ok(tree)
    }

    /// Orders two readings of a file. A wrong one skips text, or misses a `]` and joins two values.
    fn clarity(&self) -> (Reverse<usize>, usize) {
        let values = self.nodes.iter().flat_map(|node| &node.properties).map(|property| property.values.len());
        (Reverse(self.notes.len()), values.sum())
    }
}

/// The position in a text.
struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Number of values so far.
    values: usize,
    /// Position of the first skipped text between properties.
    skipped: Option<usize>,
}

impl<'a> Parser<'a> {
    const fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0, values: 0, skipped: None }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn limit(&self, count: usize, max: usize, what: &'static str) -> Result<(), Error> {
        let problem = Problem::TooMany { what, max };
        if count > max { Err(Error { offset: self.at, problem }) } else { Ok(()) }
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || byte == 0x0b) {
            self.at += 1;
        }
    }

    /// Skips to the first `(` before a `;`, or before a property of two letters, with which a root without `;` starts.
    fn skip_to_tree(&mut self) -> Result<(), Error> {
        while let Some(offset) = self.bytes[self.at..].iter().position(|&byte| byte == b'(') {
            let open = self.at + offset;
            self.at = open + 1;
            self.skip_space();
            let is_root = self.peek() == Some(b';') || (self.is_property() && self.name().len() == 2);
            self.at = open + usize::from(!is_root);
            if is_root {
                return Ok(());
            }
        }
        Err(Error { offset: self.bytes.len(), problem: Problem::Expected { expected: "`(;`" } })
    }

    /// Parses the first tree, without recursion: variations may be nested at every move.
    fn tree(mut self) -> Result<Tree, Error> {
        self.skip_to_tree()?;
        let (mut nodes, mut notes): (Vec<Node>, Vec<String>) = (Vec::new(), Vec::new());
        // The nodes where the open variations started, and the last node.
        let (mut open, mut last): (Vec<Option<usize>>, Option<usize>) = (Vec::new(), None);
        loop {
            self.skip_space();
            match self.peek() {
                Some(b'(') => {
                    open.push(last);
                    self.limit(open.len(), DEPTH_MAX, "nested variations")?;
                    self.at += 1;
                }
                Some(b')') => {
                    self.at += 1;
                    last = open.pop().flatten();
                    if open.is_empty() {
                        break;
                    }
                }
                Some(byte) if byte == b';' || self.is_property() => {
                    let (offset, child) = (self.at, nodes.len());
                    self.limit(child + 1, NODES_MAX, "nodes")?;
                    self.at += usize::from(byte == b';');
                    let properties = self.properties()?;
                    if let Some(parent) = last.replace(child) {
                        nodes[parent].children.push(child);
                    }
                    nodes.push(Node { properties, children: Vec::new(), offset });
                }
                Some(_) => self.skip_text(),
                None => {
                    notes.push("the file ends before the game: moves may be missing".to_owned());
                    break;
                }
            }
        }
        self.skip_space();
        let after = self.peek().map(|_| format!("text from byte {} on is not read: the game ends there", self.at));
        let skipped = self.skipped.map(|at| format!("text that is no property is skipped, first at byte {at}"));
        notes.extend(skipped.into_iter().chain(after));
        Ok(Tree { nodes, notes })
    }

    fn properties(&mut self) -> Result<Vec<Property>, Error> {
        let mut properties = Vec::new();
        loop {
            self.skip_space();
            if matches!(self.peek(), None | Some(b'(' | b')' | b';')) {
                return Ok(properties);
            }
            if !self.is_property() {
                self.skip_text();
                continue;
            }
            let (name, mut values) = (self.name(), Vec::new());
            self.skip_space();
            while self.peek() == Some(b'[') {
                self.values += 1;
                self.limit(self.values, VALUES_MAX, "values")?;
                values.extend(self.value());
                self.skip_space();
            }
            // There is none if the file ends in the first value.
            if !values.is_empty() {
                properties.push(Property { name, values });
            }
        }
    }

    /// Returns true if a name and a value follow.
    fn is_property(&self) -> bool {
        let rest = &self.bytes[self.at..];
        let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric();
        let letters = rest.iter().take(NAME_LETTERS_MAX + 1).take_while(is_letter).count();
        rest.first().is_some_and(u8::is_ascii_alphabetic)
            && letters <= NAME_LETTERS_MAX
            && rest[letters..].trim_ascii_start().first() == Some(&b'[')
    }

    /// Skips a value without a name, or a character.
    fn skip_text(&mut self) {
        self.skipped = self.skipped.or(Some(self.at));
        if self.peek() == Some(b'[') {
            self.value();
        } else {
            self.at += 1;
        }
    }

    /// Parses a name. Lower-case letters do not count, unless a name has no others: earlier versions of SGF wrote
    /// `AddBlack` for `AB`.
    fn name(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        let written = &self.bytes[start..self.at];
        let short: Vec<u8> = written.iter().copied().filter(|byte| !byte.is_ascii_lowercase()).collect();
        let is_name = short.first().is_some_and(u8::is_ascii_uppercase);
        let name = if is_name { short } else { written.to_ascii_uppercase() };
        name.into_iter().map(char::from).collect()
    }

    /// Parses a value; the position is at the `[`. Escapes are resolved, line breaks become line feeds, other white
    /// space becomes spaces. Returns `None` if the file ends in the value.
    fn value(&mut self) -> Option<String> {
        self.at += 1;
        let mut text = Vec::new();
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b']' => return Some(String::from_utf8_lossy(&text).into_owned()),
                b'\\' => match self.peek() {
                    Some(b'\n' | b'\r') => self.skip_line_break(),
                    Some(escaped) => {
                        self.at += 1;
                        text.push(if is_space(escaped) { b' ' } else { escaped });
                    }
                    None => {}
                },
                b'\n' | b'\r' => {
                    self.at -= 1;
                    self.skip_line_break();
                    text.push(b'\n');
                }
                byte => text.push(if is_space(byte) { b' ' } else { byte }),
            }
        }
        None
    }

    /// Skips a line feed, a carriage return, or both in any order.
    fn skip_line_break(&mut self) {
        let first = self.peek();
        self.at += 1;
        let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
        if self.peek().filter(is_break).is_some_and(|second| Some(second) != first) {
            self.at += 1;
        }
    }
}

/// Returns true for white space other than line breaks.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | 0x0b | 0x0c)
}
