pub(crate) mod chain;
mod chance;
mod outside;

use std::collections::HashSet;

use evaluator_doubles::{Calls, Fault, FaultyModel, RulesModel, Scripted, Uniform};
use experience::{Limits, StepKind, Trajectory, TrajectoryId};
use game::{Action, Game, Outcome};
use games::{ConnectFour, TicTacToe};
use inference::{Attributes, Batch, Evaluator, Hashing, LatentModel, Predictions, Wdl};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use search::SearchAlgorithm;

use super::*;
use crate::settings::{Openings, Settings, Temperature, TemperatureDecay};
use crate::{AnalysisSettings, FinishedEpisode, Round};
use chain::{Chain, GO, Position, STAY};

fn settings() -> Settings {
    Settings {
        games: 8,
        full_simulations: 24,
        fast_simulations: 8,
        full_search_probability: 0.5,
        ..Settings::default()
    }
}

fn gumbel(settings: Settings) -> Settings {
    Settings { search: SearchSettings { algorithm: SearchAlgorithm::GUMBEL_NORMALISED, ..settings.search }, ..settings }
}

fn analysis(simulations: u32, algorithm: SearchAlgorithm, leaves_per_tree: usize) -> AnalysisSettings {
    let search = SearchSettings { algorithm, ..SearchSettings::default() };
    AnalysisSettings { simulations, search, leaves_per_tree, batch: 64, discount: 1.0 }
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

/// Returns an exact model of tic-tac-toe with a pseudo-random network.
fn tic_tac_toe(seed: u64) -> RulesModel<TicTacToe, Hashing> {
    let game = TicTacToe::new();
    let hashing = Hashing::new(game.spec().observation, seed);
    RulesModel::of_all(game, hashing, [0])
}

/// Returns a model of the chain environment with the value `value` in every state.
fn chain_model(game: &Chain, version: u64, value: f32) -> RulesModel<Chain, impl Evaluator + use<>> {
    RulesModel::of_all(game.clone(), valued(game, version, value), 0..20)
}

fn valued(game: &Chain, version: u64, value: f32) -> impl Evaluator + use<> {
    Scripted::new(game.spec().observation, version, move |_, legal, priors| {
        priors.fill(1.0 / legal.len() as f32);
        Wdl { win: 0.5 + 0.5 * value, draw: 0.0, loss: 0.5 - 0.5 * value }
    })
}

/// Plays until every slot has finished `per_slot` episodes. Returns the first `per_slot` episodes of each slot, in
/// order.
fn play(
    mut episodes: LatentEpisodes,
    model: &mut dyn LatentModel,
    per_slot: u64,
) -> (Vec<FinishedEpisode>, Round, usize) {
    let (mut finished, mut sum, mut failures) = (Vec::new(), Round::default(), 0);
    let wanted = episodes.slots() * usize::try_from(per_slot).unwrap();
    while finished.len() < wanted {
        match episodes.advance(model) {
            Ok(round) => sum += round,
            Err(_) => failures += 1,
        }
        finished.extend(episodes.drain_finished().filter(|episode| episode.number < per_slot));
    }
    finished.sort_by_key(|episode| (episode.slot, episode.number));
    (finished, sum, failures)
}

fn advance(episodes: &mut LatentEpisodes, model: &mut dyn LatentModel, rounds: usize) {
    for _ in 0..rounds {
        episodes.advance(model).unwrap();
    }
}

fn play_tic_tac_toe(settings: Settings, model: &mut dyn LatentModel, per_slot: u64) -> Vec<FinishedEpisode> {
    play(LatentEpisodes::new(TicTacToe::new(), settings, 1.0, 5), model, per_slot).0
}

fn actions(episode: &FinishedEpisode) -> Vec<Action> {
    episode.steps.iter().map(|step| step.action).collect()
}

/// With so few simulations, searches from these positions reach no full column and no end of a game, which a learned
/// model would treat differently.
#[test]
fn search_in_an_exact_model_visits_what_search_by_the_rules_visits() {
    let game = ConnectFour::new();
    let position = |actions: &[u16]| game.replay(&actions.iter().copied().map(Action).collect::<Vec<_>>()).unwrap();
    let positions = [position(&[]), position(&[3]), position(&[0, 6, 1])];
    for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL_NORMALISED] {
        for leaves in [1, 3] {
            let settings = analysis(30, algorithm, leaves);
            let mut by_rules = settings.clone();
            by_rules.search = search_settings(&by_rules.search);
            let mut hashing = Hashing::new(game.spec().observation, 3);
            let expected = crate::analyse(&game, &positions, &by_rules, &mut hashing, &mut rng()).unwrap();
            let mut model = RulesModel::new(game.clone(), hashing, positions);
            let found = analyse(&game, &positions, &settings, &mut model, &mut rng()).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.visit_counts, expected.visit_counts);
                assert_eq!((found.best, &found.principal_variation), (expected.best, &expected.principal_variation));
                assert!((found.value - expected.value).abs() < 1e-5, "{} {}", found.value, expected.value);
            }
        }
    }
}

