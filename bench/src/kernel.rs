//! `zerofleet bench kernel`: evaluations/s of the CPU kernel beside libtorch and, where Python can install them,
//! OpenVINO and onnxruntime.
//!
//! Every engine computes on one thread, and every thread has an engine of its own, as in self-play. Everything of one
//! network is measured in turns within one run, because a machine slows down and speeds up while it is measured; so is
//! what bounds the kernel, multiply-adds from registers alone. Start with [`run`].

mod compare;
mod engine;
mod markdown;
mod network_size;
mod peers;
mod plot;
mod ratio;
mod report;
mod series;
#[cfg(test)]
mod testing;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::weights::{Architecture, WeightsVersion};
use anyhow::{Context, anyhow, ensure};
use network_cpu::{Path, Tower, TowerEvaluator, choose_path, fastest_first};
use network_torch::{Device, LibtorchEvaluator, Network, Precision};

pub use compare::Compared;
pub use engine::{Engine, Family};
pub use markdown::markdown;
pub use network_size::NetworkSize;
pub use plot::draw;
pub use ratio::{Ratio, ratios};
pub use report::{EngineReport, LayerTimes, NetworkReport, Report, Speed};

use super::output::Destination;
use super::{Turns, machine, positions};
use compare::Earlier;
use peers::Peers;
use series::{Course, Series, Source};

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
    pub paths: Vec<Path>,
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
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a network that cannot be built, a file that is no earlier report, a folder that cannot be
/// written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    let report = measure(args, |report| {
        args.destination.write("kernel", || markdown(report), report, |path| draw(path, report))
    })?;
    args.destination.print(&report, || markdown(&report), out)
}

/// Measures; `so_far` sees the report after each network.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args, mut so_far: impl FnMut(&Report) -> anyhow::Result<()>) -> anyhow::Result<Report> {
    let bench = Bench::new(args)?;
    // Each thread has an engine of its own; nothing within one is shared out.
    network_torch::set_threads(1);
    // Before minutes are spent on measuring.
    let earlier: Option<(_, Earlier)> = args.destination.earlier("kernel")?;
    let started = args.peers.as_deref().map(|folder| Peers::start(folder, bench.threads, args.seed));
    let mut peers = started.map(|started| started.map_err(|error| service::chain(&error)));
    let mut report = bench.empty_report(peers.as_ref());
    for size in &args.networks {
        let network = bench.measure(*size, &mut peers).with_context(|| format!("measure {size}"))?;
        report.networks.push(network);
        if let Some((path, earlier)) = &earlier {
            compare::compare(&mut report, path, earlier);
        }
        so_far(&report)?;
    }
    Ok(report)
}

/// The engines that Python runs, or why there are none; `None` if nobody asked for them.
type MaybePeers = Option<Result<Peers, String>>;

