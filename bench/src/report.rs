//! The report of every benchmark: rows with dimensions, metric, value and unit.
//!
//! A benchmark pushes [`Row`]s while it measures; the table, the plot and the comparison with an earlier report are the
//! same for all benchmarks. Start with [`Report`]; [`Destination`](crate::output::Destination) prints and writes it.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use figures::table::percent;

pub use crate::dimensions::Dimensions;
pub use crate::units::Unit;
pub(crate) use crate::units::{bytes, in_unit, number, time};
use crate::{Turns, machine};

/// Results of one benchmark on one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Name of the benchmark, as on the command line.
    pub benchmark: String,
    /// Heading of table and plot.
    pub title: String,
    /// Model of the CPU, as the system reports it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Settings that affect the values; reports are compared only if these are equal.
    pub settings: Dimensions,
    /// Circumstances that do not affect the values, in words.
    pub notes: Vec<String>,
    /// Conclusions from the values, in words.
    pub findings: Vec<String>,
    /// Earlier report that ratios refer to.
    pub compared: Option<Compared>,
    /// Values with dimensions.
    pub rows: Vec<Row>,
    /// Panels of the plot.
    pub plots: Vec<Plot>,
}

/// One value with its conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Part of the report; rows of one part form one table.
    pub section: String,
    /// Conditions that distinguish this value from other values of the same metric.
    pub dimensions: Dimensions,
    /// Metric, such as `simulations/s`.
    pub metric: String,
    /// Value in `unit`; null if not measured.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: Unit,
    /// Ratio to the value in the earlier report; for shares, the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<f64>,
}

/// An earlier report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// Path of the file, as named on the command line.
    pub file: String,
    /// CPU model in the earlier report.
    pub cpu: String,
    /// Reason why no row was compared: a differing setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A metric of a section as panels of a plot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Section of the rows.
    pub section: String,
    /// Metric of the rows.
    pub metric: String,
    /// Dimension along the logarithmic x axis; without one, every row is a bar.
    pub x: Option<String>,
    /// Dimension with a panel for each value; without one there is a single panel.
    pub panel: Option<String>,
}

/// Callback for unfinished reports.
pub type SoFar<'a> = &'a mut dyn FnMut(&Report) -> anyhow::Result<()>;

impl Report {
    /// Creates a report for this machine, without rows.
    pub fn new(benchmark: &str, title: &str) -> Self {
        Self {
            benchmark: benchmark.to_owned(),
            title: title.to_owned(),
            cpu: machine::cpu_model(),
            target: machine::target(),
            cores: machine::cores(),
            ..Self::default()
        }
    }

    /// Adds a setting that affects the values.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.push(name, value);
    }

    /// Adds a note on the circumstances, in words.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a conclusion, in words.
    pub fn finding(&mut self, text: impl Into<String>) {
        self.findings.push(text.into());
    }

    /// Adds a note on the number and duration of the turns.
    pub fn note_turns(&mut self, turns: Turns) {
        let Turns { seconds, repeats, seed, .. } = turns;
        let turn = clap::ValueEnum::to_possible_value(&turns.turn).expect("no turn is hidden");
        let turn = turn.get_name();
        self.note(format!("every value: the {turn} of {repeats} turns of {seconds} s; seed {seed}"));
    }

    /// Adds a plot of `metric` in `section`.
    pub fn plot(&mut self, section: &str, metric: &str, x: Option<&str>, panel: Option<&str>) {
        let owned = |text: &str| text.to_owned();
        let (x, panel) = (x.map(owned), panel.map(owned));
        self.plots.push(Plot { section: section.to_owned(), metric: metric.to_owned(), x, panel });
    }

    /// Returns a cell for adding values with these dimensions to `section`.
    pub fn at(&mut self, section: &str, dimensions: &[(&str, &dyn ToString)]) -> Cell<'_> {
        let mut named = Dimensions::default();
        dimensions.iter().for_each(|(name, value)| named.push(name, value.to_string()));
        Cell { rows: &mut self.rows, section: section.to_owned(), dimensions: named }
    }

    /// Returns the first value of `metric` in `section` with dimensions that include these.
    #[must_use]
    pub fn value(&self, section: &str, dimensions: &[(&str, &str)], metric: &str) -> Option<f64> {
        let fits = |row: &&Row| {
            row.section == section
                && row.metric == metric
                && dimensions.iter().all(|(name, value)| row.dimensions.get(name) == Some(*value))
        };
        self.rows.iter().find(fits)?.value
    }

    /// Adds the change since `earlier`, which was read from `path`, to every value.
    pub fn compare(&mut self, path: &Path, earlier: &Self) {
        let refused = self.settings.difference(&earlier.settings);
        for row in &mut self.rows {
            let before = earlier.rows.iter().find(|before| before.is_same(row)).filter(|_| refused.is_none());
            row.change = before.and_then(|before| row.since(before));
        }
        self.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone(), refused });
    }

    /// Returns the sections in order of the first row.
    pub(crate) fn sections(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.section.as_str()))
    }
}

