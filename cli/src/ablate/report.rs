//! Computes the effects of switches from the rows of a study, without other files.

use std::collections::BTreeMap;

use figures::table::Table;

use super::design::Kind;
use super::effects::{Effect, fit};
use super::rows::{Row, complete};
use super::study::Study;
use crate::screen::MISSING;

/// Percentages to compare in percentage points: for each, the name in the report and the column of the results file.
const SHARES: [(&str, &str); 5] = [
    ("optimal raw", "accuracy/raw/optimal/overall"),
    ("with search", "accuracy/search/optimal/overall"),
    ("outcome kept raw", "accuracy/raw/preserving/overall"),
    ("with search", "accuracy/search/preserving/overall"),
    ("distinct", "distinct/overall"),
];
/// Rates to compare in percent, if no other run shares the machine: for each, the name in the report and the column of
/// the results file.
const RATES: [(&str, &str); 2] = [("steps/s", "steps"), ("positions/s", "positions")];

/// Formats the percentages and counts of a run as one line.
pub(super) fn sentence(row: &Row) -> String {
    let shares =
        SHARES.iter().filter_map(|(name, column)| Some(format!("{name} {:.1} %", 100.0 * row.number(column)?)));
    let counts = ["positions", "steps"].iter().filter_map(|name| Some(format!("{:.0} {name}", row.number(name)?)));
    shares.chain(counts).collect::<Vec<_>>().join(", ")
}

/// Returns the difference between two runs in a percentage, in percentage points; `None` if a run lacks the value.
fn points([first, second]: [&Row; 2], column: &str) -> Option<f64> {
    Some(100.0 * (first.number(column)? - second.number(column)?))
}

/// Returns the logarithm of the ratio of a rate between two runs, so that opposite changes cancel in a mean.
fn ratio([first, second]: [&Row; 2], column: &str) -> Option<f64> {
    let rate = |run: &Row| Some(run.number(column)? / run.number("minutes")?);
    Some((rate(first)? / rate(second)?).ln()).filter(|ratio| ratio.is_finite())
}

/// The effects that one regression estimates.
struct Group<'a> {
    names: Vec<&'a str>,
    /// The runs of each pair, with a number per effect: 1 if the switch is on only in the first run, -1 if it is on
    /// only in the second run, 0 if the runs agree.
    pairs: Vec<(Vec<f64>, [&'a Row; 2])>,
}

impl Group<'_> {
    /// Returns a table cell for each effect. `of` computes the difference of a pair, and `show` converts an estimate to
    /// the unit in the table.
    fn cells(&self, of: impl Fn([&Row; 2]) -> Option<f64>, show: impl Fn(Effect) -> Effect) -> Vec<String> {
        let known = self.pairs.iter().filter_map(|(columns, runs)| Some((columns.clone(), of(*runs)?)));
        let (design, differences): (Vec<_>, Vec<_>) = known.unzip();
        let Some(fit) = fit(&design, &differences) else { return vec![MISSING.to_owned(); self.names.len()] };
        let cell = |effect: &Effect| {
            let Effect { mean, error } = show(*effect);
            format!("{mean:+.2} ± {error:.2} ({})", fit.freedom)
        };
        fit.effects.iter().map(cell).collect()
    }
}

/// Formats the effects of a study as lines, after a line with the number of complete pairs.
pub(super) fn lines(study: &Study, rows: &[Row]) -> Vec<String> {
    let is_of_study = |row: &&Row| row.get("study") == study.name && row.get("design") == study.kind.name();
    let rows: Vec<Row> = rows.iter().filter(is_of_study).cloned().collect();
    let (pairs, names) = (complete(&rows), study.switches.iter().map(|switch| switch.name.clone()).collect::<Vec<_>>());
    let counted =
        format!("study {}: {}, {} of {} pairs", study.name, study.kind.name(), pairs.len(), study.pairs.len());
    [counted].into_iter().chain(table(study.kind, &names, &pairs)).collect()
}