/// No tic-tac-toe game ends before the fifth ply, and with equal values no action with prior 0 is visited.
#[test]
fn search_in_an_exact_model_of_tic_tac_toe_visits_what_search_by_the_rules_visits() {
    let game = TicTacToe::new();
    let settings = analysis(40, SearchAlgorithm::Puct, 1);
    let mut uniform = Uniform::new(game.spec().observation);
    let expected = crate::analyse(&game, &[game.start()], &settings, &mut uniform, &mut rng()).unwrap();
    let mut model = RulesModel::new(game.clone(), uniform, [game.start()]);
    let found = analyse(&game, &[game.start()], &settings, &mut model, &mut rng()).unwrap();
    assert_eq!(found[0].visit_counts, expected[0].visit_counts);
    assert_eq!(model.calls, Calls { initial: 1, recurrent: 40 });
}

#[test]
fn search_in_an_exact_model_takes_a_win_and_stops_one() {
    let game = TicTacToe::new();
    let position = |actions: &[u16]| game.replay(&actions.iter().copied().map(Action).collect::<Vec<_>>()).unwrap();
    // The first player holds 0 and 1; in the second position the second player is to move.
    let positions = [position(&[0, 3, 1, 4]), position(&[0, 3, 1])];
    for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL_NORMALISED] {
        let mut model = RulesModel::of_all(game.clone(), Uniform::new(game.spec().observation), [0]);
        let settings = analysis(200, algorithm, 1);
        let found = analyse(&game, &positions, &settings, &mut model, &mut rng()).unwrap();
        assert_eq!([found[0].best, found[1].best], [Action(2), Action(2)], "{found:?}");
        assert!(found[0].value > 0.5, "{}", found[0].value);
    }
}

/// With a discount of 0.5, staying in a state forever pays 0.1 or nothing. Going pays 1 from the last state, 0.5 from
/// the second state and 0.25 from the first state. Gumbel improves a policy with little exploration, so it is tested
/// without rewards for staying.
#[test]
fn search_solves_a_chain_of_three_states() {
    let positions = [0, 1, 2].map(|state| Position { state, ply: 0 });
    for (algorithm, stay) in [(SearchAlgorithm::Puct, 0.05), (SearchAlgorithm::GUMBEL_NORMALISED, 0.0)] {
        let game = Chain::new(3, stay, 12);
        let settings = AnalysisSettings { discount: 0.5, ..analysis(1000, algorithm, 1) };
        let found = analyse(&game, &positions, &settings, &mut chain_model(&game, 1, 0.0), &mut rng()).unwrap();
        assert_eq!(found.iter().map(|found| found.best).collect::<Vec<_>>(), [GO; 3], "{found:?}");
        assert_eq!(found[2].action_values[GO.index()], 1.0);
    }
    let game = Chain::new(3, 0.0, 12);
    let greedy = Temperature { early: 0.0, late: 0.0, decay: TemperatureDecay::Cut { plies: 0 } };
    let settings =
        Settings { full_search_probability: 0.0, fast_simulations: 100, temperature: greedy, ..gumbel(settings()) };
    let episodes = LatentEpisodes::new(game.clone(), settings, 0.5, 5);
    let (finished, ..) = play(episodes, &mut chain_model(&game, 1, 0.0), 2);
    assert!(finished.iter().all(|episode| actions(episode).iter().all(|&action| action == GO)), "{finished:?}");
}

