//! The values that steps measure, with verdicts and a table of all rows.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum length of texts in the table; longer texts are cut, and `check.json` holds the full texts.
const NAME_LENGTH_MAX: usize = 66;
const VALUE_LENGTH_MAX: usize = 48;

/// One value of a step. The example `device` and `reference.py` print rows as JSON objects, one per line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// Name of the step.
    pub(super) step: String,
    /// Measured quantity or claim.
    pub(super) name: String,
    /// A number or a text; null is a number that is not finite.
    pub(super) value: Value,
    /// The unit of a number; empty for texts.
    pub(super) unit: String,
    /// Condition on the value; empty without one.
    pub(super) bar: String,
    /// What a missed bar means.
    pub(super) kind: Kind,
    /// True if the value meets the bar; null without a bar.
    pub(super) ok: Option<bool>,
}

/// Meaning of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A missed bar is a wrong result.
    Correctness,
    /// A missed bar is a slow result.
    Speed,
    /// There is no bar.
    Information,
    /// Not measured; the value is the reason.
    Skipped,
}

/// Verdict on a row or a step, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// A value without a bar.
    None,
    /// Not measured.
    Skip,
    /// The bar is met.
    Pass,
    /// A missed speed bar.
    Warn,
    /// A missed correctness bar.
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "-",
            Self::Skip => "SKIP",
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        })
    }
}

/// Rows of a check in progress.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    /// Name of the current step.
    step: &'static str,
}

impl Rows {
    /// Starts a step, to which further rows belong.
    pub(super) fn start(&mut self, step: &'static str) {
        self.step = step;
    }

    /// Returns the name of the current step.
    pub(super) fn step(&self) -> &'static str {
        self.step
    }

    pub(super) fn all(&self) -> &[Row] {
        &self.rows
    }

    /// Adds a claim that must hold, with the finding.
    pub(super) fn claim(&mut self, name: &str, found: &str, holds: bool) {
        self.add(name, (json!(found), ""), "holds", Kind::Correctness, Some(holds));
    }

    /// Adds a value that must be at most `bar`; NaN misses every bar.
    pub(super) fn at_most(&mut self, name: &str, (value, unit): (f64, &str), kind: Kind, bar: f64) {
        self.add(name, (json!(value), unit), &format!("<= {bar}"), kind, Some(value <= bar));
    }

    /// Adds a value that must be at least `bar`; NaN misses every bar.
    pub(super) fn at_least(&mut self, name: &str, (value, unit): (f64, &str), kind: Kind, bar: f64) {
        self.add(name, (json!(value), unit), &format!(">= {bar}"), kind, Some(value >= bar));
    }

    /// Adds a speed that must be at least `bar` if there is one.
    pub(super) fn speed(&mut self, name: &str, (value, unit): (f64, &str), bar: Option<f64>) {
        match bar {
            Some(bar) => self.at_least(name, (value, unit), Kind::Speed, bar),
            None => self.value(name, value, unit),
        }
    }

    /// Adds a number without a bar.
    pub(super) fn value(&mut self, name: &str, value: f64, unit: &str) {
        self.add(name, (json!(value), unit), "", Kind::Information, None);
    }

    /// Adds a text without a bar.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.add(name, (json!(text), ""), "", Kind::Information, None);
    }

    /// Adds the reason for a skipped measurement.
    pub(super) fn skipped(&mut self, name: &str, reason: &str) {
        self.add(name, (json!(reason), ""), "", Kind::Skipped, None);
    }

    fn add(&mut self, name: &str, (value, unit): (Value, &str), bar: &str, kind: Kind, ok: Option<bool>) {
        let [step, name, unit, bar] = [self.step, name, unit, bar].map(str::to_owned);
        self.rows.push(Row { step, name, value, unit, bar, kind, ok });
    }

    /// Adds the rows in the output of a program.
    ///
    /// # Errors
    /// The same errors as [`Row::parse`].
    pub(super) fn extend(&mut self, output: &str) -> Result<(), String> {
        let rows = Row::parse(output)?;
        self.rows.extend(rows.into_iter().map(|row| Row { step: self.step.to_owned(), ..row }));
        Ok(())
    }

    /// Returns the largest number among the rows of a step whose names match.
    pub(super) fn best(&self, step: &str, fits: impl Fn(&str) -> bool) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.step == step && fits(&row.name));
        rows.filter_map(|row| row.value.as_f64()).reduce(f64::max)
    }
}

