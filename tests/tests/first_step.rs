//! Every preset, and the smallest and largest board of every game, reaches the first training step through actor,
//! replay server and learner, with AlphaZero and MuZero.
//!
//! Networks are small and searches short: the claim is that the processes accept the data of each other, for all shapes
//! of observations, actions and episodes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use fleet::exposition::Exposition;
use fleet::plan::{self, Plan};
use fleet::{Algorithm, Fleet, Rating, Role};
use game::{Game as _, Scoring};
use games::GameKind;
use tests::{SEED, program, wait_until};

/// Three processes start and finish an episode of the longest game, in parallel with other tests.
const DEADLINE: Duration = Duration::from_secs(90);

/// A small network, short searches, and batches that a few positions fill.
const SMALL: [&str; 14] = [
    "network.blocks=1",
    "network.channels=32",
    "selfplay.games=2",
    "selfplay.full_simulations=2",
    "selfplay.full_simulations_max=2",
    // A game without a full search has no items.
    "selfplay.full_search_probability=1",
    "replay.min_items=8",
    "replay.fsync_ms=2",
    "learner.batch_size=8",
    "learner.device=cpu",
    "learner.threads=1",
    "actor.device=cpu",
    "actor.threads=1",
    "arena.device=cpu",
];

/// Options of `zerofleet train` that plan a run.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    run: plan::Args,
}

/// Returns the two extreme games of an entry: the smallest and the largest board, or the first and the last variant.
fn extremes(entry: &games::Entry) -> Vec<String> {
    let mut names: Vec<String> = entry.examples().collect();
    names.drain(1..names.len().max(2) - 1);
    names
}

/// Returns an algorithm with another kind of network than the preset; `None` if no search can use it.
fn other_algorithm(game: &str, preset: &Plan) -> Option<Algorithm> {
    let rules = game.parse::<GameKind>().expect("it is registered").rules();
    if !preset.config.network.model_of(&rules).has_dynamics() {
        return Some(Algorithm::GumbelMuzero);
    }
    selfplay::check_searchable(&rules).is_ok().then_some(Algorithm::GumbelAlphazero)
}

/// Returns the plan of a small run with the preset, or with another algorithm.
fn plan(game: &str, algorithm: Option<Algorithm>, runs: &Path) -> anyhow::Result<Plan> {
    let (runs, seed) = (runs.display().to_string(), format!("run.seed={SEED}"));
    let algorithm = algorithm.map(|algorithm| algorithm.to_string());
    let options = ["train", "--actors", "1", "--runs", &runs, "--game", game];
    let algorithm = algorithm.iter().flat_map(|algorithm| ["--algorithm", algorithm]);
    let sets = SMALL.iter().copied().chain([seed.as_str()]).flat_map(|set| ["--set", set]);
    let options = Options::try_parse_from(options.into_iter().chain(algorithm).chain(sets))?;
    Plan::new(&options.run, std::iter::empty())
}

/// Runs a game with the algorithm of the preset, then with another kind of network if a search can use it.
fn reach_first_steps(game: &str) -> anyhow::Result<()> {
    let runs = tempfile::tempdir().context("make the folder of runs")?;
    let preset = plan(game, None, &runs.path().join("preset"))?;
    reach_first_step(&preset).context("preset")?;
    let Some(other) = other_algorithm(game, &preset) else { return Ok(()) };
    let plan = plan(game, Some(other), &runs.path().join("other"))?;
    reach_first_step(&plan).with_context(|| other.to_string())
}

/// Runs a plan until the first training step.
fn reach_first_step(plan: &Plan) -> anyhow::Result<()> {
    plan.run.create()?;
    plan.write_config()?;
    let actor = program(Role::Actor.program())?;
    let binaries = actor.parent().context("find the folder of the programs")?;
    let mut fleet = Fleet::start(plan, binaries, Rating::Off, Instant::now())?;
    let reached = wait_until("a training step is done", DEADLINE, || {
        let events = fleet.watch(Instant::now())?;
        ensure!(events.is_empty(), "a process has ended: {events:?}");
        let steps = |metrics: &Exposition| metrics.get("zerofleet_learner_steps_total", &[]) > Some(0.0);
        Ok(fleet.scrape().iter().any(|(_, role, metrics)| *role == Role::Learner && steps(metrics)))
    });
    reached.with_context(|| last_lines(&plan.run.logs()))
}

/// Returns the last lines of every log.
fn last_lines(logs: &Path) -> String {
    let mut text = String::new();
    for file in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        let log = std::fs::read_to_string(file.path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        text.extend(lines.iter().rev().map(|line| format!("\n{}: {line}", file.file_name().display())));
    }
    text
}

/// Runs the extremes of these entries, and returns the failures.
fn failures(entries: &[&games::Entry]) -> Vec<String> {
    let games = entries.iter().flat_map(|entry| extremes(entry));
    let outcomes = games.map(|game| reach_first_steps(&game).with_context(|| game));
    outcomes.filter_map(Result::err).map(|error| format!("{error:#}")).collect()
}

/// Returns the entries of all board games, or of all environments.
fn entries(are_board_games: bool) -> Vec<&'static games::Entry> {
    let is_board_game = |entry: &games::Entry| {
        let name = entry.examples().next().expect("an entry has a game");
        name.parse::<GameKind>().unwrap().rules().spec().scoring == Scoring::Outcome
    };
    games::GAMES.iter().copied().filter(|entry| is_board_game(entry) == are_board_games).collect()
}

#[test]
fn every_board_game_reaches_its_first_training_step_with_alphazero_and_muzero() {
    let failed = failures(&entries(true));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_environment_reaches_its_first_training_step_with_each_network_that_it_allows() {
    let failed = failures(&entries(false));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
