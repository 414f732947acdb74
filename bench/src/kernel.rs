//! `zerofleet bench kernel`: evaluations/s of the CPU kernel beside libtorch and, where Python can install them,
//! OpenVINO and onnxruntime.
//!
//! Every engine computes on one thread, and every thread has an engine of its own, as in self-play. Everything of one
//! network is measured in turns within one run, because a machine slows down and speeds up while it is measured; so is
//! what bounds the kernel, multiply-adds from registers alone. Start with [`run`].

mod engine;
mod network_size;
mod peers;
mod ratio;
mod series;
mod speeds;
#[cfg(test)]
mod testing;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::weights::{Architecture, WeightsVersion};
use anyhow::{Context, anyhow, ensure};
use network_cpu::{KernelVariant, Tower, TowerEvaluator, choose_variant, fastest_first};
use network_torch::{Device, LibtorchEvaluator, Network, Precision};

pub use network_size::NetworkSize;

use super::output::Destination;
use super::report::{Report, Unit};
use super::{Turns, machine, positions};
use engine::Engine;
use peers::Peers;
use ratio::ratios;
use series::{Course, Series, Source};
use speeds::{EngineSpeeds, NetworkSpeeds};

/// Random positions that paths of integers are calibrated on.
const CALIBRATION: usize = 64;

/// Options of `zerofleet bench kernel`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The networks, each BLOCKSxCHANNELS@HEIGHTxWIDTH.
    #[arg(long, value_delimiter = ',', default_value = "6x64@6x7,6x128@9x9,10x128@19x19,20x256@19x19")]
    pub networks: Vec<NetworkSize>,
    /// Batch sizes.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,128,256")]
    pub batches: Vec<usize>,
    /// Threads, each with its own engine; 0 takes one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Paths of the kernel [default: all that this machine has].
    #[arg(long, value_delimiter = ',')]
    pub paths: Vec<KernelVariant>,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Batches that take longer than this are left out.
    #[arg(long, default_value_t = 10.0)]
    pub batch_seconds_max: f64,
    /// Measures OpenVINO and onnxruntime too, with the Python environment in this folder; makes it with python3 and pip
    /// if it is not there.
    #[arg(long, value_name = "FOLDER")]
    pub peers: Option<PathBuf>,
    /// Every random weight and position descends from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a network that cannot be built, a file that is no earlier report, a folder that cannot
/// be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("kernel", out, |so_far| measure(args, so_far))
}

/// Measures; `so_far` sees the report after each network.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args, so_far: &mut dyn FnMut(&Report) -> anyhow::Result<()>) -> anyhow::Result<Report> {
    let bench = Bench::new(args)?;
    // Each thread has an engine of its own; nothing within one is shared out.
    network_torch::set_threads(1);
    let started = args.peers.as_deref().map(|folder| Peers::start(folder, bench.threads, args.seed));
    let mut peers = started.map(|started| started.map_err(|error| service::chain(&error)));
    let mut report = bench.empty_report(peers.as_ref());
    for size in &args.networks {
        let network = bench.measure(*size, &mut peers).with_context(|| format!("measure {size}"))?;
        add(&mut report, &network);
        so_far(&report)?;
    }
    Ok(report)
}

const SPEEDS: &str = "evaluations";
const LAYERS: &str = "time of one thread per position";
const EVALUATIONS: &str = "evaluations/s";

