//! Formats tables as aligned text and as Markdown. Start with [`Table`].

use std::fmt;

/// Cell of a value that was not measured.
pub const MISSING: &str = "–";

/// A table: columns of words, aligned to the left, and of numbers, aligned to the right.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Clone)]
struct Column {
    name: String,
    align: Align,
}

#[derive(Debug, Clone, Copy)]
enum Align {
    Left,
    Right,
}

impl Table {
    /// Adds columns of words after the existing columns.
    #[must_use]
    pub fn words<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        self.with(Align::Left, names)
    }

    /// Adds columns of numbers after the existing columns.
    #[must_use]
    pub fn numbers<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        self.with(Align::Right, names)
    }

    fn with<S: Into<String>>(mut self, align: Align, names: impl IntoIterator<Item = S>) -> Self {
        self.columns.extend(names.into_iter().map(|name| Column { name: name.into(), align }));
        self
    }

    /// Adds a row with one cell per column.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell per column");
        self.rows.push(cells);
    }

    /// Returns the heading and the rows as lines of text with aligned columns.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let heading: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        let rows: Vec<&Vec<String>> = [&heading].into_iter().chain(&self.rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).zip(&self.columns).map(|((cell, &width), column)| match column.align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.into_iter().map(line).collect()
    }

    /// Returns the table as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let rule = self.columns.iter().map(|column| match column.align {
            Align::Left => "---|",
            Align::Right => "---:|",
        });
        let heading = markdown_line(self.columns.iter().map(|column| &column.name));
        let rows = self.rows.iter().map(|row| markdown_line(row.iter()));
        format!("{heading}|{}\n{}", rule.collect::<String>(), rows.collect::<String>())
    }
}

fn markdown_line<'a>(cells: impl Iterator<Item = &'a String>) -> String {
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
}

/// Formats the table as lines of text with aligned columns, each with a line break.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Formats a share, such as `71.3 %`.
#[must_use]
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| MISSING.to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::default().numbers(["games"]).words(["players"]).numbers(["µs"]);
        table.row(["7", "a|b", "12.5"]);
        table.row(["1024", "longest", MISSING]);
        table
    }

    #[test]
    fn words_are_aligned_to_the_left_and_numbers_to_the_right() {
        let expected = "games  players    µs\n    7  a|b      12.5\n 1024  longest     –\n";
        assert_eq!(table().to_string(), expected);
    }

    #[test]
    fn a_line_has_no_spaces_at_the_end() {
        let mut table = Table::default().words(["name", "note"]);
        table.row(["a", ""]);
        assert_eq!(table.lines(), ["name  note", "a"]);
    }

    #[test]
    fn markdown_has_a_rule_with_the_alignment_and_escapes_bars() {
        let expected = "| games | players | µs |\n|---:|---|---:|\n| 7 | a\\|b | 12.5 |\n| 1024 | longest | – |\n";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    #[should_panic(expected = "one cell per column")]
    fn a_row_of_another_length_is_a_bug() {
        table().row(["1"]);
    }
}
