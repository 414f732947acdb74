//! The validation thread: evaluates each published version on positions of held-out trajectories.
//!
//! The thread evaluates the same weights as actors and arena do: the published average of the weights, with running
//! statistics. It does not use the training backend. [`crate::held_out`] selects the held-out trajectories. Held-out
//! samples arrive together with training samples, and wait in a bounded [`buffer`]; [`measures`] compares predictions
//! with targets. The training thread never waits for validation, and evaluation takes at most the fraction
//! [`TIME_SHARE_MAX`] of the time. Each board of a run has a validation thread; threads for additional boards export
//! measures under the board name.

mod buffer;
mod engine;
mod measures;

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use game::{Game, ObservationShape};
use inference::{Batch, Evaluator, Predictions};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use targets::{PolicyTemperature, Targets};
use training::Observations;
use weights::{Architecture, Manifest};

use self::buffer::Buffer;
use self::engine::Engine;
pub(crate) use self::measures::Measures;
use self::measures::Sums;
use crate::device::Device;
use crate::held_out::Drawn;
use crate::pipeline::Reports;
use crate::priorities::{Item, Priorities};
use crate::records::{self, Records};
use crate::{metrics, pipeline};

/// Maximum fraction of time that one thread or accelerator spends on evaluation: after an evaluation of one second, the
/// next evaluation starts at least 19 seconds later.
const TIME_SHARE_MAX: f64 = 0.05;

/// Capacity of the queue of held-out samples, in sampled batches.
const DRAWS_MAX: usize = 8;

/// Maximum number of positions per evaluated batch.
const BATCH_MAX: usize = 256;

/// Constant mixed into the learner's seed, so that the random symmetries differ from those in training.
const SEED: u64 = 0x7661_6C69_6461_7465;

/// Settings of a validation thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValidationSettings {
    /// Settings of the targets, the same as in training.
    pub(crate) targets: Targets,
    /// The temperature of policy targets, the same as in training.
    pub(crate) policy_temperature: PolicyTemperature,
    /// Maximum number of positions in the buffer.
    pub(crate) positions_max: usize,
    /// Seed of the learner, for random symmetries.
    pub(crate) seed: u64,
    /// Training device, which may also evaluate.
    pub(crate) device: Device,
    /// Number of boards in the run; the validation threads of all boards share the time for evaluation.
    pub(crate) boards: usize,
}

/// A validation thread and the channels to it.
#[derive(Debug)]
pub(crate) struct Validation {
    /// Channel for samples of held-out trajectories.
    pub(crate) samples: Sender<Vec<Drawn>>,
    /// Queue for published versions.
    pub(crate) versions: Versions,
    /// The thread, which stops once both senders are dropped.
    pub(crate) thread: JoinHandle<()>,
}

/// A published version: the manifest and the encoded weights.
type Version = (Manifest, Bytes);

/// A queue for the latest published version. A new version replaces a version that still waits.
#[derive(Debug)]
pub(crate) struct Versions {
    sender: Sender<Version>,
    receiver: Receiver<Version>,
}

impl Versions {
    /// Queues a published version for validation.
    pub(crate) fn offer(&self, manifest: Manifest, bytes: Bytes) {
        if let Err(TrySendError::Full(version)) = self.sender.try_send((manifest, bytes)) {
            drop(self.receiver.try_recv());
            // The queue was emptied above, and only the validation thread also receives, so there is room.
            drop(self.sender.try_send(version));
        }
    }
}

/// Starts the validation thread of a board, for a network with this architecture. The thread writes measures to
/// `records`, reports trajectories that break the rules, and sends value errors as priorities, as training does. Once
/// `stop` returns true, the thread stops evaluating.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start<G: Game>(
    game: &G,
    architecture: &Architecture,
    settings: ValidationSettings,
    records: Records,
    reports: Reports,
    priorities: Priorities,
    stop: impl Fn() -> bool + Send + 'static,
) -> anyhow::Result<Validation> {
    let (samples, incoming) = crossbeam_channel::bounded(DRAWS_MAX);
    let (sender, versions) = crossbeam_channel::bounded(1);
    let receiver = versions.clone();
    let (game, architecture) = (game.clone(), architecture.clone());
    let work = move || {
        let mut validator = Validator {
            game,
            architecture,
            buffer: Buffer::new(settings.positions_max),
            rng: ChaCha8Rng::seed_from_u64(settings.seed ^ SEED),
            settings,
            engine: Engine::new(settings.device),
            records,
            reports,
            priorities,
            next: Instant::now(),
            has_failed: false,
        };
        validator.work(incoming, &versions, &stop);
    };
    let thread = std::thread::Builder::new().name("validate".into()).spawn(work).context("start a thread")?;
    Ok(Validation { samples, versions: Versions { sender, receiver }, thread })
}

