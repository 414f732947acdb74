//! Carries batches from the replay servers to training: samples arrive over streams in tokio tasks, named threads
//! prepare batches, and another thread trains. Reports of invalid trajectories are sent back to the replay servers.
//! Every channel is bounded.
//!
//! The preparing threads receive sampled batches in rotation, and the training thread takes the results in the same
//! rotation, so the order of batches is kept. The random numbers for a batch depend only on the seed and the batch
//! number, so the number of threads does not affect the batches.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use experience::Sample;
use game::Game;
use proto::replay::{
    MAIN_TABLE, NewestWeights, SHARD_TIMEOUT, SamplerSettings, ShardedBatch, ShardedSampler, ShardedSettings,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use run_file::learner::Settings;
use service::trace::{self, Span};
use targets::{Built, PolicyTemperature, Rejected, Targets};
use tokio::sync::mpsc;
use training::Examples;
use transport::servers::{Server, Servers};
use weights::Model;

use crate::held_out::Split;
use crate::metrics;
use crate::priorities::{Item, Priorities};
use crate::target_range::TargetRange;
use crate::training::Prepared;
use crate::turns::Turns;

/// Capacity of each preparing thread's queue of prepared batches.
const PREPARED_MAX: usize = 2;
/// Capacity of each preparing thread's input queue, in sampled batches, in addition to batches prefetched by the
/// stream.
const DRAWN_MAX: usize = 1;
/// Capacity of the queue of reports. A full queue drops reports; an invalid trajectory will be sampled and reported
/// again.
const REPORTS_MAX: usize = 64;

/// Constant mixed into the learner's seed, so that these random numbers differ from all other random streams of the
/// run.
const SHARD_SEED: u64 = 0x756E_696F_6E00;

/// Returns the settings for sampling segments of `1 + unroll_steps` steps. `seed` is the learner's seed.
pub(crate) fn draws(settings: &Settings, seed: u64, game: String, unroll_steps: usize) -> ShardedSettings {
    let shard = SamplerSettings {
        game,
        table: MAIN_TABLE.to_owned(),
        batch_size: settings.learner.batch_size,
        unroll_steps,
        prefetch_batches: settings.learner.prefetch_batches,
    };
    ShardedSettings { shard, seed: seed ^ SHARD_SEED, shard_timeout: SHARD_TIMEOUT }
}

/// The source of batches for one board.
pub(crate) struct Source {
    /// Replay servers for this board.
    pub(crate) servers: Servers,
    pub(crate) settings: ShardedSettings,
    /// Separates held-out samples from samples for training.
    pub(crate) split: Split,
}

/// Samples batches for the boards of `sources`, in the order of `turns`, until the process drains, and sends the latest
/// weights version to the replay servers. If the next board has no batch yet, waits for it instead of skipping the
/// board, because rate limiters fix the ratio of samples to inserts on each board. Closes `drawn` on return.
pub(crate) async fn draw(
    sources: Vec<Source>,
    mut turns: Turns,
    newest: NewestWeights,
    drawn: Vec<mpsc::Sender<Drawn>>,
    drain: service::Drain,
) {
    let start = |Source { servers, settings, split }| (ShardedSampler::start(newest.clone(), servers, settings), split);
    let mut boards: Vec<(ShardedSampler, Split)> = sources.into_iter().map(start).collect();
    for drawn in drawn.iter().cycle() {
        let (servers, drawn_from) = boards.iter().fold((0, 0), |(servers, drawn_from), (sampler, _)| {
            let (more, more_drawn_from) = sampler.servers();
            (servers + more, drawn_from + more_drawn_from)
        });
        metrics::replay_servers(servers, drawn_from);
        let trace = trace::root("training_step");
        let board = turns.next();
        let (sampler, split) = &mut boards[board];
        let batch = loop {
            let Some(batch) = drain.unless_started(sampler.next()).await else { return };
            if let Some(batch) = split.take(batch) {
                break batch;
            }
        };
        if let Some(trace) = &trace {
            let mut sample = trace.child("sample").since(trace.begun());
            sample.set("samples", batch.samples.len());
            sample.end();
        }
        let sent = drain.unless_started(drawn.send(Drawn { board, batch, trace })).await;
        if !matches!(sent, Some(Ok(()))) {
            return;
        }
    }
}

/// A sampled batch, as received from the replay servers.
pub(crate) struct Drawn {
    /// Index of the board.
    board: usize,
    batch: ShardedBatch,
    /// Trace of the training step, which starts with the request for the batch.
    trace: Option<Span>,
}

/// The preparing threads and the channels that connect them.
pub(crate) struct Preparers {
    /// One sender per preparing thread; the threads receive sampled batches in rotation.
    pub(crate) drawn: Vec<mpsc::Sender<Drawn>>,
    pub(crate) batches: Batches,
    /// Queue for reports, which other threads use too.
    pub(crate) reports: Reports,
    pub(crate) rejected: mpsc::Receiver<(Server, Rejected)>,
    pub(crate) threads: Vec<JoinHandle<()>>,
}

/// The queue for reports of invalid trajectories, each with the source server.
pub(crate) type Reports = mpsc::Sender<(Server, Rejected)>;

/// Prepared batches in the order of sampling.
#[derive(Debug)]
pub(crate) struct Batches {
    /// One receiver per preparing thread, which receives `None` for a batch without a valid sample.
    threads: Vec<Receiver<Option<Prepared>>>,
    /// Index of the thread with the next batch.
    next: usize,
}

impl Batches {
    /// Waits for the next batch; skips batches without a valid sample.
    ///
    /// # Errors
    /// The timeout has elapsed, or the queue is closed and empty.
    pub(crate) fn recv_timeout(&mut self, timeout: Duration) -> Result<Prepared, RecvTimeoutError> {
        loop {
            let received = self.threads[self.next].recv_timeout(timeout)?;
            self.next = (self.next + 1) % self.threads.len();
            if let Some(prepared) = received {
                return Ok(prepared);
            }
        }
    }
}

/// Settings for converting samples to training batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchSettings {
    pub(crate) targets: Targets,
    pub(crate) policy_temperature: PolicyTemperature,
    /// Exponent of [`targets::importance()`].
    pub(crate) importance_exponent: f64,
    /// Model of the network, which determines the range of targets.
    pub(crate) model: Model,
}

