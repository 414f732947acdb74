//! Connects threads and tokio: samples arrive over a stream, are prepared on named threads and trained on by another;
//! reports of invalid trajectories are sent back. Every channel is bounded.
//!
//! The preparing threads take draws in turn, and the training thread takes their results in the same turn, so that
//! batches keep the order of their draws. The random stream of a batch depends on the seed and the number of the draw
//! alone: the number of threads changes no batch.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use experience::Sample;
use game::Game;
use proto::replay::{
    MAIN_TABLE, NewestWeights, SHARD_TIMEOUT, SamplerSettings, ShardedBatch, ShardedSampler, ShardedSettings,
};
use proto::servers::{Server, Servers};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use service::trace::{self, Span};
use tokio::sync::mpsc;

use crate::held_out::Split;
use crate::metrics;
use crate::priorities::{self, Item, Priorities};
use crate::training::Prepared;
use learner::config::Settings;
use targets::{Built, Rejected, Smoothing, Targets};

/// Capacity of the queue of prepared batches of each preparing thread.
const PREPARED_MAX: usize = 2;
/// Capacity of the queue of batches for each preparing thread, in addition to the stream's own prefetch.
const DRAWN_MAX: usize = 1;
/// Capacity of the queue of reports; when it is full, reports are dropped, since the same trajectory will be drawn
/// again.
const REPORTS_MAX: usize = 64;

/// Mixed into the seed of the learner, so that these draws differ from every other random stream of the run.
const SHARD_SEED: u64 = 0x756E_696F_6E00;

/// Returns the settings of draws of batches of segments of `1 + unroll_steps` steps; `seed` is that of the learner.
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

/// Draws batches from the replay servers until drained, and sends them the newest version. `split` takes out what is
/// not trained on. Closes `drawn` on return.
pub(crate) async fn draw(
    servers: Servers,
    settings: ShardedSettings,
    newest: NewestWeights,
    mut split: Split,
    drawn: Vec<mpsc::Sender<Drawn>>,
    drain: service::Drain,
) {
    let mut sampler = ShardedSampler::start(newest, servers, settings);
    for drawn in drawn.iter().cycle() {
        let (servers, drawn_from) = sampler.servers();
        metrics::replay_servers(servers, drawn_from);
        let trace = trace::root("training_step");
        let batch = loop {
            let batch = tokio::select! {
                batch = sampler.next() => batch,
                () = drain.wait() => return,
            };
            if let Some(batch) = split.take(batch) {
                break batch;
            }
        };
        if let Some(trace) = &trace {
            let mut sample = trace.child("sample").since(trace.begun());
            sample.set("samples", batch.samples.len());
            sample.end();
        }
        tokio::select! {
            sent = drawn.send(Drawn { batch, trace }) => if sent.is_err() { return },
            () = drain.wait() => return,
        }
    }
}

/// A batch as the servers gave it.
pub(crate) struct Drawn {
    batch: ShardedBatch,
    /// The trace of its training step, which begins with the request for the batch.
    trace: Option<Span>,
}

/// The preparing threads and the ends of their channels.
pub(crate) struct Preparers {
    /// One for each thread: draws go to them in turn.
    pub(crate) drawn: Vec<mpsc::Sender<Drawn>>,
    pub(crate) batches: Batches,
    /// Takes reports of other threads, too.
    pub(crate) reports: Reports,
    pub(crate) rejected: mpsc::Receiver<(Server, Rejected)>,
    pub(crate) threads: Vec<JoinHandle<()>>,
}

/// The queue of reports of trajectories that break the rules, each with the server it came from.
pub(crate) type Reports = mpsc::Sender<(Server, Rejected)>;

/// Prepared batches in the order of their draws.
#[derive(Debug)]
pub(crate) struct Batches {
    /// One for each preparing thread; `None` stands for a batch without a valid sample.
    threads: Vec<Receiver<Option<Prepared>>>,
    /// The thread that has the next one.
    next: usize,
}

impl Batches {
    /// Batches that were prepared already.
    #[cfg(test)]
    pub(crate) fn of(prepared: impl IntoIterator<Item = Prepared>) -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded();
        prepared.into_iter().for_each(|prepared| sender.send(Some(prepared)).unwrap());
        Self { threads: vec![receiver], next: 0 }
    }

    /// Batches that a test prepares.
    #[cfg(test)]
    pub(crate) fn receiving(receiver: Receiver<Option<Prepared>>) -> Self {
        Self { threads: vec![receiver], next: 0 }
    }

    /// Waits for the next batch.
    ///
    /// # Errors
    /// A timeout; the end of all batches.
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

