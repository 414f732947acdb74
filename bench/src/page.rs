//! The report of a benchmark as Markdown.

use figures::table::{MISSING, Table};

use crate::report::{Report, Row, distinct};
use crate::units::{Unit, in_unit};

impl Report {
    /// Formats the report as human-readable Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let Self { title, cpu, target, cores, settings, notes, findings, compared, .. } = self;
        let mut text = format!("# {title}\n\n- machine: {cpu}, {target}, {cores} cores\n");
        let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if !settings.is_empty() {
            text += &format!("- settings: {}\n", settings.join(", "));
        }
        notes.iter().for_each(|note| text += &format!("- {note}\n"));
        if let Some(compared) = compared {
            text += &match &compared.refused {
                Some(reason) => format!("- not compared with {}: {reason}\n", compared.file),
                None => format!("- ×, points: since {}, measured on {}\n", compared.file, compared.cpu),
            };
        }
        findings.iter().for_each(|finding| text += &format!("\n{finding}\n"));
        let sections = self.sections();
        for section in &sections {
            if sections.len() > 1 {
                text += &format!("\n## {section}\n");
            }
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.section == *section).collect();
            text += &format!("\n{}", table(&rows).markdown());
        }
        text
    }
}

/// Returns a table with a line for each set of dimensions and a column for each metric.
fn table(rows: &[&Row]) -> Table {
    let names = distinct(rows.iter().flat_map(|row| row.dimensions.iter().map(|(name, _)| name)));
    let metrics = distinct(rows.iter().map(|row| row.metric.as_str()));
    let mut table = Table::default().words(names.iter().copied()).numbers(metrics.iter().copied());
    for dimensions in distinct(rows.iter().map(|row| &row.dimensions)) {
        let named = names.iter().map(|name| dimensions.get(name).unwrap_or(MISSING).to_owned());
        let measured = metrics.iter().map(|metric| {
            let row = rows.iter().find(|row| row.metric == *metric && row.dimensions == *dimensions);
            row.map_or_else(|| MISSING.to_owned(), |row| cell(row))
        });
        table.row(named.chain(measured));
    }
    table
}

/// Formats a value with the unit, and the change next to it.
fn cell(row: &Row) -> String {
    let Some(value) = row.value else { return MISSING.to_owned() };
    let change = row.change.map(|change| match row.unit {
        Unit::Share => format!(" ({:+.1} points)", 100.0 * change),
        _ => format!(" (×{change:.2})"),
    });
    in_unit(value, row.unit) + &change.unwrap_or_default()
}
