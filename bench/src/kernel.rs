//! `zerofleet bench kernel`: evaluations/s of the CPU kernel next to libtorch and, if Python can install them, OpenVINO
//! and onnxruntime.
//!
//! Every engine computes on one thread, and every thread has a separate engine, as in self-play. The engines of one
//! network are measured in turns within one run, because the speed of a machine varies during the measurement. The
//! turns include the upper bound of the kernel: multiply-adds from registers alone. Start with [`measure`].

mod engine;
mod peers;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::weights::Architecture;
use anyhow::{Context, anyhow};
use network_cpu::{ChosenVariant, KernelVariant, Tower, choose_variant, fastest_first};
use network_torch::{Device, Network, Precision};

use crate::network::{NetworkSize, evaluating, kernel_evaluators, libtorch_evaluators, random_positions};
use crate::report::{Report, SoFar, Unit};
use crate::series::{Limits, Series, Speeds, Work};
use crate::{Turns, ascending, machine};
use engine::{Engine, LAYERS, Path, ratios};
use peers::Peers;

/// Number of random positions for calibrating int8 paths.
const CALIBRATION: usize = 64;
/// Maximum time of a batch; larger batches are left out.
const BATCH_TIME_MAX: Duration = Duration::from_secs(10);

/// Options of `zerofleet bench kernel`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Networks to measure, each BLOCKSxCHANNELS@HEIGHTxWIDTH.
    #[arg(long, value_delimiter = ',', default_value = "6x64@6x7,6x128@9x9,10x128@19x19,20x256@19x19")]
    pub networks: Vec<NetworkSize>,
    /// Batch sizes to measure.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,128,256")]
    pub batches: Vec<usize>,
    /// Number of threads, each with a separate engine; 0 for one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Kernel paths to measure [default: all that this machine supports].
    #[arg(long, value_delimiter = ',')]
    pub paths: Vec<KernelVariant>,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Also measure OpenVINO and onnxruntime, in this Python environment.
    ///
    /// Creates the environment with python3 and pip if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
}

/// Runs the measurements and returns the report; calls `so_far` with the unfinished report after each network.
///
/// # Errors
/// An option is invalid, or a network cannot be built.
pub fn measure(args: &Args, so_far: SoFar<'_>) -> anyhow::Result<Report> {
    let bench = Bench::new(args)?;
    let mut report = bench.empty_report();
    for size in &args.networks {
        bench.measure(*size, &mut report).with_context(|| format!("measure {size}"))?;
        so_far(&report)?;
    }
    Ok(report)
}

const SPEEDS: &str = "evaluations";
const LAYER_TIMES: &str = "time of one thread per position";
const EVALUATIONS: &str = "evaluations/s";

/// Measurements of one engine.
struct Measured {
    speeds: Speeds<Engine>,
    /// Multiply-adds/s from registers alone, over all threads: the upper bound of this path. Paths of the kernel only.
    peak: Option<f64>,
    /// By batch size, microseconds in each of [`LAYERS`]. Paths of the kernel only.
    layers: Vec<(usize, [Option<f64>; LAYERS.len()])>,
}