/// Returns the different values in order of first appearance.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}

impl Row {
    fn is_same(&self, other: &Self) -> bool {
        (&self.section, &self.dimensions, &self.metric, self.unit)
            == (&other.section, &other.dimensions, &other.metric, other.unit)
    }

    fn since(&self, before: &Self) -> Option<f64> {
        let (now, before) = (self.value?, before.value?);
        match self.unit {
            Unit::Share => Some(now - before),
            _ => Some(now / before).filter(|ratio| ratio.is_finite()),
        }
    }
}

/// A metric with unit and value, before it is part of a report.
pub(crate) type Value = (&'static str, Unit, Option<f64>);

/// Returns the first value of `metric`.
pub(crate) fn value_of(values: &[Value], metric: &str) -> Option<f64> {
    values.iter().find(|(other, ..)| *other == metric)?.2
}

/// Adds values to one section, with one set of dimensions.
#[derive(Debug)]
pub struct Cell<'a> {
    rows: &'a mut Vec<Row>,
    section: String,
    dimensions: Dimensions,
}

impl Cell<'_> {
    /// Adds a value; values that are not finite count as not measured.
    pub fn value(self, metric: &str, unit: Unit, value: impl Into<Option<f64>>) -> Self {
        let value = value.into().filter(|value| value.is_finite());
        let (section, dimensions) = (self.section.clone(), self.dimensions.clone());
        self.rows.push(Row { section, dimensions, metric: metric.to_owned(), value, unit, change: None });
        self
    }

    /// Adds several values.
    pub(crate) fn values(self, values: &[Value]) -> Self {
        values.iter().fold(self, |cell, (metric, unit, value)| cell.value(metric, *unit, *value))
    }

    /// Adds the median and the 99th percentile of the times of single operations.
    pub(crate) fn latency(self, metric: &str, took: &mut [Duration]) -> Self {
        let [p50, p99] = percentiles_us(took);
        let cell = self.value(&format!("{metric} p50"), Unit::Microseconds, p50);
        cell.value(&format!("{metric} p99"), Unit::Microseconds, p99)
    }
}

