//! `zerofleet bench selfplay --simulate`: self-play on a simulated accelerator with an engine that merges requests, as
//! a share of the device throughput at the largest batch.
//!
//! The device takes a fixed time per batch plus a time per position, one batch at a time and in order, and sleeps
//! meanwhile. A machine without an accelerator thus shows the gain from merging. The outputs are prepared random
//! numbers. The report also has the same self-play with an engine for each thread, as without merging, and with new
//! weights at an interval. Start with `measure`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use evaluators::{Backend, Error};
use game::{Game, ObservationShape, Outcome, Spec};
use inference::{
    Attributes, BATCH_SIZES, BatchingEngine, DEPTH_MAX, Device, DeviceError, EngineCounts, EngineSettings, Evaluator,
    LoadedNetwork, Weights,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weights::{Manifest, WeightsVersion};

use super::play::{Contestants, IN_FLIGHT};
use super::{Args, EVALUATIONS, SELF_PLAY};
use crate::report::{Report, Unit, Value, value_of};
use crate::threads::lock;

/// Largest batch of the simulated device.
const BATCH_MAX: usize = BATCH_SIZES[BATCH_SIZES.len() - 1];

/// Time to prepare new weights on a thread.
const PREPARE: Duration = Duration::from_millis(200);
/// Time to copy new weights to the device.
const UPLOAD: Duration = Duration::from_millis(15);

const DEVICE: &str = "the device alone";
const SHARE: &str = "share of the device alone";

/// Ways in which the threads use the device.
const REQUESTS: [&str; 3] = [SEPARATE, MERGED, "merged, with new weights at intervals"];
const SEPARATE: &str = "separate, a batch for each thread";
const MERGED: &str = "merged";

/// Options of the simulated accelerator.
#[derive(Debug, Clone, clap::Args)]
pub struct SimulatedArgs {
    /// Play on a simulated accelerator without a cache.
    ///
    /// Measures merged requests, a batch for each thread, and new weights. The bound is the throughput of the device at
    /// the largest of `--batches`.
    #[arg(long, conflicts_with_all = ["ablate", "whole_only"])]
    pub simulate: bool,
    /// Fixed device time per batch, in microseconds.
    #[arg(long, default_value_t = 60)]
    pub batch_us: u64,
    /// Device time per position, in nanoseconds.
    ///
    /// The default matches a network of 20 blocks and 256 channels on an H100, which evaluates about 230,000 positions
    /// per second in batches of 2,048.
    #[arg(long, default_value_t = 4316)]
    pub position_ns: u64,
    /// Interval between new weights, in seconds.
    #[arg(long, default_value_t = 10.0)]
    pub swap_seconds: f64,
}

impl SimulatedArgs {
    /// Returns the device time for a batch.
    fn cost(&self, positions: usize) -> Duration {
        let position = Duration::from_nanos(self.position_ns);
        Duration::from_micros(self.batch_us) + position * u32::try_from(positions).unwrap_or(u32::MAX)
    }
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// The interval of new weights is invalid, or an engine fails.
pub(super) fn measure<G: Game>(game: &G, args: &Args) -> anyhow::Result<Report> {
    let args = &Args { cache_positions: 0, ..args.clone() };
    let (simulated, time) = (&args.simulated, args.turns.time()?);
    ensure!(simulated.swap_seconds > 0.0, "--swap-seconds must be above 0");
    let swap = Some(Duration::try_from_secs_f64(simulated.swap_seconds)?);
    let contestants = Contestants::new(game, args)?;
    let play = |requests: &mut &str, turn| -> anyhow::Result<Vec<Value>> {
        match *requests {
            SEPARATE => contestants.play(&separate(game.spec(), args), args, turn, time, None),
            MERGED => contestants.play(&Merged::start(game.spec(), args)?, args, turn, time, None),
            _ => contestants.play(&Merged::start(game.spec(), args)?, args, turn, time, swap),
        }
    };
    let of = |values: &Vec<Value>| value_of(values, EVALUATIONS).unwrap_or(f64::NAN);
    let measured = args.turns.each(REQUESTS, play, of)?;
    let mut report = Report::new("selfplay", "Self-play on a simulated accelerator");
    contestants.describe(&mut report);
    report.set("time of a batch, us", simulated.batch_us);
    report.set("time of a position, ns", simulated.position_ns);
    report.set("batches in flight", IN_FLIGHT);
    report.note_turns(args.turns);
    let swap_seconds = simulated.swap_seconds;
    report.note(format!(
        "new weights every {swap_seconds} s: prepared in {PREPARE:?} by one thread, copied in {UPLOAD:?} by the device \
         thread"
    ));
    let batch = args.batches.iter().copied().max().unwrap_or(BATCH_MAX);
    let bound = batch as f64 / simulated.cost(batch).as_secs_f64();
    report.at(DEVICE, &[("batch", &batch)]).value(EVALUATIONS, Unit::PerSecond, bound);
    for (requests, values) in &measured {
        let cell = report.at(SELF_PLAY, &[("requests", requests)]).value(SHARE, Unit::Share, of(values) / bound);
        cell.values(values);
    }
    report.plot(SELF_PLAY, EVALUATIONS, None, None);
    Ok(report)
}

/// Sequence of batches on the device, one at a time and in order.
#[derive(Debug)]
struct Timeline {
    args: SimulatedArgs,
    /// End times of the latest batches, as many as may be in flight.
    ends: VecDeque<Instant>,
}

impl Timeline {
    fn new(args: &Args) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { args: args.simulated.clone(), ends: VecDeque::new() }))
    }

    /// Submits a batch once it may be in flight, and returns its end time.
    fn submit(&mut self, positions: usize) -> Instant {
        if self.ends.len() == IN_FLIGHT {
            self.ends.pop_front().into_iter().for_each(sleep_until);
        }
        let now = Instant::now();
        let end = self.ends.back().map_or(now, |end| now.max(*end)) + self.args.cost(positions);
        self.ends.push_back(end);
        end
    }
}

