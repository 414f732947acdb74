//! The parser for files: [`Tree::parse`].

use super::tree::{BYTES_MAX, Node, Property, Tree};

/// Maximum number of nodes in a tree.
const NODES_MAX: usize = 100_000;
/// Maximum depth of nested variations.
const DEPTH_MAX: usize = 1_000;
/// Maximum number of values in all properties.
const VALUES_MAX: usize = 200_000;
/// Maximum number of letters in a property name.
const NAME_LETTERS_MAX: usize = 64;

/// The error for text that is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {problem}")]
pub struct Error {
    /// Number of bytes before the problem.
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
    /// Parses the first tree in a file. Skips text before it, and further trees.
    ///
    /// # Errors
    /// [`Error`] for text that is no tree, or that has more than 100,000 nodes, 200,000 values, 1,000 nested
    /// variations, or [`BYTES_MAX`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut parser = Parser { bytes, at: 0, values: 0 };
        if bytes.len() > BYTES_MAX {
            return Err(Error { offset: BYTES_MAX, problem: Problem::TooMany { what: "bytes", max: BYTES_MAX } });
        }
        parser.skip_to_tree()?;
        parser.tree()
    }
}

/// The position in a file.
struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Number of values so far.
    values: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn error(&self, problem: Problem) -> Error {
        Error { offset: self.at, problem }
    }

    fn expected(&self, expected: &'static str) -> Error {
        self.error(Problem::Expected { expected })
    }

    fn limit(&self, count: usize, max: usize, what: &'static str) -> Result<(), Error> {
        if count > max { Err(self.error(Problem::TooMany { what, max })) } else { Ok(()) }
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || byte == 0x0b) {
            self.at += 1;
        }
    }

    /// Skips to the first `(` before a `;`.
    fn skip_to_tree(&mut self) -> Result<(), Error> {
        while let Some(offset) = self.bytes[self.at..].iter().position(|&byte| byte == b'(') {
            let open = self.at + offset;
            self.at = open + 1;
            self.skip_space();
            if self.peek() == Some(b';') {
                self.at = open;
                return Ok(());
            }
        }
        self.at = self.bytes.len();
        Err(self.expected("`(;`"))
    }

    /// Parses a tree; the position is at the `(`.
    fn tree(&mut self) -> Result<Tree, Error> {
        let mut nodes: Vec<Node> = Vec::new();
        // The nodes where the open variations started, and the last node.
        let (mut open, mut last): (Vec<Option<usize>>, Option<usize>) = (Vec::new(), None);
        loop {
            self.skip_space();
            let byte = self.peek();
            match byte {
                Some(b'(') if open.is_empty() || last.is_some() => {
                    open.push(last);
                    self.limit(open.len(), DEPTH_MAX, "nested variations")?;
                    self.at += 1;
                    self.skip_space();
                    if self.peek() != Some(b';') {
                        return Err(self.expected("`;` behind `(`"));
                    }
                }
                Some(b';') => {
                    let offset = self.at;
                    self.at += 1;
                    self.limit(nodes.len() + 1, NODES_MAX, "nodes")?;
                    let properties = self.properties()?;
                    if let Some(parent) = last {
                        let child = nodes.len();
                        nodes[parent].children.push(child);
                    }
                    last = Some(nodes.len());
                    nodes.push(Node { properties, children: Vec::new(), offset });
                }
                Some(b')') => {
                    self.at += 1;
                    last = open.pop().flatten();
                    if open.is_empty() {
                        return Ok(Tree { nodes });
                    }
                }
                _ => return Err(self.expected("`;`, `(` or `)`")),
            }
        }
    }

    fn properties(&mut self) -> Result<Vec<Property>, Error> {
        let mut properties = Vec::new();
        loop {
            self.skip_space();
            if !self.peek().is_some_and(|byte| byte.is_ascii_alphabetic()) {
                return Ok(properties);
            }
            let name = self.name()?;
            let mut values = Vec::new();
            self.skip_space();
            while self.peek() == Some(b'[') {
                self.values += 1;
                self.limit(self.values, VALUES_MAX, "values")?;
                values.push(self.value()?);
                self.skip_space();
            }
            if values.is_empty() {
                return Err(self.expected("`[` after a property name"));
            }
            properties.push(Property { name, values });
        }
    }

    /// Parses a name. Lower-case letters do not count: earlier versions of SGF wrote `AddBlack` for `AB`.
    fn name(&mut self) -> Result<String, Error> {
        let start = self.at;
        let mut name = String::new();
        while let Some(byte) = self.peek().filter(u8::is_ascii_alphanumeric) {
            if !byte.is_ascii_lowercase() {
                name.push(char::from(byte));
            }
            self.at += 1;
        }
        if name.is_empty() || self.at - start > NAME_LETTERS_MAX {
            self.at = start;
            return Err(self.expected("a property name in capital letters"));
        }
        Ok(name)
    }

    /// Parses a value; the position is at the `[`. Escapes are resolved, line breaks become line feeds, other white
    /// space becomes spaces.
    fn value(&mut self) -> Result<String, Error> {
        let start = self.at;
        self.at += 1;
        let mut text = Vec::new();
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b']' => return Ok(String::from_utf8_lossy(&text).into_owned()),
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
        self.at = start;
        Err(self.expected("`]` after a value"))
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
