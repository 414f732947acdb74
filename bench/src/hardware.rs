//! `zerofleet bench hardware`: matrix products, vector operations and whole networks on every device in every precision that
//! there is, and what to use.
//!
//! A workload is computed at several sizes in several settings: a device, an engine, a precision, and how the cores of a CPU
//! are used. Everything of one workload is measured in turns, because a machine slows down and speeds up while it is measured.
//! What a device refuses is a reason in the report. Start with [`run`].

mod compare;
mod dense_size;
mod markdown;
mod plot;
mod recommend;
mod report;
mod series;
mod setting;
#[cfg(test)]
mod testing;
mod tower_network;
mod words;
mod work;
mod workload;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use network_torch::VectorOperation;

pub use dense_size::DenseSize;
pub use markdown::markdown;
pub use plot::draw;
pub use report::{Kind, Recommended, Report, SettingReport, Speed, Win, WorkloadReport};
pub use setting::Setting;

use super::kernel::NetworkSize;
use super::output::Destination;
use super::{Turns, machine};
use series::{Limits, Series};
use tower_network::TowerNetwork;
use workload::{Means, Workload};

/// Options of `zerofleet bench hardware`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Rows of the square matrices that are multiplied.
    #[arg(long, value_delimiter = ',', default_value = "256,1024,4096")]
    pub sides: Vec<usize>,
    /// Elements of the vectors that are added, multiplied and summed up.
    #[arg(long, value_delimiter = ',', default_value = "65536,1048576,16777216")]
    pub elements: Vec<usize>,
    /// Residual towers as AlphaZero has them, each BLOCKSxCHANNELS@HEIGHTxWIDTH.
    #[arg(long, value_delimiter = ',', default_value = "6x64@6x7")]
    pub towers: Vec<NetworkSize>,
    /// Dense networks as MuZero has them, each INPUTSxHIDDENxACTIONS, with two hidden layers.
    #[arg(long, value_delimiter = ',', default_value = "126x64x7,126x256x7,126x512x7")]
    pub dense: Vec<DenseSize>,
    /// Batch sizes of the networks.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,1024,4096,8192")]
    pub batches: Vec<usize>,
    /// Threads of the CPU, beside a single one; 0 takes one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Sizes at which one call takes longer than this, by what a smaller one took, are left out.
    #[arg(long, default_value_t = 3.0)]
    pub call_seconds_max: f64,
    /// Every random number descends from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    // Before minutes are spent on measuring.
    let earlier = args.destination.earlier("hardware")?;
    let report = measure(args, |report| {
        if let Some((path, earlier)) = &earlier {
            compare::compare(report, path, earlier);
        }
        let report = &*report;
        args.destination.write("hardware", || markdown(report), report, |path| draw(path, report))
    })?;
    args.destination.print(&report, || markdown(&report), out)
}

/// Measures; `so_far` sees the report after each workload.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args, mut so_far: impl FnMut(&mut Report) -> anyhow::Result<()>) -> anyhow::Result<Report> {
    let sides = ascending(&args.sides).context("read --sides")?;
    let elements = ascending(&args.elements).context("read --elements")?;
    let batches = ascending(&args.batches).context("read --batches")?;
    let call_time_max = Duration::try_from_secs_f64(args.call_seconds_max).context("read --call-seconds-max")?;
    let limits = Limits { time: args.turns.time()?, call_time_max };
    // Before anything else asks libtorch: its CUDA half is loaded before its first use or not at all.
    let devices = network_torch::devices();
    let workloads = workloads(args)?;
    let means = Means { devices: devices.working, threads: machine::threads(args.threads), seed: args.seed };
    let mut report = Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores: machine::cores(),
        threads: means.threads,
        devices: means.devices.iter().map(|&device| network_torch::device_name(device)).collect(),
        missing: devices.missing,
        seconds: args.turns.seconds,
        repeats: args.turns.repeats,
        turn: args.turns.turn,
        call_seconds_max: args.call_seconds_max,
        seed: args.seed,
        compared: None,
        workloads: Vec::new(),
    };
    for workload in &workloads {
        let sizes = match workload.kind() {
            Kind::MatrixProduct => &sides,
            Kind::VectorOperation => &elements,
            Kind::Network => &batches,
        };
        report.workloads.push(measure_workload(workload, sizes, &means, limits, args.turns));
        so_far(&mut report)?;
    }
    Ok(report)
}

