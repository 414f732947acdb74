use std::time::{Duration, Instant};

use anyhow::Context;
use inference::{Batch, Evaluator, Predictions};
use network_cpu::{KernelVariant, Stage, TowerEvaluator};
use network_torch::LibtorchEvaluator;
use weights::Architecture;

use super::engine::Engine;
use super::peers::Peers;
use super::speeds::{EngineSpeeds, LayerTimes, Speed};
use crate::{Turn, positions, threads};

/// Share of the time of a measurement that goes to finding out where the time goes.
const LAYERS_SHARE: f64 = 0.25;
/// Rounds of a burst: some tenths of a millisecond.
const BURST_ROUNDS: usize = 100_000;

/// The measurements of one engine on one network.
pub(super) struct Series {
    engine: Engine,
    source: Source,
    peaks: Vec<f64>,
    /// By batch size, in the order in which they came.
    batches: Vec<Measured>,
    failure: Option<String>,
}

/// One evaluator for each thread, or the script that has them.
pub(super) enum Source {
    Kernel(Vec<TowerEvaluator>),
    Libtorch(Vec<LibtorchEvaluator>),
    Python,
}

/// All turns of one batch size.
struct Measured {
    batch: usize,
    speeds: Vec<f64>,
    /// Nanoseconds per position.
    layers: Vec<(Stage, Vec<f64>)>,
}

/// The settings that all series of a network share.
pub(super) struct Course<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) threads: usize,
    pub(super) seed: u64,
    pub(super) time: Duration,
    pub(super) batch_time_max: Duration,
}

impl Course<'_> {
    /// Others for each thread.
    fn seed_of(&self, thread: usize) -> u64 {
        self.seed.wrapping_add(thread as u64)
    }
}

impl Series {
    /// Nothing measured yet; a source that could not be had is the reason why nothing will be.
    pub(super) fn new(engine: Engine, source: anyhow::Result<Source>) -> Self {
        let (source, failure) = match source {
            Ok(source) => (source, None),
            Err(error) => (Source::Python, Some(service::chain(&error))),
        };
        Self { engine, source, peaks: Vec::new(), batches: Vec::new(), failure }
    }

    /// Useful multiply-adds of a position, as the kernel counts them.
    pub(super) fn multiply_adds(&self) -> Option<usize> {
        match &self.source {
            Source::Kernel(evaluators) => evaluators.first().map(|evaluator| evaluator.tower().multiply_adds()),
            Source::Libtorch(_) | Source::Python => None,
        }
    }

    /// Measures what bounds a path of the kernel.
    pub(super) fn measure_peak(&mut self, course: &Course<'_>) -> anyhow::Result<()> {
        if let (Engine::Kernel(path), None) = (self.engine, &self.failure) {
            self.peaks.push(burst(path, course)?);
        }
        Ok(())
    }

    /// Takes a turn at a batch size; after a failure, none.
    pub(super) fn measure(&mut self, batch: usize, course: &Course<'_>, peers: Option<&mut Peers>) {
        if self.failure.is_some() || self.takes_too_long(batch, course) {
            return;
        }
        if let Err(error) = self.try_measure(batch, course, peers) {
            self.failure = Some(service::chain(&error));
        }
    }

    /// True if a batch would take too long, by the speed at the largest batch size so far that is smaller.
    fn takes_too_long(&self, batch: usize, course: &Course<'_>) -> bool {
        let smaller = self.batches.iter().rfind(|measured| measured.batch <= batch);
        let Some(speed) = smaller.and_then(|measured| measured.speeds.last()) else { return false };
        (course.threads * batch) as f64 > speed * course.batch_time_max.as_secs_f64()
    }

    fn try_measure(&mut self, batch: usize, course: &Course<'_>, peers: Option<&mut Peers>) -> anyhow::Result<()> {
        let mut layers = Vec::new();
        let speed = match &mut self.source {
            Source::Kernel(evaluators) => {
                let speed = speed(evaluators, batch, course)?;
                layers = layer_times(evaluators, batch, course)?;
                speed
            }
            Source::Libtorch(evaluators) => speed(evaluators, batch, course)?,
            Source::Python => {
                let peers = peers.context("the script was not started")?;
                peers.measure(self.engine, course.architecture, batch, course.time)?
            }
        };
        self.add(batch, speed, &layers);
        Ok(())
    }

