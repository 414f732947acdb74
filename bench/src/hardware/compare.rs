//! The CPU and an accelerator side by side, in a row for each operation and size.

use std::collections::BTreeSet;

use super::recommend::{fastest_us, finding, wins};
use super::setting::Setting;
use super::workload::Kind;
use crate::report::{Report, Unit};
use crate::series::Speeds;

/// The section of all rows.
const SECTION: &str = "comparison";

/// Adds a row for each workload size: the times of CPU and accelerator, each in the fastest setting, the
/// speed-up, and the size from which on the accelerator is faster. Without an accelerator, adds the times of the CPU.
pub(super) fn add(report: &mut Report, workload: &str, kind: Kind, settings: &[Speeds<Setting>]) {
    let accelerator = settings.iter().find_map(|of| of.label.accelerator.as_deref());
    if report.plots.is_empty() {
        if accelerator.is_none() {
            report.note("no accelerator: the table has the times of the CPU alone");
        }
        report.plot(SECTION, accelerator.map_or("CPU", |_| "speed-up"), Some("size"), Some("operation"));
    }
    let operation = format!("{workload} ({})", kind.sizes);
    let faster_from = wins(settings).first().and_then(|(_, from)| *from);
    let sizes: BTreeSet<usize> = settings.iter().flat_map(|of| &of.speeds).map(|speed| speed.size).collect();
    for size in sizes {
        let of_cpu = fastest_us(settings, None, size);
        let row = report.at(SECTION, &[("operation", &operation), ("size", &size)]);
        let row = row.value("CPU", Unit::Microseconds, of_cpu);
        if let Some(device) = accelerator {
            let accelerated = fastest_us(settings, Some(device), size);
            row.value(device, Unit::Microseconds, accelerated)
                .value("speed-up", Unit::Ratio, of_cpu.zip(accelerated).map(|(cpu, device)| cpu / device))
                .value("faster from", Unit::Size, faster_from.map(|size| size as f64));
        }
    }
    report.finding(finding(workload, kind, settings));
}

#[cfg(test)]
mod tests {
    use super::super::recommend::tests;
    use super::super::workload::NETWORK;
    use super::*;

    /// Returns a report on a tower with these speeds.
    fn report(settings: &[Speeds<Setting>]) -> Report {
        let mut report = Report::new("comparison", "CPU and accelerator");
        add(&mut report, "tower 20x256@19x19", NETWORK, settings);
        report
    }

    #[test]
    fn every_batch_has_the_fastest_times_the_speed_up_and_the_batch_from_which_the_accelerator_is_faster() {
        let report = report(&tests::settings());
        let text = report.markdown();
        for line in [
            "| operation | size | CPU | cuda | speed-up | faster from |",
            "| tower 20x256@19x19 (batch) | 1 | 50.0 µs | 1.00 ms | 0.05× | 64 |",
            "| tower 20x256@19x19 (batch) | 64 | 2.56 ms | 1.28 ms | 2.00× | 64 |",
            // The CPU takes longer than a call may.
            "| tower 20x256@19x19 (batch) | 1024 | – | 5.12 ms | – | 64 |",
            "From batch 64 on, cuda is faster than the CPU.",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let svg = report.svg().unwrap();
        assert!(svg.contains("\ntower 20x256@19x19 (batch): speed-up\n") && svg.contains("\nsize\n"), "{svg}");
    }

    #[test]
    fn an_accelerator_that_is_slower_at_every_batch_has_times_and_no_batch_from_which_it_is_faster() {
        let mut settings = tests::settings();
        settings.iter_mut().filter(|of| of.label.accelerator.is_some()).for_each(|of| of.speeds.truncate(1));
        let text = report(&settings).markdown();
        assert!(text.contains("| tower 20x256@19x19 (batch) | 1 | 50.0 µs | 1.00 ms | 0.05× | – |"), "{text}");
        assert!(text.contains("| tower 20x256@19x19 (batch) | 64 | 2.56 ms | – | – | – |"), "{text}");
    }

    #[test]
    fn without_an_accelerator_the_times_of_the_cpu_stand_alone_and_the_report_says_so() {
        let mut settings = tests::settings();
        settings.retain(|of| of.label.accelerator.is_none());
        let report = report(&settings);
        let text = report.markdown();
        for line in [
            "- no accelerator: the table has the times of the CPU alone\n",
            "| operation | size | CPU |\n",
            "| tower 20x256@19x19 (batch) | 64 | 2.56 ms |\n",
            "There is no accelerator to compare with the CPU.",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(report.svg().unwrap().contains("\ntower 20x256@19x19 (batch): CPU\n"));
    }

    #[test]
    fn the_option_without_a_file_compares_devices_and_other_benchmarks_need_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let line = "--sides 2,16 --elements 64 --towers 1x16@3x3 --muzero 1x32@1x1 --batches 1 --threads 1 --seconds 0.001 \
                    --repeats 1 --compare --out";
        let mut printed = Vec::new();
        crate::tests::run("hardware", &format!("{line} {}", folder.path().display()), &mut printed).unwrap();
        let text = String::from_utf8(printed).unwrap();
        for operation in [
            "matrix product (side) | 16",
            "convolution (batch) | 1",
            "copy there and back (elements) | 64",
            "tower 1x16@3x3 (batch) | 1",
            "initial inference 1x32@1x1 (batch) | 1",
            "recurrent inference 1x32@1x1 (batch) | 1",
        ] {
            assert!(text.contains(&format!("\n| {operation} | ")), "{operation}: {text}");
        }
        assert!(folder.path().join("comparison.md").exists() && folder.path().join("comparison.svg").exists());
        let error = crate::tests::run("search", "--compare", &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("--compare needs the FILE"), "{error}");
    }
}
