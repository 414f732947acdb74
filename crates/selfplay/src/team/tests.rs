use std::sync::{Arc, Barrier};

use games::{ConnectFour, TicTacToe};
use inference::testing::{Fault, Faulty, Hashing};
use inference::{Attributes, Wdl};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use search::{EarlyStop, Proven, RootPolicy, Settings as SearchSettings, Solver};

use super::*;
use crate::analyse;

fn settings(simulations: u32, leaves_per_tree: usize) -> AnalysisSettings {
    AnalysisSettings { simulations, search: SearchSettings::default(), leaves_per_tree, batch: leaves_per_tree }
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

fn hashing(count: usize) -> Vec<Box<dyn Evaluator>> {
    let shape = ConnectFour::new().spec().observation;
    (0..count).map(|_| Box::new(Hashing::new(shape, 3)) as Box<dyn Evaluator>).collect()
}

#[test]
fn one_thread_with_one_leaf_searches_as_the_caller_would() {
    let game = ConnectFour::new();
    for (simulations, root) in [(0, RootPolicy::Puct), (200, RootPolicy::Puct), (200, RootPolicy::GUMBEL)] {
        let settings = AnalysisSettings {
            search: SearchSettings { root, ..SearchSettings::default() },
            ..settings(simulations, 1)
        };
        let together = analyse_together(&game, &game.start(), &settings, &mut hashing(1), &mut rng()).unwrap();
        let alone = analyse(&game, &[game.start()], &settings, &mut *hashing(1)[0], &mut rng()).unwrap();
        assert_eq!(together, alone[0]);
    }
}

#[test]
fn many_threads_make_the_budget_and_the_same_search_every_time() {
    let game = ConnectFour::new();
    for (threads, leaves) in [(2, 1), (3, 4), (8, 8)] {
        for root in [RootPolicy::Puct, RootPolicy::GUMBEL] {
            let search = SearchSettings { root, ..SearchSettings::default() };
            let settings = AnalysisSettings { search, ..settings(300, leaves) };
            let analyse =
                || analyse_together(&game, &game.start(), &settings, &mut hashing(threads), &mut rng()).unwrap();
            let analysis = analyse();
            assert_eq!(analysis.visit_counts.iter().sum::<u32>(), 300);
            for _ in 0..5 {
                assert_eq!(analyse(), analysis);
            }
        }
    }
}

#[test]
fn what_many_threads_prove_is_true() {
    let game = ConnectFour::new();
    let lost = game.replay(&[2, 2, 3, 3, 4].map(Action)).unwrap();
    let won = game.replay(&[3, 0, 3, 0, 3, 0].map(Action)).unwrap();
    for (position, proven) in [(lost, Proven::Loss), (won, Proven::Win)] {
        let analysis = analyse_together(&game, &position, &settings(400, 4), &mut hashing(3), &mut rng()).unwrap();
        assert_eq!(analysis.proven, proven);
    }
}

/// Answers only when as many of its kind are asked at the same time: one after the other they would wait for ever.
struct Meeting {
    meets: Arc<Barrier>,
    evaluator: Hashing,
    /// Batches until it meets the others: the root is evaluated by one alone.
    alone: usize,
}

impl Evaluator for Meeting {
    fn attributes(&self) -> Attributes {
        self.evaluator.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        match self.alone {
            0 => drop(self.meets.wait()),
            _ => self.alone -= 1,
        }
        self.evaluator.evaluate(batch, predictions)
    }
}

#[test]
fn evaluators_are_asked_at_the_same_time() {
    let game = ConnectFour::new();
    let meets = Arc::new(Barrier::new(3));
    let evaluator = |desk| Meeting {
        meets: Arc::clone(&meets),
        evaluator: Hashing::new(game.spec().observation, 3),
        alone: usize::from(desk == 0),
    };
    let mut evaluators: Vec<Box<dyn Evaluator>> = (0..3).map(|desk| Box::new(evaluator(desk)) as _).collect();
    // Three leaves in flight at a time, and three times as many simulations: each of the three is always asked again.
    let search = SearchSettings { solver: Solver::Off, early_stop: EarlyStop::Never, ..SearchSettings::default() };
    let settings = AnalysisSettings { search, ..settings(30, 1) };
    let analysis = analyse_together(&game, &game.start(), &settings, &mut evaluators, &mut rng()).unwrap();
    assert_eq!(analysis.visit_counts.iter().sum::<u32>(), 30);
}

#[test]
fn one_failing_evaluator_of_many_is_reported_and_all_threads_end() {
    let game = TicTacToe::new();
    let shape = game.spec().observation;
    let mut evaluators: Vec<Box<dyn Evaluator>> =
        vec![Box::new(Hashing::new(shape, 3)), Box::new(Faulty::new(shape, Fault::Backend, 3))];
    let error = analyse_together(&game, &game.start(), &settings(100, 2), &mut evaluators, &mut rng()).unwrap_err();
    assert!(matches!(error, Error::Backend(_)), "{error}");
}

#[test]
fn an_even_evaluator_leaves_the_choice_to_the_rules() {
    let game = TicTacToe::new();
    let shape = game.spec().observation;
    let even = |_: &[f32], legal: &[Action], priors: &mut [f32]| {
        priors.fill(1.0 / legal.len() as f32);
        Wdl::EVEN
    };
    let mut evaluators: Vec<Box<dyn Evaluator>> =
        (0..2).map(|_| Box::new(inference::testing::Scripted::new(shape, 1, even)) as _).collect();
    // Two in a row against one: only the third wins.
    let position = game.replay(&[0, 4, 1, 8].map(Action)).unwrap();
    let analysis = analyse_together(&game, &position, &settings(100, 2), &mut evaluators, &mut rng()).unwrap();
    assert_eq!(analysis.best, Action(2));
}