/// The sizes in order, each once.
fn ascending(sizes: &[usize]) -> anyhow::Result<Vec<usize>> {
    ensure!(!sizes.is_empty() && !sizes.contains(&0), "it needs sizes of at least 1");
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn workloads(args: &Args) -> anyhow::Result<Vec<Workload>> {
    let mut workloads = vec![Workload::Product];
    workloads.extend(VectorOperation::ALL.map(Workload::Vector));
    for &size in &args.towers {
        let tower = TowerNetwork::new(size, args.seed).with_context(|| format!("build the tower {size}"))?;
        workloads.push(Workload::Tower(tower));
    }
    workloads.extend(args.dense.iter().copied().map(Workload::Dense));
    Ok(workloads)
}

/// Every setting takes a turn at every size, as often as there are turns.
fn measure_workload(
    workload: &Workload,
    sizes: &[usize],
    means: &Means,
    limits: Limits,
    turns: Turns,
) -> WorkloadReport {
    let mut all = workload.series(means);
    for _ in 0..turns.repeats {
        for &size in sizes {
            for series in &mut all {
                series.measure(size, limits);
            }
        }
    }
    let settings = all.iter().map(|series: &Series| series.report(turns.turn)).collect();
    WorkloadReport::new(workload.kind(), workload.to_string(), settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--sides 2,16 --elements 64 --towers 1x16@3x3 --dense 4x8x2 --batches 3,1 --threads 2 \
                    --seconds 0.001 --repeats 2";

    #[test]
    fn a_tiny_run_measures_everything() {
        let mut seen = Vec::new();
        let report = measure(&args(TINY), |so_far| {
            seen.push(so_far.workloads.len());
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
        let names: Vec<&str> = report.workloads.iter().map(|workload| workload.workload.as_str()).collect();
        let expected =
            ["matrix product", "vector add", "vector multiply", "vector sum", "tower 1x16@3x3", "dense 4x8x2"];
        assert_eq!(names, expected);
        assert_eq!(report.devices[0], "cpu");
        for workload in &report.workloads {
            let sizes = match workload.kind {
                Kind::MatrixProduct => vec![2, 16],
                Kind::VectorOperation => vec![64],
                Kind::Network => vec![1, 3],
            };
            assert_eq!(workload.sizes(), sizes);
            assert!(workload.recommended.is_some() && !workload.in_words.is_empty());
            for setting in workload.settings.iter().filter(|report| report.setting.is_cpu()) {
                assert_eq!((setting.not_measured.as_deref(), setting.speeds.len()), (None, sizes.len()), "{setting:?}");
                for speed in &setting.speeds {
                    assert!(speed.latency_us > 0.0 && speed.per_second > 0.0, "{setting:?}");
                    assert!(speed.speed_up > Some(0.0) && speed.speed_up <= Some(1.0), "{setting:?}");
                }
            }
        }
    }

    #[test]
    fn time_and_speed_tell_the_same() {
        let report = measure(&args(TINY), |_| Ok(())).unwrap();
        for setting in &report.workloads[0].settings {
            for speed in &setting.speeds {
                let multiply_adds = speed.per_second * speed.latency_us / 1e6;
                assert!((multiply_adds / (speed.size as f64).powi(3) - 1.0).abs() < 1e-6, "{setting:?}");
            }
        }
    }

    #[test]
    fn the_report_is_printed_written_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let (mut table, mut json) = (Vec::new(), Vec::new());
        run(&args(&format!("{TINY} --out {}", out.display())), &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("\n## tower 1x16@3x3\n\nUse "), "{table}");
        assert_eq!(std::fs::read_to_string(out.join("hardware.md")).unwrap(), table);
        let svg = std::fs::read_to_string(out.join("hardware.svg")).unwrap();
        assert!(svg.contains("dense 4x8x2: evaluations/s"), "{svg}");

        let earlier = out.join("hardware.json");
        run(&args(&format!("{TINY} --json --compare {}", earlier.display())), &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let product = &json["workloads"][0];
        assert_eq!(product["kind"], "matrix_product");
        assert_eq!(product["settings"][0]["device"], "cpu");
        assert!(product["settings"][0]["speeds"][0]["ratio"].is_number(), "{json}");
        assert_eq!(json["compared"]["file"], earlier.display().to_string());
    }

    #[test]
    fn a_network_that_the_kernel_does_not_take_is_measured_without_it() {
        let line = TINY.replace("1x16@3x3", "1x12@3x3");
        let report = measure(&args(&line), |_| Ok(())).unwrap();
        let tower = report.workloads.iter().find(|workload| workload.workload.starts_with("tower")).unwrap();
        for setting in tower.settings.iter().filter(|report| report.setting.is_cpu()) {
            let is_libtorch = setting.setting.engine == "libtorch";
            assert_eq!((setting.not_measured.is_none(), !setting.speeds.is_empty()), (is_libtorch, is_libtorch));
        }
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
        for option in ["--sides", "--elements", "--batches", "--repeats"] {
            assert!(error(&format!("{option} 0")).contains(option));
        }
        assert!(error("--seconds=-1").contains("--seconds"));
        assert!(error("--call-seconds-max=-1").contains("--call-seconds-max"));
        assert!(error("--towers 1x0@3x3").contains("1x0@3x3"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        for line in [["--towers", "6x64"], ["--dense", "64"], ["--threads", "-1"]] {
            assert!(parsed::<Args>(line).is_err());
        }
    }
}
