use std::collections::BTreeSet;

use evaluator_doubles::{Fault, Faulty, RulesModel, Scripted, ScriptedReturns};
use experience::{
    ActionProbability, Element, Episode, ObservationLayout, Observations, Step, StepKind, TrajectoryId, WeightsVersion,
};
use game::{Action, Outcome};
use games::{ConnectFour, TicTacToe};
use inference::{Cache, Hashing, Wdl};
use rand::RngExt as _;
use rand_chacha::rand_core::SeedableRng as _;
use search::{Dirichlet, SearchAlgorithm, Settings as SearchSettings};

use super::*;
use crate::latent::tests::chain::{Chain, GO, STAY};
use crate::{Analysis, AnalysisSettings, Episodes, Openings, SymmetryReuse, analyse};

/// Returns settings that make full searches equal to analyses: without noise, without first-play reduction (which does
/// not apply at an explored root), and with each position evaluated separately.
fn settings() -> Settings {
    let dirichlet = Dirichlet { fraction: 0.0, ..SearchSettings::default().dirichlet };
    Settings {
        games: 8,
        search: SearchSettings { dirichlet, fpu_reduction: 0.0, ..SearchSettings::default() },
        symmetry_reuse: SymmetryReuse::Apart,
        full_simulations: 24,
        fast_simulations: 8,
        full_search_probability: 0.5,
        openings: Openings { probability: 0.5, random_plies_max: 2, ..Openings::default() },
        ..Settings::default()
    }
}

fn gumbel() -> Settings {
    let search = SearchSettings { algorithm: SearchAlgorithm::GUMBEL, ..SearchSettings::default() };
    Settings { search, ..settings() }
}

fn hashing<G: Game>(game: &G, version: u64) -> Hashing {
    Hashing::new(game.spec().observation, version)
}

/// Returns self-play trajectories with network version 1.
fn played<G: Game>(game: &G, count: usize) -> Vec<Trajectory> {
    let mut episodes = Episodes::new(game.clone(), settings(), 1.0, 3);
    let mut evaluator = hashing(game, 1);
    let mut trajectories = Vec::new();
    while trajectories.len() < count {
        episodes.advance(&mut evaluator, None).unwrap();
        for episode in episodes.drain_finished() {
            let id = TrajectoryId { actor: 1, epoch: 1, sequence: trajectories.len() as u64 };
            let trajectory = Trajectory::of_episode(id, &game.spec().name, &episode.steps, episode.facts);
            trajectories.push(trajectory.unwrap());
        }
    }
    trajectories.truncate(count);
    trajectories
}

fn reanalysis<G: Game>(game: &G, settings: Settings, trajectories: &[Trajectory]) -> Reanalysis<G> {
    let mut reanalysis = Reanalysis::new(game.clone(), settings, 1.0, 7);
    trajectories.iter().for_each(|trajectory| reanalysis.push(trajectory).unwrap());
    reanalysis
}

/// Runs rounds until all trajectories are searched.
fn finish<G: Game>(
    reanalysis: &mut Reanalysis<G>,
    mut advance: impl FnMut(&mut Reanalysis<G>) -> Result<Round, Error>,
) -> Vec<Trajectory> {
    let mut rounds = 0;
    while !reanalysis.is_idle() {
        advance(reanalysis).unwrap();
        rounds += 1;
        assert!(rounds < 100_000, "the searches end");
    }
    let mut finished: Vec<_> = reanalysis.drain_finished().map(|done| done.trajectory).collect();
    finished.sort_by_key(Trajectory::id);
    finished
}

fn by_rules<G: Game>(game: &G, settings: Settings, trajectories: &[Trajectory], version: u64) -> Vec<Trajectory> {
    let mut evaluator = hashing(game, version);
    finish(&mut reanalysis(game, settings, trajectories), |reanalysis| reanalysis.advance(&mut evaluator, None))
}

