//! Batched search of many given positions, for play, evaluation and the arena.

use game::{Action, Game};
use inference::{Error, Evaluator};
use rand::Rng;
use search::{Exploration, Proven, Settings as SearchSettings, Tree};

use crate::driver::{ByRules, Driver, SearchRoot};
use crate::leaf_batcher::{BatchContext, Buffers, LeafBatcher, LeafEvaluator, Limits, NetworkLeaves};
use crate::round::Round;
use crate::tree_search::{Trees, settings_by_rules};

/// The result of searching a position. Lists with one element for each action are in the order of `actions`.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// The legal actions, in ascending order.
    pub actions: Vec<Action>,
    /// Completed visits of each action.
    pub visit_counts: Vec<u32>,
    /// The prior of each action from the evaluator.
    pub priors: Vec<f32>,
    /// The search policy; equal to the priors if there were no simulations.
    pub policy: Vec<f32>,
    /// The value of each action for the player to move.
    pub action_values: Vec<f32>,
    /// The expected value of the search policy for the player to move
    /// ([`RootView::value_under`](search::RootView::value_under)); equal to `network_value` if there were no
    /// simulations.
    pub value: f32,
    /// The value of the position from the evaluator, for the player to move.
    pub network_value: f32,
    /// The sequence of best actions of both players according to the search.
    pub principal_variation: Vec<Action>,
    /// The action to play, an element of `actions`.
    pub best: Action,
    /// The proven result of the position, from the view of the player to move.
    pub proven: Proven,
}

/// Settings for the analysis of positions.
#[derive(Debug, Clone, PartialEq)]
pub struct AnalysisSettings {
    /// Simulations for each position. With 0, the position is evaluated but not searched.
    pub simulations: u32,
    /// Settings of each tree search.
    pub search: SearchSettings,
    /// Maximum number of leaves that one search adds to a batch. With 1, the search is exactly sequential.
    pub leaves_per_tree: usize,
    /// Maximum number of positions in a batch. The batch limit of the evaluator also applies.
    pub batch: usize,
    /// The discount γ for each step; 1 in games scored by outcome.
    pub discount: f32,
}

impl AnalysisSettings {
    /// Returns the number of trees that search `positions` positions together.
    pub(crate) fn trees(&self, positions: usize) -> usize {
        (self.batch / self.leaves_per_tree.max(1)).clamp(1, positions.max(1))
    }
}

/// Searches every position without noise and returns the analyses in the same order.
///
/// If the rules [know the chance distribution](Game::knows_chances), the tree has a chance node after each action with
/// several outcomes. Games scored by rewards are searched without the solver and with normalised values. A position
/// where a step limit truncates the episode has the value from the evaluator. In games with chance, prefer pUCT: below
/// the root, Gumbel rarely revisits an action after bad first outcomes.
///
/// # Errors
/// The evaluator fails.
///
/// # Panics
/// If the game is over at a position: there is no action to choose.
pub fn analyse<G: Game>(
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    evaluator: &mut dyn Evaluator,
    rng: &mut impl Rng,
) -> Result<Vec<Analysis>, Error> {
    let mut buffers = Buffers::new(game);
    analyse_by_rules(game, positions, settings, &mut NetworkLeaves::new(evaluator, &mut buffers), rng)
}

/// Runs [`analyse`] with any leaf evaluator.
///
/// # Errors
/// The evaluator fails.
///
/// # Panics
/// If the game is over at a position.
pub(crate) fn analyse_by_rules<G: Game>(
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    leaves: &mut dyn LeafEvaluator<G>,
    rng: &mut impl Rng,
) -> Result<Vec<Analysis>, Error> {
    let context = BatchContext::new(game, settings.discount, leaves);
    let mut batcher = LeafBatcher::new(game);
    let trees = Trees::new(&settings_by_rules(game.spec(), &settings.search), settings.trees(positions.len()));
    analyse_with(&mut ByRules { context, batcher: &mut batcher, leaves }, game, positions, settings, trees, rng)
}

