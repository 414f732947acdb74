//! Tests self-play and analyses by the rules in games scored by rewards.

use std::collections::BTreeMap;

use evaluator_doubles::{RulesModel, ScriptedReturns};
use experience::Step;
use game::Outcome;
use games::catch::Catch;
use games::market_making::MarketMaking;
use inference::{Attributes, Batch, Cache, Predictions};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::latent::tests::chain::{Chain, GO, Position, STAY};
use crate::{Analysis, AnalysisSettings, SearchSettings};

const ALGORITHMS: [SearchAlgorithm; 2] = [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL_NORMALISED];

fn of<G: Game, F: FnMut(&[f32]) -> f32 + Send>(game: &G, answer: F) -> ScriptedReturns<F> {
    ScriptedReturns::new(game.spec().observation, 1, answer)
}

/// Returns a predicted return that differs between observations.
fn told(observation: &[f32]) -> f32 {
    observation.iter().enumerate().map(|(i, x)| (i as f32 + 1.0) * x).sum()
}

fn observed<G: Game>(game: &G, position: &G::Position) -> Vec<f32> {
    let mut planes = vec![0.0; game.spec().observation.len()];
    game.observe(position, &mut planes);
    planes
}

fn analysis(simulations: u32, algorithm: SearchAlgorithm, discount: f32) -> AnalysisSettings {
    let search = SearchSettings { algorithm, ..SearchSettings::default() };
    AnalysisSettings { simulations, search, leaves_per_tree: 1, batch: 64, discount }
}

fn analysed<G: Game>(
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    evaluator: &mut dyn Evaluator,
) -> Vec<Analysis> {
    crate::analyse(game, positions, settings, evaluator, &mut ChaCha8Rng::seed_from_u64(7)).unwrap()
}

fn of_chain() -> Settings {
    Settings { full_simulations: 12, fast_simulations: 6, ..settings() }
}

/// Plays until every slot has finished `per_slot` episodes, and ignores evaluator errors.
fn play_on<G: Game>(
    game: &G,
    settings: &Settings,
    discount: f32,
    evaluator: &mut dyn Evaluator,
    per_slot: u64,
) -> Vec<FinishedEpisode> {
    let mut episodes = Episodes::new(game.clone(), settings.clone(), discount, 5);
    let mut finished: Vec<FinishedEpisode> = Vec::new();
    let wanted = settings.games * usize::try_from(per_slot).unwrap();
    let mut rounds = 0;
    while finished.len() < wanted {
        let _ = episodes.advance(evaluator, None);
        finished.extend(episodes.drain_finished().filter(|episode| episode.number < per_slot));
        rounds += 1;
        assert!(rounds < 1_000_000, "the episodes end");
    }
    finished.sort_by_key(|episode| (episode.slot, episode.number));
    finished
}

/// Checks the recorded rewards and the end of an episode against the rules. Returns the last position.
fn replayed<G: Game>(game: &G, episode: &FinishedEpisode) -> G::Position {
    let mut position = game.start_from(episode.facts.seed);
    for Step { action, reward, .. } in &episode.steps {
        assert_eq!(game.play(&mut position, *action), *reward);
    }
    assert_eq!(game.outcome(&position), Some(episode.facts.outcome));
    position
}

#[test]
fn in_a_tree_a_truncated_leaf_is_worth_what_the_network_expects_and_a_terminal_one_nothing() {
    // One step is left: `STAY` reaches the step limit with a reward of 0.25, and `GO` ends the episode with a reward of
    // 1.
    let game = Chain::new(2, 0.25, 2);
    let last = Position { state: 1, ply: 1 };
    for algorithm in ALGORITHMS {
        let settings = analysis(50, algorithm, 0.5);
        let found = analysed(&game, &[last], &settings, &mut of(&game, |_| 8.0)).remove(0);
        assert_eq!((&found.action_values, found.best), (&vec![0.25 + 0.5 * 8.0, 1.0], STAY), "{found:?}");
        let found = analysed(&game, &[last], &settings, &mut of(&game, |_| -8.0)).remove(0);
        assert_eq!((&found.action_values, found.best), (&vec![0.25 - 0.5 * 8.0, 1.0], GO), "{found:?}");
    }
}

