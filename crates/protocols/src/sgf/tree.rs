//! A game tree with properties, and the text form: [`Tree`].

use std::fmt::{self, Write as _};

/// Maximum size of a file, in bytes. Programs save their analysis in records, at several kilobytes a move.
pub const BYTES_MAX: usize = 16 << 20;

/// A tree of nodes. Node 0 is the root; a child has a larger index than the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Descriptions of what was unclear in the file, and of how it was read.
    pub notes: Vec<String>,
}

/// A node of a tree.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Properties, in file order.
    pub properties: Vec<Property>,
    /// Indices of the children; the first continues the main line.
    pub(super) children: Vec<usize>,
    /// Number of bytes before the node in the decoded text.
    pub(super) offset: usize,
}

/// Compares properties and children; offsets may differ.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.properties == other.properties && self.children == other.children
    }
}

impl Eq for Node {}

/// A property of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Name, in capital letters.
    pub name: String,
    /// Values without escapes, at least one.
    pub values: Vec<String>,
}

impl Property {
    /// Returns a property with one value.
    #[must_use]
    pub fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.into(), values: vec![value.into()] }
    }
}

impl Node {
    /// Returns a node with these properties.
    #[must_use]
    pub fn new(properties: Vec<Property>) -> Self {
        Self { properties, ..Self::default() }
    }

    /// Returns the first value of the first property with this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let property = self.properties.iter().find(|property| property.name == name)?;
        property.values.first().map(String::as_str)
    }
}

impl Tree {
    /// Returns a tree with a single node.
    #[must_use]
    pub fn new(root: Node) -> Self {
        Self { nodes: vec![root], notes: Vec::new() }
    }

    /// Appends a child to `parent` and returns the index of the new node.
    ///
    /// # Panics
    /// If there is no node `parent`, a bug of the caller.
    pub fn add(&mut self, parent: usize, properties: Vec<Property>) -> usize {
        let index = self.nodes.len();
        self.nodes[parent].children.push(index);
        self.nodes.push(Node::new(properties));
        index
    }

    /// Appends a property to a node.
    ///
    /// # Panics
    /// If there is no node `node`, a bug of the caller.
    pub fn annotate(&mut self, node: usize, property: Property) {
        self.nodes[node].properties.push(property);
    }

    /// Returns all nodes, root first.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the root and the successive first children.
    pub fn main_line(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.nodes.first(), move |node| node.children.first().map(|&child| &self.nodes[child]))
    }
}

/// Formats the tree as a file: one line per node.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A piece of the text still to be written.
        enum Piece {
            Node(usize),
            Open,
            Close,
        }
        // A stack instead of recursion: a main line may have thousands of nodes.
        let mut pieces = vec![Piece::Close, Piece::Node(0), Piece::Open];
        while let Some(piece) = pieces.pop() {
            match piece {
                Piece::Open => f.write_char('(')?,
                Piece::Close => f.write_str(")\n")?,
                Piece::Node(index) => {
                    let node = &self.nodes[index];
                    writeln!(f, "{node}")?;
                    match *node.children {
                        [child] => pieces.push(Piece::Node(child)),
                        ref children => {
                            for &child in children.iter().rev() {
                                pieces.extend([Piece::Close, Piece::Node(child), Piece::Open]);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Formats a node: `;B[dd]C[a comment]`.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(';')?;
        for property in &self.properties {
            f.write_str(&property.name)?;
            for value in &property.values {
                write!(f, "[{}]", value.replace('\\', "\\\\").replace(']', "\\]"))?;
            }
        }
        Ok(())
    }
}
