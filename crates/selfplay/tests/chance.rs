//! Tests searches by the rules in games with known chance probabilities.

use std::ops::ControlFlow;

use evaluator_doubles::Uniform;
use game::{Action, Game};
use games::breakout::{Breakout, StickyActions};
use games::market_making::MarketMaking;
use games::twenty_forty_eight::TwentyFortyEight;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use selfplay::{
    Analysis, AnalysisProgress, AnalysisSettings, GameSearch, Limits, SearchAlgorithm, SearchSettings, analyse,
    analyse_together,
};

fn settings(simulations: u32, leaves_per_tree: usize) -> AnalysisSettings {
    AnalysisSettings { simulations, search: SearchSettings::default(), leaves_per_tree, batch: 64, discount: 1.0 }
}

fn analysed<G: Game>(game: &G, position: &G::Position, settings: &AnalysisSettings) -> Analysis {
    let mut evaluator = Uniform::new(game.spec().observation);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    analyse(game, std::slice::from_ref(position), settings, &mut evaluator, &mut rng)
        .expect("the evaluator never fails")
        .remove(0)
}

/// Returns the expected reward of an action under the chance probabilities.
fn expected_reward<G: Game>(game: &G, position: &G::Position, action: Action) -> f64 {
    let mut chances = Vec::new();
    game.chances(position, action, &mut chances);
    let term = |chance: &game::Chance| {
        let reward = game.play_chance(&mut position.clone(), action, chance.outcome);
        f64::from(chance.probability) * f64::from(reward)
    };
    chances.iter().map(term).sum()
}

#[test]
fn in_the_last_step_of_market_making_actions_are_worth_their_expected_rewards() {
    let game = MarketMaking::new();
    let mut position = game.start_from(3);
    for step in 1..game.spec().max_plies {
        game.play(&mut position, Action((step % 25) as u16));
    }
    assert!(game.outcome(&position).is_none());
    for leaves in [1, 8] {
        let analysis = analysed(&game, &position, &settings(20_000, leaves));
        for ((&action, value), &visits) in
            analysis.actions.iter().zip(&analysis.action_values).zip(&analysis.visit_counts)
        {
            let expected = expected_reward(&game, &position, action);
            // Each of eight counts deviates by up to 1.5 from the expectation; rewards are below 30.
            let tolerance = (8.0 * 1.5 * 30.0 / f64::from(visits.max(1))).max(1e-4);
            assert!((f64::from(*value) - expected).abs() < tolerance, "{action}: {value}, exactly {expected}");
        }
        let best = |a: &&Action, b: &&Action| {
            expected_reward(&game, &position, **a).total_cmp(&expected_reward(&game, &position, **b))
        };
        let exact = analysis.actions.iter().max_by(best).unwrap();
        let lost = expected_reward(&game, &position, *exact) - expected_reward(&game, &position, analysis.best);
        assert!(lost < 0.05, "{} instead of {exact} loses {lost}", analysis.best);
    }
}

/// Returns the expected discounted return of an action under optimal later play, by expectimax.
fn action_value<G: Game>(game: &G, position: &G::Position, action: Action, discount: f64) -> f64 {
    let mut chances = Vec::new();
    game.chances(position, action, &mut chances);
    let term = |chance: &game::Chance| {
        let mut next = position.clone();
        let reward = game.play_chance(&mut next, action, chance.outcome);
        f64::from(chance.probability) * (f64::from(reward) + discount * state_value(game, &next, discount))
    };
    chances.iter().map(term).sum()
}

fn state_value<G: Game>(game: &G, position: &G::Position, discount: f64) -> f64 {
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    let best = legal.iter().map(|&action| action_value(game, position, action, discount)).reduce(f64::max);
    best.unwrap_or(0.0)
}

#[test]
fn two_steps_before_the_end_of_market_making_the_best_action_is_that_of_a_discounted_expectimax() {
    let game = MarketMaking::new();
    let mut position = game.start_from(3);
    for step in 2..game.spec().max_plies {
        game.play(&mut position, Action((step % 25) as u16));
    }
    for discount in [1.0, 0.5] {
        let analysis = analysed(&game, &position, &AnalysisSettings { discount, ..settings(20_000, 1) });
        let exact = state_value(&game, &position, f64::from(discount));
        let found = action_value(&game, &position, analysis.best, f64::from(discount));
        assert!(exact - found < 0.1, "{} is worth {found} of {exact}: {analysis:?}", analysis.best);
    }
}

/// Checks that positions with different future chance outcomes but equal observations have equal analyses.
fn check_foresight<G: Game>(game: &G) {
    let seen = |position: &G::Position| {
        let mut planes = vec![0.0; game.spec().observation.len()];
        game.observe(position, &mut planes);
        planes
    };
    let first = game.start_from(0);
    let twins: Vec<_> =
        (1..20_000).map(|seed| game.start_from(seed)).filter(|other| seen(other) == seen(&first)).take(3).collect();
    assert_eq!(twins.len(), 3, "{}", game.spec().name);
    for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL] {
        let search = SearchSettings { algorithm, ..SearchSettings::default() };
        let settings = AnalysisSettings { search, ..settings(300, 2) };
        let expected = analysed(game, &first, &settings);
        assert!(expected.visit_counts.iter().sum::<u32>() >= 300);
        for twin in &twins {
            assert_eq!(analysed(game, twin, &settings), expected, "{} foresees", game.spec().name);
        }
    }
}

#[test]
fn a_search_by_the_rules_does_not_foresee_what_chance_will_do() {
    check_foresight(&TwentyFortyEight::new());
    check_foresight(&MarketMaking::new());
    check_foresight(&Breakout::new(StickyActions::On));
}

#[test]
fn every_driver_of_an_analysis_makes_the_same_search() {
    let game = TwentyFortyEight::new();
    let position = game.start_from(5);
    let settings = settings(200, 1);
    let expected = analysed(&game, &position, &settings);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut evaluators: Vec<Box<dyn inference::Evaluator>> = vec![Box::new(Uniform::new(game.spec().observation))];
    let mut search = GameSearch::new(game.clone(), position, &settings.search);
    let limits = Limits::of_simulations(200, 1);
    search.search(&limits, &mut evaluators, &mut rng, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(search.findings().unwrap().analysis().visit_counts, expected.visit_counts);
    let progress: &mut AnalysisProgress<'_> = &mut |_, _| ControlFlow::Continue(());
    let together = analyse_together(&game, &position, &settings, &mut evaluators, &mut rng, progress).unwrap();
    assert_eq!(together.visit_counts.iter().sum::<u32>(), 200);
    assert!(together.action_values.iter().all(|value| *value >= 0.0), "{together:?}");
}