impl Row {
    /// Parses the rows among the lines of a program's output.
    ///
    /// # Errors
    /// The first line that starts like an object but is no row.
    pub(super) fn parse(output: &str) -> Result<Vec<Self>, String> {
        let objects = output.lines().filter(|line| line.starts_with('{'));
        objects.map(|line| serde_json::from_str(line).map_err(|error| format!("{error} in `{line}`"))).collect()
    }

    /// Returns the verdict; a bar without an outcome counts as missed.
    pub(super) fn verdict(&self) -> Verdict {
        match (self.kind, self.ok) {
            (Kind::Information, _) => Verdict::None,
            (Kind::Skipped, _) => Verdict::Skip,
            (_, Some(true)) => Verdict::Pass,
            (Kind::Speed, _) => Verdict::Warn,
            (Kind::Correctness, _) => Verdict::Fail,
        }
    }

    /// Formats the value with the unit.
    fn shown(&self) -> String {
        match (&self.value, self.unit.as_str()) {
            (Value::String(text), _) => text.clone(),
            (Value::Number(number), unit) => format!("{} {unit}", number_text(number.as_f64().unwrap_or(f64::NAN))),
            (Value::Null, unit) => format!("not finite {unit}"),
            (other, _) => other.to_string(),
        }
    }
}

/// Returns the verdict on a step: the worst verdict among the rows. A step is skipped only if all rows are. A step
/// without rows has failed, since it has checked nothing.
pub(super) fn verdict_of(rows: &[Row], step: &str) -> Verdict {
    let mut verdicts: Vec<Verdict> = rows.iter().filter(|row| row.step == step).map(Row::verdict).collect();
    if verdicts.iter().any(|&verdict| verdict != Verdict::Skip) {
        verdicts.retain(|&verdict| verdict != Verdict::Skip);
    }
    match verdicts.into_iter().max() {
        None => Verdict::Fail,
        // Such a step only measures values, all without a bar.
        Some(Verdict::None) => Verdict::Pass,
        Some(worst) => worst,
    }
}