/// What batches are made of samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchSettings {
    pub(crate) targets: Targets,
    pub(crate) smoothing: Smoothing,
    /// The exponent of [`priorities::importance`].
    pub(crate) importance_exponent: f64,
}

/// What a preparing thread works with.
#[derive(Debug, Clone)]
struct Preparing {
    settings: BatchSettings,
    priorities: Priorities,
    reports: Reports,
}

/// Starts `threads` threads that turn samples into training batches.
pub(crate) fn prepare<G: Game>(
    game: &G,
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
        let (game, preparing) = (game.clone(), preparing.clone());
        let work = move || {
            for number in (thread as u64..).step_by(threads) {
                let waiting = Instant::now();
                let Some(drawn) = incoming.blocking_recv() else { return };
                let begun = Instant::now();
                metrics::prepared("wait", begun.duration_since(waiting));
                let prepared = batch(&game, &preparing, drawn, &mut stream(seed, number), begun);
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

/// The random numbers of the draw with this number.
fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}

/// Makes the batch of a draw, and reports the trajectories that break the rules; `None` if no sample is valid.
fn batch<G: Game>(
    game: &G,
    preparing: &Preparing,
    Drawn { batch: ShardedBatch { samples, servers }, trace }: Drawn,
    rng: &mut ChaCha8Rng,
    begun: Instant,
) -> Option<Prepared> {
    let Preparing { settings: BatchSettings { targets, smoothing, importance_exponent }, priorities, reports } =
        preparing;
    // Empty under uniform sampling.
    let importance =
        if priorities.are_wanted() { priorities::importance(&samples, *importance_exponent) } else { Vec::new() };
    let Built { mut examples, rows, rejected } = targets.examples(game, &samples, &importance, rng);
    smoothing.apply(&mut examples);
    for rejected in rejected {
        let came_from = samples.iter().position(|sample| sample.segment.trajectory() == rejected.trajectory);
        reject(rejected, came_from.and_then(|at| servers.get(at)), reports);
    }
    if rows.is_empty() {
        return None;
    }
    let item = |&row: &usize| Some(Item::of(&samples[row], servers.get(row)?));
    let items = if importance.is_empty() { Vec::new() } else { rows.iter().filter_map(item).collect() };
    if let Some(trace) = &trace {
        trace.child("prepare").since(begun).end();
    }
    Some(Prepared { examples, items, mean_version: mean_version(&samples), trace })
}

/// Counts a trajectory that breaks the rules, and queues the report to the server it came from.
pub(crate) fn reject(rejected: Rejected, came_from: Option<&Server>, reports: &Reports) {
    metrics::rejected_trajectory();
    tracing::error!("trajectory {} breaks the rules: {}", rejected.trajectory, rejected.reason);
    if let Some(server) = came_from {
        // A full queue drops the report; the trajectory will be drawn again.
        drop(reports.try_send((server.clone(), rejected)));
    }
}

/// Reports refused trajectories to the servers they came from, so that they are never drawn again.
pub(crate) async fn report(mut rejected: mpsc::Receiver<(Server, Rejected)>) {
    while let Some((server, Rejected { trajectory, ply, reason })) = rejected.recv().await {
        if let Err(error) = proto::replay::report(&server.endpoint, trajectory, ply, &reason).await {
            tracing::warn!("trajectory {trajectory} could not be reported: {error}");
        }
    }
}

fn mean_version(samples: &[Sample]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| sample.segment.weights_version().0 as f64).sum();
    sum / samples.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
    use game::{Action, Outcome};
    use games::connect_four::ConnectFour;
    use targets::Unroll;
    use training::Examples;
    use weights::WeightsVersion;

    use super::*;
    use crate::seed;

    /// Timeout of a wait, after which the test fails.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// A position of the trajectory with this number: the empty board, or an illegal one, since a column has only six
    /// places.
    fn sample(sequence: u64, is_legal: bool, version: u64) -> Sample {
        let policy = vec![ActionProbability { action: Action(3), probability: 1.0 }];
        let weights_version = WeightsVersion(version);
        let step = |kind| Step { action: Action(3), reward: 0.0, kind, weights_version };
        let ply = if is_legal { 0 } else { 7 };
        let mut steps = vec![step(StepKind::Opening); ply];
        steps.push(step(StepKind::Full { policy, value: 0.0 }));
        let id = TrajectoryId { actor: 1, epoch: 1, sequence };
        let trajectory = Trajectory::of(id, "connect_four", &steps, Outcome::Draw).unwrap();
        let segment = trajectory.segment(ply, 0).unwrap();
        Sample { segment, probability: 0.5, table_items: 2 }
    }

    fn server(name: &str) -> Server {
        Server::at(&format!("http://{name}:7001"))
    }

    const POSITIONS: Targets = Targets::Positions { search_value_share: 0.0 };
    const UNROLLED: Targets = Targets::Unrolled(Unroll {
        unroll_steps: 3,
        td_steps: 2,
        discount: 1.0,
        search_value_share: 0.0,
        next_observations: false,
    });

    fn preparers(threads: usize) -> Preparers {
        preparers_of(POSITIONS, threads, 1)
    }

    fn preparers_of(targets: Targets, threads: usize, seed: u64) -> Preparers {
        // The receiver of priorities is dropped; batches are prepared nevertheless.
        let settings = BatchSettings { targets, smoothing: Smoothing::default(), importance_exponent: 1.0 };
        prepare(&ConnectFour::new(), settings, &Priorities::new().0, seed, threads).unwrap()
    }

    /// Hands in a batch of samples and the servers they came from.
    fn hand_in(preparers: &Preparers, drawn: Vec<(Sample, Server)>) {
        hand_to(preparers, 0, drawn);
    }

    fn hand_to(preparers: &Preparers, thread: usize, drawn: Vec<(Sample, Server)>) {
        let (samples, servers) = drawn.into_iter().unzip();
        preparers.drawn[thread].blocking_send(Drawn { batch: ShardedBatch { samples, servers }, trace: None }).unwrap();
    }

    #[test]
    fn a_trajectory_that_breaks_the_rules_is_reported_to_its_server_and_the_rest_is_trained_on() {
        let mut preparers = preparers(1);
        hand_in(&preparers, vec![(sample(1, false, 3), server("a")), (sample(2, true, 5), server("b"))]);
        let prepared = preparers.batches.recv_timeout(DEADLINE).unwrap();
        assert_eq!(prepared.examples.positions(), 1);
        let (reported_to, rejected) = preparers.rejected.blocking_recv().unwrap();
        assert_eq!((reported_to, rejected.trajectory.sequence, rejected.ply), (server("a"), 1, 7));
        // Rows and items stay aligned when an earlier sample is rejected.
        assert_eq!(prepared.items, [Item::of(&sample(2, true, 5), &server("b"))]);
    }

    #[test]
    fn unrolled_segments_drawn_by_priority_have_the_importance_of_their_draw_and_report_to_its_server() {
        let mut preparers = preparers_of(UNROLLED, 1, 1);
        let drawn = |sequence, is_legal, probability| Sample { probability, ..sample(sequence, is_legal, 1) };
        let samples = [drawn(1, true, 0.25), drawn(2, false, 0.5), drawn(3, true, 0.5)];
        hand_in(&preparers, samples.into_iter().zip([server("a"), server("b"), server("c")]).collect());
        let prepared = preparers.batches.recv_timeout(DEADLINE).unwrap();
        let Examples::Unrolled(batch) = &prepared.examples else { panic!("{:?}", prepared.examples) };
        assert_eq!((batch.importance.as_slice(), prepared.examples.positions()), (&[1.0, 0.5][..], 2));
        let items = [(1, "a"), (3, "c")].map(|(sequence, name)| Item::of(&sample(sequence, true, 1), &server(name)));
        assert_eq!(prepared.items, items);
    }

    #[test]
    fn a_batch_without_valid_samples_is_skipped() {
        let mut preparers = preparers(1);
        hand_in(&preparers, vec![(sample(1, false, 3), server("a"))]);
        hand_in(&preparers, vec![(sample(2, true, 4), server("a")), (sample(3, true, 7), server("a"))]);
        let prepared = preparers.batches.recv_timeout(DEADLINE).unwrap();
        assert_eq!((prepared.examples.positions(), prepared.mean_version), (2, 5.5));
    }

    #[test]
    fn unread_rejection_reports_do_not_block_batches() {
        let mut preparers = preparers(1);
        for sequence in 0..2 * REPORTS_MAX as u64 {
            hand_in(
                &preparers,
                vec![(sample(sequence, false, 1), server("a")), (sample(sequence, true, 1), server("a"))],
            );
            preparers.batches.recv_timeout(DEADLINE).unwrap();
        }
    }

    #[test]
    fn preparing_threads_end_when_their_input_or_output_channels_close() {
        let join = |threads: Vec<JoinHandle<()>>| threads.into_iter().for_each(|thread| thread.join().unwrap());
        let Preparers { drawn, mut batches, threads, .. } = preparers(2);
        drop(drawn);
        join(threads);
        assert_eq!(batches.recv_timeout(DEADLINE).unwrap_err(), RecvTimeoutError::Disconnected);

        let Preparers { drawn, batches, threads, .. } = preparers(2);
        drop(batches);
        for drawn in drawn {
            let batch = ShardedBatch { samples: vec![sample(1, true, 1)], servers: vec![server("a")] };
            drawn.blocking_send(Drawn { batch, trace: None }).unwrap();
        }
        join(threads);
    }

    /// The batches of ten draws, the fourth of which has no valid sample. Connect Four has two symmetries, and each
    /// draw has 16 positions, so that two random streams do not agree by chance.
    fn ten_batches(targets: Targets, threads: usize, seed: u64) -> Vec<(Examples, f64)> {
        let Preparers { drawn, mut batches, threads: handles, rejected, .. } = preparers_of(targets, threads, seed);
        let feeder = std::thread::spawn(move || {
            for (number, drawn) in (0..10).zip(drawn.iter().cycle()) {
                let of_game = |_| off_centre(number, number != 3);
                let samples: Vec<Sample> = (0..16).map(of_game).collect();
                let servers = vec![server("a"); samples.len()];
                drawn.blocking_send(Drawn { batch: ShardedBatch { samples, servers }, trace: None }).unwrap();
            }
        });
        let mut all = Vec::new();
        while let Ok(Prepared { examples, mean_version, .. }) = batches.recv_timeout(DEADLINE) {
            all.push((examples, mean_version));
        }
        feeder.join().unwrap();
        handles.into_iter().for_each(|thread| thread.join().unwrap());
        drop(rejected);
        all
    }

    /// A position whose image differs from itself, searched by the weights of this number.
    fn off_centre(number: u64, is_legal: bool) -> Sample {
        let weights_version = WeightsVersion(number);
        let step = |kind| Step { action: Action(0), reward: 0.0, kind, weights_version };
        let ply = if is_legal { 1 } else { 7 };
        let mut steps = vec![step(StepKind::Opening); ply];
        let policy = vec![ActionProbability { action: Action(1), probability: 1.0 }];
        steps.push(step(StepKind::Full { policy, value: 0.0 }));
        let id = TrajectoryId { actor: 1, epoch: 1, sequence: number };
        let trajectory = Trajectory::of(id, "connect_four", &steps, Outcome::Draw).unwrap();
        Sample { segment: trajectory.segment(ply, 0).unwrap(), probability: 0.5, table_items: 2 }
    }

    #[test]
    fn any_number_of_preparing_threads_gives_the_same_batches_in_the_order_of_their_draws() {
        for targets in [POSITIONS, UNROLLED] {
            let expected = ten_batches(targets, 1, 1);
            let versions: Vec<f64> = expected.iter().map(|(_, version)| *version).collect();
            assert_eq!(versions, [0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
            assert_ne!(expected[0].0, expected[1].0, "two draws of the same samples have the same symmetries");
            for threads in [2, 3, 4] {
                assert_eq!(ten_batches(targets, threads, 1), expected, "{threads} threads, {targets:?}");
            }
        }
    }
    #[test]
    fn a_learner_that_resumes_draws_other_symmetries_and_servers_and_a_fresh_one_those_of_the_seed() {
        let batches = |step| ten_batches(POSITIONS, 1, seed::at_step(1, step));
        let fresh = batches(0);
        assert_eq!(fresh, ten_batches(POSITIONS, 1, 1));
        let resumed = batches(500);
        assert_ne!(resumed, fresh);
        assert_eq!(batches(500), resumed, "a step has one seed");
        assert_ne!(batches(501), resumed);

        let settings = learner::config::Config::default().settings().unwrap();
        let of_servers = |step| draws(&settings, seed::at_step(1, step), "connect_four".to_owned(), 0).seed;
        assert_eq!(of_servers(0), 1 ^ SHARD_SEED);
        assert_ne!(of_servers(500), of_servers(0));
    }
}