/// Settings and channels of a preparing thread.
#[derive(Debug, Clone)]
struct Preparing {
    settings: BatchSettings,
    priorities: Priorities,
    reports: Reports,
}

/// Starts `threads` threads that convert samples to training batches. `boards` are the rules of each board, by board
/// index.
pub(crate) fn prepare<G: Game>(
    boards: &[G],
    settings: BatchSettings,
    priorities: &Priorities,
    seed: u64,
    threads: usize,
) -> anyhow::Result<Preparers> {
    let (reports, rejected) = mpsc::channel(REPORTS_MAX);
    let preparing = Preparing { settings, priorities: priorities.clone(), reports: reports.clone() };
    let (mut drawn, mut prepared, mut handles) = (Vec::new(), Vec::new(), Vec::new());
    for thread in 0..threads {
        let (sender, mut incoming) = mpsc::channel::<Drawn>(DRAWN_MAX);
        let (outgoing, receiver) = crossbeam_channel::bounded(PREPARED_MAX);
        let (boards, preparing) = (boards.to_vec(), preparing.clone());
        let work = move || {
            for number in (thread as u64..).step_by(threads) {
                let waiting = Instant::now();
                let Some(drawn) = incoming.blocking_recv() else { return };
                let begun = Instant::now();
                metrics::prepared("wait", begun.duration_since(waiting));
                let prepared = batch(&boards[drawn.board], &preparing, drawn, &mut stream(seed, number), begun);
                let ready = Instant::now();
                metrics::prepared("prepare", ready.duration_since(begun));
                if outgoing.send(prepared).is_err() {
                    return;
                }
                metrics::prepared("hand_over", ready.elapsed());
            }
        };
        let name = if threads == 1 { "prepare".to_owned() } else { format!("prepare-{thread}") };
        handles.push(std::thread::Builder::new().name(name).spawn(work).context("start a preparing thread")?);
        drawn.push(sender);
        prepared.push(receiver);
    }
    Ok(Preparers { drawn, batches: Batches { threads: prepared, next: 0 }, reports, rejected, threads: handles })
}