/// Adds what was measured of a network.
fn add(report: &mut Report, speeds: &NetworkSpeeds) {
    let NetworkSpeeds { network, multiply_adds, chosen, reason, engines, ratios } = speeds;
    let mut finding = match chosen {
        Some(path) => format!("{network}: the kernel chooses {path} ({reason})."),
        None => format!("{network}: the kernel does not compute this network: {reason}."),
    };
    if let Some(multiply_adds) = multiply_adds {
        finding += &format!(" A position takes {:.1} million multiply-adds.", *multiply_adds as f64 / 1e6);
    }
    ratios.iter().for_each(|ratio| finding += &format!("\n- {}", ratio.in_words()));
    for EngineSpeeds { engine, not_measured, .. } in engines {
        finding += &not_measured.as_ref().map_or(String::new(), |why| format!("\n- {engine}: not measured: {why}"));
    }
    report.finding(finding);
    for EngineSpeeds { engine, peak, speeds, layers, .. } in engines {
        for speed in speeds {
            report
                .at(SPEEDS, &[("network", network), ("engine", engine), ("batch", &speed.batch)])
                .value(EVALUATIONS, Unit::PerSecond, speed.evaluations_per_second)
                .value("share of the peak", Unit::Share, speed.share_of_peak)
                .value("peak multiply-adds/s", Unit::PerSecond, *peak);
        }
        for times in layers {
            let us = |ns: f64| ns / 1e3;
            report
                .at(LAYERS, &[("network", network), ("engine", engine), ("batch", &times.batch)])
                .value("observations", Unit::Microseconds, us(times.observe_ns))
                .value("stem", Unit::Microseconds, us(times.stem_ns))
                .value("a block", Unit::Microseconds, us(times.mean_block_ns()))
                .value("convolution of the heads", Unit::Microseconds, us(times.heads_ns))
                .value("layers of the heads", Unit::Microseconds, us(times.layers_ns));
        }
    }
}

/// The engines that Python runs, or the reason why there are none; `None` without `--peers`.
type MaybePeers = Option<Result<Peers, String>>;

