use std::path::Path;

use super::report::{Report, SettingReport, WorkloadReport};
use crate::bench::search::Compared;

/// Adds the ratio to every speed that the earlier report has too.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    report.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone() });
    for workload in &mut report.workloads {
        let same = |before: &&WorkloadReport| before.workload == workload.workload;
        let Some(before) = earlier.workloads.iter().find(same) else { continue };
        workload.settings.iter_mut().for_each(|now| compare_setting(now, before));
    }
}

fn compare_setting(now: &mut SettingReport, before: &WorkloadReport) {
    let Some(before) = before.settings.iter().find(|before| before.setting == now.setting) else { return };
    for speed in &mut now.speeds {
        speed.ratio = before.at(speed.size).map(|before| speed.per_second / before.per_second);
    }
}

#[cfg(test)]
mod tests;