    fn add(&mut self, batch: usize, speed: f64, layers: &[(Stage, f64)]) {
        let index = self.batches.iter().position(|measured| measured.batch == batch).unwrap_or_else(|| {
            let layers = layers.iter().map(|(stage, _)| (*stage, Vec::new())).collect();
            self.batches.push(Measured { batch, speeds: Vec::new(), layers });
            self.batches.len() - 1
        });
        let measured = &mut self.batches[index];
        measured.speeds.push(speed);
        for ((_, turns), (_, ns)) in measured.layers.iter_mut().zip(layers) {
            turns.push(*ns);
        }
    }

    /// The turns that count.
    pub(super) fn report(&self, turn: Turn, multiply_adds: Option<usize>) -> EngineSpeeds {
        let peak = turn.speed(&self.peaks);
        let speed = |measured: &Measured| {
            let evaluations_per_second = turn.speed(&measured.speeds)?;
            let share = |peak| Some(evaluations_per_second * multiply_adds? as f64 / peak);
            Some(Speed { batch: measured.batch, evaluations_per_second, share_of_peak: peak.and_then(share) })
        };
        EngineSpeeds {
            engine: self.engine,
            peak,
            speeds: self.batches.iter().filter_map(speed).collect(),
            layers: self
                .batches
                .iter()
                .filter(|measured| !measured.layers.is_empty())
                .map(|measured| layers_of(measured, turn))
                .collect(),
            not_measured: self.failure.clone(),
        }
    }
}

fn layers_of(measured: &Measured, turn: Turn) -> LayerTimes {
    let mut times = LayerTimes { batch: measured.batch, ..LayerTimes::default() };
    for (stage, turns) in &measured.layers {
        let ns = turn.time(turns).unwrap_or(f64::NAN);
        match stage {
            Stage::Observe => times.observe_ns = ns,
            Stage::Stem => times.stem_ns = ns,
            Stage::Inner(_) => times.block_ns.push(ns),
            Stage::Block(_) => *times.block_ns.last_mut().expect("a block begins with its first half") += ns,
            Stage::Heads => times.heads_ns = ns,
            Stage::Layers => times.layers_ns = ns,
        }
    }
    times
}

/// Multiply-adds/s from registers alone, over all threads.
fn burst(path: KernelVariant, course: &Course<'_>) -> anyhow::Result<f64> {
    threads::rate(&mut vec![(); course.threads], course.time, |()| Ok(path.burst(BURST_ROUNDS)))
}

/// Evaluations/s over all threads, on batches of random positions that are ready.
fn speed<E: Evaluator>(evaluators: &mut [E], batch: usize, course: &Course<'_>) -> anyhow::Result<f64> {
    let with_batch = |(index, evaluator)| {
        (evaluator, positions::random(course.architecture, course.seed_of(index), batch), Predictions::new())
    };
    let mut workers: Vec<(&mut E, Batch, Predictions)> = evaluators.iter_mut().enumerate().map(with_batch).collect();
    threads::rate(&mut workers, course.time, |(evaluator, batch, predictions)| {
        evaluator.evaluate(batch, predictions)?;
        Ok(batch.len())
    })
}

/// A thread that watches where the time goes.
struct Watcher<'a> {
    evaluator: &'a mut TowerEvaluator,
    batch: Batch,
    times: Vec<(Stage, Duration)>,
    positions: usize,
}

impl Watcher<'_> {
    fn round(&mut self) -> anyhow::Result<usize> {
        let times = self.evaluator.stages(&self.batch, &mut Instant::now)?;
        if self.times.is_empty() {
            self.times = times;
        } else {
            self.times.iter_mut().zip(times).for_each(|((_, sum), (_, time))| *sum += time);
        }
        self.positions += self.batch.len();
        Ok(self.batch.len())
    }
}

