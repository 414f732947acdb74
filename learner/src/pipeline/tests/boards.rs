//! Tests of a run on two boards, each with a replay server controlled by the test.

use game::Game as _;
use games::{AnyGame, GameKind};
use proto::replay::{SampleBatch, TableStats};
use run_file::learner::{BoardSection, Config};
use scripted::{ReplayScript, within};
use service::Drain;
use weights::HeadKind;

use super::*;
use crate::held_out::HeldOut;

/// Positions per batch.
const BATCH: usize = 2;
/// Number of batches requested in advance from each server.
const PREFETCHED: usize = 4;
/// Names of the boards, by index.
const BOARDS: [&str; 2] = ["hex-3", "hex-4"];

fn rules(board: &str) -> AnyGame {
    board.parse::<GameKind>().unwrap().rules()
}

/// Returns a batch of empty boards.
fn batch_of(board: &str) -> SampleBatch {
    let policy = vec![ActionProbability { action: Action(1), probability: 1.0 }];
    let kind = StepKind::Full { policy, value: 0.0 };
    let step = Step { action: Action(1), reward: 0.0, kind, weights_version: WeightsVersion(1) };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 1 };
    let trajectory = Trajectory::of(id, board, &[step], Outcome::Draw).unwrap();
    let sample = Sample { segment: trajectory.segment(0, 0).unwrap(), probability: 0.5, table_items: 2 };
    SampleBatch { samples: vec![sample; BATCH], table: TableStats::default() }
}

/// A running pipeline with one server per board, which samples the first board twice as often and prepares with two
/// threads.
struct Drawing {
    servers: [ReplayScript; 2],
    drain: Drain,
    task: tokio::task::JoinHandle<()>,
    batches: Option<Batches>,
    threads: Vec<JoinHandle<()>>,
}

impl Drawing {
    async fn start() -> Self {
        let servers = [ReplayScript::start().await, ReplayScript::start().await];
        let mut config = Config::default();
        (config.run.game, config.network.heads) = (BOARDS[0].to_owned(), HeadKind::Pooled);
        (config.learner.replay, config.learner.batch_size) = (servers[0].endpoint(), BATCH);
        config.learner.boards = vec![BoardSection { game: BOARDS[1].to_owned(), replay: servers[1].endpoint() }];
        (config.learner.prefetch_batches, config.learner.board_weights) = (PREFETCHED, vec![2.0, 1.0]);
        let settings = config.settings().unwrap();
        let source = |(board, script): (&str, &ReplayScript)| Source {
            servers: Servers::resolved(&script.endpoint().parse().unwrap()),
            settings: draws(&settings, 1, board.to_owned(), 0),
            split: Split::new(HeldOut::share(0.0), BATCH, None),
        };
        let sources = BOARDS.into_iter().zip(&servers).map(source).collect();
        let Preparers { drawn, batches, threads, .. } =
            prepare(&BOARDS.map(rules), batch_settings(POSITIONS), &Priorities::new().0, 1, 2).unwrap();
        let (drain, turns) = (Drain::new(), Turns::new(settings.board_weights.clone()));
        let task = tokio::spawn(draw(sources, turns, NewestWeights::default(), drawn, drain.clone()));
        Self { servers, drain, task, batches: Some(batches), threads }
    }

    /// Sends `batches[i]` batches for board i, at most the number requested in advance.
    async fn serve(&mut self, batches: [usize; 2]) {
        for ((script, board), batches) in self.servers.iter_mut().zip(BOARDS).zip(batches) {
            let mut stream = script.sampling().await;
            let query = stream.open().await;
            assert_eq!((query.game.as_str(), query.batch_size), (board, BATCH));
            stream.credit_of(PREFETCHED as u32).await;
            for _ in 0..batches {
                stream.batch(&batch_of(board)).await;
            }
            // The stream stays open without further batches, like a server whose rate limiter delays samples.
            tokio::spawn(async move { while stream.request().await.is_some() {} });
        }
    }

    /// Waits for `count` prepared batches; returns fewer if the queue closes.
    async fn prepared(&mut self, count: usize) -> Vec<Examples> {
        let mut batches = self.batches.take().unwrap();
        let receive = move || {
            let received = (0..count).map_while(|_| match batches.recv_timeout(DEADLINE) {
                Ok(prepared) => Some(prepared.examples),
                Err(RecvTimeoutError::Disconnected) => None,
                Err(RecvTimeoutError::Timeout) => panic!("no batch came before the deadline"),
            });
            (received.collect(), batches)
        };
        let (received, batches) = tokio::task::spawn_blocking(receive).await.unwrap();
        self.batches = Some(batches);
        received
    }
}

#[tokio::test]
async fn batches_of_two_boards_come_in_the_proportion_of_their_weights_with_the_index_of_their_board() {
    let mut drawing = Drawing::start().await;
    drawing.serve([4, 2]).await;
    let prepared = drawing.prepared(6).await;
    assert_eq!(prepared.iter().map(Examples::board).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 0]);
    for examples in prepared {
        let Examples::Positions(batch) = examples else { panic!("{examples:?}") };
        let spec = rules(BOARDS[batch.board]).spec().clone();
        let expected = (BATCH * spec.observation.len(), BATCH * spec.actions);
        assert_eq!((batch.observations.len(), batch.policies.len()), expected);
    }
}

#[tokio::test]
async fn a_board_without_batches_is_waited_for_and_stops_no_drain() {
    let mut drawing = Drawing::start().await;
    drawing.serve([3, 0]).await;
    let first = drawing.prepared(1).await;
    assert_eq!(first[0].board(), 0);
    drawing.drain.start();
    let rest = drawing.prepared(1).await;
    assert_eq!(rest, [], "it is the turn of the second board");
    let Drawing { task, threads, .. } = drawing;
    within(task).await.unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