/// Adds the measurements of a network. `choice` is the path that the kernel chooses, or the reason why there is none.
fn add(
    report: &mut Report,
    network: &str,
    multiply_adds: Option<usize>,
    choice: Result<ChosenVariant, String>,
    engines: &[Measured],
) {
    let mut finding = match &choice {
        Ok(ChosenVariant { path, reason }) => format!("{network}: the kernel chooses {path} ({reason})."),
        Err(reason) => format!("{network}: the kernel does not compute this network: {reason}."),
    };
    if let Some(multiply_adds) = multiply_adds {
        finding += &format!(" A position takes {:.1} million multiply-adds.", multiply_adds as f64 / 1e6);
    }
    let speeds: Vec<Speeds<Engine>> = engines.iter().map(|engine| engine.speeds.clone()).collect();
    let chosen = choice.ok().map(|choice| choice.path.name());
    ratios(&speeds, chosen).iter().for_each(|ratio| finding += &format!("\n- {ratio}"));
    for Speeds { label, not_measured, .. } in &speeds {
        finding +=
            &not_measured.as_ref().map_or(String::new(), |why| format!("\n- {}: not measured: {why}", label.name));
    }
    report.finding(finding);
    for Measured { speeds: Speeds { label, speeds, .. }, peak, layers } in engines {
        for speed in speeds {
            let share = |peak| Some(speed.per_second * multiply_adds? as f64 / peak);
            report
                .at(SPEEDS, &[("network", &network), ("engine", &label.name), ("batch", &speed.size)])
                .value(EVALUATIONS, Unit::PerSecond, speed.per_second)
                .value("share of the peak", Unit::Share, peak.and_then(share))
                .value("peak multiply-adds/s", Unit::PerSecond, *peak);
        }
        for (batch, times) in layers {
            let cell = report.at(LAYER_TIMES, &[("network", &network), ("engine", &label.name), ("batch", batch)]);
            let times = LAYERS.iter().zip(times);
            times.fold(cell, |cell, (layer, time)| cell.value(layer, Unit::Microseconds, *time));
        }
    }
}

/// Validated options, with the engines to measure.
struct Bench<'a> {
    args: &'a Args,
    batches: Vec<usize>,
    paths: Vec<KernelVariant>,
    threads: usize,
    limits: Limits,
    /// Engines that Python runs, or the reason why there are none; `None` without `--peers`.
    peers: Option<Result<Rc<RefCell<Peers>>, String>>,
}

