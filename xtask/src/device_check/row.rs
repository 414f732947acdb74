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
    /// Meaning of a missed bar.
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

impl Row {
    /// Returns a claim that must hold, with the finding.
    pub(super) fn claim(step: &str, name: &str, found: &str, holds: bool) -> Self {
        Self::new(step, name, (json!(found), ""), "holds", Kind::Correctness, Some(holds))
    }

    /// Returns a value that must be at most `bar`; NaN misses every bar.
    pub(super) fn at_most(step: &str, name: &str, (value, unit): (f64, &str), kind: Kind, bar: f64) -> Self {
        Self::new(step, name, (json!(value), unit), &format!("<= {bar}"), kind, Some(value <= bar))
    }

    /// Returns a value that must be at least `bar`; NaN misses every bar.
    pub(super) fn at_least(step: &str, name: &str, (value, unit): (f64, &str), kind: Kind, bar: f64) -> Self {
        Self::new(step, name, (json!(value), unit), &format!(">= {bar}"), kind, Some(value >= bar))
    }

    /// Returns a number without a bar.
    pub(super) fn value(step: &str, name: &str, value: f64, unit: &str) -> Self {
        Self::new(step, name, (json!(value), unit), "", Kind::Information, None)
    }

    /// Returns a text without a bar.
    pub(super) fn text(step: &str, name: &str, text: &str) -> Self {
        Self::new(step, name, (json!(text), ""), "", Kind::Information, None)
    }

    /// Returns the reason for a skipped measurement.
    pub(super) fn skipped(step: &str, name: &str, reason: &str) -> Self {
        Self::new(step, name, (json!(reason), ""), "", Kind::Skipped, None)
    }

    fn new(step: &str, name: &str, (value, unit): (Value, &str), bar: &str, kind: Kind, ok: Option<bool>) -> Self {
        Self {
            step: step.to_owned(),
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            bar: bar.to_owned(),
            kind,
            ok,
        }
    }

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
            let digits = format!("{number:.0}");
            let mut text = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 && !text.ends_with('-') {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        middle if middle >= 100.0 || number.fract() == 0.0 => format!("{number:.0}"),
        small if small >= 0.01 => format!("{number:.3}"),
        _ => format!("{number:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_MOST: fn(f64, Kind) -> Row =
        |value, kind| Row::at_most("numbers", "error", (value, "relative"), kind, 1e-3);

    #[test]
    fn a_missed_bar_of_correctness_fails_and_one_of_speed_warns() {
        assert_eq!(AT_MOST(1e-4, Kind::Correctness).verdict(), Verdict::Pass);
        assert_eq!(AT_MOST(1e-2, Kind::Correctness).verdict(), Verdict::Fail);
        assert_eq!(AT_MOST(1e-2, Kind::Speed).verdict(), Verdict::Warn);
        let at_least = |value| Row::at_least("sweep", "rate", (value, ""), Kind::Speed, 10.0).verdict();
        assert_eq!([10.0, 9.9].map(at_least), [Verdict::Pass, Verdict::Warn]);
    }

    #[test]
    fn a_value_that_is_not_finite_misses_every_bar_also_after_a_round_trip() {
        for row in [AT_MOST(f64::NAN, Kind::Correctness), AT_MOST(f64::INFINITY, Kind::Correctness)] {
            assert_eq!(row.verdict(), Verdict::Fail);
            let read = Row::parse(&serde_json::to_string(&row).unwrap()).unwrap();
            assert_eq!((read[0].verdict(), read[0].shown().as_str()), (Verdict::Fail, "not finite relative"));
        }
        assert_eq!(Row::at_least("s", "n", (f64::NAN, ""), Kind::Correctness, 0.0).verdict(), Verdict::Fail);
    }

    #[test]
    fn a_bar_without_an_outcome_counts_as_missed() {
        let row = Row { ok: None, ..AT_MOST(0.0, Kind::Correctness) };
        assert_eq!(row.verdict(), Verdict::Fail);
    }

    #[test]
    fn lines_that_are_no_objects_are_ignored_and_broken_objects_are_named() {
        let line = serde_json::to_string(&AT_MOST(0.5, Kind::Speed)).unwrap();
        let read = Row::parse(&format!("warning: something\n{line}\n")).unwrap();
        assert_eq!(read, [AT_MOST(0.5, Kind::Speed)]);
        let error = Row::parse("{\"step\": \"load\"}").unwrap_err();
        assert!(error.contains("missing field") && error.contains("{\"step\": \"load\"}"), "{error}");
    }

    #[test]
    fn the_verdict_on_a_step_is_its_worst_row_and_a_step_without_rows_fails() {
        let rows = [
            AT_MOST(1.0, Kind::Speed),
            AT_MOST(0.0, Kind::Correctness),
            Row::skipped("sweep", "all", "no CUDA device"),
            Row::skipped("learner", "share of the peak", "no CUDA device"),
            Row::value("learner", "rate", 1.0, "positions/s"),
        ];
        let verdicts = ["numbers", "sweep", "learner", "train"].map(|step| verdict_of(&rows, step));
        assert_eq!(verdicts, [Verdict::Warn, Verdict::Skip, Verdict::Pass, Verdict::Fail]);
    }

    #[test]
    fn the_table_shows_every_row_with_the_seconds_of_its_step_once() {
        let rows = [
            Row::claim("load", "`cuda` by name works", "cuda (configured)\nmore", true),
            Row::value("load", "devices", 2.0, ""),
            AT_MOST(0.004, Kind::Correctness),
            Row::skipped("numbers", &"long ".repeat(30), "no GPU"),
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
