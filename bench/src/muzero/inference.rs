//! The time of initial and recurrent inference and of updates, for each network on every engine of the machine.
//!
//! One thread computes, as in self-play; the measured time is that of a whole call, with the transfer of observations
//! or slots to the device and of policies, values and rewards from it.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use game::{Action, ObservationShape};
use inference::{Batch, LatentModel, LatentPredictions, Slot, Unroll};
use network_cpu::{KernelVariant, LatentEvaluator, LatentMultiplyAdds, LatentNetwork, fastest_first};
use network_torch::{Device, DeviceRules, LibtorchLatent, Network, Precision, Purpose, Trainer, device_name, devices};
use proto::weights::Published;
use training::{Examples, TrainerSettings, UnrolledBatch};
use weights::{Architecture, Model};

use super::engine::first_weights;
use crate::network::NetworkSize;
use crate::report::{Report, Unit};
use crate::series::{Limits, Series, Speeds, Work};
use crate::{Turns, machine, threads};

pub(super) const INITIAL: &str = "initial inference";
pub(super) const RECURRENT: &str = "recurrent inference";
pub(super) const THRESHOLDS: &str = "where another engine is faster than the CPU kernel";
pub(super) const UPDATES: &str = "updates";
pub(super) const TIME: &str = "time";
pub(super) const PER_SECOND: &str = "per second";
pub(super) const OVER_ONE: &str = "over batch 1";
pub(super) const OVER_LIBTORCH: &str = "over libtorch cpu f32";
const OF_PEAK: &str = "share of the peak";
pub(super) const FROM_BATCH: &str = "from batch";

/// Planes of every observation.
const PLANES: usize = 4;
const ACTIONS: usize = 6;
const SUPPORT: usize = 20;
/// The nodes of a tree: a batch has a node of each of as many trees.
const NODES: usize = 33;
/// Batches that take longer than this are left out.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// Rounds of a burst of multiply-adds in registers.
const BURST_ROUNDS: usize = 10_000;

/// Options of the tables of inference.
#[derive(Debug, Clone, clap::Args)]
pub struct InferenceArgs {
    /// The networks, each BLOCKSxCHANNELS@HEIGHTxWIDTH; 1x1 is a dense network of a vector.
    #[arg(long, value_delimiter = ',', default_value = "1x64@1x1,1x128@1x1,1x256@1x1,1x512@1x1,2x32@10x10")]
    pub networks: Vec<NetworkSize>,
    /// The batch sizes.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,1024,4096")]
    pub batches: Vec<usize>,
    /// The duration of the measurement of one batch size.
    #[arg(long, default_value_t = 0.05)]
    pub call_seconds: f64,
}

/// An engine that is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Engine {
    Kernel(KernelVariant),
    Libtorch(Device, Precision),
}

/// The engine that others are compared with.
const LIBTORCH: Engine = Engine::Libtorch(Device::Cpu, Precision::F32);

impl Engine {
    fn name(self) -> String {
        match self {
            Self::Kernel(variant) => format!("cpu {variant}"),
            Self::Libtorch(device, precision) => format!("libtorch {} {precision}", device_name(device)),
        }
    }

    fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// Builds the model of one thread.
    fn build(self, weights: &Published) -> anyhow::Result<Box<dyn LatentModel>> {
        let (architecture, version) = (&weights.manifest.architecture, weights.manifest.version);
        Ok(match self {
            Self::Kernel(variant) => {
                let network = LatentNetwork::new(architecture, &weights.bytes, variant)?;
                Box::new(LatentEvaluator::new(network.into(), version))
            }
            Self::Libtorch(device, precision) => {
                Box::new(LibtorchLatent::new(architecture, version, &weights.bytes, device, precision)?)
            }
        })
    }
}