/// With a discount of 0.5, staying forever pays 0.1 or nothing. Going pays 1 from the last state, 0.5 from the second
/// state and 0.25 from the first state.
#[test]
fn search_by_the_rules_solves_a_discounted_chain_of_three_states() {
    let positions = [0, 1, 2].map(|state| Position { state, ply: 0 });
    for (algorithm, stay) in [(SearchAlgorithm::Puct, 0.05), (SearchAlgorithm::GUMBEL_NORMALISED, 0.0)] {
        let game = Chain::new(3, stay, 12);
        let found = analysed(&game, &positions, &analysis(1000, algorithm, 0.5), &mut of(&game, |_| 0.0));
        assert_eq!(found.iter().map(|found| found.best).collect::<Vec<_>>(), [GO; 3], "{found:?}");
        assert_eq!(found[2].action_values[GO.index()], 1.0);
    }
}

/// The searches run only 16 simulations, too few to reach the end of an episode.
#[test]
fn search_by_the_rules_visits_what_search_in_an_exact_model_visits() {
    let game = Chain::new(20, 0.3, 60);
    let positions = [0, 1, 2].map(|state| Position { state, ply: 0 });
    for algorithm in ALGORITHMS {
        let settings = analysis(16, algorithm, 0.9);
        let by_rules = analysed(&game, &positions, &settings, &mut of(&game, told));
        let mut model = RulesModel::of_all(game.clone(), of(&game, told), 0..20);
        let rng = &mut ChaCha8Rng::seed_from_u64(7);
        let learned = crate::latent::analyse(&game, &positions, &settings, &mut model, rng).unwrap();
        for (by_rules, learned) in by_rules.iter().zip(&learned) {
            assert_eq!(by_rules.visit_counts, learned.visit_counts, "{algorithm:?}");
            assert!((by_rules.value - learned.value).abs() < 1e-5, "{} {}", by_rules.value, learned.value);
        }
    }
}

/// Returns the return of optimal play in Catch, by brute force.
fn best_return(game: &Catch, position: <Catch as Game>::Position, discount: f32) -> f32 {
    if game.outcome(&position).is_some() {
        return 0.0;
    }
    let after = |action| {
        let mut next = position;
        let reward = game.play(&mut next, Action(action));
        reward + discount * best_return(game, next, discount)
    };
    (0..3).map(after).fold(f32::NEG_INFINITY, f32::max)
}

/// Returns the same return by a formula: the ball falls one row in each step, and the paddle in the last row follows.
fn perfect(observation: &[f32], discount: f32) -> f32 {
    let marked: Vec<usize> = (0..observation.len()).filter(|&cell| observation[cell] > 0.0).collect();
    let (ball, paddle) = (marked[0], *marked.last().unwrap());
    let left = 9 - ball / 5;
    let reward = if (ball % 5).abs_diff(paddle % 5) <= left { 1.0 } else { -1.0 };
    reward * discount.powi(i32::try_from(left).unwrap() - 1)
}

#[test]
fn with_perfect_values_search_plays_catch_as_brute_force_does_from_every_start() {
    let (game, discount) = (Catch::new(), 0.9);
    let starts: BTreeMap<u8, _> =
        (0..100).map(|seed| game.start_from(seed)).map(|start| (start.coordinates()[1], start)).collect();
    assert_eq!(starts.len(), 5);
    for algorithm in ALGORITHMS {
        for &start in starts.values() {
            let mut position = start;
            while game.outcome(&position).is_none() {
                let exact = best_return(&game, position, discount);
                let formula = perfect(&observed(&game, &position), discount);
                assert!((formula - exact).abs() < 1e-6, "{formula} and not {exact}");
                let mut evaluator = of(&game, |observation: &[f32]| perfect(observation, discount));
                let settings = analysis(24, algorithm, discount);
                let found = analysed(&game, &[position], &settings, &mut evaluator).remove(0);
                let mut next = position;
                let kept = game.play(&mut next, found.best) + discount * best_return(&game, next, discount);
                assert!((kept - exact).abs() < 1e-6, "{algorithm:?} at {position:?}: {found:?}");
                // Visits of worse actions below the best one pull the mean down.
                let best = found.actions.iter().position(|&action| action == found.best).unwrap();
                assert!(found.action_values[best] <= exact + 1e-6, "{found:?}");
                position = next;
            }
        }
    }
}

