//! Describes all metrics of all processes with the meanings in docs/metrics.md, the only list. `/metrics` has the
//! description of a metric as HELP text.

use metrics::describe_gauge;

/// The page with a row for each metric or family of metrics: names, labels, meanings.
const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Describes the metrics to the recorder, which renders only the descriptions of metrics with a value.
pub(crate) fn describe() {
    // The recorder has one description for each name, whatever the type.
    rows().flatten().for_each(|(name, meaning)| describe_gauge!(name, meaning));
}

/// Returns names and meanings of the metrics in each row.
fn rows() -> impl Iterator<Item = Vec<(String, String)>> {
    PAGE.lines().filter(|line| line.starts_with("| `")).map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let names: Vec<&str> = cells.next().unwrap_or_default().split('`').skip(1).step_by(2).collect();
        let meaning = plain(cells.next_back().unwrap_or_default());
        let meanings = if names.len() == 1 { vec![&*meaning] } else { meaning.split("; ").collect() };
        names.into_iter().map(full_name).zip(meanings.into_iter().map(str::to_owned)).collect()
    })
}

/// Adds the prefix that names on the page lack, except for Triton's names.
fn full_name(name: &str) -> String {
    if name.starts_with("nv_") { name.to_owned() } else { format!("zerofleet_{name}") }
}

/// Removes the targets of links, and the marks of code and emphasis.
fn plain(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(link) = plain.rfind('[') {
            plain.remove(link);
        }
        plain.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    plain.replace(['`', '*'], "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metrics::gauge;

    use super::*;

    #[test]
    fn every_row_of_the_page_has_a_meaning_for_each_metric() {
        for row in PAGE.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
            let [names, _, meanings] = cells[..] else { panic!("{row}: not three cells") };
            let (names, meanings) = (names.matches('`').count() / 2, meanings.split("; ").count());
            assert!(names == 1 || names == meanings, "{row}: {names} names, {meanings} meanings");
        }
        let described: Vec<(String, String)> = rows().flatten().collect();
        let names: BTreeSet<&String> = described.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), described.len(), "a metric has two rows");
        assert!(described.iter().all(|(_, meaning)| !meaning.is_empty()), "{described:?}");
    }

    #[test]
    fn every_metric_of_the_page_is_rendered_with_the_meaning_as_help() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            describe();
            rows().flatten().for_each(|(name, _)| gauge!(name).set(1.0));
        });
        let text = recorder.handle().render();
        for (name, meaning) in rows().flatten() {
            assert!(text.contains(&format!("# HELP {name} {meaning}\n# TYPE {name} ")), "{name} in {text}");
        }
        assert!(text.contains("# HELP zerofleet_actor_moves_total moves\n"), "{text}");
    }

    #[test]
    fn links_and_marks_are_removed() {
        let text = "*per process*: [spans](traces.md#cost) of `[security]`, and [more](a.md), sent";
        assert_eq!(plain(text), "per process: spans of [security], and more, sent");
    }
}
