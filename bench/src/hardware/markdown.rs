use super::report::{Kind, Report, SettingReport, Speed, WorkloadReport};
use crate::digits::{number, time};

/// The report as tables for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { cpu, target, cores, devices, seconds, repeats, turn, call_seconds_max, seed, .. } = report;
    let mut text = format!(
        "# Devices, precisions and batch sizes\n\n\
         - machine: {cpu}, {target}, {cores} cores\n\
         - devices: {}\n",
        devices.join(", ")
    );
    report.missing.iter().for_each(|missing| text += &format!("- no {missing}\n"));
    text += &format!(
        "- threads share out every operation; evaluators have a thread and a batch each\n\
         - every number: the {turn} of {repeats} turns of {seconds} s; seed {seed}\n\
         - in brackets: time from a call to its answer, speed over that of the fastest setting of the CPU at this size\n\
         - left out (–): calls that take longer than {call_seconds_max} s\n"
    );
    if let Some(compared) = &report.compared {
        text += &format!("- ratio: to {}, measured on {}\n", compared.file, compared.cpu);
    }
    report.workloads.iter().for_each(|workload| text += &section(workload));
    text
}

fn section(report: &WorkloadReport) -> String {
    let WorkloadReport { workload, settings, in_words, .. } = report;
    let mut text = format!("\n## {workload}\n\n{in_words}\n{}", speeds(report));
    for SettingReport { setting, not_measured, .. } in settings {
        if let Some(reason) = not_measured {
            text += &format!("\n{setting}: not measured: {reason}\n");
        }
    }
    text
}

/// Speeds by setting and size.
fn speeds(report: &WorkloadReport) -> String {
    let (kind, sizes) = (report.kind, report.sizes());
    if sizes.is_empty() {
        return String::new();
    }
    let mut text = format!("\n| {} |", kind.unit());
    sizes.iter().for_each(|size| text += &format!(" {} {size} |", kind.sizes()));
    text += "\n|---|";
    text += &"---:|".repeat(sizes.len());
    for setting in report.settings.iter().filter(|report| !report.speeds.is_empty()) {
        text += &format!("\n| {} |", setting.setting);
        for &size in &sizes {
            text += &format!(" {} |", setting.at(size).map_or("–".to_owned(), |speed| cell(kind, speed)));
        }
    }
    text + "\n"
}

fn cell(kind: Kind, speed: &Speed) -> String {
    let Speed { latency_us, per_second, speed_up, ratio, .. } = *speed;
    let mut brackets = vec![time(latency_us)];
    brackets.extend(speed_up.map(|times| format!("{times:.2}")));
    brackets.extend(ratio.map(|ratio| format!("ratio {ratio:.2}")));
    format!("{} ({})", number(kind.in_units(per_second)), brackets.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::testing::report;
    use super::*;
    use crate::search::Compared;

    #[track_caller]
    fn assert_line(report: &Report, line: &str) {
        let text = markdown(report);
        assert!(text.lines().any(|written| written == line), "{line}\nis not in\n{text}");
    }

    #[test]
    fn speeds_stand_beside_each_other_by_size() {
        let report = report();
        assert_line(&report, "## tower 6x64@6x7");
        assert_line(&report, "| evaluations/s | batch 1 | batch 64 | batch 1024 |");
        assert_line(&report, "|---|---:|---:|---:|");
        assert_line(&report, "| cpu libtorch f32, 1 thread | 1000 (1.00 ms, 0.05) | 8000 (8.00 ms, 0.32) | – |");
        assert_line(
            &report,
            "| cuda libtorch bf16 | 1000 (1.00 ms, 0.05) | 50000 (1.28 ms, 2.00) | 200000 (5.12 ms) |",
        );
    }

    #[test]
    fn the_recommendation_stands_before_the_table() {
        let report = report();
        assert_line(&report, &report.workloads[0].in_words);
    }

    #[test]
    fn devices_are_named_and_those_that_are_missing_with_the_reason() {
        assert_line(&report(), "- devices: cpu, cuda");
        assert_line(&report(), "- no mps: this libtorch has no MPS");
    }

    #[test]
    fn what_a_device_refused_is_said_below() {
        assert_line(&report(), "cuda libtorch f32: not measured: size 1024: out of memory");
    }

    #[test]
    fn ratios_are_told_with_what_they_are_to() {
        let mut report = report();
        assert!(!markdown(&report).contains("- ratio") && !markdown(&report).contains(", ratio"));
        report.compared = Some(Compared { file: "before.json".to_owned(), cpu: "Another CPU".to_owned() });
        report.workloads[0].settings[0].speeds[0].ratio = Some(1.254);
        assert_line(&report, "- ratio: to before.json, measured on Another CPU");
        assert_line(
            &report,
            "| cpu libtorch f32, 1 thread | 1000 (1.00 ms, 0.05, ratio 1.25) | 8000 (8.00 ms, 0.32) | – |",
        );
    }

    #[test]
    fn a_workload_without_speeds_has_no_table() {
        let mut report = report();
        report.workloads[0].settings.iter_mut().for_each(|report| report.speeds.clear());
        assert!(!markdown(&report).contains("|---|"));
    }
}