struct Validator<G> {
    game: G,
    /// Architecture of the network on this board.
    architecture: Architecture,
    settings: ValidationSettings,
    buffer: Buffer,
    rng: ChaCha8Rng,
    engine: Engine,
    records: Records,
    reports: Reports,
    priorities: Priorities,
    /// Time before which no evaluation starts.
    next: Instant,
    /// True if the last evaluation failed; only the first failure of a series is logged.
    has_failed: bool,
}

impl<G: Game> Validator<G> {
    fn work(&mut self, mut samples: Receiver<Vec<Drawn>>, versions: &Receiver<Version>, stop: &dyn Fn() -> bool) {
        loop {
            crossbeam_channel::select! {
                recv(samples) -> drawn => match drawn {
                    Ok(drawn) => self.add(&drawn),
                    Err(_) => samples = crossbeam_channel::never(),
                },
                recv(versions) -> version => match version {
                    Ok(_) if stop() || Instant::now() < self.next => {}
                    Ok((manifest, bytes)) => self.validate(&manifest, &bytes, stop),
                    Err(_) => return,
                },
            }
        }
    }

    fn add(&mut self, drawn: &[Drawn]) {
        let begun = Instant::now();
        let ValidationSettings { targets, policy_temperature, .. } = self.settings;
        let (rows, rejected) = buffer::rows(&self.game, targets, policy_temperature, drawn, &mut self.rng);
        for rejected in rejected {
            let server = drawn.iter().find(|(sample, _)| sample.segment.trajectory() == rejected.trajectory);
            pipeline::reject(rejected, server.map(|(_, server)| server), &self.reports);
        }
        rows.into_iter().for_each(|row| self.buffer.add(row));
        metrics::validated("prepare", begun.elapsed());
    }

    fn validate(&mut self, manifest: &Manifest, bytes: &[u8], stop: &dyn Fn() -> bool) {
        if self.buffer.rows.is_empty() {
            return;
        }
        let begun = Instant::now();
        let board = self.architecture.board();
        let is_of_network = manifest.architecture.game == board.game;
        let on_board = manifest.on(board).context("use the weights on this board");
        let measured = on_board.and_then(|manifest| {
            let mut evaluator = self.engine.evaluator(&manifest, bytes)?;
            measure(evaluator.as_mut(), self.game.spec().observation, &mut self.buffer, stop)
        });
        let took = begun.elapsed();
        metrics::validated("evaluate", took);
        self.next = Instant::now() + pause(took, self.settings.boards);
        let failed = measured.is_err();
        match measured {
            Ok(Some((measures, errors))) => {
                match is_of_network {
                    true => measures.export(manifest.version),
                    false => measures.export_of(board.game),
                }
                self.records.append(manifest.training_step, || records::validation(&measures));
                if self.priorities.are_wanted() {
                    let (items, errors): (Vec<Item>, Vec<f32>) = errors.into_iter().unzip();
                    self.priorities.report(&items, &errors);
                }
            }
            Ok(None) => {}
            Err(error) if !self.has_failed => {
                tracing::warn!("cannot validate weights {}; training continues: {error:#}", manifest.version);
            }
            Err(_) => {}
        }
        self.has_failed = failed;
    }
}

/// Returns the time to pause after an evaluation of duration `took`, if `boards` boards are evaluated concurrently.
fn pause(took: Duration, boards: usize) -> Duration {
    took.mul_f64(boards.max(1) as f64 / TIME_SHARE_MAX - 1.0)
}

/// Items, each with the distance between value and target.
type ValueErrors = Vec<(Item, f32)>;

/// Measures a network on all positions, and returns the value errors of new positions. Returns `None` if stopped early.
fn measure(
    evaluator: &mut dyn Evaluator,
    shape: ObservationShape,
    buffer: &mut Buffer,
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<Option<(Measures, ValueErrors)>> {
    let positions = evaluator.attributes().max_batch.clamp(1, BATCH_MAX);
    let (mut sums, mut errors) = (Sums::default(), Vec::new());
    let (mut batch, mut predictions) = (Batch::new(shape), Predictions::new());
    for rows in buffer.rows.make_contiguous().chunks_mut(positions) {
        if stop() {
            return Ok(None);
        }
        batch.clear();
        for row in rows.iter() {
            batch.push(&row.actions, |planes| match &row.observation {
                Observations::Bytes(bytes) => {
                    planes.iter_mut().zip(bytes).for_each(|(plane, &byte)| *plane = f32::from(byte));
                }
                Observations::Floats(floats) => planes.copy_from_slice(floats),
            });
        }
        evaluator.evaluate(&batch, &mut predictions).context("evaluate held-out positions")?;
        for (index, row) in rows.iter_mut().enumerate() {
            let wdl = predictions.wdl().get(index).copied();
            let error = sums.add(row, predictions.priors(index), predictions.value(index), wdl);
            if std::mem::take(&mut row.is_new) {
                errors.push((row.item.clone(), error));
            }
        }
    }
    Ok(sums.measures().map(|measures| (measures, errors)))
}

#[cfg(test)]
mod tests;