#[test]
fn episodes_are_recomputed_from_their_seeds_and_actions() {
    let game = Chain::new(3, 0.1, 12);
    let episodes = LatentEpisodes::new(game.clone(), settings(), 0.9, 5);
    let (finished, ..) = play(episodes, &mut chain_model(&game, 1, 0.25), 4);
    for episode in &finished {
        let mut position = game.start_from(episode.facts.seed);
        for step in &episode.steps {
            assert_eq!(game.outcome(&position), None);
            assert_eq!(game.play(&mut position, step.action), step.reward);
        }
        assert_eq!(game.outcome(&position), Some(episode.facts.outcome));
    }
    let starts: HashSet<u16> = finished.iter().map(|episode| game.start_from(episode.facts.seed).state).collect();
    assert_eq!(starts.len(), 3, "the seeds of the episodes differ");
    let games = play_tic_tac_toe(settings(), &mut tic_tac_toe(3), 2);
    assert!(games.iter().all(|episode| episode.facts.seed == 0), "a game without randomness has the seed 0");
}

#[test]
fn trajectories_of_games_replay_to_their_recorded_outcome() {
    let game = TicTacToe::new();
    let openings = Openings { probability: 0.5, random_plies_max: 3, ..Openings::default() };
    for settings in [settings(), gumbel(Settings { openings, leaves_per_tree: 3, ..settings() })] {
        for episode in play_tic_tac_toe(settings, &mut tic_tac_toe(3), 3) {
            assert_eq!(game.outcome(&game.replay(&actions(&episode)).unwrap()), Some(episode.facts.outcome));
            let id = TrajectoryId { actor: 0, epoch: 0, sequence: 0 };
            let trajectory = episode.trajectory(id, "tic_tac_toe").unwrap();
            let limits = Limits { steps_max: 9, actions: 9 };
            let trajectory = Trajectory::parse(id, trajectory.columns(), limits).unwrap();
            assert_eq!(trajectory.positions().len(), 0, "a learned model knows no positions");
            assert_eq!(trajectory.surprises().len(), trajectory.full_steps());
        }
    }
}

#[test]
fn seeds_fix_all_games_whatever_their_number_and_the_size_of_batches() {
    /// An evaluator with a small batch limit.
    struct Tiny(Hashing);
    impl Evaluator for Tiny {
        fn attributes(&self) -> Attributes {
            Attributes { max_batch: 3, preferred_batch: 3, ..self.0.attributes() }
        }
        fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
            self.0.evaluate(batch, predictions)
        }
    }
    let game = TicTacToe::new();
    let mut tiny = RulesModel::of_all(game.clone(), Tiny(Hashing::new(game.spec().observation, 3)), [0]);
    for settings in [settings(), gumbel(settings())] {
        let all = play_tic_tac_toe(settings.clone(), &mut tic_tac_toe(3), 2);
        assert_eq!(all, play_tic_tac_toe(settings.clone(), &mut tic_tac_toe(3), 2));
        assert_eq!(all, play_tic_tac_toe(settings.clone(), &mut tiny, 2));
        let few = play_tic_tac_toe(Settings { games: 2, ..settings.clone() }, &mut tic_tac_toe(3), 2);
        assert_eq!(few[..], all[..few.len()]);
        assert_ne!(all, play_tic_tac_toe(settings, &mut tic_tac_toe(4), 2));
    }
}

#[test]
fn all_games_share_one_batch_of_observations_and_one_of_steps() {
    let settings = Settings { leaves_per_tree: 2, full_search_probability: 1.0, ..settings() };
    let mut episodes = LatentEpisodes::new(TicTacToe::new(), settings, 1.0, 5);
    let mut model = tic_tac_toe(3);
    let mut sum = Round::default();
    for round in 0..14 {
        let before = model.calls;
        let this = episodes.advance(&mut model).unwrap();
        let roots = round == 0 || round == 13;
        let (initial, recurrent) = (model.calls.initial - before.initial, model.calls.recurrent - before.recurrent);
        assert_eq!((initial, recurrent), (usize::from(roots), usize::from(!roots)), "round {round}");
        assert_eq!(this.batch, if roots { 8 } else { 16 }, "round {round}");
        sum += this;
    }
    assert_eq!((sum.moves, sum.simulations, sum.batches), (8, 8 * 24, 14));
    assert_eq!((sum.evaluated, episodes.under_way()), (8 * 24 + 16, 8));
}

