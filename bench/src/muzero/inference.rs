//! The time of initial and recurrent inference, for each network on every engine of the machine.
//!
//! One thread computes, as in self-play. The measured time covers a whole call, including the transfer of observations
//! or slots to the device, and of policies, values and rewards from it.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use game::Action;
use inference::{Batch, LatentModel, LatentPredictions, Slot, Unroll};
use network_cpu::{Kernel, fastest_first};
use network_torch::{DeviceRules, Precision, PrecisionPreference, Purpose, device_name, devices};
use proto::weights::Published;
use weights::{Architecture, Model};

use super::engine::Engine;
use super::workload::SUPPORT;
use crate::network::{NetworkSize, published, random_positions};
use crate::report::{Report, Unit};
use crate::series::{Limits, Series, Speeds, Work, measure_in_turns};
use crate::{Turns, threads};

pub(super) const INITIAL: &str = "initial inference";
pub(super) const RECURRENT: &str = "recurrent inference";
pub(super) const TIME: &str = "time";
pub(super) const PER_SECOND: &str = "per second";
pub(super) const OVER_LIBTORCH: &str = "over libtorch cpu f32";

/// Planes of every observation.
const PLANES: usize = 4;
const ACTIONS: usize = 6;
/// Nodes per tree; a batch of size N evaluates one node in each of N trees.
const NODES: usize = 33;
/// Maximum time of a batch; larger batches are left out.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);

/// Options of the part `inference`.
#[derive(Debug, Clone, clap::Args)]
pub struct InferenceArgs {
    /// Networks, each BLOCKSxCHANNELS@HEIGHTxWIDTH; 1x1 is a dense network.
    #[arg(long, value_delimiter = ',', default_value = "1x64@1x1,1x128@1x1,1x256@1x1,1x512@1x1,2x32@10x10")]
    pub networks: Vec<NetworkSize>,
    /// Batch sizes to measure.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,1024,4096")]
    pub batches: Vec<usize>,
    /// Duration of the measurement per batch size, in seconds.
    #[arg(long, default_value_t = 0.05)]
    pub call_seconds: f64,
}

/// The baseline engine of comparisons.
const LIBTORCH: &str = "libtorch cpu f32";

/// An engine with a name.
type Named = (String, Engine);

/// Returns the fastest paths of the kernel in both precisions, and libtorch on every device in every precision; also
/// notes on the devices that cannot be used.
fn engines() -> (Vec<Named>, Vec<String>) {
    let found = devices();
    let paths = fastest_first(&mut Instant::now);
    let fastest = |is_bf16| paths.iter().copied().find(|path| path.is_bf16() == is_bf16 && !path.is_int8());
    let kernels = [fastest(false), fastest(true)].into_iter().flatten().map(|path| {
        let kernel = Kernel::new(vec![path], PrecisionPreference::Auto);
        (format!("cpu {path}"), Engine::Kernel(kernel.into()))
    });
    let libtorch = found.working.into_iter().flat_map(|device| {
        let permits = move |precision: &Precision| DeviceRules::of(device).permits(*precision, Purpose::Inference);
        [Precision::F32, Precision::Bf16].into_iter().filter(permits).map(move |precision| {
            (format!("libtorch {} {precision}", device_name(device)), Engine::Libtorch(device, precision))
        })
    });
    (kernels.chain(libtorch).collect(), found.missing)
}

/// Returns a MuZero architecture of this size.
fn architecture(size: NetworkSize) -> Architecture {
    let model = Model::Muzero { support: SUPPORT };
    Architecture { planes: PLANES, actions: ACTIONS, model, ..size.architecture() }
}

/// Returns the name of a network in tables.
fn name(size: NetworkSize) -> String {
    match (size.height, size.width) {
        (1, 1) => format!("dense {}x{}", size.blocks, size.channels),
        _ => format!("residual {size}"),
    }
}