/// An engine during the measurement.
struct Contestant {
    series: Series<Engine>,
    /// Paths of the kernel only.
    path: Option<Path>,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args) -> anyhow::Result<Self> {
        let batches = ascending("--batches", &args.batches)?;
        let available = || {
            // The int8 path in plain Rust is only a reference for the other int8 paths.
            let worthwhile = KernelVariant::INT8.into_iter().filter(|&path| path != KernelVariant::PortableI8);
            KernelVariant::ALL.into_iter().chain(worthwhile).filter(|path| path.is_available()).collect()
        };
        let limits = Limits { time: args.turns.time()?, call_time_max: BATCH_TIME_MAX };
        let threads = machine::threads(args.threads);
        let peers = args.peers.as_deref().map(|folder| {
            let peers = Peers::start(folder, threads, args.turns.seed).map_err(|error| service::chain(&error));
            peers.map(|peers| Rc::new(RefCell::new(peers)))
        });
        let paths = if args.paths.is_empty() { available() } else { args.paths.clone() };
        Ok(Self { args, batches, paths, threads, limits, peers })
    }

    fn empty_report(&self) -> Report {
        let mut report = Report::new("kernel", "The CPU kernel beside other engines");
        report.set("threads", self.threads);
        report.note("each thread has an engine of its own that computes on one thread");
        report.note(
            "share of the peak: multiply-adds of nine taps that lie on the board, over what the instructions do from \
             registers alone; paths in float32 make down to a quarter as many in the blocks, so theirs may exceed 100 %",
        );
        report.note(format!("left out: batches that take longer than {BATCH_TIME_MAX:?}"));
        match &self.peers {
            Some(Ok(peers)) => {
                report.note(format!("called from Python, with the softmax left out: {}", peers.borrow().versions));
            }
            Some(Err(reason)) => report.note(format!("engines of Python: not measured: {reason}")),
            None => {}
        }
        report.note_turns(self.args.turns);
        report.plot(SPEEDS, EVALUATIONS, Some("batch"), Some("network"));
        report
    }

    /// Measures all engines with one network in turns.
    fn measure(&self, size: NetworkSize, report: &mut Report) -> anyhow::Result<()> {
        let (architecture, Turns { repeats, turn, .. }) = (size.architecture(), self.args.turns);
        let bytes = Network::new(&architecture, Device::Cpu, self.args.turns.seed)?.to_safetensors()?;
        let mut allowed = fastest_first(&mut Instant::now);
        allowed.retain(|path| self.paths.contains(path));
        let choice = choose_variant(&architecture, &allowed);
        let mut all = self.contestants(&architecture, &bytes);
        for _ in 0..repeats {
            for path in all.iter_mut().filter_map(|contestant| contestant.path.as_mut()) {
                path.measure_peak(self.threads, self.limits.time)?;
            }
            for &batch in &self.batches {
                for Contestant { series, path } in &mut all {
                    if series.measure(batch, self.limits)
                        && let Some(path) = path
                    {
                        path.measure_layers(batch, (self.threads, self.args.turns.seed), self.limits.time)?;
                    }
                }
            }
        }
        let multiply_adds = all.iter().find_map(|contestant| Some(contestant.path.as_ref()?.tower.multiply_adds()));
        let measured = |Contestant { series, path }: &Contestant| Measured {
            speeds: series.speeds(turn),
            peak: path.as_ref().and_then(|path| path.peak(turn)),
            layers: path.as_ref().map_or_else(Vec::new, |path| path.layers(turn)),
        };
        let measured: Vec<Measured> = all.iter().map(measured).collect();
        add(report, &size.to_string(), multiply_adds, choice.map_err(|error| error.to_string()), &measured);
        Ok(())
    }

    /// Returns every engine, ready or with the reason why it is unavailable.
    fn contestants(&self, architecture: &Architecture, bytes: &[u8]) -> Vec<Contestant> {
        let mut all = Vec::new();
        for &variant in &self.paths {
            let tower = self.tower(architecture, bytes, variant);
            let path = tower.as_ref().ok().map(|tower| Path::new(variant, Arc::clone(tower)));
            let work = tower.map(|tower| {
                evaluating(kernel_evaluators(&tower, self.threads), architecture, 1, self.args.turns.seed)
            });
            all.push(Contestant { series: Series::new(Engine::kernel(variant), self.threads, work), path });
        }
        for precision in [Precision::Bf16, Precision::F32] {
            let evaluators = libtorch_evaluators(architecture, bytes, (Device::Cpu, precision), self.threads);
            let work = evaluators.map(|evaluators| evaluating(evaluators, architecture, 1, self.args.turns.seed));
            let series = Series::new(Engine::other("libtorch", Some(precision)), self.threads, work);
            all.push(Contestant { series, path: None });
        }
        for (peers, (library, precision)) in
            self.peers.iter().flat_map(|peers| Engine::PEERS.map(|engine| (peers, engine)))
        {
            let engine = Engine::other(library, precision);
            let work = peers.as_ref().map_err(|reason| anyhow!("{reason}"));
            let work = work.map(|peers| peer_work(Rc::clone(peers), engine.name.clone(), architecture.clone()));
            all.push(Contestant { series: Series::new(engine, self.threads, work), path: None });
        }
        all
    }

    fn tower(&self, architecture: &Architecture, bytes: &[u8], path: KernelVariant) -> anyhow::Result<Arc<Tower>> {
        if !path.is_int8() {
            return Ok(Arc::new(Tower::new(architecture, bytes, path)?));
        }
        let calibration = random_positions(architecture, self.args.turns.seed, CALIBRATION);
        let ranges = Tower::new(architecture, bytes, path.base())?.ranges(calibration.observations());
        Ok(Arc::new(Tower::quantised(architecture, bytes, path, &ranges)?))
    }
}

