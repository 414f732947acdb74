use std::time::{Duration, Instant};

use inference::{Batch, Evaluator, Predictions};
use network_torch::{DenseNetwork, DenseShape, Device, MatrixProduct, Precision, VectorOperation, Vectors};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weights::Architecture;

use crate::{positions, threads};

/// Calls that need no answer on the way are sent off together for this long before the last one is waited for. What
/// waiting costs, some hundredths of a millisecond on an accelerator, is then no part of the figure.
const BURST: Duration = Duration::from_millis(2);

/// Something that is timed in one setting.
pub(super) trait Work {
    /// The work of one call of one evaluator: multiply-adds, bytes or evaluations.
    fn units(&self, size: usize) -> f64;

    /// Calls/s at a size, over all evaluators.
    fn rate(&mut self, size: usize, time: Duration) -> anyhow::Result<f64>;
}

/// Matrix products of any size.
pub(super) struct Products {
    pub(super) device: Device,
    pub(super) precision: Precision,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

impl Work for Products {
    fn units(&self, size: usize) -> f64 {
        MatrixProduct::multiply_adds(size)
    }

    fn rate(&mut self, size: usize, time: Duration) -> anyhow::Result<f64> {
        network_torch::set_threads(self.threads);
        // Made anew each time: matrices of one size are in memory, not of all.
        let product = MatrixProduct::new(size, self.device, self.precision, self.seed)?;
        in_bursts(product, time, |product, times| Ok(product.multiply(times)?))
    }
}

/// An operation on vectors of any size.
pub(super) struct Operations {
    pub(super) operation: VectorOperation,
    pub(super) device: Device,
    pub(super) precision: Precision,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

impl Work for Operations {
    fn units(&self, size: usize) -> f64 {
        self.operation.bytes(size, self.precision)
    }

    fn rate(&mut self, size: usize, time: Duration) -> anyhow::Result<f64> {
        network_torch::set_threads(self.threads);
        let vectors = Vectors::new(self.operation, size, self.device, self.precision, self.seed)?;
        in_bursts(vectors, time, |vectors, times| Ok(vectors.operate(times)?))
    }
}

/// Calls/s of `call`, which makes so many and waits for the last: as many at once as take about as long as a burst.
fn in_bursts<S: Send>(
    state: S,
    time: Duration,
    call: impl Fn(&mut S, usize) -> anyhow::Result<f64> + Sync,
) -> anyhow::Result<f64> {
    threads::rate(&mut [(state, 1)], time, |(state, times)| {
        let (begun, calls) = (Instant::now(), *times);
        call(state, calls)?;
        if begun.elapsed() < BURST / 2 {
            *times *= 2;
        }
        Ok(calls)
    })
}

/// A network with an evaluator for each thread that asks.
pub(super) struct Evaluators<E> {
    pub(super) evaluators: Vec<E>,
    pub(super) architecture: Architecture,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

impl<E: Evaluator> Work for Evaluators<E> {
    fn units(&self, size: usize) -> f64 {
        size as f64
    }

    fn rate(&mut self, size: usize, time: Duration) -> anyhow::Result<f64> {
        network_torch::set_threads(self.threads);
        let with_batch = |(index, evaluator)| {
            (evaluator, positions::random(&self.architecture, seed_of(self.seed, index), size), Predictions::new())
        };
        let mut workers: Vec<(&mut E, Batch, Predictions)> =
            self.evaluators.iter_mut().enumerate().map(with_batch).collect();
        threads::rate(&mut workers, time, |(evaluator, batch, predictions)| {
            evaluator.evaluate(batch, predictions)?;
            Ok(1)
        })
    }
}

/// A dense network for each thread that asks.
pub(super) struct DenseNetworks {
    pub(super) networks: Vec<DenseNetwork>,
    pub(super) shape: DenseShape,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

impl Work for DenseNetworks {
    fn units(&self, size: usize) -> f64 {
        size as f64
    }

    fn rate(&mut self, size: usize, time: Duration) -> anyhow::Result<f64> {
        network_torch::set_threads(self.threads);
        let with_observations =
            |(index, network)| (network, observations(self.shape, seed_of(self.seed, index), size), Vec::new());
        let mut workers: Vec<(&mut DenseNetwork, Vec<f32>, Vec<f32>)> =
            self.networks.iter_mut().enumerate().map(with_observations).collect();
        threads::rate(&mut workers, time, |(network, observations, answers)| {
            network.evaluate(observations, answers)?;
            Ok(1)
        })
    }
}

/// Random observations `[B, I]`.
fn observations(shape: DenseShape, seed: u64, positions: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..positions * shape.inputs).map(|_| rng.random_range(-1.0..1.0)).collect()
}

/// Another for each evaluator.
fn seed_of(seed: u64, index: usize) -> u64 {
    seed.wrapping_add(index as u64)
}
