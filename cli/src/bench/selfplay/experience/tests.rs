use ::selfplay::{Episodes, Settings};
use games::ConnectFour;
use inference::testing::Hashing;

use super::*;

fn episodes(wanted: usize) -> Vec<FinishedEpisode> {
    let game = ConnectFour::new();
    let settings = Settings { games: 4, full_simulations: 8, full_share: 1.0, ..Settings::default() };
    let mut evaluator = Hashing::new(game.spec().observation, 1);
    let mut all = Episodes::new(game, settings, 1);
    let mut finished = Vec::new();
    while finished.len() < wanted {
        all.advance(&mut evaluator, None).unwrap();
        finished.extend(all.drain_finished());
    }
    finished
}

#[test]
fn dense_experience_is_planes_policy_and_result_of_every_position() {
    let game = ConnectFour::new();
    let episode = episodes(1).remove(0);
    let floats = dense(&game, &episode).unwrap();
    let row = 3 * 42 + 7 + 3;
    assert_eq!(floats.len(), episode.steps.len() * row);
    let mut position = game.start();
    for (step, row) in episode.steps.iter().zip(floats.chunks_exact(row)) {
        let mut planes = vec![0.0; 126];
        game.observe(&position, &mut planes);
        assert_eq!(row[..126], planes);
        assert!((row[126..133].iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert_eq!(row[133..].iter().sum::<f32>(), 1.0);
        game.play(&mut position, step.action);
    }
}

#[test]
fn compact_experience_takes_less_than_dense() {
    let game = ConnectFour::new();
    let mut kept = [Experience::Compact, Experience::Dense].map(Kept::new);
    for episode in episodes(8) {
        kept.iter_mut().for_each(|kept| kept.keep(&game, episode.clone()).unwrap());
    }
    let [compact, dense] = kept.map(|kept| kept.size());
    assert_eq!(compact.1, dense.1);
    assert_eq!(dense.0, dense.1 * 136 * 4);
    assert!(compact.0 * 100 <= dense.0 * 15, "{compact:?} {dense:?}");
}