/// Formats the machines and the table of effects as lines.
fn table(kind: Kind, names: &[String], pairs: &[[&Row; 2]]) -> Vec<String> {
    let mut machines: BTreeMap<&str, usize> = BTreeMap::new();
    pairs.iter().for_each(|[first, _]| *machines.entry(first.get("machine")).or_default() += 1);
    let mut lines: Vec<String> =
        machines.iter().map(|(machine, pairs)| format!("{pairs} pairs on {machine}")).collect();
    let rates = if kind == Kind::Pairs { &RATES[..] } else { &[] };
    let unit = if rates.is_empty() { "in points" } else { "in points, of rates in %" };
    lines.push(format!("effect (on − off) {unit} ± standard error (degrees of freedom)"));
    let columns = SHARES.iter().chain(rates).map(|(name, _)| *name);
    let mut table = Table::default().words(["switch"]).numbers(["pairs"]).numbers(columns);
    for group in &groups(kind, names, pairs) {
        let percent =
            |Effect { mean, error }: Effect| Effect { mean: 100.0 * mean.exp_m1(), error: 100.0 * mean.exp() * error };
        let shares = SHARES.iter().map(|(_, column)| group.cells(|runs| points(runs, column), |effect| effect));
        let rates = rates.iter().map(|(_, column)| group.cells(|runs| ratio(runs, column), percent));
        let columns: Vec<Vec<String>> = shares.chain(rates).collect();
        for (index, name) in group.names.iter().enumerate() {
            let cells = columns.iter().map(|column| column[index].clone());
            table.row([(*name).to_owned(), group.pairs.len().to_string()].into_iter().chain(cells));
        }
    }
    lines.extend(table.lines());
    lines
}