/// Adds the tables.
///
/// # Errors
/// A network is invalid, or inference fails.
pub(super) fn add(report: &mut Report, args: &InferenceArgs, turns: Turns) -> anyhow::Result<()> {
    let batches = crate::ascending("--batches", &args.batches)?;
    let (engines, missing) = engines();
    missing.into_iter().for_each(|missing| report.note(format!("not measured: {missing}")));
    let time = Turns { seconds: args.call_seconds, ..turns }.time().context("parse --call-seconds")?;
    let limits = Limits { time, call_time_max: CALL_TIME_MAX };
    for size in &args.networks {
        let architecture = architecture(*size);
        let weights = published(architecture.clone(), turns.seed)?;
        network_torch::set_threads(1);
        let all = engines
            .iter()
            .flat_map(|engine| [INITIAL, RECURRENT].map(|section| series(engine, section, &weights)))
            .collect();
        let measured = measure_in_turns(all, &batches, limits, turns);
        add_speeds(report, &name(*size), &measured);
    }
    for section in [INITIAL, RECURRENT] {
        report.plot(section, PER_SECOND, Some("batch"), Some("network"));
    }
    Ok(())
}

/// Label of a series: the engine, and the section for the kind of calls.
type Label<'a> = (&'a Named, &'static str);

fn series<'a>(engine: &'a Named, section: &'static str, weights: &Published) -> Series<Label<'a>> {
    let work = engine.1.build(weights).map(|mut model| {
        let architecture = weights.manifest.architecture.clone();
        Work::of_size(move |batch, time| {
            let mut worker = Worker::new(model.as_mut(), &architecture, batch)?;
            threads::rate(std::slice::from_mut(&mut worker), time, |worker| worker.call(section).map(|()| 1))
        })
    });
    Series::new((engine, section), 1, work)
}

/// A model with the inputs of a batch.
struct Worker<'a> {
    model: &'a mut dyn LatentModel,
    observations: Batch,
    roots: Vec<Slot>,
    node: u32,
    predictions: LatentPredictions,
}

impl<'a> Worker<'a> {
    /// Makes the observations of a batch, and the roots from which steps start.
    fn new(model: &'a mut dyn LatentModel, architecture: &Architecture, batch: usize) -> anyhow::Result<Self> {
        model.reserve(batch * NODES)?;
        let observations = random_positions(architecture, 1, batch);
        let roots = (0..batch).map(|tree| slot(tree, 0)).collect();
        let mut worker = Self { model, observations, roots, node: 0, predictions: LatentPredictions::default() };
        worker.call(INITIAL)?;
        Ok(worker)
    }

    /// Evaluates the observations, or steps every tree from its latest node to the next.
    fn call(&mut self, section: &str) -> anyhow::Result<()> {
        let Self { model, observations, roots, node, predictions } = self;
        if section == INITIAL {
            return Ok(model.initial(observations, roots, predictions)?);
        }
        let step = |tree| {
            let (from, to) = (slot(tree, *node), slot(tree, *node + 1));
            Unroll { from, action: Action((tree % ACTIONS) as u16), to }
        };
        model.recurrent(&(0..roots.len()).map(step).collect::<Vec<_>>(), predictions)?;
        *node = (*node + 1) % (NODES as u32 - 1);
        Ok(())
    }
}

fn slot(tree: usize, node: u32) -> Slot {
    Slot((tree * NODES) as u32 + node)
}

/// Adds the speeds of a network.
fn add_speeds(report: &mut Report, network: &str, measured: &[Speeds<Label<'_>>]) {
    for Speeds { label: ((name, _), section), speeds, not_measured } in measured {
        if let Some(reason) = not_measured {
            report.note(format!("{network}, {name}: not measured: {reason}"));
        }
        let libtorch = measured.iter().find(|Speeds { label: ((name, _), of), .. }| name == LIBTORCH && of == section);
        for speed in speeds {
            let libtorch = libtorch.and_then(|speeds| speeds.at(speed.size));
            report
                .at(section, &[("network", &network), ("engine", name), ("batch", &speed.size)])
                .value(TIME, Unit::Microseconds, speed.latency_us)
                .value(PER_SECOND, Unit::PerSecond, speed.per_second)
                .value(OVER_LIBTORCH, Unit::Ratio, libtorch.map(|libtorch| speed.per_second / libtorch));
        }
    }
}