#[test]
fn a_model_that_fails_in_between_changes_no_episode() {
    let expected = play_tic_tac_toe(settings(), &mut tic_tac_toe(3), 2);
    for (fault, good_calls) in [(Fault::Backend, 6), (Fault::NotFinite, 1)] {
        let mut model = FaultyModel::new(tic_tac_toe(3), fault, good_calls);
        let episodes = LatentEpisodes::new(TicTacToe::new(), settings(), 1.0, 5);
        let (finished, _, failures) = play(episodes, &mut model, 2);
        assert!(failures > 10, "{failures}");
        assert_eq!(finished, expected);
    }
    let game = Chain::new(3, 0.5, 5);
    let run = |good_calls| {
        let mut model = FaultyModel::new(chain_model(&game, 1, 0.25), Fault::Backend, good_calls);
        play(LatentEpisodes::new(game.clone(), settings(), 0.99, 5), &mut model, 3).0
    };
    assert_eq!(run(2), run(usize::MAX - 1), "the value of a truncated episode is requested again");
}

#[test]
fn episodes_finished_in_failed_rounds_are_counted() {
    let mut model = FaultyModel::new(tic_tac_toe(3), Fault::Backend, 2);
    let mut episodes = LatentEpisodes::new(TicTacToe::new(), settings(), 1.0, 5);
    let (mut sum, mut failures, mut finished) = (Round::default(), 0, 0);
    for call in 1..1500 {
        let how = if call % 10 == 0 { LatentEpisodes::settle } else { LatentEpisodes::advance };
        let round = how(&mut episodes, &mut model);
        finished += episodes.drain_finished().count();
        failures += usize::from(round.is_err());
        if let Ok(round) = round {
            sum += round;
            assert_eq!(sum.episodes_finished, finished, "after {failures} failures in {call} calls");
        }
    }
    assert!(finished > 20 && failures > 200, "{finished} episodes, {failures} failures");
}

/// Staying pays more than going, so that many episodes are truncated.
#[test]
fn a_truncated_episode_has_the_value_of_its_last_observation() {
    let game = Chain::new(3, 0.5, 5);
    let mut model = RulesModel::of_all(
        game.clone(),
        Scripted::new(game.spec().observation, 1, |observation, legal, priors| {
            priors.fill(1.0 / legal.len() as f32);
            let win = 0.5 + 0.25 * observation[0] + 0.125 * observation[1];
            Wdl { win, draw: 0.0, loss: 1.0 - win }
        }),
        0..20,
    );
    let (finished, ..) = play(LatentEpisodes::new(game.clone(), settings(), 0.99, 5), &mut model, 8);
    let (mut truncated, mut observation) = (0, [0.0; 2]);
    for episode in finished {
        let last = game.replay_from(episode.facts.seed, &actions(&episode)).unwrap();
        game.observe(&last, &mut observation);
        let expected = match episode.facts.outcome {
            Outcome::Truncated => 0.5 * observation[0] + 0.25 * observation[1],
            _ => 0.0,
        };
        assert!((episode.facts.truncation_value - expected).abs() < 1e-6, "{episode:?}");
        truncated += usize::from(episode.facts.outcome == Outcome::Truncated);
        assert!(episode.facts.outcome != Outcome::Truncated || episode.steps.len() == 5);
    }
    assert!(truncated > 10, "{truncated} of 64");
}

