//! `zerofleet bench hardware`: matrix products, convolutions, vector operations, copies and whole networks on every
//! device in every available precision, and a recommendation.
//!
//! A workload is computed at several sizes in several settings: a device, an engine, a precision, and a split over CPU
//! cores. The settings of one workload are measured in turns, because the speed of a machine varies during the
//! measurement. If a device fails, the report states the reason. Start with [`measure`]; [`compare`](fn@compare)
//! has the same measurements by operation and size, for the CPU and one accelerator.

mod compare;
mod latent;
mod recommend;
mod setting;
mod workload;

use std::time::Duration;

use anyhow::Context;
use network_torch::Operation;

use crate::network::{NetworkSize, published};
use crate::report::{Report, SoFar, Unit};
use crate::series::{Limits, Speed, Speeds, measure_in_turns};
use crate::{Turns, ascending, machine};
use latent::Inference;
use setting::Setting;
use workload::{Kind, Means, Workload};

/// Options of `zerofleet bench hardware`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Side lengths of the square matrices to multiply.
    #[arg(long, value_delimiter = ',', default_value = "256,1024,4096")]
    pub sides: Vec<usize>,
    /// Lengths of the vectors to add, multiply, sum and copy.
    #[arg(long, value_delimiter = ',', default_value = "65536,1048576,16777216")]
    pub elements: Vec<usize>,
    /// Residual towers as in AlphaZero, each BLOCKSxCHANNELS@HEIGHTxWIDTH; 6x64@6x7 by default.
    ///
    /// With `--compare` and no file, the default is 20x256@19x19.
    #[arg(long, value_delimiter = ',')]
    pub towers: Vec<NetworkSize>,
    /// MuZero networks, each BLOCKSxCHANNELS@HEIGHTxWIDTH; 1x1 is a dense network.
    ///
    /// Initial and recurrent inference are measured separately.
    #[arg(long, value_delimiter = ',', default_value = "1x64@1x1,1x256@1x1,1x512@1x1,2x32@10x10")]
    pub muzero: Vec<NetworkSize>,
    /// Batch sizes for the networks and the convolution.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,1024,4096,8192")]
    pub batches: Vec<usize>,
    /// CPU threads to measure besides a single thread; 0 for one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Time limit per call, in seconds; larger sizes are skipped.
    ///
    /// The time of a call is extrapolated from a smaller size.
    #[arg(long, default_value_t = 3.0)]
    pub call_seconds_max: f64,
}

/// Runs the measurements and returns the report; calls `so_far` with the unfinished report after each workload.
///
/// # Errors
/// An option is invalid.
pub fn measure(args: &Args, so_far: SoFar<'_>) -> anyhow::Result<Report> {
    let form = Form {
        report: Report::new("hardware", "Devices, precisions and batch sizes"),
        note: "speed-up: over the fastest setting of the CPU at this size",
        operations: &Operation::ALL,
        tower: NetworkSize { blocks: 6, channels: 64, height: 6, width: 7 },
        devices_max: usize::MAX,
        add,
    };
    form.measure(args, so_far)
}

/// Measures the CPU and the first accelerator as [`measure`] does, and returns a report with a row for each operation
/// and size.
///
/// # Errors
/// An option is invalid.
pub fn compare(args: &Args, so_far: SoFar<'_>) -> anyhow::Result<Report> {
    let form = Form {
        report: Report::new("comparison", "CPU and accelerator"),
        note: "times: between two results in the fastest setting of the device",
        operations: &[Operation::Product, Operation::Convolution, Operation::Copy],
        tower: NetworkSize { blocks: 20, channels: 256, height: 19, width: 19 },
        devices_max: 2,
        add: compare::add,
    };
    form.measure(args, so_far)
}

/// The measurements of a report, and the way in which the report shows the speeds.
struct Form {
    /// The report without measurements.
    report: Report,
    /// Meaning of the values, as a note of the report.
    note: &'static str,
    operations: &'static [Operation],
    /// The tower to measure without `--towers`.
    tower: NetworkSize,
    /// Maximum number of devices, of which the CPU is the first.
    devices_max: usize,
    /// Adds the speeds of a workload to the report.
    add: fn(&mut Report, &str, Kind, &[Speeds<Setting>]),
}