fn positions<G: Game>(game: &G, trajectory: &Trajectory) -> Vec<G::Position> {
    let actions: Vec<Action> = trajectory.actions().collect();
    let seed = trajectory.episode().seed;
    (0..actions.len()).map(|ply| game.replay_from(seed, &actions[..ply]).unwrap()).collect()
}

/// Checks every step against the analysis of the position by `analyse` with the same number of simulations.
fn check_steps<G: Game>(
    game: &G,
    before: &Trajectory,
    after: &Trajectory,
    mut analyse: impl FnMut(&G::Position, u32, u64) -> Analysis,
) -> BTreeSet<u64> {
    let mut versions = BTreeSet::new();
    assert_eq!(before.revised_by(after).as_ref(), Ok(after), "nothing else changes");
    for ((before, after), position) in before.steps().zip(after.steps()).zip(positions(game, before)) {
        let version = after.weights_version.0;
        match after.kind {
            StepKind::Opening => assert_eq!(before, after),
            StepKind::Fast { value } => assert_eq!(value, analyse(&position, 8, version).value),
            StepKind::Full { policy, value } => {
                let analysis = analyse(&position, 24, version);
                assert_eq!((policy, value), (sparse(&analysis.actions, &analysis.policy), analysis.value));
                versions.insert(version);
            }
        }
    }
    versions
}

fn analysis_settings(simulations: u32) -> AnalysisSettings {
    AnalysisSettings { simulations, search: settings().search, leaves_per_tree: 1, batch: 1, discount: 1.0 }
}

fn analysis_by_rules<G: Game>(game: &G) -> impl FnMut(&G::Position, u32, u64) -> Analysis {
    let (game, mut rng) = (game.clone(), ChaCha8Rng::seed_from_u64(0));
    move |position, simulations, version| {
        let (mut evaluator, settings) = (hashing(&game, version), analysis_settings(simulations));
        analyse(&game, std::slice::from_ref(position), &settings, &mut evaluator, &mut rng).unwrap().remove(0)
    }
}

#[test]
fn every_searched_step_gets_the_policy_and_value_of_a_search_by_the_new_network_and_nothing_else_changes() {
    let game = ConnectFour::new();
    let before = played(&game, 6);
    let after = by_rules(&game, settings(), &before, 2);
    assert_eq!(after.len(), before.len());
    let mut kinds = [0; 3];
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(check_steps(&game, before, after, analysis_by_rules(&game)), [2].into());
        assert_ne!(before, after);
        for step in after.steps() {
            kinds[match step.kind {
                StepKind::Opening => 0,
                StepKind::Fast { .. } => 1,
                StepKind::Full { .. } => 2,
            }] += 1;
        }
    }
    assert!(kinds.iter().all(|&count| count > 3), "{kinds:?}");
}

#[test]
fn a_search_with_noise_does_not_depend_on_the_other_searches() {
    let game = ConnectFour::new();
    let before = played(&game, 4);
    for settings in [gumbel(), Settings { search: SearchSettings::default(), ..settings() }] {
        let together = by_rules(&game, settings.clone(), &before, 2);
        let narrow = Settings { games: 1, ..settings.clone() };
        let apart: Vec<_> =
            before.iter().flat_map(|one| by_rules(&game, narrow.clone(), std::slice::from_ref(one), 2)).collect();
        assert_eq!(together, apart);
        let noiseless = by_rules(&game, self::settings(), &before, 2);
        assert!(together.iter().zip(&noiseless).all(|(noisy, noiseless)| noisy != noiseless));
    }
}

