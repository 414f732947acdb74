//! Versions with MuZero networks: models that have learned the rules exactly.

use std::sync::atomic::{AtomicUsize, Ordering};

use evaluator_doubles::RulesModel;
use evaluators::Backend;
use inference::LatentModel;
use strength::contestant::{SEQUENTIAL, Searcher, analysis};
use strength::exhaustive;
use strength::returns;
use weights::Model;

use super::*;
use crate::return_ledger::ReturnLedger;

/// Evaluation episodes per version.
const EPISODES: usize = 8;

/// Builds and counts models of a game that give unfinished positions the value zero.
struct Rules<G: Game> {
    game: G,
    /// Seeds of the episodes that the models have learned.
    seeds: Vec<u64>,
    built: Arc<AtomicUsize>,
}

impl<G: Game> Backend for Rules<G> {
    fn describe(&self) -> String {
        "rules".to_owned()
    }

    fn build(&self, _: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, evaluators::Error> {
        Ok(Box::new(Uniform { breaks: false }))
    }

    fn build_latent(&self, _: &Manifest, _: &Bytes) -> Result<Box<dyn LatentModel>, evaluators::Error> {
        self.built.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(RulesModel::of_all(self.game.clone(), Uniform { breaks: false }, self.seeds.iter().copied())))
    }
}

fn learned(version: u64, game: &str) -> Arc<Published> {
    let mut published = (*published(version, game)).clone();
    published.manifest.architecture.model = Model::Muzero { support: 10 };
    Arc::new(published)
}

/// Runs a worker through these versions until it drains.
fn run<G: Game>(stage: &Stage, game: G, versions: impl IntoIterator<Item = Arc<Published>>, sleeps: usize) {
    let environment = Script::new(versions, sleeps);
    let run = RunSection { directory: stage.folder.path().into(), discount: 0.9, ..RunSection::default() };
    let seeds = returns::seeds(!run.seed, EPISODES).collect();
    let arena = ArenaSection {
        simulations: 200,
        games_per_version: 8,
        openings_per_match: 2,
        playouts: vec![10],
        episodes: EPISODES,
        cpu_share: 0.5,
        ..ArenaSection::default()
    };
    let settings = Config { run, arena, ..Config::default() }.settings().unwrap();
    let backend = Arc::new(Rules { game: game.clone(), seeds, built: Arc::default() });
    Worker::open(game, settings, backend, environment).unwrap().run().unwrap();
}

fn returns_of(stage: &Stage) -> ReturnLedger {
    ReturnLedger::load(&stage.folder.path().join("returns.json"), "chain").unwrap()
}

#[test]
fn a_version_plays_the_evaluation_episodes_of_the_run_and_so_does_random_play_once() {
    let stage = Stage::new();
    run(&stage, Chain::default(), [learned(1, "chain"), learned(2, "chain")], FOR_EVER);
    let ledger = returns_of(&stage);
    // Three steps forward are the best play, and 200 simulations with an exact model find them.
    let best = |seed| f64::from(Chain::prize(seed)) - 1.0;
    let expected = returns::seeds(!1, EPISODES).map(best).sum::<f64>() / EPISODES as f64;
    for version in [1, 2] {
        let returns = ledger.of(Player::Version(WeightsVersion(version))).unwrap();
        assert_eq!((returns.episodes, returns.mean, returns.length), (EPISODES, expected, 3.0));
        assert!(returns.low < expected && expected < returns.high, "{returns:?}");
    }
    let random = ledger.of(Player::Random).unwrap();
    assert!(random.mean < expected && random.length > 3.0, "{random:?}");
    assert_eq!(ledger.episodes(), 3 * EPISODES as u64);
}

#[test]
fn a_restart_repeats_only_the_episodes_of_an_incomplete_measurement() {
    let stage = Stage::new();
    // The process drains within the episodes of the first version.
    run(&stage, Chain::default(), [learned(1, "chain")], 2);
    assert_eq!(returns_of(&stage).episodes(), 0);
    run(&stage, Chain::default(), [learned(1, "chain")], FOR_EVER);
    let measured = returns_of(&stage);
    assert_eq!(measured.episodes(), 2 * EPISODES as u64);
    // One sleep is not enough to measure the version again, so that the process drains while it waits.
    run(&stage, Chain::default(), [learned(1, "chain")], 1);
    assert_eq!(returns_of(&stage), measured);
}

#[test]
fn weights_of_an_alphazero_network_are_skipped_where_rewards_count() {
    let stage = Stage::new();
    run(&stage, Chain::default(), [published(1, "chain"), learned(2, "chain")], FOR_EVER);
    let ledger = returns_of(&stage);
    assert_eq!(ledger.of(Player::Version(WeightsVersion(1))), None);
    assert!(ledger.of(Player::Version(WeightsVersion(2))).is_some());
}

#[test]
fn a_version_whose_environment_gives_nan_is_skipped_and_the_arena_goes_on() {
    let stage = Stage::new();
    let environment = Script::new([learned(1, "chain")], FOR_EVER);
    let run = RunSection { directory: stage.folder.path().into(), ..RunSection::default() };
    let arena = ArenaSection { simulations: 200, episodes: EPISODES, cpu_share: 0.5, ..ArenaSection::default() };
    let settings = Config { run, arena, ..Config::default() }.settings().unwrap();
    let seeds = returns::seeds(!1, EPISODES).collect();
    let backend = Arc::new(Rules { game: Chain::default(), seeds, built: Arc::default() });
    let worker = Worker::open(Chain::broken(), settings, backend, environment).unwrap();
    let error = format!("{:#}", worker.run().unwrap_err());
    // Random play meets the same reward, and without a network there is nothing else to measure.
    assert!(error.contains("chain returned the reward NaN in step"), "{error}");
}

#[test]
fn versions_with_learned_dynamics_play_rated_games_of_a_board_game() {
    let stage = Stage::new();
    run(&stage, TicTacToe::new(), [learned(1, "tic_tac_toe"), learned(2, "tic_tac_toe")], FOR_EVER);
    assert_eq!((stage.games_of(1) >= 8, stage.games_of(2)), (true, 8));
}

#[test]
fn every_line_of_a_tiny_game_is_played_in_latent_states() {
    let game = TicTacToe::new();
    let backend = Rules { game: game.clone(), seeds: vec![0], built: Arc::default() };
    let mut network = backend.build_network(&learned(1, "tic_tac_toe").manifest, &Bytes::new()).unwrap();
    let search = Config::default().search.settings().unwrap();
    let mut lost = |simulations| {
        let rng = strength::contestant::draws(1, WeightsVersion(1), 0);
        let mut player = Searcher::new(&mut network, analysis(simulations, &search, 1.0, SEQUENTIAL), rng);
        exhaustive::check(&game, &mut player).unwrap().lost
    };
    let (raw, searched) = (lost(0), lost(256));
    assert!(raw > 20 && searched * 4 < raw, "{raw} lines are lost without a search, {searched} with one");
}
