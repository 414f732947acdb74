//! Checks metrics against the only list, docs/metrics.md. Every exported metric must be listed. Every metric that
//! dashboards, rules and pages name must be exported, with labels and label values from the list.
//!
//! Processes name metrics as literals in `counter!` and similar macros, which this module reads. A system test scrapes
//! real processes, and checks that they export these metrics and labels.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, has_extension, quoted};

/// The page that lists all metrics.
const LIST: &str = "docs/metrics.md";

/// Prefixes of metric names: this project's, and Triton's.
const PREFIXES: [&str; 2] = ["zerofleet_", "nv_inference_"];

/// Labels that Prometheus and the scrape configuration add to every series.
const LABELS_OF_TARGETS: [&str; 3] = ["job", "instance", "role"];

/// Labels of a metric with allowed values; an empty list allows any value.
type Labels = BTreeMap<String, Vec<String>>;

/// Returns the metrics that are exported but not listed, listed but not exported, or used but not exported.
pub(super) fn unlisted(sources: &[Source]) -> Vec<String> {
    let Some(list) = sources.iter().find(|source| source.path == LIST) else {
        return vec![format!("{LIST} is missing")];
    };
    let listed = listed(&list.text);
    let exported = exported(sources);
    let not_listed = exported.iter().filter(|(name, _)| !listed.contains_key(*name));
    let not_listed = not_listed.map(|(name, export)| format!("{}: `{name}` is not listed in {LIST}", export.path));
    let lost = listed.keys().filter(|name| !exported.contains_key(*name));
    let mut found: Vec<String> = not_listed.collect();
    found.extend(lost.map(|name| format!("{LIST}: no process exports `{name}`")));
    for source in sources.iter().filter(|source| is_user(&source.path)) {
        for (number, line) in source.text.lines().enumerate() {
            let place = format!("{}:{}", source.path, number + 1);
            let wrong = uses(line).filter_map(|used| used.wrong(&listed, &exported));
            found.extend(wrong.map(|why| format!("{place}: {why}")));
        }
    }
    found
}

/// Returns true for files with metric names that must exist: pages, dashboards and rules.
fn is_user(path: &str) -> bool {
    let is_read = ["md", "json", "yml", "yaml"].iter().any(|extension| has_extension(path, extension));
    is_read && (path.starts_with("docs/") || path.starts_with("deploy/") || !path.contains('/'))
}

/// An exported metric in the sources.
#[derive(Debug)]
struct Export {
    path: String,
    is_histogram: bool,
}

/// Returns every metric that some process exports.
fn exported(sources: &[Source]) -> BTreeMap<String, Export> {
    let mut found = BTreeMap::new();
    let is_program = |path: &str| has_extension(path, "rs") && path.contains("/src/") && !path.contains("/tests");
    for source in sources.iter().filter(|source| is_program(&source.path) && !source.path.starts_with("xtask/")) {
        for kind in ["counter!(", "gauge!(", "histogram!("] {
            for (at, _) in source.text.match_indices(kind) {
                let arguments = source.text[at + kind.len()..].trim_start();
                let Some(name) = arguments.strip_prefix('"').and_then(|rest| rest.split('"').next()) else { continue };
                if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                    let is_histogram = kind == "histogram!(";
                    found.insert(name.to_owned(), Export { path: source.path.clone(), is_histogram });
                }
            }
        }
    }
    found
}

/// Parses the tables of the list.
fn listed(text: &str) -> BTreeMap<String, Labels> {
    let mut found = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [names, labels, ..] = cells[..] else { continue };
        for name in quoted(names) {
            let prefix = if name.starts_with("nv_") { "" } else { "zerofleet_" };
            found.insert(format!("{prefix}{name}"), read_labels(labels));
        }
    }
    found
}

/// Parses the labels in a cell. `` `phase`: search, evaluate, `part` `` is one label with two values, and one label
/// with any value.
fn read_labels(cell: &str) -> Labels {
    let mut parts = cell.split('`').skip(1);
    let mut found = Labels::new();
    while let Some(label) = parts.next() {
        let values = parts.next().unwrap_or_default().trim().trim_start_matches(':');
        let values = values.split(',').map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        found.insert(label.to_owned(), values.collect());
    }
    found
}

/// A metric in a page, a dashboard or a rule.
#[derive(Debug, PartialEq, Eq)]
struct Use<'a> {
    name: &'a str,
    /// Pairs `(label, value)`; the value is `None` for a pattern or a negated matcher.
    matchers: Vec<(&'a str, Option<&'a str>)>,
}

impl Use<'_> {
    /// Returns the reason why this use matches no series.
    fn wrong(&self, listed: &BTreeMap<String, Labels>, exported: &BTreeMap<String, Export>) -> Option<String> {
        let (name, part) = match exported.get_key_value(self.name) {
            Some((name, _)) => (name.as_str(), None),
            None => {
                let (name, part) = self.name.rsplit_once('_')?;
                let is_part = ["bucket", "sum", "count"].contains(&part);
                if !is_part || !exported.get(name).is_some_and(|export| export.is_histogram) {
                    return Some(format!("no process exports `{}`", self.name));
                }
                (name, Some(part))
            }
        };
        let labels = listed.get(name)?;
        let mut wrong = self.matchers.iter().filter_map(|(label, value)| {
            if LABELS_OF_TARGETS.contains(label) || (*label == "le" && part == Some("bucket")) {
                return None;
            }
            let Some(values) = labels.get(*label) else { return Some(format!("`{name}` has no label `{label}`")) };
            let value = value.filter(|value| !values.is_empty() && !values.iter().any(|known| known == value))?;
            Some(format!("`{label}` of `{name}` is never `{value}`"))
        });
        wrong.next()
    }
}

