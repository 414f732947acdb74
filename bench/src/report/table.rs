use std::fmt::Write as _;

use super::{Report, Row, Unit, distinct};

/// Cell of a value that was not measured, and of a metric that a row does not have.
const MISSING: &str = "–";

impl Report {
    /// Formats the report as human-readable Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write(self, &mut text);
        text
    }
}

fn write(report: &Report, text: &mut String) -> std::fmt::Result {
    let Report { title, cpu, target, cores, settings, notes, findings, compared, .. } = report;
    writeln!(text, "# {title}\n\n- machine: {cpu}, {target}, {cores} cores")?;
    let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if !settings.is_empty() {
        writeln!(text, "- settings: {}", settings.join(", "))?;
    }
    for note in notes {
        writeln!(text, "- {note}")?;
    }
    if let Some(compared) = compared {
        match &compared.refused {
            Some(reason) => writeln!(text, "- not compared with {}: {reason}", compared.file)?,
            None => writeln!(text, "- ×, points: since {}, measured on {}", compared.file, compared.cpu)?,
        }
    }
    for finding in findings {
        writeln!(text, "\n{finding}")?;
    }
    let sections = report.sections();
    for section in &sections {
        if sections.len() > 1 {
            writeln!(text, "\n## {section}")?;
        }
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.section == *section).collect();
        table(&rows, text)?;
    }
    Ok(())
}

/// Writes a table with a line for each set of dimensions and a column for each metric.
fn table(rows: &[&Row], text: &mut String) -> std::fmt::Result {
    let names = distinct(rows.iter().flat_map(|row| row.dimensions.iter().map(|(name, _)| name)));
    let metrics = distinct(rows.iter().map(|row| row.metric.as_str()));
    let columns = names.iter().chain(&metrics);
    writeln!(text, "\n| {} |", columns.map(|name| name.replace('|', "/")).collect::<Vec<_>>().join(" | "))?;
    writeln!(text, "|{}{}", "---|".repeat(names.len()), "---:|".repeat(metrics.len()))?;
    for dimensions in distinct(rows.iter().map(|row| &row.dimensions)) {
        let mut cells: Vec<String> =
            names.iter().map(|name| dimensions.get(name).unwrap_or(MISSING).to_owned()).collect();
        for metric in &metrics {
            let row = rows.iter().find(|row| row.metric == *metric && row.dimensions == *dimensions);
            cells.push(row.map_or_else(|| MISSING.to_owned(), |row| cell(row)));
        }
        writeln!(text, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

/// Formats a value with the unit, and the change next to it.
fn cell(row: &Row) -> String {
    let Some(value) = row.value else { return MISSING.to_owned() };
    let mut text = in_unit(value, row.unit);
    if let Some(change) = row.change {
        text += &match row.unit {
            Unit::Share => format!(" ({:+.1} points)", 100.0 * change),
            _ => format!(" (×{change:.2})"),
        };
    }
    text
}

/// Formats a value for human readers, with the unit.
pub(crate) fn in_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count | Unit::PerSecond | Unit::Cores => number(value),
        Unit::Share => format!("{:.1} %", 100.0 * value),
        Unit::Ratio => format!("{value:.2}×"),
        Unit::Microseconds => time(value),
        Unit::Bytes => bytes(value),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
    }
}

/// Formats a number with at least three digits: `0.42`, `7.31`, `812`, `24100`, `3.05 M`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e9 => format!("{:.2} G", value / 1e9),
        _ if size >= 1e6 => format!("{:.2} M", value / 1e6),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a time with three digits or more, in microseconds, milliseconds or seconds.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", number(us)),
        us if us < 999.5e3 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

/// Formats a size with three digits or more, in bytes, kilobytes, megabytes or gigabytes.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 999.5e3 => format!("{} kB", number(bytes / 1e3)),
        bytes if bytes < 999.5e6 => format!("{} MB", number(bytes / 1e6)),
        bytes => format!("{} GB", number(bytes / 1e9)),
    }
}

/// Formats a share, such as `71.3 %`; a dash if it was not measured.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_three_digits_and_large_ones_have_a_prefix() {
        let numbers = [12_345.0, 1234.5, 99.94, 4.567, 0.0123, 6.1e6, 4e11].map(number);
        assert_eq!(numbers, ["12345", "1234", "99.9", "4.57", "0.01", "6.10 M", "400.00 G"]);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(
            [1.234, 56.78, 999.0, 12_345.0, 2_500_000.0].map(time),
            ["1.23 µs", "56.8 µs", "999 µs", "12.3 ms", "2.50 s"]
        );
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!([270.4, 50_000.0, 110e6, 2e9].map(bytes), ["270 B", "50.0 kB", "110 MB", "2.00 GB"]);
    }
}
