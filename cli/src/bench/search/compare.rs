use std::path::Path;

use anyhow::Context;

use super::report::{Compared, Report, Searched};

/// Reads an earlier report.
///
/// # Errors
/// A file that cannot be read, or that is no report of this benchmark.
pub(super) fn read(path: &Path) -> anyhow::Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read the earlier report {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {} as what `bench search --json` prints", path.display()))
}

/// Adds the ratio to every speed that the earlier report has too.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    report.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone() });
    for now in &mut report.searched {
        let before = earlier.searched.iter().find(|before| is_same(before, now));
        now.ratio = before.map(|before| now.simulations_per_second / before.simulations_per_second);
    }
}

fn is_same(a: &Searched, b: &Searched) -> bool {
    (&a.game, a.rule, a.simulations, a.threads) == (&b.game, b.rule, b.simulations, b.threads)
}

#[cfg(test)]
mod tests;
