//! Many threads that evaluate on one device while weights change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use game::Action;
use inference::{Batch, LatentPredictions, Predictions, Slot, Unroll};
use network_torch::{Device, Libtorch, Network, PrecisionPreference};
use weights::{Architecture, Manifest, Model, WeightsVersion};

use crate::layers::{answers, relative};
use crate::memory::held_bytes;
use crate::output::Kind;
use crate::speed::{calls_per_second, manifest};
use crate::towers::{CONNECT_FOUR, distance, largest, plain, positions, trained_weights};
use crate::{Result, Settings};

/// Number of evaluating threads.
const THREADS: usize = 8;
/// Networks that alternate as weights versions.
const NETWORKS: u64 = 3;
/// Interval between two weights versions.
const SWAP: Duration = Duration::from_millis(100);
/// Calls of each thread with a learned model.
const LEARNED_ROUNDS: usize = 20;
/// Maximum change of memory use after a depth, in MiB.
const MEMORY_BAR: f64 = 64.0;

/// Runs the threads at several depths of batches in flight.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let architecture = settings.sized(plain(6, 64, CONNECT_FOUR), plain(2, 16, CONNECT_FOUR));
    // One precision, so that all predictions have the same bar.
    let libtorch = Libtorch::new(settings.preference, PrecisionPreference::Bf16, Instant::now)?;
    let weights: Vec<Vec<u8>> =
        (0..NETWORKS).map(|seed| trained_weights(&architecture, seed)).collect::<Result<_>>()?;
    let bench = Bench { architecture, weights, libtorch: &libtorch };
    let device = settings.device()?.device;
    let depths: &[usize] = if libtorch.is_accelerated() { &[1, 2, 4] } else { &[1] };
    let time = settings.sized(Duration::from_secs(3), Duration::from_secs(2));
    let expected = bench.alone()?;
    // The first round sets up the memory that allocator and kernels keep.
    bench.round(&expected, time / 4)?;
    for &depth in depths {
        libtorch.set_in_flight(depth);
        let before = held_bytes(device);
        let round = bench.round(&expected, time)?;
        let of = |what: &str| format!("{THREADS} threads, {depth} in flight: {what}");
        // Merged batches have other sizes than a single thread's, for which other kernels may be chosen.
        settings.at_most(Kind::Correctness, &of("error against one thread"), (round.error, "relative"), 2e-2);
        settings.value(&of("weights versions"), round.versions as f64, "");
        settings.value(&of("batches"), round.batches as f64, "");
        match before.zip(held_bytes(device)) {
            Some((before, after)) => {
                let mebibytes = (after as f64 - before as f64).abs() / f64::from(1 << 20);
                settings.at_most(Kind::Correctness, &of("change of memory held"), (mebibytes, "MiB"), MEMORY_BAR);
            }
            None => settings.skipped(&of("change of memory held"), "the system does not report it"),
        }
    }
    let error = learned(&libtorch)?;
    let name = format!("{THREADS} threads with learned models: error against one thread");
    settings.at_most(Kind::Correctness, &name, (error, "relative"), 2e-2);
    let threads = settings.sized(16, 2);
    let name = format!("{threads} threads with MuZero networks of {}", crate::towers::name(&bench.architecture));
    let model = Model::Muzero { support: 5 };
    let architecture = Architecture { model, ..bench.architecture };
    let games = settings.sized(128, 16);
    settings.value(&name, simulations_per_second(&libtorch, &architecture, (threads, games), time)?, "simulations/s");
    Ok(())
}

