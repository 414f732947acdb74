//! Game records in [SGF](https://www.red-bean.com/sgf/), version 4: [`read`] and [`write()`].
//!
//! The supported games are Go, Othello, Gomoku and Hex (`GM` 1, 2, 4 and 11). A file may hold variations; the record
//! is the main line. [`Tree`] holds the whole tree with all properties. Input is limited to [`BYTES_MAX`] bytes, and
//! to the nodes, depth and values documented in [`Tree::parse`]. Records of other programs are read as far as they are
//! clear, with notes; text may have any charset.

mod charset;
mod game_file;
mod komi;
mod parse;
mod point;
mod tree;

pub use game_file::{GameFile, read, write};
pub use parse::{Error, Problem};
pub use tree::{BYTES_MAX, Node, Property, Tree};

#[cfg(test)]
mod tests;