/// Nanoseconds per position that a thread spends in each stage.
fn layer_times(
    evaluators: &mut [TowerEvaluator],
    batch: usize,
    course: &Course<'_>,
) -> anyhow::Result<Vec<(Stage, f64)>> {
    let watcher = |(index, evaluator)| {
        let batch = positions::random(course.architecture, course.seed_of(index), batch);
        Watcher { evaluator, batch, times: Vec::new(), positions: 0 }
    };
    let mut watchers: Vec<Watcher<'_>> = evaluators.iter_mut().enumerate().map(watcher).collect();
    threads::rate(&mut watchers, course.time.mul_f64(LAYERS_SHARE), Watcher::round)?;
    let positions: usize = watchers.iter().map(|watcher| watcher.positions).sum();
    let Some(first) = watchers.first() else { return Ok(Vec::new()) };
    // Every thread computes the same network: the stages of all come in the same order.
    let ns = |index: usize| {
        let seconds: f64 = watchers.iter().map(|watcher| watcher.times[index].1.as_secs_f64()).sum();
        1e9 * seconds / positions as f64
    };
    Ok(first.times.iter().enumerate().map(|(index, &(stage, _))| (stage, ns(index))).collect())
}

#[cfg(test)]
mod tests {
    use network_torch::Precision;

    use super::super::NetworkSize;
    use super::*;

    const ENGINE: Engine = Engine::Openvino(Precision::F32);

    fn with_course<T>(body: impl FnOnce(&Course<'_>) -> T) -> T {
        let architecture = NetworkSize { blocks: 1, channels: 16, height: 3, width: 3 }.architecture();
        let (time, batch_time_max) = (Duration::from_millis(1), Duration::from_secs(2));
        body(&Course { architecture: &architecture, threads: 2, seed: 1, time, batch_time_max })
    }

    #[test]
    fn the_median_or_the_best_of_the_turns_is_reported() {
        let mut series = Series::new(ENGINE, Ok(Source::Python));
        for (turn, speed) in [30.0, 10.0, 20.0].into_iter().enumerate() {
            let ns = 1000.0 + turn as f64;
            let first = [(Stage::Inner(0), 1.5 * ns), (Stage::Block(0), 0.5 * ns)];
            let second = [(Stage::Inner(1), ns), (Stage::Block(1), 2.0 * ns)];
            series.add(8, speed, &[&[(Stage::Stem, ns)][..], &first, &second].concat());
        }
        let report = series.report(Turn::Median, Some(100));
        assert_eq!((report.best(), report.at(8), report.at(1)), (Some(20.0), Some(20.0), None));
        let expected =
            LayerTimes { batch: 8, stem_ns: 1001.0, block_ns: vec![2002.0, 3003.0], ..LayerTimes::default() };
        assert_eq!(report.layers, [expected]);
        let report = series.report(Turn::Best, Some(100));
        assert_eq!((report.best(), report.layers[0].stem_ns), (Some(30.0), 1000.0));
    }

    #[test]
    fn the_share_is_of_the_peak_that_was_measured_beside_it() {
        let mut series = Series::new(ENGINE, Ok(Source::Python));
        series.add(1, 5.0, &[]);
        series.peaks = vec![900.0, 1000.0, 1100.0];
        assert_eq!(series.report(Turn::Median, Some(100)).speeds[0].share_of_peak, Some(0.5));
        assert_eq!(series.report(Turn::Median, None).speeds[0].share_of_peak, None);
    }

    #[test]
    fn batches_that_would_take_too_long_are_left_out() {
        let mut series = Series::new(ENGINE, Ok(Source::Python));
        with_course(|course| {
            assert!(!series.takes_too_long(1, course), "nothing is known yet");
            // Two threads make 16 positions/s together: 16 in a batch of each take two seconds.
            series.add(1, 16.0, &[]);
            assert!(!series.takes_too_long(16, course));
            assert!(series.takes_too_long(17, course));
            series.measure(17, course, None);
        });
        assert_eq!(series.report(Turn::Median, None).speeds.len(), 1);
        assert_eq!(series.failure, None);
    }

    #[test]
    fn an_engine_that_is_missing_or_fails_says_why_and_takes_no_further_turn() {
        let mut missing = Series::new(ENGINE, Err(anyhow::anyhow!("no wheel").context("install it")));
        let mut failing = Series::new(ENGINE, Ok(Source::Python));
        with_course(|course| {
            for series in [&mut missing, &mut failing] {
                series.measure(1, course, None);
                series.measure_peak(course).unwrap();
            }
        });
        assert_eq!(missing.report(Turn::Median, None).not_measured.as_deref(), Some("install it: no wheel"));
        assert_eq!(failing.report(Turn::Median, None).not_measured.as_deref(), Some("the script was not started"));
    }
}