impl Form {
    /// Measures every workload, and returns the report.
    fn measure(self, args: &Args, so_far: SoFar<'_>) -> anyhow::Result<Report> {
        let sides = ascending("--sides", &args.sides)?;
        let elements = ascending("--elements", &args.elements)?;
        let batches = ascending("--batches", &args.batches)?;
        let call_time_max = Duration::try_from_secs_f64(args.call_seconds_max).context("parse --call-seconds-max")?;
        let limits = Limits { time: args.turns.time()?, call_time_max };
        // Must be the first call of libtorch: the CUDA library is loaded before the first use or not at all.
        let mut devices = network_torch::devices();
        devices.working.truncate(self.devices_max);
        let workloads = self.workloads(args)?;
        let means = Means { devices: devices.working, threads: machine::threads(args.threads), seed: args.turns.seed };
        let Self { mut report, note, add, .. } = self;
        report.set("threads", means.threads);
        let names: Vec<String> = means.devices.iter().map(|&device| network_torch::device_name(device)).collect();
        report.note(format!("devices: {}", names.join(", ")));
        devices.missing.iter().for_each(|missing| report.note(format!("no {missing}")));
        report.note("threads share out every operation; evaluators have a thread and a batch each");
        report.note(note);
        report.note(format!("left out: calls that take longer than {} s", args.call_seconds_max));
        report.note_turns(args.turns);
        for workload in &workloads {
            let kind = workload.kind();
            let sizes = match workload {
                Workload::Operation(Operation::Product) => &sides,
                Workload::Operation(Operation::Convolution) | Workload::Tower(..) | Workload::Latent(..) => &batches,
                Workload::Operation(_) => &elements,
            };
            let settings = measure_in_turns(workload.series(&means), sizes, limits, args.turns);
            add(&mut report, &workload.to_string(), kind, &settings);
            so_far(&report)?;
        }
        Ok(report)
    }

    fn workloads(&self, args: &Args) -> anyhow::Result<Vec<Workload>> {
        let mut workloads: Vec<Workload> = self.operations.iter().copied().map(Workload::Operation).collect();
        let weights = |architecture, what: &str, size: NetworkSize| {
            published(architecture, args.turns.seed).with_context(|| format!("build the {what} {size}"))
        };
        let towers = if args.towers.is_empty() { std::slice::from_ref(&self.tower) } else { args.towers.as_slice() };
        for &size in towers {
            workloads.push(Workload::Tower(size, weights(size.architecture(), "tower", size)?));
        }
        for &size in &args.muzero {
            let weights = weights(latent::architecture(size), "MuZero network", size)?;
            let inferences = [Inference::Initial, Inference::Recurrent];
            workloads.extend(inferences.map(|inference| Workload::Latent(size, inference, weights.clone())));
        }
        Ok(workloads)
    }
}