/// Returns the evaluation work of an engine that Python runs.
fn peer_work(peers: Rc<RefCell<Peers>>, engine: String, architecture: Architecture) -> Work {
    Work::of_size(move |size, time| Ok(peers.borrow_mut().measure(&engine, &architecture, size, time)? / size as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--networks 1x16@3x3,0x32@2x3 --batches 3,1 --threads 2 --seconds 0.001 --repeats 2";

    fn measured(line: &str) -> Report {
        measure(&args(line), &mut |_| Ok(())).unwrap()
    }

    /// Counts the positive values of one metric.
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
        assert_eq!(of(&report, LAYER_TIMES, "a block"), 2 * kernels, "the second network has no block");
        for finding in &report.findings {
            assert!(finding.contains("the kernel chooses") && finding.contains(" over libtorch: "), "{finding}");
            assert!(!finding.contains("not measured"), "{finding}");
        }
    }

    #[test]
    fn multiply_adds_are_those_of_the_network() {
        let report = measured("--networks 1x16@3x3 --batches 1 --threads 1 --seconds 0.001 --repeats 1");
        // 9 cells have 49 neighbours, including themselves. The tower maps 3 planes and twice 16 channels to 16
        // channels.
        let tower = 49 * 16 * (3 + 2 * 16);
        // The heads have 64 channels. Half of the channels feed ten actions; half feed 64 units, which feed three
        // outcomes.
        let heads = 9 * 16 * 64 + 9 * 32 * (10 + 64) + 64 * 3;
        let expected = format!("A position takes {:.1} million multiply-adds.", f64::from(tower + heads) / 1e6);
        assert!(report.findings[0].contains(&expected), "{report:?}");
    }

    #[test]
    fn the_report_is_printed_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let one = format!("{TINY} --paths portable-f32 --out {}", out.display());
        let mut table = Vec::new();
        crate::tests::run("kernel", &one, &mut table).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("\n| 1x16@3x3 | portable-f32 | 1 |"));
        let text = std::fs::read_to_string(out.join("kernel.md")).unwrap();
        assert!(text.contains("the kernel chooses portable-f32 (the widest available)."), "{text}");
        assert!(out.join("kernel.svg").is_file());

        let (earlier, mut table) = (out.join("kernel.json"), Vec::new());
        crate::tests::run(
            "kernel",
            &format!("{TINY} --paths portable-f32 --compare {}", earlier.display()),
            &mut table,
        )
        .unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains(&format!("since {}", earlier.display())) && table.contains(" (×"), "{table}");
    }

    #[test]
    fn measurements_of_a_network_are_reported_by_engine_and_batch() {
        let mut report = Report::new("kernel", "Engines");
        let with = |speeds| Measured { speeds, peak: None, layers: Vec::new() };
        let mut engines: Vec<Measured> = engine::tests::engines().into_iter().map(with).collect();
        engines[0].peak = Some(18_900_000.0 * 24_000.0 / 0.61);
        engines[0].layers = vec![(32, [0.05, 0.4, 4.0, 0.3, 0.2].map(Some))];
        let choice = Ok(ChosenVariant { path: KernelVariant::Avx512Bf16, reason: "the widest available".to_owned() });
        add(&mut report, "6x64@6x7", Some(18_900_000), choice, &engines);
        let of = |section, engine, batch, metric| {
            report.value(section, &[("network", "6x64@6x7"), ("engine", engine), ("batch", batch)], metric)
        };
        assert_eq!(of(SPEEDS, "avx512-bf16", "32", EVALUATIONS), Some(24_000.0));
        assert_eq!(
            of(SPEEDS, "avx512-bf16", "32", "share of the peak").map(|share| (share * 1e6).round()),
            Some(0.61e6)
        );
        assert_eq!(of(SPEEDS, "libtorch f32", "8", "share of the peak"), None);
        assert_eq!(of(SPEEDS, "libtorch f32", "8", EVALUATIONS), Some(3000.0));
        assert_eq!(of(LAYER_TIMES, "avx512-bf16", "32", "a block"), Some(4.0));
        let finding = &report.findings[0];
        assert!(finding.starts_with("6x64@6x7: the kernel chooses avx512-bf16 (the widest available)."), "{finding}");
        assert!(finding.contains("18.9 million multiply-adds"), "{finding}");
        assert!(finding.contains("\n- onnxruntime f32: not measured: the script stopped"), "{finding}");
    }

    #[test]
    fn unavailable_peers_are_reported_as_not_measured_with_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let report = measured(&format!("{TINY} --paths portable-f32 --peers {}", file.path().display()));
        let note = report.notes.iter().any(|note| note.contains("not measured: create a virtual environment"));
        assert!(note, "{report:?}");
        assert_eq!(report.findings[0].matches(": not measured: create a virtual").count(), 5, "{report:?}");
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
        let error = |line: &str| crate::tests::run("kernel", line, &mut Vec::new()).unwrap_err().to_string();
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