#[test]
fn a_search_with_noise_that_new_weights_restart_is_that_of_a_fresh_one() {
    let game = ConnectFour::new();
    let before = played(&game, 4);
    // All positions are in flight at once, so that the new weights restart every unfinished search.
    let settings = Settings { games: 256, ..gumbel() };
    let mut restarted = reanalysis(&game, settings.clone(), &before);
    for _ in 0..3 {
        restarted.advance(&mut hashing(&game, 2), None).unwrap();
    }
    let restarted = finish(&mut restarted, |reanalysis| reanalysis.advance(&mut hashing(&game, 3), None));
    let fresh = by_rules(&game, settings, &before, 3);
    let steps = |trajectories: &[Trajectory]| trajectories.iter().flat_map(Trajectory::steps).collect::<Vec<_>>();
    let pairs = steps(&restarted).into_iter().zip(steps(&fresh));
    let of_new: Vec<_> = pairs.filter(|(restarted, _)| restarted.weights_version == WeightsVersion(3)).collect();
    assert!(of_new.iter().all(|(restarted, fresh)| restarted == fresh), "{of_new:?}");
    let full = of_new.iter().filter(|(restarted, _)| matches!(restarted.kind, StepKind::Full { .. }));
    assert!(full.count() > 4, "{of_new:?}");
}

#[test]
fn a_cache_changes_no_result() {
    let game = ConnectFour::new();
    let (before, cache, mut evaluator) = (played(&game, 3), Cache::new(10_000), hashing(&game, 2));
    let mut twice = || {
        let mut reanalysis = reanalysis(&game, settings(), &before);
        finish(&mut reanalysis, |reanalysis| reanalysis.advance(&mut evaluator, Some(cache.of(1))))
    };
    let (first, second) = (twice(), twice());
    // A position that shares an evaluation with the mirror image has the network value of the image.
    assert_eq!(first, second);
    assert!(before.iter().zip(&first).all(|(before, after)| before.revised_by(after).is_ok()));
}

#[test]
fn no_search_mixes_two_versions_when_the_weights_change_in_the_middle() {
    let game = TicTacToe::new();
    let before = played(&game, 8);
    let mut reanalysis = reanalysis(&game, settings(), &before);
    let mut rounds = 0;
    let after = finish(&mut reanalysis, |reanalysis| {
        rounds += 1;
        reanalysis.advance(&mut hashing(&game, 2 + rounds / 40), None)
    });
    let mut versions = BTreeSet::new();
    for (before, after) in before.iter().zip(&after) {
        versions.extend(check_steps(&game, before, after, analysis_by_rules(&game)));
    }
    assert!(versions.len() > 1, "{versions:?}");
}

#[test]
fn after_an_error_the_searches_go_on() {
    let game = TicTacToe::new();
    let before = played(&game, 3);
    let mut reanalysis = reanalysis(&game, settings(), &before);
    for _ in 0..5 {
        reanalysis.advance(&mut hashing(&game, 2), None).unwrap();
    }
    let mut faulty = Faulty::new(game.spec().observation, Fault::Backend, 0);
    assert!(reanalysis.advance(&mut faulty, None).is_err());
    let after = finish(&mut reanalysis, |reanalysis| reanalysis.advance(&mut hashing(&game, 2), None));
    for (before, after) in before.iter().zip(&after) {
        check_steps(&game, before, after, analysis_by_rules(&game));
    }
}

fn model<G: Game>(game: &G, version: u64, before: &[Trajectory]) -> RulesModel<G, Hashing> {
    let roots = before.iter().flat_map(|trajectory| positions(game, trajectory));
    RulesModel::new(game.clone(), hashing(game, version), roots)
}

#[test]
fn in_a_learned_model_every_step_gets_the_search_from_its_observation() {
    let game = TicTacToe::new();
    let before = played(&game, 5);
    let mut learned = RulesModel::of_all(game.clone(), hashing(&game, 2), [0]);
    let mut reanalysis = reanalysis(&game, settings(), &before);
    let after = finish(&mut reanalysis, |reanalysis| reanalysis.advance_latent(&mut learned));
    let (mut rng, mut versions) = (ChaCha8Rng::seed_from_u64(0), BTreeSet::new());
    for (before, after) in before.iter().zip(&after) {
        versions.extend(check_steps(&game, before, after, |position, simulations, version| {
            let mut learned = RulesModel::of_all(game.clone(), hashing(&game, version), [0]);
            let position = std::slice::from_ref(position);
            let settings = analysis_settings(simulations);
            crate::latent::analyse(&game, position, &settings, &mut learned, &mut rng).unwrap().remove(0)
        }));
    }
    assert_eq!(versions, [2].into());
}