/// Returns every metric in a line, with the matchers after it.
fn uses(line: &str) -> impl Iterator<Item = Use<'_>> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts: BTreeSet<usize> =
        PREFIXES.iter().flat_map(|prefix| line.match_indices(prefix)).map(|(at, _)| at).collect();
    starts.into_iter().filter_map(move |at| {
        if line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "_-/.".contains(c)) {
            return None;
        }
        // `python -m zerofleet_gym` runs a module.
        if line[..at].ends_with("python -m ") {
            return None;
        }
        let rest = &line[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        // `zerofleet_replay_…` in a sentence names a family.
        if name.ends_with('_') {
            return None;
        }
        let matchers = rest[end..].strip_prefix('{').and_then(|inner| inner.split('}').next()).map(matchers);
        Some(Use { name, matchers: matchers.unwrap_or_default() })
    })
}

/// Parses matchers such as `part="total", side!="x"`, also with quotes escaped as in JSON.
fn matchers(text: &str) -> Vec<(&str, Option<&str>)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(label, value)| {
            let quote = |c| "\"\\".contains(c);
            let label_only = label.trim().trim_end_matches('!');
            let is_pattern = label.ends_with('!') || value.starts_with('~');
            (label_only, (!is_pattern).then(|| value.trim().trim_matches(quote)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST_TEXT: &str = "
| metric | labels | meaning |
|---|---|---|
| `actor_games_total`, `actor_moves_total` | | episodes; moves |
| `actor_seconds_total` | `phase`: search, wait | time |
| `replay_sample_seconds` | `table` | histogram |
";

    const PROGRAM: &str = "
counter!(\"zerofleet_actor_games_total\").increment(1);
counter!(
    \"zerofleet_actor_moves_total\"
);
gauge!(\"zerofleet_actor_seconds_total\", \"phase\" => phase);
histogram!(\"zerofleet_replay_sample_seconds\", \"table\" => table);
";

    fn complaints(list: &str, program: &str, rule: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        unlisted(&[
            source("actor/src/metrics.rs", program),
            source("deploy/prometheus/alerts.yml", rule),
            source("docs/metrics.md", list),
        ])
    }

    fn complaints_of_rule(rule: &str) -> Vec<String> {
        complaints(LIST_TEXT, PROGRAM, rule)
    }

    #[test]
    fn metrics_that_are_listed_exported_and_used_as_listed_pass() {
        let rule =
            "rate(zerofleet_actor_seconds_total{phase=\"wait\", role=\"actor\"}[5m]) / zerofleet_actor_games_total";
        assert_eq!(complaints_of_rule(rule), [""; 0]);
        assert_eq!(
            complaints_of_rule("sum by (le) (zerofleet_replay_sample_seconds_bucket{le=\"1\", table=\"x\"})"),
            [""; 0]
        );
        assert_eq!(complaints_of_rule("{\"expr\": \"zerofleet_actor_seconds_total{phase=\\\"wait\\\"}\"}"), [""; 0]);
    }

    #[test]
    fn an_exported_metric_that_is_not_listed_is_found() {
        let program = format!("{PROGRAM}counter!(\"zerofleet_actor_naps_total\");");
        assert_eq!(
            complaints(LIST_TEXT, &program, ""),
            ["actor/src/metrics.rs: `zerofleet_actor_naps_total` is not listed in docs/metrics.md"]
        );
    }

    #[test]
    fn a_listed_metric_that_no_process_exports_is_found() {
        let list = format!("{LIST_TEXT}| `actor_naps_total` | | naps |\n");
        assert_eq!(
            complaints(&list, PROGRAM, ""),
            ["docs/metrics.md: no process exports `zerofleet_actor_naps_total`"]
        );
    }

    #[test]
    fn a_rule_that_names_no_metric_of_ours_is_found() {
        assert_eq!(
            complaints_of_rule("\n  expr: zerofleet_actor_gmes_total > 0"),
            ["deploy/prometheus/alerts.yml:2: no process exports `zerofleet_actor_gmes_total`"]
        );
        // Only histograms have parts.
        assert_eq!(complaints_of_rule("zerofleet_actor_games_total_bucket").len(), 1);
    }

    #[test]
    fn a_label_that_the_metric_does_not_have_is_found() {
        assert_eq!(
            complaints_of_rule("zerofleet_actor_games_total{phase=\"wait\"}"),
            ["deploy/prometheus/alerts.yml:1: `zerofleet_actor_games_total` has no label `phase`"]
        );
    }

    #[test]
    fn a_value_that_the_label_never_has_is_found() {
        assert_eq!(
            complaints_of_rule("zerofleet_actor_seconds_total{phase=\"sleep\"}"),
            ["deploy/prometheus/alerts.yml:1: `phase` of `zerofleet_actor_seconds_total` is never `sleep`"]
        );
    }

    #[test]
    fn a_family_and_a_path_are_no_metrics() {
        assert_eq!(complaints_of_rule("all of `zerofleet_actor_…`, x/zerofleet_actor_games"), [""; 0]);
    }
}