fn sleep_until(end: Instant) {
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}

/// The device used by an engine.
struct Simulated {
    timeline: Arc<Mutex<Timeline>>,
    /// Input numbers that a real device would receive.
    observations: Vec<f32>,
    /// Random numbers for the largest batch, `[BATCH_MAX, A + 3]`.
    logits: Vec<f32>,
    shape: ObservationShape,
}

struct InFlight {
    size: usize,
    end: Instant,
}

impl Device for Simulated {
    type Prepared = ();
    type Weights = ();
    type InFlight = InFlight;

    fn load(&mut self, (): ()) -> Result<(), DeviceError> {
        std::thread::sleep(UPLOAD);
        Ok(())
    }

    fn submit(
        &mut self,
        (): &(),
        _: usize,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<InFlight, DeviceError> {
        self.observations.resize(size * self.shape.len(), 0.0);
        stage(&mut self.observations);
        Ok(InFlight { size, end: lock(&self.timeline).submit(size) })
    }

    fn has_ended(&mut self, batch: &InFlight) -> bool {
        Instant::now() >= batch.end
    }

    fn wait(&mut self, batch: InFlight, read: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError> {
        sleep_until(batch.end);
        read(&self.logits[..batch.size * (self.logits.len() / BATCH_MAX)]);
        Ok(())
    }
}

type Engine = BatchingEngine<Simulated>;

/// Starts an engine on a device.
fn engine(spec: &Spec, timeline: &Arc<Mutex<Timeline>>, sizes: Vec<usize>) -> std::io::Result<Engine> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let numbers = BATCH_MAX * (spec.actions + Outcome::RESULTS);
    let device = Simulated {
        timeline: Arc::clone(timeline),
        observations: Vec::new(),
        logits: (0..numbers).map(|_| rng.random_range(-1.0..1.0)).collect(),
        shape: spec.observation,
    };
    let settings = EngineSettings {
        device: "simulated".into(),
        batch_sizes: sizes,
        in_flight: IN_FLIGHT,
        in_flight_max: DEPTH_MAX,
        clock: Box::new(Instant::now),
        report: Box::new(|_| ()),
    };
    BatchingEngine::start(device, settings)
}

/// Returns the network of a version on the device.
fn network(spec: &Spec, WeightsVersion(weights_version): WeightsVersion) -> LoadedNetwork {
    let (preferred_batch, max_batch) = (BATCH_MAX, BATCH_MAX);
    LoadedNetwork {
        attributes: Attributes { name: "simulated".into(), weights_version, preferred_batch, max_batch },
        shape: spec.observation,
        actions: spec.actions,
        write_rows: |_, observations, to| to.copy_from_slice(observations),
    }
}

/// Returns the device without merging: each thread has a separate engine with batches that hold the games of that
/// thread with little padding.
fn separate(spec: &Spec, args: &Args) -> impl Backend {
    let (timeline, engines) = (Timeline::new(args), Mutex::new(Vec::new()));
    let (spec, largest) = (spec.clone(), (args.games * args.leaves).min(BATCH_MAX));
    move |manifest: &Manifest, _: &Bytes| -> Result<Box<dyn Evaluator>, Error> {
        let count = BATCH_SIZES.len();
        let mut sizes: Vec<usize> = (1..=count).map(|part| (largest * part).div_ceil(count)).collect();
        sizes.dedup();
        let failed = |error: &dyn ToString| Error::Other(error.to_string());
        let engine = engine(&spec, &timeline, sizes).map_err(|error| failed(&error))?;
        let weights = engine.load((), network(&spec, manifest.version)).map_err(|error| failed(&error))?;
        // The engine lives as long as evaluators of it may be used.
        lock(&engines).push(engine);
        Ok(Box::new(weights.evaluator()))
    }
}

/// Latest weights on the device, with the version.
type Newest = Option<(WeightsVersion, Weights<Simulated>)>;

/// One engine on the device, and the latest weights.
struct Merged {
    spec: Spec,
    engine: Engine,
    newest: Mutex<Newest>,
}

impl Merged {
    fn start(spec: &Spec, args: &Args) -> anyhow::Result<Self> {
        let engine = engine(spec, &Timeline::new(args), BATCH_SIZES.to_vec())?;
        Ok(Self { spec: spec.clone(), engine, newest: Mutex::default() })
    }

