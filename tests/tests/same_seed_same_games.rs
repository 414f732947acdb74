//! The same seed and weights produce the same games, bit for bit, independently of concurrent games.

use std::sync::Arc;

use games::ConnectFour;
use inference::{Cache, WeightsCache};
use network_cpu::{KernelVariant, Tower, TowerEvaluator};
use selfplay::{Episodes, FinishedEpisode, Settings};
use weights::{Architecture, WeightsVersion};

const SEED: u64 = 7;
/// Number of compared episodes per slot.
const EPISODES: u64 = 2;

fn weights() -> Arc<Tower> {
    let architecture = Architecture::plain("connect_four", [3, 6, 7], 7, [16, 2]);
    let path = KernelVariant::ALL.into_iter().find(|path| path.is_available()).expect("plain Rust is always there");
    Arc::new(Tower::random(&architecture, SEED, path).expect("a tower"))
}

/// Returns the games of one thread: the first episodes of each slot, in order.
fn play(tower: &Arc<Tower>, cache: Option<WeightsCache<'_>>, thread: u64) -> Vec<FinishedEpisode> {
    let settings = Settings { games: 8, full_simulations: 32, fast_simulations: 8, ..Settings::default() };
    let wanted = settings.games * usize::try_from(EPISODES).expect("a few");
    let mut evaluator = TowerEvaluator::new(Arc::clone(tower), WeightsVersion(1));
    let mut episodes = Episodes::new(ConnectFour::new(), settings, 1.0, SEED.wrapping_add(thread));
    let mut finished = Vec::new();
    while finished.len() < wanted {
        episodes.advance(&mut evaluator, cache).expect("answers");
        finished.extend(episodes.drain_finished().filter(|episode| episode.number < EPISODES));
    }
    finished.sort_by_key(|episode| (episode.slot, episode.number));
    finished
}

#[test]
fn one_thread_plays_the_same_games_again() {
    let tower = weights();
    let games = play(&tower, None, 0);
    assert_eq!(play(&tower, None, 0), games);
    assert_ne!(play(&tower, None, 1), games, "another seed plays other games");
}

/// The games themselves are identical, not only the statistics, although the threads share a cache.
#[test]
fn threads_that_share_a_cache_play_the_same_games_as_each_alone() {
    let tower = weights();
    let cache = Cache::new(1 << 16);
    let together: Vec<Vec<FinishedEpisode>> = std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|thread| {
            let (tower, cache) = (&tower, &cache);
            scope.spawn(move || play(tower, Some(cache.of(1)), thread))
        });
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    for (thread, games) in (0..).zip(together) {
        assert_eq!(play(&tower, None, thread), games, "thread {thread}");
    }
}