/// Returns the median and the 99th percentile in microseconds; 0 if `took` is empty.
fn percentiles_us(took: &mut [Duration]) -> [f64; 2] {
    took.sort_unstable();
    [0.5, 0.99].map(|share| {
        let index = (took.len() as f64 * share) as usize;
        took.get(index.min(took.len().saturating_sub(1))).map_or(0.0, |took| 1e6 * took.as_secs_f64())
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a report of made-up values: two games, two algorithms, two sizes.
    pub(crate) fn report() -> Report {
        let mut report = Report::new("search", "The tree alone");
        for (game, simulations, speed) in [("connect_four", 64, 6.1e6), ("hex-9", 800, 2e6)] {
            for (algorithm, factor) in [("puct", 1.0), ("gumbel", 0.5)] {
                report
                    .at("alone", &[("game", &game), ("algorithm", &algorithm), ("simulations", &simulations)])
                    .value("simulations/s", Unit::PerSecond, speed * factor)
                    .value("bytes per node", Unit::Count, 270.4);
            }
        }
        report.set("threads", 2);
        report
    }

    #[test]
    fn every_set_of_dimensions_is_a_line_and_every_metric_a_column() {
        let mut report = report();
        report.finding("Use pUCT.");
        let text = report.markdown();
        for expected in [
            "# The tree alone\n",
            "\n- settings: threads 2\n",
            "\nUse pUCT.\n",
            "\n| game | algorithm | simulations | simulations/s | bytes per node |\n|---|---|---|---:|---:|\n",
            "\n| connect_four | gumbel | 64 | 3.05 M | 270 |\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("\n## "), "one section needs no heading: {text}");
    }

    #[test]
    fn sections_have_headings_and_tables_of_their_own() {
        let mut report = report();
        report.at("together", &[("threads", &3)]).value("share", Unit::Share, 0.5).value("lost", Unit::Bytes, None);
        let text = report.markdown();
        assert!(text.contains("\n## alone\n") && text.contains("\n## together\n"), "{text}");
        assert!(text.contains("\n| threads | share | lost |\n|---|---:|---:|\n| 3 | 50.0 % | – |\n"), "{text}");
    }

    #[test]
    fn rows_are_compared_with_the_same_section_dimensions_and_metric() {
        let (mut now, mut earlier) = (report(), report());
        earlier.cpu = "Another CPU".to_owned();
        earlier.rows.reverse();
        earlier.rows.iter_mut().for_each(|row| row.value = row.value.map(|value| value / 2.0));
        earlier.rows.retain(|row| row.dimensions.get("game") == Some("hex-9"));
        now.compare(Path::new("before.json"), &earlier);
        for row in &now.rows {
            assert_eq!(row.change, (row.dimensions.get("game") == Some("hex-9")).then_some(2.0), "{row:?}");
        }
        let text = now.markdown();
        assert!(text.contains("\n- ×, points: since before.json, measured on Another CPU\n"), "{text}");
        assert!(text.contains("| hex-9 | puct | 800 | 2.00 M (×2.00) | 270 (×2.00) |"), "{text}");
    }

    #[test]
    fn shares_change_by_points() {
        let with = |share| {
            let mut report = Report::new("phases", "A run");
            report.at("threads", &[("phase", &"forward")]).value("share", Unit::Share, share);
            report
        };
        let mut now = with(0.25);
        now.compare(Path::new("before.json"), &with(0.375));
        assert!(now.markdown().contains("| forward | 25.0 % (-12.5 points) |"), "{}", now.markdown());
    }

    #[test]
    fn reports_of_other_settings_are_not_compared() {
        let (mut now, mut earlier) = (report(), report());
        earlier.settings = Dimensions::default();
        earlier.set("threads", 4);
        now.compare(Path::new("before.json"), &earlier);
        assert!(now.rows.iter().all(|row| row.change.is_none()));
        let expected = "- not compared with before.json: threads is 2, and 4 in the earlier report";
        assert!(now.markdown().contains(expected), "{}", now.markdown());
    }

    #[test]
    fn values_that_are_not_finite_or_missing_are_not_compared() {
        let with = |value| {
            let mut report = Report::new("kernel", "Speeds");
            report.at("speeds", &[]).value("evaluations/s", Unit::PerSecond, value);
            report
        };
        assert_eq!(with(f64::NAN).rows[0].value, None);
        for before in [0.0, f64::INFINITY] {
            let mut now = with(5.0);
            now.compare(Path::new("before.json"), &with(before));
            assert_eq!(now.rows[0].change, None, "{before}");
        }
    }

    #[test]
    fn a_report_is_read_back_as_it_was_written() {
        let mut report = report();
        report.plot("alone", "simulations/s", Some("simulations"), Some("game"));
        let json = serde_json::to_string(&report).unwrap();
        assert!(
            json.contains(r#""dimensions":{"game":"connect_four","algorithm":"puct","simulations":"64"}"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
        assert_eq!(report.value("alone", &[("game", "hex-9"), ("algorithm", "gumbel")], "simulations/s"), Some(1e6));
    }
}
