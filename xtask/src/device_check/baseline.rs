//! Speeds relative to a baseline, which an earlier check on the same machine measured.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::row::{Row, Rows};
use super::session::Session;
use crate::files;

type Bar = (&'static str, &'static str, f64);

/// Minimum multiples of the baseline on a GPU, by step and start of a name.
const BARS: [Bar; 3] =
    [("learner", "6x64 bf16, batch 256", 2.5), ("selfplay", "6x64, ", 1.15), ("muzero", "MuZero, ", 5.0)];

/// Compares every speed that both checks measured.
pub(super) fn compare(session: &mut Session) -> Result<()> {
    let Some(file) = session.against.clone() else {
        session.rows.skipped("all", "no baseline: pass a check.json with --against");
        return Ok(());
    };
    let mut report: Value = serde_json::from_str(&files::read(&file)?).context("read the baseline")?;
    let is_same = report["machine"]["gpu"] == json!(session.gpu.as_ref().ok());
    let card = report["machine"]["card"].as_str().unwrap_or("unknown");
    session.rows.claim("the baseline was measured on this card", card, is_same);
    let rows = serde_json::from_value(report["rows"].take()).context("read the rows of the baseline")?;
    let bars = if session.gpu.is_ok() { &BARS[..] } else { &[] };
    multiples(&mut session.rows, rows, bars);
    Ok(())
}

/// Adds the multiple of each speed in `baseline` that is among the rows.
fn multiples(rows: &mut Rows, baseline: Vec<Row>, bars: &[Bar]) {
    for Row { step, name, value, .. } in baseline.into_iter().filter(|row| row.unit.ends_with("/s")) {
        let Some((speed, before)) = rows.best(&step, |row| row == name).zip(value.as_f64()) else { continue };
        let bar = bars.iter().find(|(of, start, _)| step == *of && name.starts_with(start)).map(|(.., bar)| *bar);
        rows.speed(&format!("{step}: {name}"), (speed / before, "x"), bar);
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Verdict;
    use super::*;

    /// Returns rows of the step `learner`, and one of another kind.
    fn measured(speeds: &[(&str, f64)]) -> Rows {
        let mut rows = Rows::default();
        rows.start("learner");
        speeds.iter().for_each(|(name, speed)| rows.value(name, *speed, "positions/s"));
        rows.value("memory held at the end", 100.0, "MiB");
        rows
    }

    #[test]
    fn speeds_of_both_checks_are_compared_and_one_below_the_bar_warns() {
        let baseline = measured(&[("6x64 bf16, batch 256", 40.0), ("6x64 bf16, batch 1024", 80.0), ("old", 1.0)]);
        let verdicts = |speed: f64| {
            let mut rows = measured(&[("6x64 bf16, batch 256", speed), ("6x64 bf16, batch 1024", 80.0)]);
            rows.start("baseline");
            multiples(&mut rows, baseline.all().to_vec(), &BARS);
            let added = rows.all().iter().filter(|row| row.step == "baseline");
            added.map(|row| (row.name.clone(), row.value.as_f64(), row.verdict())).collect::<Vec<_>>()
        };
        let [small, large] = [256, 1024].map(|batch| format!("learner: 6x64 bf16, batch {batch}"));
        let other = (large, Some(1.0), Verdict::None);
        assert_eq!(verdicts(120.0), [(small.clone(), Some(3.0), Verdict::Pass), other.clone()]);
        assert_eq!(verdicts(80.0), [(small, Some(2.0), Verdict::Warn), other]);
    }
}
