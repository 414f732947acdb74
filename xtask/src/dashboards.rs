//! `cargo xtask dashboards`: what Grafana shows, written down once and made into the JSON that it reads.
//!
//! Grafana's JSON says the same thing for every panel many times over; nobody reviews that. Here a panel is its title, its
//! unit, what it shows and its queries; `json` adds the rest. The JSON lies in the repository all the same, for people who
//! import it by hand, and `cargo xtask tidy` holds it against what this makes. Start with `training`.

mod inference;
mod json;
mod panel;
mod replay;
mod throughput;
mod training;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use panel::{Dashboard, Panel, Row, Unit};

/// Where the JSON lies.
const FOLDER: &str = "deploy/grafana/dashboards";

/// Writes every dashboard.
///
/// # Errors
/// If a file cannot be written.
pub fn run(root: &Path) -> Result<()> {
    for (path, text) in files() {
        fs::write(root.join(&path), text).with_context(|| format!("write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Every dashboard as it ought to lie in the repository: path and text.
pub(crate) fn files() -> Vec<(String, String)> {
    let dashboards = [training::dashboard(), throughput::dashboard(), replay::dashboard(), inference::dashboard()];
    dashboards.iter().map(|dashboard| (format!("{FOLDER}/{}.json", dashboard.name), json::text(dashboard))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::files;

    fn dashboards() -> Vec<Value> {
        files()
            .iter()
            .map(|(path, text)| serde_json::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}")))
            .collect()
    }

    fn panels(dashboard: &Value) -> Vec<&Value> {
        dashboard["panels"].as_array().unwrap().iter().collect()
    }

    #[test]
    fn every_panel_says_what_it_shows_in_which_unit_and_what_its_series_are() {
        for dashboard in dashboards() {
            for panel in panels(&dashboard) {
                if panel["type"] == "row" {
                    continue;
                }
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let title = text(&panel["title"]);
                assert!(text(&panel["description"]).ends_with('.'), "{title} has no description");
                assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title} has no unit");
                for target in panel["targets"].as_array().unwrap() {
                    assert!(!text(&target["legendFormat"]).is_empty(), "a series of {title} has no name");
                }
            }
        }
    }

    #[test]
    fn panels_lie_side_by_side_and_not_on_each_other() {
        for dashboard in dashboards() {
            let mut taken = BTreeSet::new();
            for panel in panels(&dashboard) {
                let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
                assert!(at("x") + at("w") <= 24, "{} is beyond the edge", panel["title"]);
                for x in at("x")..at("x") + at("w") {
                    for y in at("y")..at("y") + at("h") {
                        assert!(taken.insert((x, y)), "{} lies on another panel", panel["title"]);
                    }
                }
            }
        }
    }

    #[test]
    fn titles_and_numbers_of_panels_are_told_apart() {
        for dashboard in dashboards() {
            let panels = panels(&dashboard);
            for key in ["title", "id"] {
                let different: BTreeSet<String> = panels.iter().map(|panel| panel[key].to_string()).collect();
                assert_eq!(different.len(), panels.len(), "two panels of {} share a {key}", dashboard["title"]);
            }
        }
    }

    #[test]
    fn a_panel_is_one_line() {
        for (path, text) in files() {
            let lines = text.lines().filter(|line| line.starts_with("    {")).count();
            let dashboard: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(lines, panels(&dashboard).len(), "{path}");
        }
    }
}
