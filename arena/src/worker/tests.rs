//! Tests of the worker in a scripted environment: published versions, a clock that advances only by sleeping, a drain.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evaluator_doubles::Chain;
use game::{Game, ObservationShape};
use games::{GameKind, TicTacToe};
use inference::{Attributes, Batch, Evaluator, Predictions, Wdl};
use proto::weights::Published;
use run_file::arena::{ArenaSection, Config, GateKind};
use service::config::RunSection;
use strength::ledger::{Ledger, Player, Rated, Tally};
use strength::rating::ELO_PER_UNIT;
use tempfile::TempDir;
use weights::{Architecture, Manifest, WeightsVersion};

use super::{Current, Worker, information};
use crate::pacer::Environment;
use crate::past_versions::{Limits, PastVersions};

mod learned;
mod regressions;

/// An evaluator with uniform priors, or one that fails.
struct Uniform {
    breaks: bool,
}

impl Evaluator for Uniform {
    fn attributes(&self) -> Attributes {
        Attributes { name: "uniform".into(), weights_version: 1, preferred_batch: 64, max_batch: 1024 }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
        if self.breaks {
            return Err(inference::Error::NotFinite { weights_version: 2 });
        }
        predictions.clear();
        for i in 0..batch.len() {
            let legal = batch.legal(i).len();
            predictions.push(&vec![1.0 / legal as f32; legal], Wdl::EVEN);
        }
        Ok(())
    }
}

fn published(version: u64, game: &str) -> Arc<Published> {
    let bytes = bytes::Bytes::from(format!("weights {version}"));
    let spec =
        game.parse::<GameKind>().map_or_else(|_| Chain::default().spec().clone(), |kind| kind.rules().spec().clone());
    let ObservationShape { planes, height, width } = spec.observation;
    let architecture = Architecture::plain(game, [planes, height, width], spec.actions, [1, 1]);
    let manifest = Manifest::of(&bytes, WeightsVersion(version), version, architecture);
    Arc::new(Published { manifest, bytes })
}

/// An environment in which weights arrive one by one while the worker waits; after the last weights the process drains.
struct Script {
    now: Instant,
    newest: Option<Arc<Published>>,
    coming: VecDeque<Arc<Published>>,
    /// Weights that arrive in the first sleep after the first weights, an hour later.
    hurried: Option<Arc<Published>>,
    /// Number of sleeps after which the process drains, if any.
    sleeps_left: usize,
    /// Versions that have passed the gate.
    accepted: Rc<RefCell<Vec<u64>>>,
}

impl Script {
    fn new(versions: impl IntoIterator<Item = Arc<Published>>, sleeps_left: usize) -> Self {
        let coming = versions.into_iter().collect();
        Self { now: Instant::now(), newest: None, coming, hurried: None, sleeps_left, accepted: Rc::default() }
    }
}

impl Environment for Script {
    fn newest(&mut self) -> Option<Arc<Published>> {
        self.newest.clone()
    }

    fn now(&mut self) -> Instant {
        self.now
    }