/// Groups the pairs by jointly estimated effects: all switches in a screen, or one arm in the design `pairs`.
fn groups<'a>(kind: Kind, names: &'a [String], pairs: &[[&'a Row; 2]]) -> Vec<Group<'a>> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut groups: BTreeMap<Vec<&str>, Group<'a>> = BTreeMap::new();
    for runs in pairs {
        let level = |row: &Row, name: &str| row.number(name).unwrap_or_default();
        let switches: Vec<f64> = names.iter().map(|name| level(runs[0], name) - level(runs[1], name)).collect();
        let differ: Vec<&str> =
            names.iter().zip(&switches).filter(|(_, x)| **x != 0.0).map(|(name, _)| *name).collect();
        let direction = switches.iter().sum::<f64>().signum();
        let (names, columns) = match kind {
            Kind::Screen => (names.clone(), switches),
            Kind::Pairs if differ.len() == 1 => (differ, vec![direction]),
            Kind::Pairs => (vec!["all"], vec![direction]),
        };
        let group = groups.entry(names.clone()).or_insert_with(|| Group { names, pairs: Vec::new() });
        group.pairs.push((columns, *runs));
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::ablate::design::{self, Arms, COLUMNS};

    const MACHINE: &str = "Xeon, \"virtual\"";

    fn names(switches: usize) -> Vec<String> {
        (0..switches).map(|switch| format!("s{switch}")).collect()
    }

    /// Draws approximately normal noise with mean 0 and standard deviation `deviation`, as a sum of uniform numbers.
    fn noise(rng: &mut ChaCha8Rng, deviation: f64) -> f64 {
        let uniform: f64 = (0..12).map(|_| rng.random::<f64>()).sum();
        (uniform - 6.0) * deviation
    }

    /// Returns synthetic rows. Each accuracy is `accuracy` of the switch levels plus noise per run and an offset per
    /// pair.
    fn rows(pairs: &[design::Pair], rng: &mut ChaCha8Rng, accuracy: impl Fn(&[f64]) -> f64) -> Vec<Row> {
        let mut rows = Vec::new();
        for pair in pairs {
            let common = noise(rng, 0.2);
            for run in &pair.runs {
                let levels: Vec<f64> = run.levels.iter().map(|&is_on| f64::from(u8::from(is_on))).collect();
                let accuracy = 0.5 + common + accuracy(&levels) + noise(rng, 0.01);
                let steps = 1000.0 * if levels[0] > 0.0 { 0.8 } else { 1.0 };
                let mut row = BTreeMap::from([
                    ("study".to_owned(), "synthetic".to_owned()),
                    ("row".to_owned(), pair.number.to_string()),
                    ("side".to_owned(), run.side.to_owned()),
                    ("seed".to_owned(), pair.seed.to_string()),
                    ("machine".to_owned(), MACHINE.to_owned()),
                    ("minutes".to_owned(), "2".to_owned()),
                    ("steps".to_owned(), steps.to_string()),
                    (SHARES[0].1.to_owned(), accuracy.to_string()),
                ]);
                row.extend(names(levels.len()).into_iter().zip(&levels).map(|(name, level)| (name, level.to_string())));
                rows.push(Row(row));
            }
        }
        rows
    }

    /// Estimates the effect of each switch on the accuracy without search.
    fn effects(kind: Kind, switches: usize, rows: &[Row]) -> Vec<(String, Effect, usize)> {
        let (pairs, names) = (complete(rows), names(switches));
        let estimated = |group: &Group<'_>| {
            let (design, known): (Vec<_>, Vec<_>) = group
                .pairs
                .iter()
                .map(|(columns, runs)| (columns.clone(), points(*runs, SHARES[0].1).unwrap()))
                .unzip();
            let fit = fit(&design, &known).unwrap();
            let named =
                group.names.iter().zip(fit.effects).map(|(name, effect)| ((*name).to_owned(), effect, fit.freedom));
            named.collect::<Vec<_>>()
        };
        groups(kind, &names, &pairs).iter().flat_map(estimated).collect()
    }

    #[test]
    fn known_effects_of_a_screen_are_found_within_three_standard_errors_beside_interactions() {
        let truth = [3.0, -2.0, 0.0, 1.0, 0.0];
        // Includes an interaction between two switches, which the table without mirror runs would add to other effects.
        let accuracy = |x: &[f64]| {
            let sum: f64 = x.iter().zip(truth).map(|(x, effect)| x * effect / 100.0).sum();
            sum + 0.1 * (x[0] - 0.5) * (x[1] - 0.5)
        };
        let pairs = design::pairs(Kind::Screen, Arms::Each, truth.len(), &[1]);
        let found = effects(Kind::Screen, truth.len(), &rows(&pairs, &mut ChaCha8Rng::seed_from_u64(1), accuracy));
        for ((name, Effect { mean, error }, freedom), truth) in found.iter().zip(truth) {
            assert!((mean - truth).abs() < 3.0 * error && *error < 1.0 && *freedom == 7, "{name}: {found:?}");
        }
        let all = design::pairs(Kind::Screen, Arms::Each, COLUMNS, &[1]);
        let found =
            effects(Kind::Screen, COLUMNS, &rows(&all, &mut ChaCha8Rng::seed_from_u64(1), |x| accuracy(&x[..5])));
        assert_eq!((found.len(), found[0].2), (COLUMNS, 1));
    }

    /// About 50 of 1000 intervals at 95 % miss the true effect, with a standard deviation of 7 if independent. The test
    /// allows three standard deviations.
    #[test]
    fn error_bars_cover_the_truth_about_as_often_as_they_should() {
        let truth = [3.0, -2.0, 0.0, 1.0, 0.0];
        let accuracy = |x: &[f64]| x.iter().zip(truth).map(|(x, effect)| x * effect / 100.0).sum();
        // These are quantiles of Student's t distribution with 7 and with 4 degrees of freedom.
        for (kind, seeds, t) in [(Kind::Screen, 1, 2.365), (Kind::Pairs, 5, 2.776)] {
            let pairs = design::pairs(kind, Arms::Each, truth.len(), &(1..=seeds).collect::<Vec<_>>());
            let missed = |seed| {
                let found = effects(kind, truth.len(), &rows(&pairs, &mut ChaCha8Rng::seed_from_u64(seed), accuracy));
                let misses = found.iter().zip(truth).filter(|((_, e, _), truth)| (e.mean - truth).abs() > t * e.error);
                misses.count()
            };
            let missed: usize = (0..200).map(missed).sum();
            assert!((29..=71).contains(&missed), "{kind:?}: {missed} of 1000");
        }
    }

    #[test]
    fn pairs_are_reported_with_their_numbers_machines_and_costs() {
        let pairs = design::pairs(Kind::Pairs, Arms::Each, 2, &[1, 2, 3, 4]);
        let rows = rows(&pairs, &mut ChaCha8Rng::seed_from_u64(1), |x| 0.05 * x[0]);
        let lines = table(Kind::Pairs, &names(2), &complete(&rows));
        let text = lines.join("\n");
        assert!(lines[0] == format!("8 pairs on {MACHINE}"), "{text}");
        let of = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap();
        assert!(of("s0").contains("  4  ") && of("s0").contains("-20.00 ± 0.00 (3)"), "{text}");
        assert!(of("s1").contains("+0.00 ± 0.00 (3)"), "{text}");
        let all = design::pairs(Kind::Pairs, Arms::All, 2, &[1, 2]);
        let rows = self::rows(&all, &mut ChaCha8Rng::seed_from_u64(1), |x| 0.05 * x[0]);
        assert!(table(Kind::Pairs, &names(2), &complete(&rows)).iter().any(|line| line.starts_with("all ")));
        assert!(table(Kind::Screen, &names(2), &[]).len() == 2, "nothing is known yet");
    }
}