/// Formats all rows as a table: step, quantity, value, bar, verdict, seconds of the step.
pub(super) fn table(rows: &[Row], seconds: &[(&str, f64)]) -> String {
    let heading = ["step", "quantity", "value", "bar", "verdict", "seconds"].map(str::to_owned);
    let mut lines = vec![heading];
    for (step, seconds) in seconds {
        for (index, row) in rows.iter().filter(|row| row.step == *step).enumerate() {
            let (name, time) = if index == 0 { (*step, format!("{seconds:.1}")) } else { ("", String::new()) };
            let name = name.to_owned();
            lines.push([
                name,
                cut(&row.name, NAME_LENGTH_MAX),
                cut(&row.shown(), VALUE_LENGTH_MAX),
                row.bar.clone(),
                row.verdict().to_string(),
                time,
            ]);
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let format = |line: &[String; 6]| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(format).collect()
}

/// Returns the first line of `text`, cut to `length` characters.
fn cut(text: &str, length: usize) -> String {
    let line = text.lines().next().unwrap_or_default().trim_end();
    if line.chars().count() <= length {
        return line.to_owned();
    }
    line.chars().take(length - 1).chain(['…']).collect()
}

/// Formats a number with three or four significant digits.
fn number_text(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        large if large >= 1e4 => {
            let digits = format!("{large:.0}");
            let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
            format!("{}{}", if number < 0.0 { "-" } else { "" }, groups.join(","))
        }
        middle if middle >= 100.0 || number.fract() == 0.0 => format!("{number:.0}"),
        small if small >= 0.01 => format!("{number:.3}"),
        _ => format!("{number:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: &'static str, add: impl FnOnce(&mut Rows)) -> Row {
        let mut rows = Rows { rows: Vec::new(), step };
        add(&mut rows);
        rows.rows.remove(0)
    }

    fn at_most(value: f64, kind: Kind) -> Row {
        row("numbers", |rows| rows.at_most("error", (value, "relative"), kind, 1e-3))
    }

    fn at_least(value: f64, kind: Kind) -> Row {
        row("sweep", |rows| rows.at_least("rate", (value, ""), kind, 10.0))
    }

    #[test]
    fn a_missed_bar_of_correctness_fails_and_one_of_speed_warns() {
        assert_eq!(at_most(1e-4, Kind::Correctness).verdict(), Verdict::Pass);
        assert_eq!(at_most(1e-2, Kind::Correctness).verdict(), Verdict::Fail);
        assert_eq!(at_most(1e-2, Kind::Speed).verdict(), Verdict::Warn);
        let verdict = |value| at_least(value, Kind::Speed).verdict();
        assert_eq!([10.0, 9.9].map(verdict), [Verdict::Pass, Verdict::Warn]);
    }

    #[test]
    fn a_value_that_is_not_finite_misses_every_bar_also_after_a_round_trip() {
        for row in [at_most(f64::NAN, Kind::Correctness), at_most(f64::INFINITY, Kind::Correctness)] {
            assert_eq!(row.verdict(), Verdict::Fail);
            let read = Row::parse(&serde_json::to_string(&row).unwrap()).unwrap();
            assert_eq!((read[0].verdict(), read[0].shown().as_str()), (Verdict::Fail, "not finite relative"));
        }
        assert_eq!(at_least(f64::NAN, Kind::Correctness).verdict(), Verdict::Fail);
    }

    #[test]
    fn a_bar_without_an_outcome_counts_as_missed() {
        let row = Row { ok: None, ..at_most(0.0, Kind::Correctness) };
        assert_eq!(row.verdict(), Verdict::Fail);
    }

    #[test]
    fn lines_that_are_no_objects_are_ignored_and_broken_objects_are_named() {
        let line = serde_json::to_string(&at_most(0.5, Kind::Speed)).unwrap();
        let read = Row::parse(&format!("warning: something\n{line}\n")).unwrap();
        assert_eq!(read, [at_most(0.5, Kind::Speed)]);
        let error = Row::parse("{\"step\": \"load\"}").unwrap_err();
        assert!(error.contains("missing field") && error.contains("{\"step\": \"load\"}"), "{error}");
    }

    #[test]
    fn the_verdict_on_a_step_is_its_worst_row_and_a_step_without_rows_fails() {
        let rows = [
            at_most(1.0, Kind::Speed),
            at_most(0.0, Kind::Correctness),
            row("sweep", |rows| rows.skipped("all", "no CUDA device")),
            row("learner", |rows| rows.skipped("share of the peak", "no CUDA device")),
            row("learner", |rows| rows.value("rate", 1.0, "positions/s")),
        ];
        let verdicts = ["numbers", "sweep", "learner", "train"].map(|step| verdict_of(&rows, step));
        assert_eq!(verdicts, [Verdict::Warn, Verdict::Skip, Verdict::Pass, Verdict::Fail]);
    }

    #[test]
    fn the_table_shows_every_row_with_the_seconds_of_its_step_once() {
        let rows = [
            row("load", |rows| rows.claim("`cuda` by name works", "cuda (configured)\nmore", true)),
            row("load", |rows| rows.value("devices", 2.0, "")),
            at_most(0.004, Kind::Correctness),
            row("numbers", |rows| rows.skipped(&"long ".repeat(30), "no GPU")),
        ];
        let table = table(&rows, &[("load", 1.25), ("numbers", 60.0)]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(lines[1].starts_with("load ") && lines[1].ends_with("PASS     1.2"), "{table}");
        assert!(lines[1].contains("cuda (configured)") && !table.contains("more"), "{table}");
        assert!(lines[2].starts_with(' ') && lines[2].ends_with(" -"), "{table}");
        assert!(lines[3].contains("4.0e-3 relative") && lines[3].contains("<= 0.001  FAIL"), "{table}");
        assert!(lines[4].contains('…') && lines[4].ends_with("SKIP"), "{table}");
    }

    #[test]
    fn numbers_are_short_and_large_ones_grouped() {
        let texts = [230_512.4, 1e6, -12_345.0, 480.2, 35.25, 8.0, 0.0123, 0.000_2, 0.0].map(number_text);
        assert_eq!(texts, ["230,512", "1,000,000", "-12,345", "480", "35.250", "8", "0.012", "2.0e-4", "0"]);
    }
}
