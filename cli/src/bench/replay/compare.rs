use std::path::Path;

use super::report::{Compared, Report};

/// Adds the ratio to every speed that the earlier report has too, for the same trajectories and batches.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    report.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone() });
    let what = |report: &Report| (report.steps, report.batch, report.unroll, report.in_flight);
    if what(report) != what(earlier) {
        return;
    }
    for now in &mut report.writers {
        if let Some(before) = earlier.writers.iter().find(|before| before.writers == now.writers) {
            now.inserts_ratio = Some(now.inserts_per_second / before.inserts_per_second);
            now.samples_ratio = Some(now.samples_per_second / before.samples_per_second);
        }
    }
    for now in &mut report.sizes {
        let before = earlier.sizes.iter().find(|before| before.positions == now.positions);
        now.samples_ratio = before.map(|before| now.samples_per_second / before.samples_per_second);
    }
}

#[cfg(test)]
mod tests;
