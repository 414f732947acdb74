//! Connects threads and tokio: samples arrive over a stream, are prepared on one named thread and trained on by
//! another; reports of invalid trajectories are sent back. Every channel is bounded.

use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
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

use crate::metrics;
use crate::priorities::{self, Item, Priorities};
use crate::targets::{self, Built, Rejected};
use crate::training::Prepared;
use learner::config::{LearnerSection, Settings};

/// Capacity of the queue of prepared batches for the training thread.
const PREPARED_MAX: usize = 2;
/// Capacity of the queue of batches for the preparing thread, in addition to the stream's own prefetch.
const DRAWN_MAX: usize = 1;
/// Capacity of the queue of reports; when it is full, reports are dropped, since the same trajectory will be drawn
/// again.
const REPORTS_MAX: usize = 64;

/// Mixed into the seed of the run, so that these draws differ from every other random stream of the run.
const SHARD_SEED: u64 = 0x756E_696F_6E00;

/// Draws batches from the replay servers until drained, and sends them the newest version. Closes `drawn` on return.
pub(crate) async fn draw(
    settings: &Settings,
    newest: NewestWeights,
    game: String,
    drawn: mpsc::Sender<Drawn>,
    drain: service::Drain,
) {
    let servers = Servers::resolved(&settings.replay);
    let shard = SamplerSettings {
        game,
        table: MAIN_TABLE.to_owned(),
        batch_size: settings.learner.batch_size,
        unroll_steps: 0,
        prefetch_batches: settings.learner.prefetch_batches,
    };
    let settings = ShardedSettings { shard, seed: settings.run.seed ^ SHARD_SEED, shard_timeout: SHARD_TIMEOUT };
    let mut sampler = ShardedSampler::start(newest, servers, settings);
    loop {
        let (servers, drawn_from) = sampler.servers();
        metrics::replay_servers(servers, drawn_from);
        let trace = trace::root("training_step");
        let batch = tokio::select! {
            batch = sampler.next() => batch,
            () = drain.wait() => return,
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

/// The preparing thread and the ends of its channels.
pub(crate) struct Preparer {
    pub(crate) drawn: mpsc::Sender<Drawn>,
    pub(crate) prepared: crossbeam_channel::Receiver<Prepared>,
    pub(crate) rejected: mpsc::Receiver<(Server, Rejected)>,
    pub(crate) thread: JoinHandle<()>,
}

/// Starts the thread that turns samples into training batches.
pub(crate) fn prepare<G: Game>(
    game: G,
    section: &LearnerSection,
    priorities: Priorities,
    seed: u64,
) -> anyhow::Result<Preparer> {
    let (search_value_share, exponent) = (section.search_value_share, section.importance_exponent);
    let (drawn, mut incoming) = mpsc::channel::<Drawn>(DRAWN_MAX);
    let (outgoing, prepared) = crossbeam_channel::bounded(PREPARED_MAX);
    let (reports, rejected) = mpsc::channel(REPORTS_MAX);
    let work = move || {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        loop {
            let waiting = Instant::now();
            let Some(Drawn { batch: ShardedBatch { samples, servers }, trace }) = incoming.blocking_recv() else {
                return;
            };
            let preparing = Instant::now();
            metrics::prepared("wait", preparing.duration_since(waiting));
            // Empty under uniform sampling.
            let importance =
                if priorities.are_wanted() { priorities::importance(&samples, exponent) } else { Vec::new() };
            let Built { batch, rows, rejected } =
                targets::training_batch(&game, search_value_share, &samples, &importance, &mut rng);
            for rejected in rejected {
                metrics::rejected_trajectory();
                tracing::error!("trajectory {} breaks the rules: {}", rejected.trajectory, rejected.reason);
                let came_from = samples.iter().position(|sample| sample.segment.trajectory() == rejected.trajectory);
                if let Some(server) = came_from.and_then(|at| servers.get(at)) {
                    // A full queue drops the report; the trajectory will be drawn again.
                    drop(reports.try_send((server.clone(), rejected)));
                }
            }
            if batch.policy_weights.is_empty() {
                continue;
            }
            let item = |&row: &usize| Some(Item::of(&samples[row], servers.get(row)?));
            let items = if importance.is_empty() { Vec::new() } else { rows.iter().filter_map(item).collect() };
            let mean_version = mean_version(&samples);
            let ready = Instant::now();
            metrics::prepared("prepare", ready.duration_since(preparing));
            if let Some(trace) = &trace {
                trace.child("prepare").since(preparing).end_at(ready);
            }
            if outgoing.send(Prepared { batch, items, mean_version, trace }).is_err() {
                return;
            }
            metrics::prepared("hand_over", ready.elapsed());
        }
    };
    let thread = std::thread::Builder::new().name("prepare".into()).spawn(work).context("start the thread")?;
    Ok(Preparer { drawn, prepared, rejected, thread })
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
    use weights::WeightsVersion;

    use super::*;

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

    fn preparer() -> Preparer {
        // The receiver of priorities is dropped; batches are prepared nevertheless.
        let section = LearnerSection { search_value_share: 0.0, ..LearnerSection::default() };
        prepare(ConnectFour::new(), &section, Priorities::new().0, 1).unwrap()
    }

    /// Hands in a batch of samples and the servers they came from.
    fn hand_in(preparer: &Preparer, drawn: Vec<(Sample, Server)>) {
        let (samples, servers) = drawn.into_iter().unzip();
        preparer.drawn.blocking_send(Drawn { batch: ShardedBatch { samples, servers }, trace: None }).unwrap();
    }

    #[test]
    fn a_trajectory_that_breaks_the_rules_is_reported_to_its_server_and_the_rest_is_trained_on() {
        let mut preparer = preparer();
        hand_in(&preparer, vec![(sample(1, false, 3), server("a")), (sample(2, true, 5), server("b"))]);
        let prepared = preparer.prepared.recv_timeout(DEADLINE).unwrap();
        assert_eq!(prepared.batch.policy_weights.len(), 1);
        let (reported_to, rejected) = preparer.rejected.blocking_recv().unwrap();
        assert_eq!((reported_to, rejected.trajectory.sequence, rejected.ply), (server("a"), 1, 7));
        // Rows and items stay aligned when an earlier sample is rejected.
        assert_eq!(prepared.items, [Item::of(&sample(2, true, 5), &server("b"))]);
    }

    #[test]
    fn a_batch_without_valid_samples_is_skipped() {
        let preparer = preparer();
        hand_in(&preparer, vec![(sample(1, false, 3), server("a"))]);
        hand_in(&preparer, vec![(sample(2, true, 4), server("a")), (sample(3, true, 7), server("a"))]);
        let prepared = preparer.prepared.recv_timeout(DEADLINE).unwrap();
        assert_eq!((prepared.batch.policy_weights.len(), prepared.mean_version), (2, 5.5));
    }

    #[test]
    fn unread_rejection_reports_do_not_block_batches() {
        let preparer = preparer();
        for sequence in 0..2 * REPORTS_MAX as u64 {
            hand_in(
                &preparer,
                vec![(sample(sequence, false, 1), server("a")), (sample(sequence, true, 1), server("a"))],
            );
            preparer.prepared.recv_timeout(DEADLINE).unwrap();
        }
    }

    #[test]
    fn the_preparing_thread_ends_when_its_input_or_output_channel_closes() {
        let Preparer { drawn, prepared, thread, .. } = preparer();
        drop(drawn);
        thread.join().unwrap();
        assert!(prepared.recv_timeout(DEADLINE).is_err());

        let Preparer { drawn, prepared, thread, .. } = preparer();
        drop(prepared);
        let batch = ShardedBatch { samples: vec![sample(1, true, 1)], servers: vec![server("a")] };
        drawn.blocking_send(Drawn { batch, trace: None }).unwrap();
        thread.join().unwrap();
    }
}