/// Returns the fastest paths of the kernel in both precisions, and libtorch on every device in every precision; and
/// notes on the devices that cannot be used.
fn engines() -> (Vec<Engine>, Vec<String>) {
    let found = devices();
    let paths = fastest_first(&mut Instant::now);
    let fastest = |is_bf16| paths.iter().copied().find(|path| path.is_bf16() == is_bf16 && !path.is_int8());
    let kernels = [fastest(false), fastest(true)].into_iter().flatten().map(Engine::Kernel);
    let libtorch = found.working.into_iter().flat_map(|device| {
        let permits = move |precision: &Precision| DeviceRules::of(device).permits(*precision, Purpose::Inference);
        [Precision::F32, Precision::Bf16].into_iter().filter(permits).map(move |it| Engine::Libtorch(device, it))
    });
    (kernels.chain(libtorch).collect(), found.missing)
}

/// A MuZero network of a size.
fn architecture(size: NetworkSize) -> Architecture {
    let model = Model::muzero(SUPPORT);
    Architecture { planes: PLANES, actions: ACTIONS, model, ..size.architecture() }
}

/// The name of a network in tables.
fn name(size: NetworkSize) -> String {
    match (size.height, size.width) {
        (1, 1) => format!("dense {}x{}", size.blocks, size.channels),
        _ => format!("residual {size}"),
    }
}

/// Adds the tables.
///
/// # Errors
/// An invalid network; an update that fails.
pub(super) fn add(report: &mut Report, args: &InferenceArgs, turns: Turns) -> anyhow::Result<()> {
    let batches = crate::ascending("--batches", &args.batches)?;
    let (engines, missing) = engines();
    missing.into_iter().for_each(|missing| report.note(format!("not measured: {missing}")));
    let time = Turns { seconds: args.call_seconds, ..turns }.time().context("read --call-seconds")?;
    let limits = Limits { time, call_time_max: CALL_TIME_MAX };
    for size in &args.networks {
        let architecture = architecture(*size);
        let weights = first_weights(architecture.clone(), turns.seed)?;
        network_torch::set_threads(1);
        let mut all: Vec<_> = engines
            .iter()
            .flat_map(|&engine| [Call::Initial, Call::Recurrent].map(|call| call.series(engine, &weights)))
            .collect();
        for _ in 0..turns.repeats {
            for batch in &batches {
                for series in &mut all {
                    series.measure(*batch, limits);
                }
            }
        }
        let measured: Vec<_> = all.iter().map(|series| series.speeds(turns.turn)).collect();
        add_speeds(report, &name(*size), &weights, &measured, time)?;
        add_thresholds(report, &name(*size), &measured);
        add_updates(report, &name(*size), &architecture, &engines, turns)?;
    }
    for section in [INITIAL, RECURRENT] {
        report.plot(section, PER_SECOND, Some("batch"), Some("network"));
    }
    Ok(())
}

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Initial,
    Recurrent,
}

/// A measured computation.
type Label = (Engine, Call);

impl Call {
    fn section(self) -> &'static str {
        match self {
            Self::Initial => INITIAL,
            Self::Recurrent => RECURRENT,
        }
    }

    fn series(self, engine: Engine, weights: &Published) -> Series<Label> {
        let work = engine.build(weights).map(|model| {
            let mut worker = Worker::new(model, &weights.manifest.architecture);
            let rate = move |batch: usize, time| {
                worker.prepare(batch)?;
                threads::rate(std::slice::from_mut(&mut worker), time, |worker| {
                    worker.call(self)?;
                    Ok(1)
                })
            };
            Work { units: Box::new(|batch| batch as f64), rate: Box::new(rate) }
        });
        Series::new((engine, self), 1, work)
    }
}

/// A model with the inputs of a batch.
struct Worker {
    model: Box<dyn LatentModel>,
    observations: Batch,
    roots: Vec<Slot>,
    steps: Vec<Unroll>,
    node: u32,
    predictions: LatentPredictions,
}

impl Worker {
    fn new(model: Box<dyn LatentModel>, architecture: &Architecture) -> Self {
        let &Architecture { planes, height, width, .. } = architecture;
        let observations = Batch::new(ObservationShape { planes, height, width });
        let predictions = LatentPredictions::default();
        Self { model, observations, roots: Vec::new(), steps: Vec::new(), node: 0, predictions }
    }