#[test]
fn a_change_of_the_kind_of_network_in_the_middle_loses_no_trajectory() {
    let game = TicTacToe::new();
    let before = played(&game, 6);
    let (mut learned, mut evaluator) = (model(&game, 2, &before), hashing(&game, 3));
    let mut reanalysis = reanalysis(&game, gumbel(), &before);
    let mut rounds = 0;
    let after = finish(&mut reanalysis, |reanalysis| {
        rounds += 1;
        if rounds % 60 < 30 {
            reanalysis.advance_latent(&mut learned)
        } else {
            reanalysis.advance(&mut evaluator, None)
        }
    });
    assert!(rounds > 60, "{rounds} rounds");
    assert!(before.iter().zip(&after).all(|(before, after)| before.revised_by(after).is_ok()));
    assert_eq!(after.len(), before.len());
}

/// An episode of a chain that is truncated after six steps, with rewards of 0.25 for staying.
fn chain() -> (Chain, Trajectory) {
    let game = Chain::new(9, 0.25, 6);
    let policy = vec![ActionProbability { action: STAY, probability: 1.0 }];
    let step = |action| Step {
        action,
        reward: if action == STAY { 0.25 } else { 0.0 },
        kind: StepKind::Full { policy: policy.clone(), value: 9.0 },
        weights_version: WeightsVersion(1),
    };
    let steps = [STAY, GO, STAY, STAY, GO, STAY].map(step);
    let episode = Episode { seed: 5, outcome: Outcome::Truncated, truncation_value: 7.0 };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    (game, Trajectory::of_episode(id, "chain", &steps, episode).unwrap())
}

/// Returns a model of the chain environment with the value `value` in every state.
fn chain_model(game: &Chain, value: f32) -> RulesModel<Chain, impl Evaluator + use<>> {
    let evaluator = Scripted::new(game.spec().observation, 2, move |_, legal, priors| {
        priors.fill(1.0 / legal.len() as f32);
        Wdl { win: 0.5 + 0.5 * value, draw: 0.0, loss: 0.5 - 0.5 * value }
    });
    RulesModel::of_all(game.clone(), evaluator, 0..20)
}

#[test]
fn the_value_of_the_last_observation_of_a_truncated_episode_is_evaluated_again() {
    let (game, before) = chain();
    let mut learned = chain_model(&game, 0.5);
    let mut reanalysis = reanalysis(&game, settings(), std::slice::from_ref(&before));
    let after = finish(&mut reanalysis, |reanalysis| reanalysis.advance_latent(&mut learned)).remove(0);
    assert_eq!((before.episode().truncation_value, after.episode().truncation_value), (7.0, 0.5));
    assert!(before.revised_by(&after).is_ok());
    assert!(after.steps().all(|step| step.kind.value().is_some_and(|value| value < 3.0)));
}

#[test]
fn by_the_rules_a_truncated_episode_gets_new_returns_too() {
    let (game, before) = chain();
    let mut reanalysis = Reanalysis::new(game.clone(), settings(), 0.5, 7);
    reanalysis.push(&before).unwrap();
    let mut evaluator = ScriptedReturns::new(game.spec().observation, 2, |_| 4.0);
    let after = finish(&mut reanalysis, |reanalysis| reanalysis.advance(&mut evaluator, None)).remove(0);
    assert_eq!((before.episode().truncation_value, after.episode().truncation_value), (7.0, 4.0));
    assert!(before.revised_by(&after).is_ok());
    // The last action is to stay: a reward of 0.25 or 0, plus half of the value after the step limit.
    let last = after.steps().last().unwrap().kind;
    assert!(last.value().is_some_and(|value| (2.0..=2.25).contains(&value)), "{last:?}");
}

