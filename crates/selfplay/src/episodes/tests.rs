#[path = "returns_tests.rs"]
mod returns;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use evaluator_doubles::{Fault, Faulty, Scripted, Uniform};
use experience::{Limits, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use games::{ConnectFour, Hex, TicTacToe};
use inference::{Cache, Hashing, Wdl};
use search::{SearchAlgorithm, Settings as SearchSettings};

use super::*;
use crate::episode::Ending;
use crate::images::Images;
use crate::settings::{
    GumbelMoves, Openings, Resignation, Resigned, SubtreeReuse, SymmetryReuse, Temperature, TemperatureDecay,
};

fn settings() -> Settings {
    Settings {
        games: 8,
        full_simulations: 24,
        fast_simulations: 8,
        full_search_probability: 0.5,
        ..Settings::default()
    }
}

fn hashing<G: Game>(game: &G, seed: u64) -> Hashing {
    Hashing::new(game.spec().observation, seed)
}

/// Plays until every slot has finished `per_slot` episodes. Returns the first `per_slot` episodes of each slot, in
/// order.
fn play<G: Game>(
    game: G,
    settings: &Settings,
    evaluator: &mut dyn Evaluator,
    cache: Option<WeightsCache<'_>>,
    per_slot: u64,
) -> (Vec<FinishedEpisode>, Round) {
    let mut episodes = Episodes::new(game, settings.clone(), 1.0, 5);
    let (mut finished, mut sum) = (Vec::new(), Round::default());
    let wanted = settings.games * usize::try_from(per_slot).unwrap();
    while finished.len() < wanted {
        sum += episodes.advance(evaluator, cache).unwrap();
        finished.extend(episodes.drain_finished().filter(|episode| episode.number < per_slot));
    }
    finished.sort_by_key(|episode| (episode.slot, episode.number));
    (finished, sum)
}

fn actions(episode: &FinishedEpisode) -> Vec<Action> {
    episode.steps.iter().map(|step| step.action).collect()
}

fn check_by_the_rules<G: Game>(game: G, settings: &Settings) {
    let (finished, _) = play(game.clone(), settings, &mut hashing(&game, 3), None, 3);
    for episode in finished {
        let position = game.replay(&actions(&episode)).unwrap();
        assert_eq!(game.outcome(&position), Some(episode.facts.outcome));
        assert_eq!(episode.ending, Ending::Rules);
        let limits = Limits { steps_max: game.spec().max_plies, actions: game.spec().actions };
        let id = TrajectoryId { actor: 0, epoch: 0, sequence: 0 };
        let trajectory = episode.trajectory(id, &game.spec().name).unwrap();
        let trajectory = Trajectory::parse(id, trajectory.columns(), limits).unwrap();
        let actions = actions(&episode);
        let position = |ply: usize| Images::smallest(&game, &game.replay(&actions[..ply]).unwrap()).0;
        assert!(trajectory.positions().eq(trajectory.full_plies().map(position)));
        assert!(trajectory.surprises().len() == trajectory.full_steps() && trajectory.surprises().any(|it| it > 0.0));
    }
}

#[test]
fn trajectories_replay_to_their_recorded_outcome() {
    check_by_the_rules(TicTacToe::new(), &settings());
    check_by_the_rules(ConnectFour::new(), &settings());
    check_by_the_rules(Hex::new(games::hex::Size::new(4).unwrap()), &settings());
}

#[test]
fn trajectories_of_gumbel_several_leaves_and_fresh_trees_replay_to_their_recorded_outcome() {
    let gumbel = search::Settings { algorithm: SearchAlgorithm::GUMBEL, ..Default::default() };
    check_by_the_rules(ConnectFour::new(), &Settings { search: gumbel, ..settings() });
    check_by_the_rules(ConnectFour::new(), &Settings { leaves_per_tree: 4, ..settings() });
    check_by_the_rules(ConnectFour::new(), &Settings { subtree_reuse: SubtreeReuse::Discard, ..settings() });
}

#[test]
fn search_policies_lie_on_legal_actions() {
    let game = ConnectFour::new();
    let (finished, _) = play(game.clone(), &settings(), &mut hashing(&game, 3), None, 2);
    for episode in finished {
        let mut position = game.start();
        for step in &episode.steps {
            if let StepKind::Full { policy, value } = &step.kind {
                assert!(policy.iter().all(|entry| game.is_legal(&position, entry.action)));
                assert!(value.abs() <= 1.0);
            }
            game.play(&mut position, step.action);
        }
    }
}

/// The player with a stone at the bottom of the middle column is ahead, and the first player is behind until taking
/// that cell. Sequential halving visits six other columns before it settles on the middle column.
#[test]
fn the_value_recorded_under_gumbel_is_that_of_the_move_it_finds() {
    const MIDDLE: usize = 5 * 7 + 3;
    let game = ConnectFour::new();
    let cells = game.spec().observation.height * game.spec().observation.width;
    let script = |planes: &[f32], legal: &[Action], priors: &mut [f32]| {
        priors.fill(1.0 / legal.len() as f32);
        let (own, opponent, began) = (planes[MIDDLE], planes[cells + MIDDLE], planes[2 * cells]);
        let is_ahead = own == 1.0 || (opponent == 0.0 && began == 0.0);
        if is_ahead { Wdl { win: 0.95, draw: 0.0, loss: 0.05 } } else { Wdl { win: 0.05, draw: 0.0, loss: 0.95 } }
    };
    let mut evaluator = Scripted::new(game.spec().observation, 0, script);
    let search = search::Settings { algorithm: SearchAlgorithm::GUMBEL, ..Default::default() };
    let settings = Settings { search, full_simulations: 32, full_search_probability: 1.0, ..settings() };
    let (finished, _) = play(game, &settings, &mut evaluator, None, 1);
    for episode in finished {
        let Step { action, kind: StepKind::Full { value, .. }, .. } = &episode.steps[0] else {
            panic!("a full search")
        };
        assert_eq!(*action, Action(3));
        assert!((value - 0.9).abs() < 0.01, "{value}");
    }
}

#[test]
fn seeds_fix_trajectories_exactly() {
    let game = ConnectFour::new();
    let openings = Openings { probability: 0.5, random_plies_max: 4, ..Openings::default() };
    let settings = Settings { openings, ..settings() };
    let run = || play(game.clone(), &settings, &mut hashing(&game, 3), None, 2).0;
    assert_eq!(run(), run());
}

#[test]
fn different_weights_lead_to_different_games() {
    let game = ConnectFour::new();
    let run = |seed| play(game.clone(), &settings(), &mut hashing(&game, seed), None, 1).0;
    assert_ne!(run(1).iter().map(actions).collect::<Vec<_>>(), run(2).iter().map(actions).collect::<Vec<_>>());
}

#[test]
fn a_cache_changes_no_game_and_saves_evaluations() {
    let game = ConnectFour::new();
    let cache = Cache::new(100_000);
    let (with, cached) = play(game.clone(), &settings(), &mut hashing(&game, 3), Some(cache.of(1)), 2);
    let (without, uncached) = play(game.clone(), &settings(), &mut hashing(&game, 3), None, 2);
    assert_eq!(with, without);
    assert!(cached.cache_hits > 0 && cached.evaluated < uncached.evaluated, "{cached:?} {uncached:?}");
    let misses = cached.cache_lookups - cached.cache_hits;
    assert!(misses >= cached.evaluated, "a miss is evaluated, or equals a position in the batch: {cached:?}");
}

#[test]
fn an_answer_for_all_images_saves_evaluations_and_changes_no_game_of_a_symmetric_evaluator() {
    let game = ConnectFour::new();
    let run = |symmetry_reuse| {
        let cache = Cache::new(100_000);
        let settings = Settings { symmetry_reuse, ..settings() };
        play(game.clone(), &settings, &mut Uniform::new(game.spec().observation), Some(cache.of(1)), 2)
    };
    let (shared, with) = run(SymmetryReuse::Share);
    let (apart, without) = run(SymmetryReuse::Apart);
    assert_eq!(shared, apart);
    assert!(with.evaluated < without.evaluated, "{with:?} {without:?}");
}

#[test]
fn a_game_does_not_depend_on_how_many_others_advance_with_it() {
    let game = TicTacToe::new();
    let few = Settings { games: 2, ..settings() };
    let (few, _) = play(game.clone(), &few, &mut hashing(&game, 3), None, 3);
    let (many, _) = play(game.clone(), &settings(), &mut hashing(&game, 3), None, 3);
    assert_eq!(few[..], many[..few.len()]);
}

#[test]
fn a_tiny_batch_limit_changes_no_game() {
    struct Tiny(Hashing);
    impl Evaluator for Tiny {
        fn attributes(&self) -> inference::Attributes {
            inference::Attributes { max_batch: 3, preferred_batch: 3, ..self.0.attributes() }
        }
        fn evaluate(
            &mut self,
            batch: &inference::Batch,
            predictions: &mut inference::Predictions,
        ) -> Result<(), Error> {
            assert!(batch.len() <= 3);
            self.0.evaluate(batch, predictions)
        }
    }
    let game = TicTacToe::new();
    let (tiny, _) = play(game.clone(), &settings(), &mut Tiny(hashing(&game, 3)), None, 2);
    let (ample, _) = play(game.clone(), &settings(), &mut hashing(&game, 3), None, 2);
    assert_eq!(tiny, ample);
}

#[test]
fn a_game_behind_the_type_of_any_game_is_played_alike() {
    fn of<G: Game>(game: G) -> (Vec<FinishedEpisode>, usize) {
        let mut evaluator = hashing(&game, 3);
        let (finished, sum) = play(game, &settings(), &mut evaluator, None, 3);
        (finished, sum.simulations)
    }
    assert_eq!(of(ConnectFour::new()), of(games::GameKind::ConnectFour.rules()));
    assert_eq!(of(TicTacToe::new()), of(games::GameKind::TicTacToe.rules()));
}

#[test]
fn the_same_position_is_evaluated_once_in_a_batch() {
    let game = ConnectFour::new();
    let mut episodes = Episodes::new(game.clone(), settings(), 1.0, 5);
    let round = episodes.advance(&mut hashing(&game, 3), None).unwrap();
    assert_eq!((episodes.slots(), round.batch), (8, 1), "eight games start with the same position");
}

/// Eight games with 6 episodes each have about 900 searches. Five standard deviations of a share of 0.3 are 0.08.
#[test]
fn the_share_of_full_searches_is_the_configured_one() {
    let game = ConnectFour::new();
    let settings = Settings { full_search_probability: 0.3, full_simulations: 6, fast_simulations: 3, ..settings() };
    let (finished, _) = play(game.clone(), &settings, &mut hashing(&game, 3), None, 6);
    let steps: Vec<_> = finished.iter().flat_map(|episode| &episode.steps).collect();
    let full = steps.iter().filter(|step| matches!(step.kind, StepKind::Full { .. })).count();
    let fast = steps.iter().filter(|step| matches!(step.kind, StepKind::Fast { .. })).count();
    assert_eq!(full + fast, steps.len(), "no step is random without openings");
    let (share, n) = (full as f64 / steps.len() as f64, steps.len() as f64);
    let five_deviations = 5.0 * (0.3 * 0.7 / n).sqrt();
    assert!(n > 400.0 && (share - 0.3).abs() < five_deviations, "{share} of {n}");
}

/// Compares the mean simulations per move, with fast searches only, and without solver and subtree reuse.
#[test]
fn only_fast_searches_that_play_their_best_action_stop_early() {
    let game = ConnectFour::new();
    let simulations_per_move = |late: f32| {
        let mut settings = Settings {
            full_search_probability: 0.0,
            fast_simulations: 16,
            temperature: Temperature { early: late, late, decay: TemperatureDecay::Cut { plies: 0 } },
            subtree_reuse: SubtreeReuse::Discard,
            ..settings()
        };
        settings.search.early_stop = search::EarlyStop::Decided;
        settings.search.solver = search::Solver::Off;
        let mut episodes = Episodes::new(game.clone(), settings, 1.0, 5);
        let mut sum = Round::default();
        (0..300).for_each(|_| sum += episodes.advance(&mut hashing(&game, 3), None).unwrap());
        sum += episodes.settle(&mut hashing(&game, 3), None).unwrap();
        sum.simulations as f64 / sum.moves as f64
    };
    assert_eq!(simulations_per_move(0.2), 16.0);
    assert!(simulations_per_move(0.0) < 15.0);
}

#[test]
fn full_searches_make_the_number_of_simulations_set_last() {
    let game = ConnectFour::new();
    let settings = Settings {
        full_simulations: 8,
        full_search_probability: 1.0,
        subtree_reuse: SubtreeReuse::Discard,
        ..settings()
    };
    let mut episodes = Episodes::new(game.clone(), settings, 1.0, 5);
    let mut evaluator = hashing(&game, 3);
    for simulations in [8, 24, 16] {
        episodes.search_fully_with(simulations);
        // Running searches keep the number of simulations from the start.
        episodes.settle(&mut evaluator, None).unwrap();
        let mut sum = Round::default();
        (0..1000).for_each(|_| sum += episodes.advance(&mut evaluator, None).unwrap());
        let mean = sum.simulations as f64 / sum.moves as f64;
        // Proven positions need fewer simulations, and some searches are unfinished.
        assert!((mean - f64::from(simulations)).abs() < 0.1 * f64::from(simulations), "{mean}, not {simulations}");
    }
}

#[test]
fn random_plies_come_first_are_marked_and_never_end_a_game() {
    let game = TicTacToe::new();
    let settings =
        Settings { openings: Openings { probability: 1.0, random_plies_max: 9, ..Openings::default() }, ..settings() };
    let (finished, _) = play(game.clone(), &settings, &mut hashing(&game, 3), None, 20);
    let mut lengths = HashMap::new();
    for episode in &finished {
        let opening = episode.steps.iter().take_while(|step| step.kind == StepKind::Opening).count();
        assert!((1..episode.steps.len()).contains(&opening), "{opening} of {}", episode.steps.len());
        assert!(episode.steps[opening..].iter().all(|step| step.kind != StepKind::Opening));
        *lengths.entry(opening).or_insert(0) += 1;
    }
    assert!(lengths.len() >= 5, "{lengths:?}");
}

#[test]
fn a_fork_begins_with_the_plies_of_an_earlier_episode_of_its_slot_and_a_random_one() {
    let game = ConnectFour::new();
    let openings = Openings { fork_probability: 0.5, ..Openings::default() };
    let (finished, _) = play(game.clone(), &Settings { openings, ..settings() }, &mut hashing(&game, 3), None, 20);
    let mut forks = 0;
    for episode in &finished {
        let opening = episode.steps.iter().take_while(|step| step.kind == StepKind::Opening).count();
        let Some(shared) = opening.checked_sub(1) else { continue };
        let begins_alike =
            |earlier: &&FinishedEpisode| actions(earlier).starts_with(&actions(episode)[..shared.max(1)]);
        let earlier = finished.iter().filter(|other| other.slot == episode.slot && other.number < episode.number);
        assert!(shared >= 1 && earlier.clone().any(|earlier| begins_alike(&earlier)), "{:?}", actions(episode));
        forks += 1;
    }
    assert!(forks * 4 > finished.len() && forks * 4 < finished.len() * 3, "{forks} of {}", finished.len());
}

#[test]
fn moves_drawn_under_gumbel_vary_more_at_a_higher_temperature() {
    let game = ConnectFour::new();
    let distinct = |early| {
        let gumbel_moves = GumbelMoves::Policy;
        let search = SearchSettings { algorithm: SearchAlgorithm::GUMBEL, ..settings().search };
        let temperature = Temperature { early, late: early, decay: TemperatureDecay::Cut { plies: 0 } };
        let settings = Settings { gumbel_moves, search, temperature, full_search_probability: 1.0, ..settings() };
        let (finished, _) = play(game.clone(), &settings, &mut hashing(&game, 3), None, 10);
        let firsts: HashSet<Vec<Action>> = finished.iter().map(|episode| actions(episode)[..4].to_vec()).collect();
        firsts.len()
    };
    let [cold, hot] = [0.25, 4.0].map(distinct);
    assert!(cold < hot, "{cold} {hot}");
}

/// With 160 episodes, five standard deviations of a share of 0.25 are 0.17.
#[test]
fn the_configured_share_of_episodes_begins_with_random_plies() {
    let game = TicTacToe::new();
    let settings =
        Settings { openings: Openings { probability: 0.25, random_plies_max: 2, ..Openings::default() }, ..settings() };
    let (finished, _) = play(game.clone(), &settings, &mut hashing(&game, 3), None, 20);
    let random = finished.iter().filter(|episode| episode.steps[0].kind == StepKind::Opening).count();
    let share = random as f64 / finished.len() as f64;
    assert!((share - 0.25).abs() < 0.17, "{share}");
}

fn resigning(resigned: Resigned, calibration_share: f32) -> Settings {
    let resignation = Resignation::Below { threshold: -0.3, consecutive: 1, calibration_share, resigned };
    Settings { resignation, full_simulations: 8, fast_simulations: 4, ..settings() }
}

#[test]
fn resigned_games_are_decided_for_the_opponent() {
    let game = ConnectFour::new();
    let (finished, round) = play(game.clone(), &resigning(Resigned::Decided, 0.0), &mut hashing(&game, 3), None, 10);
    let resigned: Vec<_> = finished.iter().filter(|episode| episode.ending == Ending::Resignation).collect();
    assert!(!resigned.is_empty() && round.calibration.resigned >= resigned.len());
    for episode in resigned {
        let (last, before) = actions(episode).split_last().map(|(last, before)| (*last, before.to_vec())).unwrap();
        let mut position = game.replay(&before).unwrap();
        assert_eq!(episode.facts.outcome, Outcome::Win(game.to_move(&position).opponent()));
        game.play(&mut position, last);
        assert_eq!(game.outcome(&position), None);
    }
}

#[test]
fn resigned_games_that_are_played_out_have_the_outcome_of_the_rules_and_fast_searches_only() {
    let game = ConnectFour::new();
    let settings = Settings { full_search_probability: 1.0, ..resigning(Resigned::PlayedOut, 0.0) };
    let (finished, round) = play(game.clone(), &settings, &mut hashing(&game, 3), None, 5);
    assert!(round.calibration.resigned > 0);
    for episode in finished {
        assert_eq!(game.outcome(&game.replay(&actions(&episode)).unwrap()), Some(episode.facts.outcome));
        let first_fast = episode.steps.iter().position(|step| matches!(step.kind, StepKind::Fast { .. }));
        let Some(first_fast) = first_fast else { continue };
        assert!(episode.steps[first_fast..].iter().all(|step| matches!(step.kind, StepKind::Fast { .. })));
    }
}

/// With at least 320 episodes, five standard deviations of a share of 0.3 are 0.13.
#[test]
fn the_calibration_share_is_played_out_and_false_resignations_are_counted() {
    let game = ConnectFour::new();
    let (finished, round) = play(game.clone(), &resigning(Resigned::Decided, 0.3), &mut hashing(&game, 3), None, 40);
    let calibration = round.calibration;
    let share = calibration.episodes as f64 / round.episodes_finished as f64;
    assert!(finished.len() >= 320 && (share - 0.3).abs() < 0.13, "{share}");
    // With random network outputs, about half of the resignations are wrong.
    assert!(calibration.wrong > 0 && calibration.wrong < calibration.would_resign, "{calibration:?}");
    assert!(calibration.would_resign <= calibration.episodes);
}

/// An evaluator that encodes the weights version in every value: `version / 64` for the first player.
fn outspoken(game: &ConnectFour, version: u64) -> impl Evaluator + use<> {
    let cells = game.spec().observation.height * game.spec().observation.width;
    Scripted::new(game.spec().observation, version, move |planes, legal, priors| {
        priors.fill(1.0 / legal.len() as f32);
        let is_first_to_move = planes[2 * cells] == 1.0;
        let value = version as f32 / if is_first_to_move { 64.0 } else { -64.0 };
        Wdl { win: 0.5 + 0.5 * value, draw: 0.0, loss: 0.5 - 0.5 * value }
    })
}

/// Every second change of the weights happens during running searches.
#[test]
fn steps_are_stamped_with_the_weights_that_searched_them() {
    // With four simulations, no search reaches the end of a game before the fourth step, so step values encode the
    // version.
    const PLIES: usize = 3;
    let game = ConnectFour::new();
    let settings = Settings { full_simulations: 4, fast_simulations: 3, ..settings() };
    let mut episodes = Episodes::new(game.clone(), settings, 1.0, 5);
    let mut versions_seen = HashMap::new();
    for version in 1..=60 {
        let mut evaluator = outspoken(&game, version);
        for _ in 0..23 {
            episodes.advance(&mut evaluator, None).unwrap();
        }
        if version % 2 == 0 {
            episodes.settle(&mut evaluator, None).unwrap();
        }
        for (ply, step) in episodes.drain_finished().flat_map(|episode| episode.steps.into_iter().enumerate()) {
            let (StepKind::Full { value, .. } | StepKind::Fast { value }) = step.kind else { panic!("no openings") };
            let value_to_first = if ply % 2 == 0 { value } else { -value };
            let stamp = step.weights_version.0;
            if ply < PLIES {
                assert!((value_to_first - stamp as f32 / 64.0).abs() < 1e-5, "{value_to_first} is stamped {stamp}");
                *versions_seen.entry(stamp).or_insert(0) += 1;
            }
        }
    }
    assert!(versions_seen.len() > 20, "{versions_seen:?}");
}

/// A search restarted for new weights keeps the kind drawn before. With about 900 searches, five standard deviations
/// of a share of 0.5 are 0.08.
#[test]
fn new_weights_in_the_middle_of_searches_do_not_change_the_share_of_full_ones() {
    let game = ConnectFour::new();
    let settings = Settings { full_simulations: 40, fast_simulations: 2, ..settings() };
    let mut episodes = Episodes::new(game.clone(), settings, 1.0, 5);
    let mut kinds = Vec::new();
    for version in 1.. {
        let mut evaluator = hashing(&game, version);
        for _ in 0..45 {
            episodes.advance(&mut evaluator, None).unwrap();
        }
        kinds.extend(episodes.drain_finished().flat_map(|episode| episode.steps).map(|step| step.kind));
        if kinds.len() > 900 {
            break;
        }
    }
    let full = kinds.iter().filter(|kind| matches!(kind, StepKind::Full { .. })).count();
    let share = full as f64 / kinds.len() as f64;
    assert!((share - 0.5).abs() < 0.08, "{share} of {}", kinds.len());
}

#[test]
fn settling_ends_every_search_and_begins_none() {
    let game = ConnectFour::new();
    let mut evaluator = hashing(&game, 3);
    let mut episodes = Episodes::new(game, settings(), 1.0, 5);
    for _ in 0..10 {
        episodes.advance(&mut evaluator, None).unwrap();
    }
    let settled = episodes.settle(&mut evaluator, None).unwrap();
    assert!(settled.moves <= 8);
    assert_eq!(episodes.settle(&mut evaluator, None).unwrap(), Round::default());
}

#[test]
fn an_abandoned_search_restarts_without_results_of_its_first_evaluator() {
    let game = TicTacToe::new();
    let mut settings = Settings { full_search_probability: 1.0, games: 1, ..settings() };
    settings.search.dirichlet.fraction = 0.0;
    let policy_of_first_move = |abandons: bool| {
        let mut episodes = Episodes::new(game.clone(), settings.clone(), 1.0, 5);
        if abandons {
            for _ in 0..10 {
                episodes.advance(&mut hashing(&game, 1), None).unwrap();
            }
            episodes.abandon();
            assert_eq!(
                episodes.settle(&mut hashing(&game, 1), None).unwrap(),
                Round::default(),
                "nothing is under way"
            );
        }
        loop {
            episodes.advance(&mut hashing(&game, 2), None).unwrap();
            if let Some(episode) = episodes.drain_finished().next() {
                return episode.steps[0].clone();
            }
        }
    };
    let (again, fresh) = (policy_of_first_move(true), policy_of_first_move(false));
    assert_eq!((&again.kind, again.weights_version), (&fresh.kind, fresh.weights_version));
}

#[test]
fn an_intermittently_failing_evaluator_changes_no_episode() {
    let game = ConnectFour::new();
    let (expected, _) = play(game.clone(), &settings(), &mut Uniform::new(game.spec().observation), None, 2);
    for fault in [Fault::Backend, Fault::NotFinite] {
        let mut evaluator = Faulty::new(game.spec().observation, fault, 6);
        let mut episodes = Episodes::new(game.clone(), settings(), 1.0, 5);
        let (mut finished, mut failures) = (Vec::new(), 0);
        while finished.len() < expected.len() {
            failures += usize::from(episodes.advance(&mut evaluator, None).is_err());
            finished.extend(episodes.drain_finished().filter(|episode| episode.number < 2));
        }
        finished.sort_by_key(|episode| (episode.slot, episode.number));
        assert!(failures > 0);
        assert_eq!(finished, expected);
    }
}

#[test]
fn episodes_finished_in_failed_rounds_are_counted() {
    let game = TicTacToe::new();
    let mut evaluator = Faulty::new(game.spec().observation, Fault::Backend, 2);
    let mut episodes = Episodes::new(game, settings(), 1.0, 5);
    let (mut sum, mut failures, mut finished) = (Round::default(), 0, 0);
    for call in 1..2000 {
        let how = if call % 10 == 0 { Episodes::settle } else { Episodes::advance };
        let round = how(&mut episodes, &mut evaluator, None);
        finished += episodes.drain_finished().count();
        failures += usize::from(round.is_err());
        if let Ok(round) = round {
            sum += round;
            assert_eq!(sum.episodes_finished, finished, "after {failures} failures in {call} calls");
        }
    }
    assert!(finished > 50 && failures > 300, "{finished} episodes, {failures} failures");
}

#[test]
fn greedy_play_without_noise_repeats_itself() {
    let game = TicTacToe::new();
    let temperature = Temperature { early: 0.0, late: 0.0, decay: TemperatureDecay::Cut { plies: 0 } };
    let mut settings = Settings { temperature, full_search_probability: 1.0, ..settings() };
    settings.search.dirichlet.fraction = 0.0;
    let (finished, _) = play(game.clone(), &settings, &mut hashing(&game, 3), None, 3);
    assert!(finished.iter().all(|episode| actions(episode) == actions(&finished[0])));
}

#[test]
fn a_round_is_finite_where_everything_is_cached() {
    let game = TicTacToe::new();
    let cache = Cache::new(100_000);
    let mut evaluator = hashing(&game, 3);
    let mut episodes = Episodes::new(game, settings(), 1.0, 5);
    let mut sum = Round::default();
    for _ in 0..500 {
        sum += episodes.advance(&mut evaluator, Some(cache.of(1))).unwrap();
    }
    assert!(sum.episodes_finished > 100);
    assert!(sum.evaluated < 6_000, "tic-tac-toe has 5,478 positions, not {}", sum.evaluated);
}

/// Returns the time of a clock that advances by one second with every reading.
fn clock() -> Instant {
    thread_local! {
        static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
        #[allow(clippy::disallowed_methods, reason = "an Instant has no other beginning; only differences count")]
        static START: Instant = Instant::now();
    }
    LOOKS.set(LOOKS.get() + 1);
    START.with(|start| *start) + Duration::from_secs(LOOKS.get())
}

#[test]
fn the_time_to_observe_is_measured_once_for_each_batch_and_changes_no_episode() {
    let game = ConnectFour::new();
    let [mut timed, mut untimed] = [(); 2].map(|()| Episodes::new(game.clone(), settings(), 1.0, 5));
    timed = timed.timed(clock);
    for _ in 0..100 {
        let timed = timed.advance(&mut hashing(&game, 3), None).unwrap();
        let untimed = untimed.advance(&mut hashing(&game, 3), None).unwrap();
        assert_eq!(timed.observing, Duration::from_secs(untimed.batches as u64));
        assert_eq!(Round { observing: Duration::ZERO, ..timed }, untimed);
    }
    assert!(timed.drain_finished().eq(untimed.drain_finished()));
}