/// Returns simulations/s of all threads together. Each thread takes one step in each of many trees at a time.
fn simulations_per_second(
    libtorch: &Libtorch,
    architecture: &Architecture,
    (threads, games): (u64, u32),
    time: Duration,
) -> Result<f64> {
    let bytes = Network::new(architecture, Device::Cpu, 7)?.to_safetensors()?;
    let manifest = manifest(architecture, &bytes);
    let worker = |thread: u64| -> Result<f64> {
        let mut model = libtorch.latent_model(&manifest, &bytes)?;
        let slots: Vec<Slot> = (0..2 * games).map(Slot).collect();
        model.reserve(slots.len())?;
        let (from, to) = slots.split_at(slots.len() / 2);
        let mut predictions = LatentPredictions::default();
        model.initial(&positions(architecture, from.len(), thread), from, &mut predictions)?;
        let step = |(&from, &to): (&Slot, &Slot)| Unroll { from, action: Action(2), to };
        let steps: Vec<Unroll> = from.iter().zip(to).map(step).collect();
        let calls = calls_per_second(time, || model.recurrent(&steps, &mut predictions).map_err(Into::into))?;
        Ok(f64::from(games) * calls)
    };
    thread::scope(|scope| {
        let worker = &worker;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || worker(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a thread panicked")).sum()
    })
}

/// Returns the largest error of learned models that share a pool, against one model after the other.
fn learned(libtorch: &Libtorch) -> Result<f64> {
    let model = Model::StochasticMuzero { support: 5, codes: 4 };
    let architecture = Architecture { model, ..plain(2, 32, CONNECT_FOUR) };
    let bytes = Network::new(&architecture, Device::Cpu, 7)?.to_safetensors()?;
    let manifest = manifest(&architecture, &bytes);
    let batches: Vec<Batch> =
        (0..THREADS).map(|thread| positions(&architecture, 32 + 24 * thread, thread as u64)).collect();
    let answer = |batch: &Batch| answers(&mut *libtorch.latent_model(&manifest, &bytes)?, batch);
    let expected = batches.iter().map(answer).collect::<Result<Vec<_>>>()?;
    let worker = |batch: &Batch, expected: &[f32]| -> Result<Vec<f64>> {
        let mut model = libtorch.latent_model(&manifest, &bytes)?;
        (0..LEARNED_ROUNDS).map(|_| Ok(relative(&answers(&mut *model, batch)?, expected))).collect()
    };
    let errors: Vec<Result<Vec<f64>>> = thread::scope(|scope| {
        let pairs = batches.iter().zip(&expected);
        let workers: Vec<_> = pairs.map(|(batch, expected)| scope.spawn(move || worker(batch, expected))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a thread panicked")).collect()
    });
    Ok(largest(errors.into_iter().collect::<Result<Vec<_>>>()?.concat()))
}

struct Bench<'a> {
    architecture: Architecture,
    weights: Vec<Vec<u8>>,
    libtorch: &'a Libtorch,
}

/// Results of all threads.
struct Round {
    /// Largest relative error of a batch.
    error: f64,
    batches: u64,
    versions: u64,
}

impl Bench<'_> {
    /// Returns the batch of a thread, with a different size and different positions for each thread.
    fn batch(&self, thread: usize) -> Batch {
        positions(&self.architecture, 32 + 24 * thread, 100 + thread as u64)
    }

    /// Returns the weights version `number`.
    fn version(&self, number: u64) -> (Manifest, &[u8]) {
        let bytes = &self.weights[usize::try_from(number % NETWORKS).expect("a small number")];
        let manifest = Manifest::of(bytes, WeightsVersion(number + 1), number, self.architecture.clone());
        (manifest, bytes)
    }

    /// Returns the predictions for each thread's batch by each network, one at a time.
    fn alone(&self) -> Result<Vec<Vec<Predictions>>> {
        let by_network = |number| {
            let (manifest, bytes) = self.version(number);
            let mut evaluator = self.libtorch.evaluator(&manifest, bytes)?;
            let answers = |thread| {
                let mut predictions = Predictions::new();
                evaluator.evaluate(&self.batch(thread), &mut predictions)?;
                Ok(predictions)
            };
            (0..THREADS).map(answers).collect()
        };
        (0..NETWORKS).map(by_network).collect()
    }

    /// Evaluates in all threads for `time`, with new weights at every [`SWAP`].
    fn round(&self, expected: &[Vec<Predictions>], time: Duration) -> Result<Round> {
        let (number, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let worker = |thread| self.evaluate(thread, expected, &number, &stop);
        let results: Vec<Result<(f64, u64)>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || worker(thread))).collect();
            let start = Instant::now();
            while start.elapsed() < time {
                thread::sleep(SWAP);
                number.fetch_add(1, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().expect("a thread panicked")).collect()
        });
        let mut round = Round { error: 0.0, batches: 0, versions: number.into_inner() };
        for result in results {
            let (error, batches) = result?;
            round.error = if error.is_nan() { f64::NAN } else { round.error.max(error) };
            round.batches += batches;
        }
        Ok(round)
    }

    /// Returns the largest error and the number of batches of one thread.
    fn evaluate(
        &self,
        thread: usize,
        expected: &[Vec<Predictions>],
        number: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<(f64, u64)> {
        let batch = self.batch(thread);
        let mut predictions = Predictions::new();
        let (mut largest, mut batches, mut current) = (0.0_f64, 0, None);
        while !stop.load(Ordering::Relaxed) {
            let newest = number.load(Ordering::Relaxed);
            let evaluator = match &mut current {
                Some((version, evaluator)) if *version == newest => evaluator,
                _ => {
                    let (manifest, bytes) = self.version(newest);
                    &mut current.insert((newest, self.libtorch.evaluator(&manifest, bytes)?)).1
                }
            };
            evaluator.evaluate(&batch, &mut predictions)?;
            batches += 1;
            let expected = &expected[usize::try_from(newest % NETWORKS)?][thread];
            let (error, whole) = (0..batch.len()).fold((0.0, 0.0), |(error, whole), i| {
                let (more_error, more_whole) = distance(&predictions, i, expected, i);
                (error + more_error, whole + more_whole)
            });
            let relative = (error / whole).sqrt();
            if relative.is_nan() {
                return Ok((relative, batches));
            }
            largest = largest.max(relative);
        }
        Ok((largest, batches))
    }
}