    fn build_from(&self, newest: &mut Newest, version: WeightsVersion) -> Result<Box<dyn Evaluator>, Error> {
        let loaded = match newest.take().filter(|newest| newest.0 == version) {
            Some((_, loaded)) => loaded,
            None => {
                std::thread::sleep(PREPARE);
                let loaded = self.engine.load((), network(&self.spec, version));
                loaded.map_err(|error| Error::Other(error.to_string()))?
            }
        };
        Ok(Box::new(newest.insert((version, loaded)).1.evaluator()))
    }
}

impl Backend for Merged {
    fn describe(&self) -> String {
        "simulated".to_owned()
    }

    fn build(&self, manifest: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        self.build_from(&mut lock(&self.newest), manifest.version)
    }

    fn try_build(&self, manifest: &Manifest, _: &Bytes) -> Result<Option<Box<dyn Evaluator>>, Error> {
        // A lock poisoned by a panicked thread ends the measurement when that thread is joined.
        let Ok(mut newest) = self.newest.try_lock() else { return Ok(None) };
        self.build_from(&mut newest, manifest.version).map(Some)
    }

    fn engine_counts(&self) -> Option<EngineCounts> {
        Some(self.engine.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selfplay;
    use crate::tests::{args, parsed};

    const TINY: &str = "--simulate --game tic_tac_toe --threads 3 --games 16 --simulations 4 --batches 16 --batch-us 100 \
                        --position-ns 10 --seconds 0.2 --repeats 1 --swap-seconds 0.1";

    #[test]
    fn a_tiny_run_measures_separate_and_merged_requests_and_swaps() {
        let report = selfplay::measure(&args(TINY)).unwrap();
        for requests in REQUESTS {
            let speed = report.value(SELF_PLAY, &[("requests", requests)], EVALUATIONS);
            assert!(speed > Some(0.0), "{report:?}");
        }
        let fill = report.value(SELF_PLAY, &[("requests", REQUESTS[1])], "fill of merged batches");
        assert!(fill.is_some_and(|fill| fill > 0.0 && fill <= 1.0), "{report:?}");
        assert!(report.value(SELF_PLAY, &[("requests", MERGED)], SHARE) > Some(0.0), "{report:?}");
    }

    #[test]
    fn options_out_of_range_are_named() {
        let error = |line: &str| selfplay::measure(&args(&format!("{TINY} {line}"))).unwrap_err().to_string();
        assert!(error("--leaves 0").contains("--leaves"));
        let error = selfplay::measure(&args(&TINY.replace("--swap-seconds 0.1", "--swap-seconds 0"))).unwrap_err();
        assert!(error.to_string().contains("--swap-seconds"), "{error}");
        assert!(parsed::<Args>(["--simulate", "--ablate"]).is_err());
    }
}