/// The value of a step is the expected return. Without rewards and discount, it equals the value of the states.
///
/// The model panics on a step from a state computed by an earlier version.
#[test]
fn new_weights_restart_the_searches_and_steps_are_stamped_with_theirs() {
    let game = Chain::new(100, 0.0, 60);
    let mut model = RulesModel::of_all(game.clone(), valued(&game, 0, 0.0), 0..20);
    let mut episodes = LatentEpisodes::new(game.clone(), settings(), 1.0, 5);
    let mut versions = HashSet::new();
    for version in 1..=64 {
        model.replace(valued(&game, version, version as f32 / 128.0));
        advance(&mut episodes, &mut model, 33);
        if version % 2 == 0 {
            episodes.settle(&mut model).unwrap();
        }
        for episode in episodes.drain_finished() {
            // Later searches reach the end of the episode.
            for step in &episode.steps[..30] {
                let value = step.kind.value().unwrap();
                assert!((value - step.weights_version.0 as f32 / 128.0).abs() < 1e-5, "{value} of {step:?}");
                versions.insert(step.weights_version.0);
            }
        }
    }
    assert!(versions.len() > 20, "{versions:?}");
}

#[test]
fn a_new_model_of_the_same_weights_restarts_searches_when_asked_to() {
    let mut episodes = LatentEpisodes::new(TicTacToe::new(), settings(), 1.0, 5);
    for _ in 0..10 {
        // A new model panics on a step from a state computed by another model.
        let mut model = tic_tac_toe(3);
        advance(&mut episodes, &mut model, 5);
        episodes.restart();
    }
}

#[test]
fn settling_ends_every_search_and_begins_none() {
    let mut model = tic_tac_toe(3);
    let mut episodes = LatentEpisodes::new(TicTacToe::new(), settings(), 1.0, 5);
    advance(&mut episodes, &mut model, 10);
    assert!(episodes.settle(&mut model).unwrap().moves <= 8);
    assert_eq!(episodes.settle(&mut model).unwrap(), Round::default());
}

#[test]
fn full_searches_make_the_number_of_simulations_set_last_even_beyond_the_settings() {
    let mut model = tic_tac_toe(3);
    let settings = Settings { full_simulations: 8, fast_simulations: 1, full_search_probability: 1.0, ..settings() };
    let mut episodes = LatentEpisodes::new(TicTacToe::new(), settings, 1.0, 5);
    for simulations in [8, 48, 16] {
        advance(&mut episodes, &mut model, 5);
        episodes.search_fully_with(simulations);
        // Running searches keep the number of simulations from the start.
        episodes.settle(&mut model).unwrap();
        let mut sum = Round::default();
        (0..200).for_each(|_| sum += episodes.advance(&mut model).unwrap());
        sum += episodes.settle(&mut model).unwrap();
        assert_eq!(sum.simulations, sum.moves * simulations as usize);
        assert!(sum.moves > 0);
    }
}

#[test]
fn a_search_too_large_for_any_pool_is_an_error() {
    let settings = Settings { games: 2, fast_simulations: u32::MAX, ..settings() };
    let mut episodes = LatentEpisodes::new(TicTacToe::new(), settings, 1.0, 5);
    let error = episodes.advance(&mut tic_tac_toe(3)).unwrap_err();
    assert!(error.to_string().contains("do not fit in a pool"), "{error}");
}

#[test]
fn an_analysis_without_simulations_is_that_of_the_network() {
    let game = TicTacToe::new();
    let settings = analysis(0, SearchAlgorithm::GUMBEL_NORMALISED, 1);
    let found = analyse(&game, &[game.start()], &settings, &mut tic_tac_toe(3), &mut rng()).unwrap();
    assert_eq!((&found[0].policy, found[0].value), (&found[0].priors, found[0].network_value));
}

#[test]
fn full_searches_record_policies_on_legal_actions_and_waiting_is_chosen_where_it_pays() {
    let game = Chain::new(3, 0.5, 5);
    let settings = Settings { full_search_probability: 1.0, full_simulations: 64, ..gumbel(settings()) };
    let (finished, ..) = play(LatentEpisodes::new(game.clone(), settings, 0.99, 5), &mut chain_model(&game, 1, 0.0), 2);
    let stays = |kind: &StepKind| {
        let policy = kind.policy();
        assert!(!policy.is_empty() && policy.iter().all(|entry| entry.action.index() < 2));
        policy.iter().filter(|entry| entry.action == STAY).map(|entry| entry.probability).sum::<f32>()
    };
    assert!(finished.iter().all(|episode| stays(&episode.steps[0].kind) > 0.9), "{finished:?}");
}