    fn sleep(&mut self, duration: Duration) -> ControlFlow<()> {
        self.now += duration;
        if self.newest.is_some()
            && let Some(published) = self.hurried.take()
        {
            self.newest = Some(published);
            self.now += Duration::from_secs(3600);
        }
        self.sleeps_left = self.sleeps_left.saturating_sub(1);
        if self.sleeps_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn accept(&mut self, published: &Published) {
        self.accepted.borrow_mut().push(published.manifest.version.0);
    }

    fn wait_for_weights(&mut self, _at_most: Duration) -> ControlFlow<()> {
        match self.coming.pop_front() {
            Some(published) => {
                self.newest = Some(published);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }
}

struct Stage {
    folder: TempDir,
    /// Settings, without the gate.
    arena: ArenaSection,
}

impl Stage {
    fn new() -> Self {
        let arena = ArenaSection {
            simulations: 8,
            games_per_version: 12,
            openings_per_match: 2,
            opening_plies_max: 2,
            playouts: vec![10],
            past_versions: 2,
            best_versions: 0,
            cpu_share: 0.5,
            gate_games_max: 8,
            ..ArenaSection::default()
        };
        Self { folder: TempDir::new().unwrap(), arena }
    }

    fn ledger(&self) -> Ledger {
        Ledger::load(&self.folder.path().join("ratings.json"), "tic_tac_toe").unwrap()
    }

    fn save(&self, ledger: &Ledger) {
        ledger.save(&self.folder.path().join("ratings.json"), &ledger.ratings()).unwrap();
    }

    fn past(&self) -> PastVersions {
        PastVersions::open(self.folder.path(), Limits { spread_max: 2, best_max: 0 }).unwrap()
    }

    /// Runs a worker through these versions until it drains.
    fn run(&self, versions: impl IntoIterator<Item = Arc<Published>>, sleeps: usize) {
        self.run_with(GateKind::None, versions, sleeps);
    }

    /// Runs a worker with a gate, and returns the versions that have passed.
    fn run_with(&self, gate: GateKind, versions: impl IntoIterator<Item = Arc<Published>>, sleeps: usize) -> Vec<u64> {
        self.run_in(gate, Script::new(versions, sleeps))
    }

    /// Runs a worker in an environment, and returns the versions that have passed the gate.
    fn run_in(&self, gate: GateKind, environment: Script) -> Vec<u64> {
        let accepted = Rc::clone(&environment.accepted);
        self.open(gate, environment).run().unwrap();
        Rc::unwrap_or_clone(accepted).into_inner()
    }

    fn open(&self, gate: GateKind, environment: Script) -> Worker<TicTacToe, Script> {
        let build = |manifest: &Manifest, _: &Bytes| -> Result<Box<dyn Evaluator>, evaluators::Error> {
            Ok(Box::new(Uniform { breaks: manifest.version.0 == 13 }))
        };
        let run =
            RunSection { game: "tic_tac_toe".into(), directory: self.folder.path().into(), ..RunSection::default() };
        let arena = ArenaSection { gate, ..self.arena.clone() };
        let settings = Config { run, arena, ..Config::default() }.settings().unwrap();
        Worker::open(TicTacToe::new(), settings, Arc::new(build), environment).unwrap()
    }

    fn games_of(&self, version: u64) -> u64 {
        self.ledger().games_of(Player::Version(WeightsVersion(version)))
    }
}

const FOR_EVER: usize = usize::MAX;

fn version(version: u64) -> Arc<Published> {
    published(version, &TicTacToe::new().spec().name)
}

#[test]
fn every_version_plays_its_games_and_all_are_on_disk() {
    let stage = Stage::new();
    stage.run([version(1)], FOR_EVER);
    assert_eq!((stage.ledger().games(), stage.games_of(1)), (4 + 12, 12));
}

#[test]
fn an_earlier_version_is_met_where_the_fixed_opponents_are_far_away() {
    let stage = Stage::new();
    let (one, two) = (Player::Version(WeightsVersion(1)), Player::Version(WeightsVersion(2)));
    let mut ledger = stage.ledger();
    for opponent in [Player::Random, Player::Playouts { simulations: 10 }] {
        ledger.add(one, opponent, Tally { pairs: [0, 0, 0, 0, 100] });
    }
    stage.save(&ledger);
    stage.run([version(1), version(2)], FOR_EVER);
    assert!(stage.ledger().games_between(one, two) > 0, "{:?}", stage.ledger());
}

#[test]
fn an_opponent_with_a_wide_interval_shows_less() {
    let rated = |elo, half| Rated { player: Player::Random, elo, low: elo - half, high: elo + half, games: 0 };
    let [sure, unsure, far] =
        [rated(0.0, 0.0), rated(0.0, 200.0), rated(600.0, 0.0)].map(|at| information(16.0, 0.0, &at));
    assert!(sure > 1.5 * unsure && unsure > far, "{sure} {unsure} {far}");
    assert!(sure.recip().sqrt() * ELO_PER_UNIT < 90.0, "16 games of equals leave 87 Elo: {sure}");
}

#[test]
fn fixed_opponents_meet_their_neighbours_once_so_that_the_scale_does_not_hang_on_the_prior() {
    let stage = Stage::new();
    stage.run([version(1)], FOR_EVER);
    stage.run([version(1)], FOR_EVER);
    assert_eq!(stage.ledger().games_between(Player::Random, Player::Playouts { simulations: 10 }), 4);
}

#[test]
fn opponents_by_alpha_beta_are_rated_beside_the_others() {
    let mut stage = Stage::new();
    stage.arena.alphabeta = vec![1, 2];
    stage.run([version(1)], FOR_EVER);
    let ledger = stage.ledger();
    let depth = |depth| Player::AlphaBeta { depth };
    let playouts = Player::Playouts { simulations: 10 };
    assert_eq!((ledger.games_between(playouts, depth(1)), ledger.games_between(depth(1), depth(2))), (4, 4));
    assert_eq!(ledger.games(), 3 * 4 + 12, "{ledger:?}");
    assert!(ledger.ratings().iter().any(|rated| rated.player == depth(2)), "{ledger:?}");
}

#[test]
fn a_restart_plays_the_remaining_games() {
    let stage = Stage::new();
    // Each match of tic-tac-toe pauses once per round, so that the process drains within one of the later matches.
    stage.run([version(1)], 24);
    let before = stage.games_of(1);
    assert!(before > 0 && before < 12, "{before} games");
    stage.run([version(1)], FOR_EVER);
    assert_eq!(stage.games_of(1), 12);
}

#[test]
fn weights_of_another_game_are_skipped_and_the_next_are_taken() {
    let stage = Stage::new();
    stage.run([published(1, "connect_four"), version(2)], FOR_EVER);
    assert_eq!((stage.games_of(1), stage.games_of(2)), (0, 12));
}

#[test]
fn weights_that_return_nan_are_skipped_and_the_next_are_taken() {
    let stage = Stage::new();
    stage.run([version(13), version(14)], FOR_EVER);
    assert_eq!((stage.games_of(13), stage.games_of(14)), (0, 12));
}

#[test]
fn an_earlier_version_that_returns_nan_is_removed_and_its_opponent_plays_all_its_games() {
    let stage = Stage::new();
    let earlier = version(13);
    stage.past().keep(&earlier.manifest, &earlier.bytes, &[]).unwrap();
    let mut ledger = stage.ledger();
    ledger.add(Player::Version(WeightsVersion(13)), Player::Random, Tally { pairs: [0, 0, 1, 0, 1] });
    stage.save(&ledger);
    stage.run([version(14)], FOR_EVER);
    assert_eq!(stage.games_of(14), 12);
    assert!(stage.past().versions().is_empty(), "{:?}", stage.past().versions());
}

#[test]
fn the_same_run_gives_the_same_games() {
    let (once, again) = (Stage::new(), Stage::new());
    once.run([version(1), version(2)], FOR_EVER);
    again.run([version(1), version(2)], FOR_EVER);
    assert_eq!(once.ledger(), again.ledger());
}

#[test]
fn without_a_gate_the_arena_passes_no_version_on() {
    assert_eq!(Stage::new().run_with(GateKind::None, [version(1), version(2)], FOR_EVER), [0; 0]);
}

/// Equal players never decide the test: version 2 plays the configured 8 games against the accepted version 1.
#[test]
fn a_version_that_is_not_found_stronger_is_held_back_and_plays_against_the_accepted_one() {
    let stage = Stage::new();
    assert_eq!(stage.run_with(GateKind::Sprt, [version(1), version(2)], FOR_EVER), [1]);
    let [one, two] = [1, 2].map(|version| Player::Version(WeightsVersion(version)));
    assert_eq!(stage.ledger().games_between(one, two), 8, "{:?}", stage.ledger());
    assert_eq!(stage.games_of(2), 12);
}

#[test]
fn a_version_that_its_games_show_to_be_stronger_passes_and_is_served_again_after_a_restart() {
    let stage = Stage::new();
    let mut ledger = stage.ledger();
    let [one, two] = [1, 2].map(|version| Player::Version(WeightsVersion(version)));
    ledger.add(two, one, Tally { pairs: [0, 2, 10, 20, 20] });
    stage.save(&ledger);
    assert_eq!(stage.run_with(GateKind::Sprt, [version(1), version(2)], FOR_EVER), [1, 2]);
    assert_eq!(stage.run_with(GateKind::Sprt, [], FOR_EVER), [2]);
    assert!(stage.past().versions().contains(&WeightsVersion(2)), "its bytes are kept");
}

#[test]
fn the_first_version_does_not_pass_the_gate_if_it_returns_nan() {
    assert_eq!(Stage::new().run_with(GateKind::Sprt, [version(13), version(14)], FOR_EVER), [14]);
}

/// Returns the number of openings that count, and the number that do not, in two matches of version 2 against an
/// opponent. The first match is not in the ledger, so that both have the same opening and the same random draws.
fn openings_of_a_repeated_match(opponent: Player) -> [(u64, u64); 2] {
    let mut stage = Stage::new();
    stage.arena.openings_per_match = 1;
    let earlier = version(1);
    stage.past().keep(&earlier.manifest, &earlier.bytes, &[]).unwrap();
    let mut worker = stage.open(GateKind::None, Script::new([], FOR_EVER));
    let (published, adopted) = (version(2), Instant::now());
    let network = worker.setup.network(&published.manifest, &published.bytes).unwrap();
    let mut current = Current { published, network, adopted, counted: BTreeMap::new() };
    [(); 2].map(|()| {
        let results = worker.play_against(&mut current, opponent).ok().unwrap();
        (results.tally.openings(), results.repeated)
    })
}

#[test]
fn a_pair_of_two_versions_that_repeats_one_of_an_earlier_match_is_no_evidence() {
    assert_eq!(openings_of_a_repeated_match(Player::Version(WeightsVersion(1))), [(1, 0), (0, 1)]);
}

#[test]
fn a_repeated_game_against_an_opponent_that_draws_at_random_is_evidence() {
    assert_eq!(openings_of_a_repeated_match(Player::Random), [(1, 0), (1, 0)]);
    assert_eq!(openings_of_a_repeated_match(Player::Playouts { simulations: 10 }), [(1, 0), (1, 0)]);
}