/// Checked options.
struct Bench<'a> {
    args: &'a Args,
    /// Ascending.
    batches: Vec<usize>,
    paths: Vec<Path>,
    threads: usize,
    cores: usize,
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
            let worthwhile = Path::INT8.into_iter().filter(|&path| path != Path::PortableI8);
            Path::ALL.into_iter().chain(worthwhile).filter(|path| path.is_available()).collect()
        };
        let cores = machine::cores();
        Ok(Self {
            args,
            batches,
            paths: if args.paths.is_empty() { available() } else { args.paths.clone() },
            threads: machine::threads(args.threads),
            cores,
            time: args.turns.time()?,
            batch_time_max: Duration::try_from_secs_f64(args.batch_seconds_max).context("read --batch-seconds-max")?,
        })
    }

    fn empty_report(&self, peers: Option<&Result<Peers, String>>) -> Report {
        Report {
            cpu: machine::cpu_model(),
            target: machine::target(),
            cores: self.cores,
            threads: self.threads,
            seconds: self.args.turns.seconds,
            repeats: self.args.turns.repeats,
            turn: self.args.turns.turn,
            batch_seconds_max: self.args.batch_seconds_max,
            seed: self.args.seed,
            peers: peers.map(|peers| match peers {
                Ok(peers) => peers.versions.clone(),
                Err(reason) => format!("not measured: {reason}"),
            }),
            compared: None,
            networks: Vec::new(),
        }
    }

    /// Measures everything of one network in turns.
    fn measure(&self, size: NetworkSize, peers: &mut MaybePeers) -> anyhow::Result<NetworkReport> {
        let architecture = size.architecture();
        let bytes = Network::new(&architecture, Device::Cpu, self.args.seed)?.to_safetensors()?;
        let mut allowed = fastest_first(&mut Instant::now);
        allowed.retain(|path| self.paths.contains(path));
        let choice = choose_path(&architecture, &allowed);
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
        let engines: Vec<EngineReport> =
            all.iter().map(|series| series.report(self.args.turns.turn, multiply_adds)).collect();
        let (chosen, reason) = match choice {
            Ok(choice) => (Some(Engine::Kernel(choice.path)), choice.reason),
            Err(error) => (None, error.to_string()),
        };
        let ratios = ratios(&engines, chosen);
        Ok(NetworkReport { network: size.to_string(), multiply_adds, chosen, reason, engines, ratios })
    }

    /// Every engine, ready or with the reason why not.
    fn series(&self, architecture: &Architecture, bytes: &[u8], peers: Option<&Result<Peers, String>>) -> Vec<Series> {
        let kernel = |&path: &Path| Series::new(Engine::Kernel(path), self.kernel(architecture, bytes, path));
        let libtorch =
            |precision| Series::new(Engine::Libtorch(precision), self.libtorch(architecture, bytes, precision));
        let peer = |peers: &Result<Peers, String>, engine| {
            let source = peers.as_ref().map(|_| Source::Python).map_err(|reason| anyhow!("{reason}"));
            Series::new(engine, source)
        };
        let ours = self.paths.iter().map(kernel).chain([Precision::Bf16, Precision::F32].map(libtorch));
        ours.chain(peers.into_iter().flat_map(|peers| Engine::PEERS.map(|engine| peer(peers, engine)))).collect()
    }

    fn kernel(&self, architecture: &Architecture, bytes: &[u8], path: Path) -> anyhow::Result<Source> {
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

    #[test]
    fn a_tiny_run_measures_everything() {
        let mut seen = Vec::new();
        let report = measure(&args(TINY), |so_far| {
            seen.push(so_far.networks.len());
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(seen, [1, 2]);
        assert_eq!((report.threads, report.peers.as_deref()), (2, None));
        for network in &report.networks {
            for engine in &network.engines {
                assert_eq!(engine.not_measured, None, "{engine:?}");
                assert!(engine.at(1) > Some(0.0) && engine.at(3) > Some(0.0), "{engine:?}");
                let is_kernel = engine.engine.family() == Family::Kernel;
                assert_eq!((engine.peak.is_some(), engine.layers.len()), (is_kernel, if is_kernel { 2 } else { 0 }));
            }
            assert!(network.chosen.is_some() && network.ratios.iter().all(|ratio| ratio.batch_1.is_some()));
        }
        // 9 cells have 49 neighbours, themselves counted: 3 planes and twice 16 channels to 16.
        let tower = 49 * 16 * (3 + 2 * 16);
        // 64 channels in front of the heads, half of them to ten actions and half to 64 units and those to three outcomes.
        let heads = 9 * 16 * 64 + 9 * 32 * (10 + 64) + 64 * 3;
        assert_eq!(report.networks[0].multiply_adds, Some(tower + heads));
    }

    #[test]
    fn the_report_is_printed_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let one = format!("{TINY} --paths portable-f32 --out {}", out.display());
        let (mut table, mut json) = (Vec::new(), Vec::new());
        run(&args(&one), &mut table).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("\n| **portable-f32** |"));
        let text = std::fs::read_to_string(out.join("kernel.md")).unwrap();
        assert!(text.contains("The kernel chooses portable-f32 (the widest)."), "{text}");
        assert!(out.join("kernel.svg").is_file() && out.join("kernel.json").is_file());
        run(&args(&format!("{one} --json")), &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["networks"][0]["chosen"], "portable-f32");
        assert!(json["networks"][0]["engines"][0]["speeds"][0]["evaluations_per_second"].is_number());

        let (earlier, mut table) = (out.join("kernel.json"), Vec::new());
        run(&args(&format!("{TINY} --paths portable-f32 --compare {}", earlier.display())), &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains(&format!("- ×: over {}", earlier.display())) && table.contains(" ×"), "{table}");
    }

    #[test]
    fn peers_that_cannot_be_had_are_a_reason_in_the_report() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = format!("{TINY} --paths portable-f32 --peers {}", file.path().display());
        let report = measure(&args(&line), |_| Ok(())).unwrap();
        assert!(report.peers.unwrap().starts_with("not measured: make a virtual environment"));
        let others = report.networks[0].engines.iter().filter(|engine| Engine::PEERS.contains(&engine.engine));
        assert_eq!(others.filter(|engine| engine.not_measured.is_some()).count(), 3);
    }

    #[test]
    fn a_network_that_the_kernel_does_not_take_is_measured_without_it() {
        let report =
            measure(&args("--networks 1x12@3x3 --batches 1 --threads 1 --seconds 0.001 --repeats 1"), |_| Ok(()));
        let network = &report.unwrap().networks[0];
        assert_eq!((network.chosen, network.multiply_adds), (None, None));
        assert!(network.reason.contains("channels"), "{}", network.reason);
        for engine in &network.engines {
            let is_kernel = engine.engine.family() == Family::Kernel;
            assert_eq!((engine.not_measured.is_some(), engine.speeds.is_empty()), (is_kernel, is_kernel));
        }
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| measure(&args(line), |_| Ok(())).unwrap_err().to_string();
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
