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
mod tests;