#[test]
fn recorded_episodes_have_the_rewards_of_the_rules_and_truncated_ones_the_value_of_their_last_observation() {
    let game = Chain::new(4, 0.25, 6);
    let mut ends = [0, 0];
    for episode in play_on(&game, &of_chain(), 0.9, &mut of(&game, told), 8) {
        let last = observed(&game, &replayed(&game, &episode));
        let is_truncated = episode.facts.outcome == Outcome::Truncated;
        let expected = if is_truncated { told(&last) } else { 0.0 };
        assert_eq!(episode.facts.truncation_value, expected, "{episode:?}");
        ends[usize::from(is_truncated)] += 1;
    }
    assert!(ends.iter().all(|&count| count > 3), "{ends:?}");
}

#[test]
fn episodes_with_chance_replay_to_the_rewards_that_were_recorded() {
    let game = MarketMaking::new();
    let few = Settings { games: 2, full_simulations: 6, fast_simulations: 6, ..settings() };
    for episode in play_on(&game, &few, 1.0, &mut of(&game, |_| 0.0), 1) {
        replayed(&game, &episode);
        assert_eq!((episode.steps.len(), episode.facts.outcome), (200, Outcome::Finished));
    }
}

/// An evaluator that fails in every third batch.
struct Unreliable<E>(E, usize);

impl<E: Evaluator> Evaluator for Unreliable<E> {
    fn attributes(&self) -> Attributes {
        self.0.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(Error::Backend("a fault".to_owned()));
        }
        self.0.evaluate(batch, predictions)
    }
}

#[test]
fn after_an_error_a_truncated_episode_still_gets_the_value_of_its_last_observation() {
    let game = Chain::new(4, 0.25, 6);
    let found = play_on(&game, &of_chain(), 0.9, &mut Unreliable(of(&game, told), 0), 6);
    let truncated: Vec<_> = found.iter().filter(|episode| episode.facts.outcome == Outcome::Truncated).collect();
    assert!(truncated.len() > 3, "{found:?}");
    for episode in truncated {
        assert_eq!(episode.facts.truncation_value, told(&observed(&game, &replayed(&game, episode))));
    }
}

#[test]
fn settling_ends_episodes_that_wait_for_the_value_of_their_last_observation() {
    let game = Chain::new(9, 0.25, 5);
    let mut evaluator = of(&game, told);
    let mut episodes = Episodes::new(game.clone(), of_chain(), 0.9, 5);
    let mut truncated = 0;
    for _ in 0..60 {
        episodes.advance(&mut evaluator, None).unwrap();
        episodes.settle(&mut evaluator, None).unwrap();
        let finished = episodes.drain_finished();
        truncated += finished.filter(|episode| episode.facts.outcome == Outcome::Truncated).count();
    }
    assert!(truncated > 8, "{truncated}");
}

#[test]
fn returns_are_not_cached() {
    let game = Chain::new(4, 0.25, 6);
    let cache = Cache::new(1 << 10);
    let mut episodes = Episodes::new(game.clone(), of_chain(), 0.9, 5);
    let mut sum = Round::default();
    for _ in 0..50 {
        sum += episodes.advance(&mut of(&game, told), Some(cache.of(1))).unwrap();
    }
    assert_eq!((sum.cache_lookups, sum.cache_hits), (0, 0));
    assert!(sum.evaluated > 0);
}