/// Adds the speeds of a workload with a plot, and the conclusions.
fn add(report: &mut Report, workload: &str, kind: Kind, settings: &[Speeds<Setting>]) {
    for Speeds { label: setting, speeds, .. } in settings {
        for speed @ Speed { size, latency_us, per_second, .. } in speeds {
            report
                .at(workload, &[("setting", setting), (kind.sizes, size)])
                .value(kind.metric, kind.unit, *per_second)
                .value("call to answer", Unit::Microseconds, *latency_us)
                .value("speed-up", Unit::Ratio, recommend::speed_up(settings, speed));
        }
    }
    report.plot(workload, kind.metric, Some(kind.sizes), None);
    report.finding(recommend::finding(workload, kind, settings));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--sides 2,16 --elements 64 --towers 1x16@3x3 --muzero 1x32@1x1 --batches 3,1 --threads 2 \
                    --seconds 0.001 --repeats 2";

    #[test]
    fn a_tiny_run_measures_everything() {
        let mut seen = Vec::new();
        let report = measure(&args(TINY), &mut |so_far| {
            seen.push(so_far.sections().len());
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let expected = [
            "matrix product",
            "convolution",
            "vector add",
            "vector multiply",
            "vector sum",
            "copy there and back",
            "tower 1x16@3x3",
            "initial inference 1x32@1x1",
            "recurrent inference 1x32@1x1",
        ];
        assert_eq!(report.sections(), expected);
        assert!(report.notes[0].starts_with("devices: cpu"), "{report:?}");
        let metrics = [&["multiply-adds/s"; 2][..], &["bytes/s"; 4], &["evaluations/s"; 3]].concat();
        for (workload, metric) in expected.into_iter().zip(metrics) {
            let setting = ("setting", "cpu libtorch f32, 1 thread");
            for metric in [metric, "call to answer", "speed-up"] {
                assert!(report.value(workload, &[setting], metric) > Some(0.0), "{workload}, {metric}: {report:?}");
            }
            assert!(report.value(workload, &[setting], "speed-up") <= Some(1.0), "{report:?}");
        }
        for (finding, workload) in report.findings.iter().zip(expected) {
            assert!(finding.starts_with(&format!("{workload}: Use ")), "{finding}");
        }
    }

    #[test]
    fn the_time_of_a_call_and_its_speed_are_consistent() {
        let report = measure(&args(TINY), &mut |_| Ok(())).unwrap();
        let dimensions = [("setting", "cpu libtorch f32, 1 thread"), ("side", "16")];
        let of = |metric| report.value("matrix product", &dimensions, metric).unwrap();
        let multiply_adds = of("multiply-adds/s") * of("call to answer") / 1e6;
        assert!((multiply_adds / 16_f64.powi(3) - 1.0).abs() < 1e-6, "{report:?}");
    }

    #[test]
    fn the_report_is_printed_written_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let (mut table, mut json) = (Vec::new(), Vec::new());
        crate::tests::run("hardware", &format!("{TINY} --out {}", out.display()), &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("\n## tower 1x16@3x3\n\n| setting | batch |"), "{table}");
        assert_eq!(std::fs::read_to_string(out.join("hardware.md")).unwrap(), table);
        let svg = std::fs::read_to_string(out.join("hardware.svg")).unwrap();
        assert!(svg.contains("\nrecurrent inference 1x32@1x1: evaluations/s\n") && svg.contains("\nbatch\n"), "{svg}");

        let earlier = out.join("hardware.json");
        crate::tests::run("hardware", &format!("{TINY} --json --compare {}", earlier.display()), &mut json).unwrap();
        let report: Report = serde_json::from_slice(&json).unwrap();
        assert!(report.rows[0].change.is_some(), "{report:?}");
        assert_eq!(report.compared.unwrap().file, earlier.display().to_string());
    }

    #[test]
    fn a_failed_setting_is_reported_as_not_measured_with_its_reason() {
        let mut report = Report::new("hardware", "Devices");
        add(&mut report, "tower", workload::NETWORK, &recommend::tests::settings());
        let finding = &report.findings[0];
        assert!(finding.contains("\n- cuda libtorch f32: not measured: size 1024: out of memory"), "{finding}");
        let dimensions = [("setting", "cuda libtorch bf16"), ("batch", "64")];
        assert_eq!(report.value("tower", &dimensions, "speed-up"), Some(2.0));
    }

    #[test]
    fn a_network_that_the_kernel_does_not_take_is_measured_without_it() {
        let line = TINY.replace("1x16@3x3", "1x12@3x3");
        let report = measure(&args(&line), &mut |_| Ok(())).unwrap();
        let rows = report.rows.iter().filter(|row| row.section == "tower 1x12@3x3");
        let mut settings = rows.filter_map(|row| row.dimensions.get("setting"));
        assert!(settings.all(|setting| setting.contains("libtorch")), "{report:?}");
        assert!(report.findings[6].contains("\n- cpu kernel f32, 1 thread: not measured: "), "{report:?}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", crate::tests::run("hardware", line, &mut Vec::new()).unwrap_err());
        for option in ["--sides", "--elements", "--batches", "--repeats"] {
            assert!(error(&format!("{option} 0")).contains(option));
        }
        assert!(error("--seconds=-1").contains("--seconds"));
        assert!(error("--call-seconds-max=-1").contains("--call-seconds-max"));
        assert!(error("--towers 1x0@3x3").contains("1x0@3x3"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        for line in [["--towers", "6x64"], ["--muzero", "64"], ["--threads", "-1"]] {
            assert!(parsed::<Args>(line).is_err());
        }
    }
}