    /// Makes the observations of a batch, and roots from which steps can begin.
    fn prepare(&mut self, batch: usize) -> anyhow::Result<()> {
        let legal: Vec<Action> = (0..ACTIONS as u16).map(Action).collect();
        self.observations.clear();
        for row in 0..batch {
            self.observations.push(&legal, |values| {
                let cells = values.iter_mut().enumerate();
                cells.for_each(|(cell, value)| *value = f32::from(u8::from((cell + row) % 5 == 0)));
            });
        }
        self.model.reserve(batch * NODES)?;
        self.roots = (0..batch).map(|tree| slot(tree, 0)).collect();
        self.node = 0;
        self.call(Call::Initial)
    }

    /// Evaluates the observations, or takes a step in every tree, from the newest node of each to the next.
    fn call(&mut self, call: Call) -> anyhow::Result<()> {
        let Self { model, observations, roots, steps, node, predictions } = self;
        match call {
            Call::Initial => model.initial(observations, roots, predictions)?,
            Call::Recurrent => {
                let last = NODES as u32 - 1;
                steps.clear();
                steps.extend((0..roots.len()).map(|tree| Unroll {
                    from: slot(tree, *node % last),
                    action: Action((tree % ACTIONS) as u16),
                    to: slot(tree, *node % last + 1),
                }));
                *node += 1;
                model.recurrent(steps, predictions)?;
            }
        }
        Ok(())
    }
}

fn slot(tree: usize, node: u32) -> Slot {
    Slot((tree * NODES) as u32 + node)
}

/// Adds the speeds of a network.
fn add_speeds(
    report: &mut Report,
    network: &str,
    weights: &Published,
    measured: &[Speeds<Label>],
    time: Duration,
) -> anyhow::Result<()> {
    for Speeds { label: (engine, call), speeds, not_measured } in measured {
        if let Some(reason) = not_measured {
            report.note(format!("{network}, {}: not measured: {reason}", engine.name()));
        }
        let libtorch = measured.iter().find(|speeds| speeds.label == (LIBTORCH, *call));
        let one = speeds.iter().find(|speed| speed.size == 1).map(|speed| speed.per_second);
        let bound = match engine {
            Engine::Kernel(variant) => Some(Bound::measure(*variant, weights, time)?),
            Engine::Libtorch(..) => None,
        };
        for speed in speeds {
            let over = |other: Option<f64>| other.map(|other| speed.per_second / other);
            report
                .at(call.section(), &[("network", &network), ("engine", &engine.name()), ("batch", &speed.size)])
                .value(TIME, Unit::Microseconds, speed.latency_us)
                .value(PER_SECOND, Unit::PerSecond, speed.per_second)
                .value(OVER_ONE, Unit::Ratio, over(one))
                .value(OVER_LIBTORCH, Unit::Ratio, over(libtorch.and_then(|speeds| speeds.at(speed.size))))
                .value(OF_PEAK, Unit::Share, bound.as_ref().map(|bound| bound.share(*call, speed.per_second)));
        }
    }
    Ok(())
}

/// The upper bound of a path of the kernel.
struct Bound {
    multiply_adds: LatentMultiplyAdds,
    /// Multiply-adds/s from registers alone.
    peak: f64,
}

impl Bound {
    fn measure(variant: KernelVariant, weights: &Published, time: Duration) -> anyhow::Result<Self> {
        let network = LatentNetwork::new(&weights.manifest.architecture, &weights.bytes, variant)?;
        let peak = threads::rate(&mut [()], time, |()| Ok(variant.burst(BURST_ROUNDS)))?;
        Ok(Self { multiply_adds: network.multiply_adds(), peak })
    }

    fn share(&self, call: Call, per_second: f64) -> f64 {
        let LatentMultiplyAdds { initial, recurrent } = self.multiply_adds;
        let multiply_adds = match call {
            Call::Initial => initial,
            Call::Recurrent => recurrent,
        };
        per_second * multiply_adds as f64 / self.peak
    }
}

