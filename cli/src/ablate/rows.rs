//! The results file of an ablation, with a CSV line for each run. A study resumes from this file alone, and the report
//! needs no other file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use event_file::AppendLog;

use super::design::Pair;
use crate::csv;
use crate::tune::measures_of_positions;

/// Columns of the results file before the columns of the switches.
pub(super) const COLUMNS_BEFORE: [&str; 4] = ["study", "design", "row", "side"];
/// Columns of the results file between the columns of switches and metrics.
pub(super) const COLUMNS_AFTER: [&str; 9] =
    ["seed", "machine", "cores", "commit", "date", "minutes", "positions", "steps", "games"];

/// The fields of one run: a map from column name to text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row(pub BTreeMap<String, String>);

impl Row {
    /// Returns the field in a column, or an empty string if the row lacks the column.
    pub(super) fn get(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// Returns the field in a column as a number; `None` if the field is absent or not a number.
    pub(super) fn number(&self, column: &str) -> Option<f64> {
        self.get(column).parse().ok()
    }

    /// Returns the fields in which both runs of a pair must agree: row, seed, machine and commit.
    fn circumstances(&self) -> [&str; 4] {
        ["row", "seed", "machine", "commit"].map(|column| self.get(column))
    }
}

/// Returns the latest two rows of each complete pair in `rows`. A pair is complete if both sides ran on the same
/// machine with the same program.
pub(super) fn complete(rows: &[Row]) -> Vec<[&Row; 2]> {
    let mut newest: BTreeMap<[&str; 2], [&Row; 2]> = BTreeMap::new();
    for (index, second) in rows.iter().enumerate() {
        let mut before = rows[..index].iter().rev();
        let is_other =
            |first: &&Row| first.get("side") != second.get("side") && first.circumstances() == second.circumstances();
        if let Some(first) = before.find(is_other) {
            newest.insert(["row", "seed"].map(|column| second.get(column)), [first, second]);
        }
    }
    newest.into_values().collect()
}

/// An open results file with the rows read or appended so far.
#[derive(Debug)]
pub(super) struct Rows {
    columns: Vec<String>,
    log: AppendLog,
    rows: Vec<Row>,
}

impl Rows {
    /// Opens the results file at `path`, or creates the file.
    ///
    /// # Errors
    /// The file cannot be read or written, or has columns for other switches.
    pub(super) fn open(path: &Path, switches: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let named = || format!("open {}", path.display());
        let [before, after] =
            [&COLUMNS_BEFORE[..], &COLUMNS_AFTER[..]].map(|columns| columns.iter().map(|c| (*c).to_owned()));
        // A field of a metric is empty if the run lacks the metric.
        let metrics = measures_of_positions().chain(["loss/total".to_owned()]);
        let columns: Vec<String> = before.chain(switches).chain(after).chain(metrics).collect();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        service::directory::writable(folder)?;
        let mut log = AppendLog::open(path).with_context(named)?;
        log.end_last_line().with_context(named)?;
        let text = fs::read_to_string(path).with_context(named)?;
        let heading = csv::line(&columns);
        match text.lines().next() {
            None => log.append(heading.as_bytes()).with_context(named)?,
            Some(first) => ensure!(
                first == heading.trim_end(),
                "{} has the columns of another study or program version; choose another file with --csv",
                path.display()
            ),
        }
        log.sync().with_context(named)?;
        service::directory::sync(folder)?;
        Ok(Self { columns, log, rows: parsed(&text) })
    }

    /// Reads all rows of the results file at `path`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Row>> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Ok(parsed(&text))
    }

    /// Appends a row and waits until the row is durable.
    ///
    /// # Errors
    /// The row cannot be written; the file is unchanged.
    pub(super) fn append(&mut self, row: Row) -> anyhow::Result<()> {
        let line = csv::line(self.columns.iter().map(|column| row.get(column)));
        self.log.append(line.as_bytes()).and_then(|()| self.log.sync()).context("append to the results file")?;
        self.rows.push(row);
        Ok(())
    }

    /// Returns the indices of the runs in a pair that have no row from this machine and program. The result is empty if
    /// the pair is complete, even from another machine. `identity` contains the fields that all rows of the pair share.
    pub(super) fn missing(&self, pair: &Pair, identity: &Row, machine: &str, commit: &str) -> Vec<usize> {
        let of_pair = |row: &&Row| identity.0.iter().all(|(column, value)| row.get(column) == value);
        let rows: Vec<Row> = self.rows.iter().filter(of_pair).cloned().collect();
        if !complete(&rows).is_empty() {
            return Vec::new();
        }
        let is_here = |row: &Row| row.get("machine") == machine && row.get("commit") == commit;
        let is_made = |run: &usize| rows.iter().any(|row| row.get("side") == pair.runs[*run].side && is_here(row));
        (0..pair.runs.len()).filter(|run| !is_made(run)).collect()
    }
}

/// Parses the rows of a results file, and skips lines that a crash truncated.
fn parsed(text: &str) -> Vec<Row> {
    let mut lines = text.lines().map(csv::fields);
    let columns = lines.next().unwrap_or_default();
    let whole = lines.filter(|fields| fields.len() == columns.len());
    whole.map(|fields| Row(columns.iter().cloned().zip(fields).collect())).collect()
}
