//! Checks that Grafana dashboards are valid JSON, with panels that have a description, are distinguishable and do not
//! overlap.
//!
//! [`metrics`](super::metrics) checks the metrics named by dashboards, along with all other files. A system test checks
//! the JSON types against the SDK that Grafana publishes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Source, has_extension};

const FOLDER: &str = "deploy/grafana/dashboards/";

/// Columns of a dashboard.
const COLUMNS: u64 = 24;

/// Returns the defects of all dashboards, one sentence each.
pub(super) fn defects(sources: &[Source]) -> Vec<String> {
    let files = sources.iter().filter(|source| source.path.starts_with(FOLDER) && has_extension(&source.path, "json"));
    let mut uids = BTreeSet::new();
    let mut found = Vec::new();
    for Source { path, text } in files {
        let dashboard: Value = match serde_json::from_str(text) {
            Ok(dashboard) => dashboard,
            Err(error) => {
                found.push(format!("{path}: is not JSON: {error}"));
                continue;
            }
        };
        let mut defects = defects_of(&dashboard, text);
        if !uids.insert(dashboard["uid"].to_string()) {
            defects.push(format!("another dashboard also has the uid {}", dashboard["uid"]));
        }
        found.extend(defects.into_iter().map(|defect| format!("{path}: {defect}")));
    }
    found
}

fn defects_of(dashboard: &Value, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let panels = dashboard["panels"].as_array().map_or(&[][..], Vec::as_slice);
    if panels.is_empty() {
        found.push("has no panels".to_owned());
    }
    // With one line per panel, a change to a panel changes one line.
    if text.lines().filter(|line| line.starts_with("    {")).count() != panels.len() {
        found.push("a panel is not written on one line, indented by four spaces".to_owned());
    }
    let (mut ids, mut titles, mut taken) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = text_of(&panel["title"]);
        if title.is_empty() || !titles.insert(title) {
            found.push(format!("the title `{title}` is empty or used by another panel"));
        }
        if panel["id"].as_u64().is_none_or(|id| !ids.insert(id)) {
            found.push(format!("the id of `{title}` is missing or used by another panel"));
        }
        found.extend(misplaced(panel, &mut taken).map(|reason| format!("`{title}` {reason}")));
        if panel["type"] != "row" {
            found.extend(undescribed(panel).into_iter().map(|reason| format!("`{title}` {reason}")));
        }
    }
    found
}

/// Adds the cells of a panel to `taken`; returns the reason if the panel is misplaced.
fn misplaced(panel: &Value, taken: &mut BTreeSet<(u64, u64)>) -> Option<String> {
    let at = |key: &str| panel["gridPos"][key].as_u64();
    let (Some(x), Some(y), Some(w), Some(h)) = (at("x"), at("y"), at("w"), at("h")) else {
        return Some("has no gridPos".to_owned());
    };
    if x.saturating_add(w) > COLUMNS || h > 100 {
        return Some("does not fit".to_owned());
    }
    let overlaps = (x..x + w).flat_map(|x| (y..y.saturating_add(h)).map(move |y| (x, y)));
    let overlaps = overlaps.filter(|cell| !taken.insert(*cell)).count();
    (overlaps > 0).then(|| "overlaps another panel".to_owned())
}

fn undescribed(panel: &Value) -> Vec<&'static str> {
    let mut found = Vec::new();
    if !text_of(&panel["description"]).ends_with('.') {
        found.push("has no description that ends with a full stop");
    }
    if text_of(&panel["fieldConfig"]["defaults"]["unit"]).is_empty() {
        found.push("has no unit");
    }
    let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
    if targets.is_empty() {
        found.push("has no query");
    }
    for target in targets {
        if text_of(&target["expr"]).is_empty() || text_of(&target["legendFormat"]).is_empty() {
            found.push("has a query without expr or legendFormat");
        }
    }
    found
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace;

    fn panel(id: u64, title: &str, x: u64) -> Value {
        json!({
            "id": id, "type": "timeseries", "title": title, "description": "Steps.",
            "gridPos": { "x": x, "y": 0, "w": 12, "h": 8 }, "fieldConfig": { "defaults": { "unit": "short" } },
            "targets": [{ "expr": "up", "legendFormat": "{{role}}" }],
        })
    }

    fn source(panels: &[Value]) -> Source {
        let panels: Vec<String> = panels.iter().map(|panel| format!("    {panel}")).collect();
        let text = format!("{{\n  \"uid\": \"a\",\n  \"panels\": [\n{}\n  ]\n}}\n", panels.join(",\n"));
        Source { path: format!("{FOLDER}a.json"), text }
    }

    fn only(panels: &[Value]) -> String {
        defects(&[source(panels)]).join("; ")
    }

    #[test]
    fn the_dashboards_are_there_and_nothing_is_wrong_with_them() {
        let sources = super::super::sources(&workspace::root()).unwrap();
        assert!(sources.iter().filter(|source| source.path.starts_with(FOLDER)).count() >= 4);
        assert_eq!(defects(&sources), [""; 0]);
    }

    #[test]
    fn every_panel_has_a_description_a_unit_and_names_for_its_series() {
        assert_eq!(only(&[panel(1, "A", 0), panel(2, "B", 12)]), "");
        let without = |key: &str, inner: Option<&str>| {
            let mut panel = panel(1, "A", 0);
            match inner {
                Some(inner) => panel[key][0][inner] = json!(""),
                None => panel[key] = json!({}),
            }
            only(&[panel])
        };
        assert!(without("description", None).contains("`A` has no description"));
        assert!(without("fieldConfig", None).contains("`A` has no unit"));
        assert!(without("targets", None).contains("`A` has no query"));
        assert!(without("targets", Some("legendFormat")).contains("without expr or legendFormat"));
        assert!(without("targets", Some("expr")).contains("without expr or legendFormat"));
        let row = json!({ "id": 1, "type": "row", "title": "Row", "gridPos": { "x": 0, "y": 0, "w": 24, "h": 1 } });
        assert_eq!(only(&[row]), "");
    }

    #[test]
    fn panels_lie_side_by_side_and_do_not_overlap() {
        assert!(only(&[panel(1, "A", 0), panel(2, "B", 11)]).contains("`B` overlaps another panel"));
        assert!(only(&[panel(1, "A", 13)]).contains("`A` does not fit"));
    }

    #[test]
    fn titles_ids_and_uids_are_unique() {
        assert!(only(&[panel(1, "A", 0), panel(2, "A", 12)]).contains("the title `A` is empty or used by another"));
        assert!(only(&[panel(1, "A", 0), panel(1, "B", 12)]).contains("the id of `B`"));
        let twice = [source(&[panel(1, "A", 0)]), source(&[panel(1, "A", 0)])];
        assert!(defects(&twice)[0].contains("another dashboard also has the uid \"a\""));
    }

    #[test]
    fn a_panel_is_one_line_and_a_file_is_json() {
        let mut broken = source(&[panel(1, "A", 0)]);
        broken.text = broken.text.replace(",\"id\"", ",\n\"id\"").replace("{\"description\"", "{\n\"description\"");
        broken.text = broken.text.replace("    {", "  {");
        assert!(defects(&[broken])[0].contains("a panel is not written on one line"));
        let text = Source { path: format!("{FOLDER}b.json"), text: "{".to_owned() };
        assert!(defects(&[text])[0].contains("b.json: is not JSON"));
    }
}