/// Checked options.
struct Bench<'a> {
    args: &'a Args,
    /// Ascending.
    batches: Vec<usize>,
    paths: Vec<KernelVariant>,
    threads: usize,
    time: Duration,
    batch_time_max: Duration,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args) -> anyhow::Result<Self> {
        ensure!(!args.batches.is_empty() && !args.batches.contains(&0), "--batches needs sizes of at least 1");
        let mut batches = args.batches.clone();
        batches.sort_unstable();
        batches.dedup();
        let available = || {
            // Integers in plain Rust are there to hold the others against.
            let worthwhile = KernelVariant::INT8.into_iter().filter(|&path| path != KernelVariant::PortableI8);
            KernelVariant::ALL.into_iter().chain(worthwhile).filter(|path| path.is_available()).collect()
        };
        Ok(Self {
            args,
            batches,
            paths: if args.paths.is_empty() { available() } else { args.paths.clone() },
            threads: machine::threads(args.threads),
            time: args.turns.time()?,
            batch_time_max: Duration::try_from_secs_f64(args.batch_seconds_max).context("read --batch-seconds-max")?,
        })
    }

    fn empty_report(&self, peers: Option<&Result<Peers, String>>) -> Report {
        let mut report = Report::new("kernel", "The CPU kernel beside other engines");
        report.set("threads", self.threads);
        report.note("each thread has an engine of its own that computes on one thread");
        report.note(
            "share of the peak: multiply-adds of nine taps that lie on the board, over what the instructions do from \
             registers alone; paths in float32 make down to a quarter as many in the blocks, so theirs may exceed 100 %",
        );
        report.note(format!("left out: batches that take longer than {} s", self.args.batch_seconds_max));
        match peers {
            Some(Ok(peers)) => {
                report.note(format!("called from Python, with the softmax left out: {}", peers.versions));
            }
            Some(Err(reason)) => report.note(format!("engines of Python: not measured: {reason}")),
            None => {}
        }
        report.note_turns(self.args.turns, self.args.seed);
        report.plot(SPEEDS, EVALUATIONS, Some("batch"), Some("network"));
        report
    }

    /// Measures everything of one network in turns.
    fn measure(&self, size: NetworkSize, peers: &mut MaybePeers) -> anyhow::Result<NetworkSpeeds> {
        let architecture = size.architecture();
        let bytes = Network::new(&architecture, Device::Cpu, self.args.seed)?.to_safetensors()?;
        let mut allowed = fastest_first(&mut Instant::now);
        allowed.retain(|path| self.paths.contains(path));
        let choice = choose_variant(&architecture, &allowed);
        let course = Course {
            architecture: &architecture,
            threads: self.threads,
            seed: self.args.seed,
            time: self.time,
            batch_time_max: self.batch_time_max,
        };
        let mut all = self.series(&architecture, &bytes, peers.as_ref());
        for _ in 0..self.args.turns.repeats {
            for series in &mut all {
                series.measure_peak(&course)?;
            }
            for &batch in &self.batches {
                for series in &mut all {
                    series.measure(batch, &course, peers.as_mut().and_then(|peers| peers.as_mut().ok()));
                }
            }
        }
        let multiply_adds = all.iter().find_map(Series::multiply_adds);
        let engines: Vec<EngineSpeeds> =
            all.iter().map(|series| series.report(self.args.turns.turn, multiply_adds)).collect();
        let (chosen, reason) = match choice {
            Ok(choice) => (Some(Engine::Kernel(choice.path)), choice.reason),
            Err(error) => (None, error.to_string()),
        };
        let ratios = ratios(&engines, chosen);
        Ok(NetworkSpeeds { network: size.to_string(), multiply_adds, chosen, reason, engines, ratios })
    }

    /// Every engine, ready or with the reason why not.
    fn series(&self, architecture: &Architecture, bytes: &[u8], peers: Option<&Result<Peers, String>>) -> Vec<Series> {
        let kernel = |&path: &KernelVariant| Series::new(Engine::Kernel(path), self.kernel(architecture, bytes, path));
        let libtorch =
            |precision| Series::new(Engine::Libtorch(precision), self.libtorch(architecture, bytes, precision));
        let peer = |peers: &Result<Peers, String>, engine| {
            let source = peers.as_ref().map(|_| Source::Python).map_err(|reason| anyhow!("{reason}"));
            Series::new(engine, source)
        };
        let ours = self.paths.iter().map(kernel).chain([Precision::Bf16, Precision::F32].map(libtorch));
        ours.chain(peers.into_iter().flat_map(|peers| Engine::PEERS.map(|engine| peer(peers, engine)))).collect()
    }

    fn kernel(&self, architecture: &Architecture, bytes: &[u8], path: KernelVariant) -> anyhow::Result<Source> {
        let tower = Arc::new(match path.is_int8() {
            true => {
                let calibration = positions::random(architecture, self.args.seed, CALIBRATION);
                let ranges = Tower::new(architecture, bytes, path.base())?.ranges(calibration.observations());
                Tower::quantised(architecture, bytes, path, &ranges)?
            }
            false => Tower::new(architecture, bytes, path)?,
        });
        let evaluator = |_| TowerEvaluator::new(Arc::clone(&tower), WeightsVersion(1));
        Ok(Source::Kernel((0..self.threads).map(evaluator).collect()))
    }

    fn libtorch(&self, architecture: &Architecture, bytes: &[u8], precision: Precision) -> anyhow::Result<Source> {
        let evaluator = |_| LibtorchEvaluator::new(architecture, WeightsVersion(1), bytes, Device::Cpu, precision);
        Ok(Source::Libtorch((0..self.threads).map(evaluator).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--networks 1x16@3x3,0x32@2x3 --batches 3,1 --threads 2 --seconds 0.001 --repeats 2";

    fn measured(line: &str) -> Report {
        measure(&args(line), &mut |_| Ok(())).unwrap()
    }

    /// Values of one metric.
    fn of(report: &Report, section: &str, metric: &str) -> usize {
        let rows = report.rows.iter().filter(|row| row.section == section && row.metric == metric);
        rows.filter(|row| row.value > Some(0.0)).count()
    }

    #[test]
    fn a_tiny_run_measures_everything() {
        let mut seen = Vec::new();
        let report = measure(&args(TINY), &mut |so_far| {
            seen.push(so_far.findings.len());
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(seen, [1, 2]);
        let kernels = KernelVariant::ALL.into_iter().chain(KernelVariant::INT8).filter(|path| path.is_available());
        let kernels = kernels.filter(|&path| path != KernelVariant::PortableI8).count();
        // Two networks, two batches; libtorch in two precisions.
        assert_eq!(of(&report, SPEEDS, EVALUATIONS), 4 * (kernels + 2), "{report:?}");
        assert_eq!(of(&report, SPEEDS, "peak multiply-adds/s"), 4 * kernels);
        assert_eq!(of(&report, LAYERS, "a block"), 2 * kernels, "the second network has no block");
        for finding in &report.findings {
            assert!(finding.contains("the kernel chooses") && finding.contains(" over libtorch: "), "{finding}");
            assert!(!finding.contains("not measured"), "{finding}");
        }
    }

    #[test]
    fn multiply_adds_are_those_of_the_network() {
        let report = measured("--networks 1x16@3x3 --batches 1 --threads 1 --seconds 0.001 --repeats 1");
        // 9 cells have 49 neighbours, themselves counted: 3 planes and twice 16 channels to 16.
        let tower = 49 * 16 * (3 + 2 * 16);
        // 64 channels in front of the heads, half of them to ten actions and half to 64 units and those to three
        // outcomes.
        let heads = 9 * 16 * 64 + 9 * 32 * (10 + 64) + 64 * 3;
        let said = format!("A position takes {:.1} million multiply-adds.", f64::from(tower + heads) / 1e6);
        assert!(report.findings[0].contains(&said), "{report:?}");
    }

    #[test]
    fn the_report_is_printed_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let one = format!("{TINY} --paths portable-f32 --out {}", out.display());
        let mut table = Vec::new();
        run(&args(&one), &mut table).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("\n| 1x16@3x3 | portable-f32 | 1 |"));
        let text = std::fs::read_to_string(out.join("kernel.md")).unwrap();
        assert!(text.contains("the kernel chooses portable-f32 (the widest)."), "{text}");
        assert!(out.join("kernel.svg").is_file());

        let (earlier, mut table) = (out.join("kernel.json"), Vec::new());
        run(&args(&format!("{TINY} --paths portable-f32 --compare {}", earlier.display())), &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains(&format!("since {}", earlier.display())) && table.contains(" (×"), "{table}");
    }

    #[test]
    fn what_was_measured_of_a_network_is_told_by_engine_and_batch() {
        let mut report = Report::new("kernel", "Engines");
        add(&mut report, &testing::network());
        let of = |section, engine, batch, metric| {
            report.value(section, &[("network", "6x64@6x7"), ("engine", engine), ("batch", batch)], metric)
        };
        assert_eq!(of(SPEEDS, "avx512-bf16", "32", EVALUATIONS), Some(24_000.0));
        assert_eq!(of(SPEEDS, "avx512-bf16", "32", "share of the peak"), Some(0.61));
        assert_eq!(of(SPEEDS, "libtorch f32", "8", EVALUATIONS), Some(3000.0));
        assert_eq!(of(LAYERS, "avx512-bf16", "32", "a block"), Some(4.0), "the mean of the blocks");
        let finding = &report.findings[0];
        assert!(finding.starts_with("6x64@6x7: the kernel chooses avx512-bf16 (the widest)."), "{finding}");
        assert!(finding.contains("18.9 million multiply-adds"), "{finding}");
        assert!(finding.contains("\n- onnxruntime f32: not measured: it ended"), "{finding}");
    }

    #[test]
    fn peers_that_cannot_be_had_are_a_reason_in_the_report() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let report = measured(&format!("{TINY} --paths portable-f32 --peers {}", file.path().display()));
        let note = report.notes.iter().any(|note| note.contains("not measured: make a virtual environment"));
        assert!(note, "{report:?}");
        assert_eq!(report.findings[0].matches(": not measured: make a virtual").count(), 3, "{report:?}");
    }

    #[test]
    fn a_network_that_the_kernel_does_not_take_is_measured_without_it() {
        let report = measured("--networks 1x12@3x3 --batches 1 --threads 1 --seconds 0.001 --repeats 1");
        let finding = &report.findings[0];
        assert!(finding.contains("does not compute this network") && finding.contains("channels"), "{finding}");
        assert_eq!(of(&report, SPEEDS, EVALUATIONS), 2, "libtorch in two precisions: {report:?}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| run(&args(line), &mut Vec::new()).unwrap_err().to_string();
        assert!(error("--batches 0").contains("--batches"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        assert!(error("--repeats 0").contains("--repeats"));
        assert!(error("--seconds=-1").contains("--seconds"));
        assert!(error("--networks 1x0@3x3").contains("1x0@3x3"));
        for line in [["--networks", "6x64"], ["--paths", "sse"]] {
            assert!(parsed::<Args>(line).is_err());
        }
    }
}
