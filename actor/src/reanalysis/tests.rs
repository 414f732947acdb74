use experience::{Trajectory, WeightsVersion};
use games::TicTacToe;
use inference::Hashing;
use proto::replay::TableStats;
use proto::servers::Servers;
use scripted::{ReplayScript, trajectory, within};
use service::Drain;
use tokio::sync::watch;

use super::*;
use crate::workers::tests::{context_of_reanalysis, published, selfplay};

const SEED: u64 = 11;

/// A thread of reanalysis beside a replay server of the test.
struct Bench {
    server: ReplayScript,
    weights: watch::Sender<Option<Arc<proto::weights::Published>>>,
    share: Arc<Share>,
    drain: Drain,
    exchange: Exchange,
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
}

fn searches() -> Reanalysis<TicTacToe> {
    Reanalysis::new(TicTacToe::new(), selfplay(), 1.0, SEED)
}

/// Starts a thread beside a server that holds the script's trajectory of each of these numbers, which the weights of
/// version 2 have searched.
async fn start(sequences: &[u64]) -> Bench {
    let ids = sequences.iter().map(|&sequence| trajectory(sequence).id()).collect();
    let server = ReplayScript::holding(TableStats::default(), ids).await;
    let drain = Drain::new();
    let (around, weights) = context_of_reanalysis(&drain, tokio::runtime::Handle::current());
    let servers = Servers::resolved(&server.endpoint().parse().unwrap());
    let (exchange, desk) = Exchange::start(servers, around.weights.clone(), &drain);
    let share = Arc::new(Share::new(0.5, 1000));
    let reanalyst = Reanalyst::new(TicTacToe::new(), searches(), desk, Arc::clone(&share), around);
    let thread = std::thread::spawn(move || reanalyst.run());
    Bench { server, weights, share, drain, exchange, thread }
}

impl Bench {
    fn publish(&self, version: u64) {
        self.weights.send_replace(Some(published(&TicTacToe::new(), version)));
    }

    async fn stop(self) {
        self.drain.start();
        within(self.exchange.join()).await;
        within(tokio::task::spawn_blocking(|| self.thread.join())).await.unwrap().unwrap().unwrap();
    }
}

/// Returns a trajectory as the network of this version searches it.
fn by_hand(before: &Trajectory, version: u64) -> Trajectory {
    let mut searches = searches();
    searches.push(before).unwrap();
    let mut evaluator = Hashing::new(TicTacToe::new().spec().observation, version);
    while !searches.is_idle() {
        searches.advance(&mut evaluator, None).unwrap();
    }
    searches.drain_finished().next().unwrap().trajectory
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_trajectories_come_back_with_the_policies_and_values_of_a_search_by_the_newest_weights() {
    let mut bench = start(&[4]).await;
    bench.share.earn(1_000_000);
    bench.publish(3);
    let revised = bench.server.revised().await;
    assert_eq!(revised.revision, 3, "the revision that was fetched");
    assert_eq!(revised.trajectory, by_hand(&trajectory(4), 3));
    assert_ne!(revised.trajectory, trajectory(4));
    assert_eq!(revised.trajectory.last_weights_version(), WeightsVersion(3));
    // The script holds the trajectory of version 2 for ever, so the next weights search it again.
    bench.publish(4);
    let by_next = async {
        loop {
            let revised = bench.server.revised().await;
            if revised.trajectory.last_weights_version() == WeightsVersion(4) {
                return revised;
            }
        }
    };
    assert_eq!(within(by_next).await.trajectory, by_hand(&trajectory(4), 4));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_searched_that_the_newest_weights_have_searched_or_before_self_play_has_searched() {
    let mut bench = start(&[4]).await;
    bench.share.earn(1_000_000);
    // The script's trajectories are of version 2.
    bench.publish(2);
    let quiet = tokio::time::timeout(Duration::from_millis(300), bench.server.revised()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    bench.stop().await;

    let mut bench = start(&[4]).await;
    bench.publish(3);
    let quiet = tokio::time::timeout(Duration::from_millis(300), bench.server.revised()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    bench.share.earn(1_000_000);
    assert_eq!(bench.server.revised().await.trajectory, by_hand(&trajectory(4), 3));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_waits_for_weights_trajectories_or_its_share_ends_with_the_drain() {
    start(&[]).await.stop().await;
    let bench = start(&[]).await;
    bench.publish(3);
    bench.stop().await;
    let bench = start(&[1]).await;
    bench.publish(3);
    bench.stop().await;
}