#[test]
fn stored_observations_give_the_same_searches_as_those_recomputed_by_the_rules() {
    let (game, before) = chain();
    let layout = ObservationLayout { element: Element::F32, frame_values: 2, stack: 1 };
    let mut observations = Observations::new(layout).unwrap();
    let actions: Vec<Action> = before.actions().collect();
    for ply in 0..=actions.len() {
        let mut observation = [0.0; 2];
        game.observe(&game.replay_from(5, &actions[..ply]).unwrap(), &mut observation);
        observations.push(&observation).unwrap();
    }
    let steps: Vec<Step> = before.steps().collect();
    // With another seed, the rules could not recompute the episode.
    let facts = Episode { seed: 3, ..before.episode() };
    let recorded = Trajectory::of_recorded(before.id(), "chain", &steps, facts, observations).unwrap();
    let searched = |trajectory: &Trajectory| {
        let mut learned = chain_model(&game, 0.25);
        let mut reanalysis = reanalysis(&game, gumbel(), std::slice::from_ref(trajectory));
        finish(&mut reanalysis, |reanalysis| reanalysis.advance_latent(&mut learned)).remove(0)
    };
    let (by_rules, by_observations) = (searched(&before), searched(&recorded));
    assert!(by_rules.steps().eq(by_observations.steps()));
    assert_eq!(by_observations.episode().truncation_value, 0.25);
    assert!(recorded.revised_by(&by_observations).unwrap().has_observations());
    // A search by the rules cannot use observations and abandons the episode.
    let mut reanalysis = reanalysis(&game, settings(), &[recorded]);
    reanalysis.advance_latent(&mut chain_model(&game, 0.25)).unwrap();
    reanalysis.advance(&mut hashing(&game, 3), None).unwrap();
    assert!(reanalysis.is_idle() && reanalysis.drain_finished().next().is_none());
}

#[test]
fn what_is_no_searched_episode_of_the_game_is_refused() {
    let (game, trajectory) = chain();
    let mut reanalysis = Reanalysis::new(game, settings(), 1.0, 7);
    let changed = |change: fn(&mut Vec<Step>)| {
        let mut steps: Vec<Step> = trajectory.steps().collect();
        change(&mut steps);
        Trajectory::of_episode(trajectory.id(), "chain", &steps, trajectory.episode()).unwrap()
    };
    let opening = |steps: &mut Vec<Step>| steps.iter_mut().for_each(|step| step.kind = StepKind::Opening);
    assert_eq!(reanalysis.push(&changed(opening)), Err(Unusable::NothingSearched));
    assert_eq!(reanalysis.push(&changed(|steps| steps[2].reward = 1.0)), Err(Unusable::Reward { ply: 2 }));
    let illegal = changed(|steps| steps.push(steps[0].clone()));
    assert!(matches!(reanalysis.push(&illegal), Err(Unusable::Illegal(_))));
    let other = played(&TicTacToe::new(), 1).remove(0);
    assert_eq!(reanalysis.push(&other), Err(Unusable::OtherGame("tic_tac_toe".to_owned())));
    assert!(reanalysis.is_idle());
}

#[test]
fn every_position_of_every_trajectory_has_random_numbers_of_its_own() {
    let trajectories = played(&ConnectFour::new(), 4);
    let positions = trajectories.iter().flat_map(|trajectory| (0..4).map(move |ply| (trajectory, ply)));
    let firsts = positions.map(|(trajectory, ply)| generator(7, trajectory, ply).random::<u64>());
    assert_eq!(firsts.collect::<BTreeSet<u64>>().len(), 16);
}