/// Adds the batch from which on each engine takes more recurrent steps per second than the fastest path of the kernel.
fn add_thresholds(report: &mut Report, network: &str, measured: &[Speeds<Label>]) {
    let recurrent: Vec<_> = measured.iter().filter(|speeds| speeds.label.1 == Call::Recurrent).collect();
    let kernel = |batch| {
        let kernels = recurrent.iter().filter(|speeds| speeds.label.0.is_kernel());
        kernels.filter_map(|speeds| speeds.at(batch)).max_by(f64::total_cmp)
    };
    for speeds in recurrent.iter().filter(|speeds| !speeds.label.0.is_kernel()) {
        report.at(THRESHOLDS, &[("network", &network), ("engine", &speeds.label.0.name())]).value(
            FROM_BATCH,
            Unit::Count,
            threshold(speeds, kernel).map(|batch| batch as f64),
        );
    }
}

/// The smallest batch from which on all measured ones are faster than `rival`'s; `None` if the largest is not.
fn threshold<L>(speeds: &Speeds<L>, rival: impl Fn(usize) -> Option<f64>) -> Option<usize> {
    let is_faster = |size, per_second| rival(size).is_none_or(|rival| per_second > rival);
    let largest_first = speeds.speeds.iter().rev();
    largest_first.take_while(|speed| is_faster(speed.size, speed.per_second)).last().map(|speed| speed.size)
}

/// Positions of an update, and the steps after each.
const POSITIONS: usize = 256;
const UNROLL_STEPS: usize = 5;

/// Adds the time of an update on each device in each precision, with all threads.
fn add_updates(
    report: &mut Report,
    network: &str,
    architecture: &Architecture,
    engines: &[Engine],
    turns: Turns,
) -> anyhow::Result<()> {
    network_torch::set_threads(machine::cores());
    for engine in engines {
        let &Engine::Libtorch(device, precision) = engine else { continue };
        if !DeviceRules::of(device).permits(precision, Purpose::Training) {
            continue;
        }
        let settings = TrainerSettings { precision, ..TrainerSettings::muzero() };
        let mut trainer = Trainer::new(Network::new(architecture, device, turns.seed)?, settings)?;
        let examples = examples(architecture);
        let mut times = Vec::new();
        for _ in 0..=turns.repeats {
            let start = Instant::now();
            trainer.step(&examples)?;
            times.push(1e6 * start.elapsed().as_secs_f64());
        }
        // The first one sets up kernels.
        let time = turns.turn.time(&times[1..]);
        report
            .at(UPDATES, &[("network", &network), ("engine", &engine.name())])
            .value(TIME, Unit::Microseconds, time)
            .value("positions/s", Unit::PerSecond, time.map(|us| 1e6 * POSITIONS as f64 / us));
    }
    Ok(())
}

fn examples(architecture: &Architecture) -> Examples {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let states = POSITIONS * (UNROLL_STEPS + 1);
    let steps = POSITIONS * UNROLL_STEPS;
    Examples::Unrolled(UnrolledBatch {
        unroll_steps: UNROLL_STEPS,
        observations: (0..POSITIONS * planes * height * width).map(|cell| f32::from(u8::from(cell % 5 == 0))).collect(),
        actions: (0..steps).map(|step| (step % actions) as u16).collect(),
        policies: vec![1.0 / actions as f32; states * actions],
        policy_weights: vec![1.0; states],
        values: (0..states).map(|state| (state as f32).cos()).collect(),
        value_weights: vec![1.0; states],
        rewards: vec![1.0; steps],
        ..UnrolledBatch::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::made_up;

    #[test]
    fn an_engine_is_faster_from_the_batch_on_after_which_it_is_never_slower() {
        let engine = made_up((), &[(1, 5.0), (4, 1.0), (16, 30.0), (64, 90.0)]);
        let rival = |speed: f64| move |_| Some(speed);
        assert_eq!(threshold(&engine, rival(4.0)), Some(16));
        assert_eq!(threshold(&engine, rival(0.5)), Some(1));
        assert_eq!(threshold(&engine, rival(90.0)), None);
        assert_eq!(threshold(&engine, |batch| (batch < 64).then_some(100.0)), Some(64));
    }
}
