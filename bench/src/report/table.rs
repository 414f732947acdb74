use std::fmt::Write as _;

use super::{Report, Row, Unit};
use crate::digits::{bytes, number, time};

/// Stands for a value that was not measured, and for a metric that a row does not have.
const MISSING: &str = "–";

/// The whole report as Markdown.
pub(super) fn markdown(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(report, &mut text);
    text
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

/// A line for each set of dimensions, a column for each metric.
fn table(rows: &[&Row], text: &mut String) -> std::fmt::Result {
    let mut names: Vec<&str> = Vec::new();
    let mut metrics: Vec<&str> = Vec::new();
    let mut lines: Vec<&Row> = Vec::new();
    for row in rows {
        names.extend(
            row.dimensions.iter().map(|(name, _)| name).filter(|name| !names.contains(name)).collect::<Vec<_>>(),
        );
        if !metrics.contains(&row.metric.as_str()) {
            metrics.push(&row.metric);
        }
        if !lines.iter().any(|line| line.dimensions == row.dimensions) {
            lines.push(row);
        }
    }
    let columns = names.iter().chain(&metrics);
    writeln!(text, "\n| {} |", columns.map(|name| name.replace('|', "/")).collect::<Vec<_>>().join(" | "))?;
    writeln!(text, "|{}{}", "---|".repeat(names.len()), "---:|".repeat(metrics.len()))?;
    for line in lines {
        let mut cells: Vec<String> =
            names.iter().map(|name| line.dimensions.get(name).unwrap_or(MISSING).to_owned()).collect();
        for metric in &metrics {
            let row = rows.iter().find(|row| row.metric == **metric && row.dimensions == line.dimensions);
            cells.push(row.map_or_else(|| MISSING.to_owned(), |row| cell(row)));
        }
        writeln!(text, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

/// A value with its unit, and its change beside it.
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

/// A value as people read it.
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
