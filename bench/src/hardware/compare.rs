use std::path::Path;

use super::report::{Report, SettingReport, WorkloadReport};
use crate::search::Compared;

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
mod tests {
    use super::super::testing::report;
    use super::*;

    #[test]
    fn speeds_are_compared_with_the_same_workload_setting_and_size() {
        let (mut now, mut earlier) = (report(), report());
        earlier.cpu = "Another CPU".to_owned();
        let before = &mut earlier.workloads[0];
        before.settings.reverse();
        before.settings.retain(|report| report.setting.precision == "bf16");
        let speeds = before.settings.iter_mut().flat_map(|report| &mut report.speeds);
        speeds.for_each(|speed| speed.per_second /= 2.0);
        before.settings.iter_mut().for_each(|report| report.speeds.retain(|speed| speed.size != 1));
        compare(&mut now, Path::new("before.json"), &earlier);
        for report in &now.workloads[0].settings {
            for speed in &report.speeds {
                let was_there = report.setting.precision == "bf16" && speed.size != 1;
                assert_eq!(speed.ratio, was_there.then_some(2.0), "{report:?}");
            }
        }
        let compared = now.compared.unwrap();
        assert_eq!((compared.file.as_str(), compared.cpu.as_str()), ("before.json", "Another CPU"));
    }

    #[test]
    fn another_workload_is_not_compared_with() {
        let (mut now, mut earlier) = (report(), report());
        earlier.workloads[0].workload = "tower 9x9@9x9".to_owned();
        compare(&mut now, Path::new("before.json"), &earlier);
        assert_eq!(now.workloads, report().workloads);
    }
}
