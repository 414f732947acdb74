use games::{ConnectFour, TicTacToe};
use inference::testing::{Fault, Faulty, Hashing, Uniform};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use search::{RootPolicy, Solver};

use super::*;

fn settings(simulations: u32) -> AnalysisSettings {
    AnalysisSettings { simulations, search: SearchSettings::default(), leaves_per_tree: 1, batch: 16 }
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

/// Positions after every prefix of a game, the last move left out.
fn positions(game: &ConnectFour, moves: &[u16]) -> Vec<<ConnectFour as Game>::Position> {
    let actions: Vec<Action> = moves.iter().map(|&column| Action(column)).collect();
    (0..actions.len()).map(|ply| game.replay(&actions[..ply]).unwrap()).collect()
}

const MOVES: [u16; 12] = [3, 3, 2, 4, 4, 3, 3, 2, 5, 1, 0, 6];

#[test]
fn without_simulations_the_evaluator_answers_alone() {
    let game = ConnectFour::new();
    let mut evaluator = Hashing::new(game.spec().observation, 3);
    let analyses = analyse(&game, &positions(&game, &MOVES), &settings(0), &mut evaluator, &mut rng()).unwrap();
    assert_eq!(analyses.len(), MOVES.len());
    for analysis in analyses {
        assert_eq!(analysis.policy, analysis.priors);
        assert_eq!(analysis.value, analysis.network_value);
        let best = analysis.actions.iter().position(|&action| action == analysis.best).unwrap();
        assert!(analysis.priors.iter().all(|&prior| prior <= analysis.priors[best]));
    }
}

#[test]
fn answers_come_in_the_order_of_the_positions_and_do_not_depend_on_the_batch() {
    let game = ConnectFour::new();
    let positions = positions(&game, &MOVES);
    let mut evaluator = Hashing::new(game.spec().observation, 3);
    let together = analyse(&game, &positions, &settings(40), &mut evaluator, &mut rng()).unwrap();
    let narrow = AnalysisSettings { batch: 1, ..settings(40) };
    assert_eq!(together, analyse(&game, &positions, &narrow, &mut evaluator, &mut rng()).unwrap());
    for (position, expected) in positions.iter().zip(&together) {
        let alone = analyse(&game, std::slice::from_ref(position), &settings(40), &mut evaluator, &mut rng());
        assert_eq!(&alone.unwrap()[0], expected);
    }
}

#[test]
fn visits_and_policy_agree_and_cover_the_legal_actions() {
    let game = ConnectFour::new();
    let mut evaluator = Uniform::new(game.spec().observation);
    for leaves_per_tree in [1, 4] {
        let settings = AnalysisSettings { leaves_per_tree, ..settings(50) };
        let analyses = analyse(&game, &[game.start()], &settings, &mut evaluator, &mut rng()).unwrap();
        let analysis = &analyses[0];
        let visits: u32 = analysis.visit_counts.iter().sum();
        assert!((49..=51).contains(&visits), "{visits}");
        assert!((analysis.policy.iter().sum::<f32>() - 1.0).abs() < 1e-4);
        assert_eq!(analysis.actions.len(), 7);
        assert_eq!(analysis.principal_variation.first(), Some(&analysis.best));
    }
}

#[test]
fn a_win_in_one_is_found_and_proven() {
    let game = ConnectFour::new();
    let position = game.replay(&[3, 0, 3, 0, 3, 0].map(Action)).unwrap();
    let mut evaluator = Hashing::new(game.spec().observation, 3);
    let analyses = analyse(&game, &[position], &settings(50), &mut evaluator, &mut rng()).unwrap();
    assert_eq!((analyses[0].best, analyses[0].proven), (Action(3), Proven::Win));
}

/// Sequential halving looks at all seven columns, of which one wins: the mean over its visits stays far from a win.
#[test]
fn the_value_is_that_of_the_search_policy_and_not_of_the_actions_it_rejects() {
    let game = ConnectFour::new();
    let position = game.replay(&[3, 0, 3, 0, 3, 0].map(Action)).unwrap();
    let mut evaluator = Uniform::new(game.spec().observation);
    // Without proofs, which would say more than any mean.
    let search = SearchSettings { root: RootPolicy::GUMBEL, solver: Solver::Off, ..SearchSettings::default() };
    let settings = AnalysisSettings { search, ..settings(16) };
    let analysis = analyse(&game, &[position], &settings, &mut evaluator, &mut rng()).unwrap().remove(0);
    let visits = analysis.visit_counts.iter().map(|&visits| visits as f32);
    let visited: f32 = visits.clone().zip(&analysis.action_values).map(|(visits, value)| visits * value).sum();
    let mean = visited / visits.sum::<f32>();
    assert_eq!(analysis.best, Action(3));
    assert!(analysis.value > 0.99, "{analysis:?}");
    assert!(mean < 0.8, "the mean over the visits is {mean}: {analysis:?}");
}

#[test]
fn a_position_whose_every_action_loses_is_worth_a_loss() {
    let game = ConnectFour::new();
    // Three in the bottom row with room on both sides: whatever is answered, the fourth comes.
    let position = game.replay(&[2, 2, 3, 3, 4].map(Action)).unwrap();
    let mut evaluator = Uniform::new(game.spec().observation);
    for root in [RootPolicy::Puct, RootPolicy::GUMBEL] {
        let settings =
            AnalysisSettings { search: SearchSettings { root, ..SearchSettings::default() }, ..settings(200) };
        let analysis = analyse(&game, std::slice::from_ref(&position), &settings, &mut evaluator, &mut rng());
        let analysis = analysis.unwrap().remove(0);
        assert_eq!(analysis.proven, Proven::Loss);
        assert!((analysis.value + 1.0).abs() < 1e-6, "{analysis:?}");
    }
}

#[test]
fn no_positions_have_no_analyses() {
    let game = TicTacToe::new();
    let mut evaluator = Uniform::new(game.spec().observation);
    assert!(analyse(&game, &[], &settings(10), &mut evaluator, &mut rng()).unwrap().is_empty());
}

#[test]
fn a_failing_evaluator_is_reported() {
    let game = TicTacToe::new();
    let mut evaluator = Faulty::new(game.spec().observation, Fault::Backend, 3);
    assert!(analyse(&game, &[game.start()], &settings(100), &mut evaluator, &mut rng()).is_err());
}