/// Returns the random number generator for batch `number`.
fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}

/// Converts samples on the board with the rules `game` to a training batch, and reports trajectories that break the
/// rules. Returns `None` if no sample is valid.
fn batch<G: Game>(
    game: &G,
    preparing: &Preparing,
    Drawn { board, batch: ShardedBatch { samples, servers }, trace }: Drawn,
    rng: &mut ChaCha8Rng,
    begun: Instant,
) -> Option<Prepared> {
    let Preparing { settings, priorities, reports } = preparing;
    let BatchSettings { targets, policy_temperature, importance_exponent, model } = settings;
    // The importance weights are empty if no server samples by priority.
    let importance =
        if priorities.are_wanted() { targets::importance(&samples, *importance_exponent) } else { Vec::new() };
    let Built { mut examples, rows, rejected } = targets.examples(game, &samples, &importance, rng);
    policy_temperature.apply(&mut examples);
    if let Examples::Positions(batch) = &mut examples {
        batch.board = board;
    }
    for rejected in rejected {
        let came_from = samples.iter().position(|sample| sample.segment.trajectory() == rejected.trajectory);
        reject(rejected, came_from.and_then(|at| servers.get(at)), reports);
    }
    if rows.is_empty() {
        return None;
    }
    TargetRange::of(&examples, *model).iter().for_each(metrics::targets);
    let item = |&row: &usize| Some(Item::of(&samples[row], servers.get(row)?));
    let items = if importance.is_empty() { Vec::new() } else { rows.iter().filter_map(item).collect() };
    if let Some(trace) = &trace {
        trace.child("prepare").since(begun).end();
    }
    let (mean_version, window_passes) = (mean_version(&samples), window_passes(&samples, &rows));
    Some(Prepared { examples, items, window_passes, mean_version, trace })
}

/// Counts and logs a trajectory that breaks the rules, and queues a report to the source server.
pub(crate) fn reject(rejected: Rejected, came_from: Option<&Server>, reports: &Reports) {
    metrics::rejected_trajectory();
    tracing::error!("trajectory {} breaks the rules: {}", rejected.trajectory, rejected.reason);
    if let Some(server) = came_from {
        // A full queue drops the report; the trajectory will be sampled and reported again.
        drop(reports.try_send((server.clone(), rejected)));
    }
}

/// Sends queued reports of invalid trajectories to the source servers, which then never sample these trajectories
/// again.
pub(crate) async fn report(mut rejected: mpsc::Receiver<(Server, Rejected)>) {
    while let Some((server, Rejected { trajectory, ply, reason })) = rejected.recv().await {
        if let Err(error) = proto::replay::report(&server.endpoint, trajectory, ply, &reason).await {
            tracing::warn!("cannot report the invalid trajectory {trajectory}: {error}");
        }
    }
}

/// Returns the share of the replay window that the samples of a batch make up; `rows` are the valid samples.
fn window_passes(samples: &[Sample], rows: &[usize]) -> f64 {
    // The table may grow between two draws, so each sample counts by the window of its draw.
    rows.iter().map(|&row| 1.0 / samples[row].table_items.max(1) as f64).sum()
}

fn mean_version(samples: &[Sample]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| sample.segment.weights_version().0 as f64).sum();
    sum / samples.len().max(1) as f64
}

#[cfg(test)]
mod tests;
