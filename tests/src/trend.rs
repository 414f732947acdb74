//! Decides whether a quantity that was sampled for a long time has grown.
//!
//! A sawtooth (a log that is cut, a heap that is trimmed) defeats a fitted slope, and a start-up defeats a comparison
//! with the first sample. [`Trend`] compares the sample medians of the second and the last quarter.

use std::collections::BTreeMap;
use std::fmt;

/// A sampled quantity, with the allowed growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Resident memory of a process, in MiB.
    Memory,
    /// Open descriptors of a process.
    Descriptors,
    /// Threads of a process.
    Threads,
    /// Size of a directory, in MiB.
    Disk,
    /// 90th percentile of the response time, in milliseconds.
    Latency,
}

impl Quantity {
    /// Returns the allowed growth: a fixed part, and a share of the earlier median.
    #[must_use]
    pub fn allowed(self) -> (f64, f64) {
        match self {
            // Heap fragments; a leak of 1 kB per request is 80 MiB in an hour of this load.
            Self::Memory => (8.0, 0.05),
            // Connections of clients come and go.
            Self::Descriptors => (8.0, 0.0),
            Self::Threads => (2.0, 0.0),
            // Four segments of the log, and the lines that a quiet log writes.
            Self::Disk => (8.0, 0.10),
            // Other programs on the machine; a queue that grows without end adds seconds.
            Self::Latency => (20.0, 1.0),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory, MiB",
            Self::Descriptors => "descriptors",
            Self::Threads => "threads",
            Self::Disk => "disk, MiB",
            Self::Latency => "latency, ms",
        })
    }
}

/// Name of the sampled object, and the quantity.
pub type Key = (String, Quantity);

/// Samples of a run, in time order.
#[derive(Debug, Default)]
pub struct Samples(BTreeMap<Key, Vec<f64>>);

/// Change of one quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// Sampled object and quantity.
    pub key: Key,
    /// Medians of the samples in the second and the last quarter.
    pub medians: [f64; 2],
    /// Maximum of all samples.
    pub greatest: f64,
}

impl Samples {
    /// Adds a sample.
    pub fn add(&mut self, name: &str, quantity: Quantity, value: f64) {
        self.0.entry((name.to_owned(), quantity)).or_default().push(value);
    }

    /// Returns the trend of each quantity that has at least four samples.
    #[must_use]
    pub fn trends(&self) -> Vec<Trend> {
        let trend = |(key, values): (&Key, &Vec<f64>)| {
            let quarter = values.len() / 4;
            let early = median(values.get(quarter..2 * quarter)?)?;
            let late = median(values.get(values.len() - quarter..)?)?;
            let greatest = values.iter().copied().fold(f64::MIN, f64::max);
            Some(Trend { key: key.clone(), medians: [early, late], greatest })
        };
        self.0.iter().filter_map(trend).collect()
    }
}

impl Trend {
    /// Returns true if the growth is more than the quantity allows.
    #[must_use]
    pub fn is_excessive(&self) -> bool {
        let ([early, late], (fixed, share)) = (self.medians, self.key.1.allowed());
        late - early > fixed + share * early
    }

    /// Returns the trends as a table in Markdown.
    #[must_use]
    pub fn table(trends: &[Self]) -> String {
        let mut table = String::from(
            "| of | quantity | second quarter | last quarter | growth | allowed | greatest |\n|---|---|---|---|---|---|---|\n",
        );
        for trend @ Self { key: (name, quantity), medians: [early, late], greatest } in trends {
            let (fixed, share) = quantity.allowed();
            let mark = if trend.is_excessive() { " EXCESSIVE" } else { "" };
            let cells =
                [*early, *late, late - early, fixed + share * early, *greatest].map(|cell| format!("{cell:.1}"));
            let [early, late, grown, allowed, greatest] = cells;
            table += &format!("| {name} | {quantity} | {early} | {late} | {grown}{mark} | {allowed} | {greatest} |\n");
        }
        table
    }
}

fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

/// Returns the value below which this share of the values lies; `None` without values.
#[must_use]
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
    use super::*;

    fn trend(quantity: Quantity, values: impl IntoIterator<Item = f64>) -> Trend {
        let mut samples = Samples::default();
        values.into_iter().for_each(|value| samples.add("server", quantity, value));
        samples.trends().pop().unwrap()
    }

    #[test]
    fn a_start_up_a_sawtooth_and_a_single_peak_are_no_growth() {
        let start_up = (0..100).map(|at| if at < 20 { f64::from(at) * 10.0 } else { 200.0 });
        assert!(!trend(Quantity::Memory, start_up).is_excessive());
        let sawtooth = (0..100).map(|at| 40.0 + f64::from(at % 10) * 30.0);
        assert!(!trend(Quantity::Disk, sawtooth).is_excessive());
        let peak = trend(Quantity::Descriptors, (0..100).map(|at| if at == 90 { 500.0 } else { 30.0 }));
        assert!(!peak.is_excessive());
        assert_eq!(peak.greatest, 500.0);
    }

    #[test]
    fn slow_leaks_of_every_quantity_are_growth() {
        let leaks = [
            (Quantity::Memory, 0.5),
            (Quantity::Descriptors, 0.2),
            (Quantity::Threads, 0.1),
            (Quantity::Disk, 0.5),
            (Quantity::Latency, 8.0),
        ];
        for (quantity, per_sample) in leaks {
            let values = (0..100).map(|at| 50.0 + f64::from(at) * per_sample);
            assert!(trend(quantity, values).is_excessive(), "{quantity}");
        }
    }

    #[test]
    fn the_table_marks_what_has_grown() {
        let rows = [trend(Quantity::Threads, [4.0; 8]), trend(Quantity::Threads, (0..40).map(f64::from))];
        let table = Trend::table(&rows);
        assert_eq!(table.matches("EXCESSIVE").count(), 1, "{table}");
        assert_eq!(table.lines().count(), 4, "{table}");
    }

    #[test]
    fn the_ninetieth_percentile_leaves_out_a_tenth() {
        let values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.9), Some(90.0));
        assert_eq!(percentile(&[3.0], 0.9), Some(3.0));
        assert_eq!(percentile(&[], 0.9), None);
    }
}
