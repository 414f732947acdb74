use super::report::{Kind, Report, SettingReport, Speed, WorkloadReport};
use crate::bench::digits::{number, time};

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
mod tests;
