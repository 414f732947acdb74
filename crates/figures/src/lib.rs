//! Formats results for readers: [`plot`] draws charts as SVG, [`table`] writes tables as text and Markdown.
//!
//! The crate returns text and opens no file. Start with [`plot::Figure`] and [`table::Table`].

pub mod plot;
pub mod table;