/// Runs [`analyse`] with any driver, in [`AnalysisSettings::trees`] trees.
///
/// # Errors
/// The evaluator or model fails.
///
/// # Panics
/// If the game is over at a position.
pub(crate) fn analyse_with<G: Game, D: Driver<G>>(
    driver: &mut D,
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    mut trees: Trees<D::State>,
    rng: &mut impl Rng,
) -> Result<Vec<Analysis>, Error> {
    for position in positions {
        assert!(game.outcome(position).is_none(), "the game is over at the position, so there is nothing to analyse");
    }
    let limits = Limits { leaves: settings.leaves_per_tree.max(1), completed: usize::MAX };
    let mut analyses: Vec<Option<Analysis>> = vec![None; positions.len()];
    let mut waiting = positions.iter().map(|position| SearchRoot::<G>::Position(position.clone())).enumerate();
    // The position that each tree searches, with the index; `None` if the tree is free.
    let mut current: Vec<Option<(usize, SearchRoot<G>)>> = trees.0.iter().map(|_| waiting.next()).collect();
    while analyses.iter().any(Option::is_none) {
        for (search, current) in trees.0.iter_mut().zip(&mut current) {
            while let Some((index, root)) = current {
                let begin = |tree: &mut Tree<D::State>| tree.begin(settings.simulations, Exploration::Greedy, rng);
                let gathered = driver.gather(root, search, limits, begin);
                if !gathered.is_finished {
                    assert!(gathered.goes_on(), "an unfinished search waits for a batch");
                    break;
                }
                analyses[*index] = Some(analysis_of(&search.tree, settings.simulations));
                *current = waiting.next();
                search.restart();
            }
        }
        driver.resolve(&mut trees, &mut Round::default())?;
    }
    Ok(analyses.into_iter().flatten().collect())
}

/// Returns the analysis of a finished search with `simulations` simulations. With 0, the policy, value and best action
/// come from the evaluation of the root.
pub(crate) fn analysis_of<S>(tree: &Tree<S>, simulations: u32) -> Analysis {
    let analysis = searched(tree);
    if simulations > 0 {
        return analysis;
    }
    let mut best = 0;
    for (i, prior) in analysis.priors.iter().enumerate() {
        if *prior > analysis.priors[best] {
            best = i;
        }
    }
    let best = analysis.actions[best];
    let policy = analysis.priors.clone();
    Analysis { policy, value: analysis.network_value, principal_variation: vec![best], best, ..analysis }
}

/// Returns the analysis of the search so far.
pub(crate) fn searched<S>(tree: &Tree<S>) -> Analysis {
    let root = tree.root();
    let (mut policy, mut principal_variation) = (Vec::new(), Vec::new());
    tree.search_policy(&mut policy);
    tree.principal_variation(&mut principal_variation);
    Analysis {
        actions: root.actions().to_vec(),
        visit_counts: root.visit_counts(),
        priors: root.priors().to_vec(),
        value: root.value_under(&policy),
        policy,
        action_values: root.action_values(),
        network_value: root.network_value(),
        principal_variation,
        best: tree.best_action(),
        proven: root.proven(),
    }
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::{Fault, Faulty, Uniform};
    use games::{ConnectFour, TicTacToe};
    use inference::Hashing;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;
    use search::{SearchAlgorithm, Solver};

    use super::*;

    fn settings(simulations: u32) -> AnalysisSettings {
        AnalysisSettings {
            simulations,
            search: SearchSettings::default(),
            leaves_per_tree: 1,
            batch: 16,
            discount: 1.0,
        }
    }

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1)
    }

    /// Returns the positions before each of the moves of a game.
    fn positions(game: &ConnectFour, moves: &[u16]) -> Vec<<ConnectFour as Game>::Position> {
        let actions: Vec<Action> = moves.iter().map(|&column| Action(column)).collect();
        (0..actions.len()).map(|ply| game.replay(&actions[..ply]).unwrap()).collect()
    }

    const MOVES: [u16; 12] = [3, 3, 2, 4, 4, 3, 3, 2, 5, 1, 0, 6];

    #[test]
    fn an_analysis_without_simulations_is_the_prediction_of_the_evaluator() {
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

    /// Sequential halving visits all seven columns, but only one column wins, so the mean over all visits is far from
    /// 1.
    #[test]
    fn the_value_is_that_of_the_search_policy_and_not_of_the_actions_it_rejects() {
        let game = ConnectFour::new();
        let position = game.replay(&[3, 0, 3, 0, 3, 0].map(Action)).unwrap();
        let mut evaluator = Uniform::new(game.spec().observation);
        // The solver is off, because proven values would be exact where means are not.
        let search =
            SearchSettings { algorithm: SearchAlgorithm::GUMBEL, solver: Solver::Off, ..SearchSettings::default() };
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
        // Three in the bottom row with an empty cell on both sides: no reply prevents the fourth.
        let position = game.replay(&[2, 2, 3, 3, 4].map(Action)).unwrap();
        let mut evaluator = Uniform::new(game.spec().observation);
        for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL] {
            let settings =
                AnalysisSettings { search: SearchSettings { algorithm, ..SearchSettings::default() }, ..settings(200) };
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
}
