//! `zerofleet match`: plays weights of runs, models, opponents without a network, and engines against each other. Two
//! players play a match, which a sequential test may stop; more players play a round robin.
//!
//! [`Args`] is the command line; [`play`] takes rules and players as arguments. [`strength::matches`] defines openings
//! and games, [`strength::gtp_engine`] drives engines, [`strength::rating`] computes Elo from results, and
//! [`strength::sprt`] is the test.

mod contender;
mod ends;
mod engines;
mod game_files;
mod picture;
mod record;
mod report;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use fleet::RunDirectory;
use game::{Game as _, Scoring};
use games::{AnyGame, AnyPosition, GameKind};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use service::Drain;
use strength::contestant::Contestant as _;
use strength::ledger::Tally;
use strength::matches::{self, Opening, Played};
use strength::rating::{Pairing, Rating};
use strength::sprt::{self, Sprt, State};

use self::contender::{Contender, Entry, EntryPlayer, Player};
use self::ends::Ends;
use self::game_files::Date;
use self::record::Games;
use self::report::{EngineReport, MatchPlayer, PairingReport, Report, SprtReport};
use crate::eval;
use crate::screen::progress_line;
use crate::sgf::prepare_directory;
use crate::trained::{self, Trained};

/// Maximum of `--games`. Without a sequential test, all games of a pairing run at the same time.
const GAMES_MAX: usize = 16_384;
/// Default of `--games` without `--sprt`: games per pairing.
const GAMES_DEFAULT: usize = 200;
/// Number of openings to play before a sequential test is evaluated, or the score is printed again. Both wait until all
/// games have ended, since otherwise short games would bias the result.
const BATCH_OPENINGS: usize = 16;
/// Maximum simulations per move.
const SIMULATIONS_MAX: u32 = 100_000;
/// Maximum number of openings for measuring the time per move.
const TIMED_POSITIONS_MAX: usize = 128;
/// Iterations that adapt the simulations of a player to the first player's time per move.
const ADAPTATIONS: usize = 3;

/// Plays runs, fixed opponents and other programs against each other.
///
/// All runs must play the same game; fixed opponents (random, playouts-N, alphabeta-D) need no network. Each opening is
/// played twice, with sides exchanged. More than two players meet in a round robin. The runs may have networks of
/// different models, such as AlphaZero and MuZero.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Player: RUN[@VERSION], random, playouts-N, alphabeta-D, a model or an engine.
    ///
    /// For a run named first: `first` plays with the latest weights, `first@12` with the kept version 12, and
    /// `first:400` with 400 simulations per move. A model has the name given by --weights, an engine the name given by
    /// --engine. Scores and Elo are from the view of the first player.
    #[arg(value_name = "PLAYER", required = true, num_args = 2..)]
    players: Vec<Entry>,

    #[command(flatten)]
    options: trained::Options,

    /// Model that plays as the player NAME; may be repeated.
    ///
    /// NAME alone is a bundled model (zerofleet weights models): --weights hex-7. A path is a model folder or a file.
    #[arg(long = "weights", value_name = "NAME[=PATH]", conflicts_with = "inference")]
    models: Vec<contender::Model>,

    #[command(flatten)]
    engines: engines::Options,

    /// Games per pairing (even) [default: 200, with --sprt 16384].
    #[arg(long, value_name = "N")]
    games: Option<usize>,

    /// Maximum number of random plies in an opening.
    #[arg(long, value_name = "N", default_value_t = 8)]
    opening_plies_max: u16,

    /// Simulations per move; 0 plays the raw policies.
    #[arg(long, value_name = "N", default_value_t = 64)]
    simulations: u32,

    /// Simulations per move for all players but the first [default: as --simulations].
    ///
    /// The first player keeps --simulations.
    #[arg(long, value_name = "N", conflicts_with = "equal_time")]
    opponent_simulations: Option<u32>,

    /// Set the other players' simulations so that all use the first player's time per move.
    #[arg(long)]
    equal_time: bool,

    /// Stop a match of two players once an SPRT accepts ELO0 or ELO1.
    ///
    /// A sequential probability ratio test decides between two Elo differences, such as 0,20.
    #[arg(long, value_name = "ELO0,ELO1", allow_hyphen_values = true)]
    sprt: Option<Hypotheses>,

    /// Type I error rate of the SPRT: the probability of accepting ELO1 if ELO0 holds.
    #[arg(long, value_name = "P", default_value_t = 0.05, requires = "sprt")]
    alpha: f64,

    /// Type II error rate of the SPRT: the probability of accepting ELO0 if ELO1 holds.
    #[arg(long, value_name = "P", default_value_t = 0.05, requires = "sprt")]
    beta: f64,

    /// Seed of the openings.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Write all games with moves to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write SGF files of all games here (Go, Hex, Othello and Gomoku only).
    #[arg(long, value_name = "DIR")]
    sgf: Option<PathBuf>,

    /// Date in the SGF records, such as 2026-01-31 [default: none].
    #[arg(long, value_name = "DATE", requires = "sgf")]
    sgf_date: Option<Date>,

    /// Plot the ratings with confidence intervals to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,

    /// Without a terminal, print the score to standard error after every 32 games.
    #[arg(long)]
    progress: bool,

    /// Stop when standard input closes, which shows that the parent process has exited.
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

/// The hypotheses of a sequential test, written as two Elo differences: `0,20`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Hypotheses {
    elo0: f64,
    elo1: f64,
}

impl FromStr for Hypotheses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(',').and_then(|(elo0, elo1)| Some((elo0.parse().ok()?, elo1.parse().ok()?)));
        let (elo0, elo1) = parsed.ok_or_else(|| format!("`{text}` is not a pair of Elo differences such as 0,20"))?;
        Ok(Self { elo0, elo1 })
    }
}

/// Settings of a match or a round robin.
#[derive(Debug, Clone, Copy)]
struct Settings {
    matches: matches::Settings,
    /// Seed of the openings and of players without a network.
    seed: u64,
    pace: Pace,
    /// The sequential test that may stop a match of two players.
    sprt: Option<Sprt>,
    /// Number of openings after which the results count in the test and in the progress.
    batch_openings: usize,
}

/// The rule that sets the number of simulations of all players except the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Simulations as given on the command line.
    AsGiven,
    /// Simulations that take the same time per move as the first player.
    EqualTime,
}

/// The progress of the games between two players.
struct Progress<'a> {
    names: [&'a str; 2],
    /// Number of finished games.
    over: usize,
    /// Total number of games.
    games: usize,
    /// Results of the complete batches.
    tally: Tally,
    sprt: Option<Sprt>,
}

impl Args {
    /// Plays all games and prints the report.
    pub(crate) fn run(self, output: &mut impl Write) -> anyhow::Result<()> {
        let settings = self.settings()?;
        let (_runtime, drain) = crate::drain_or_exit_on_signals()?;
        if self.exit_with_parent {
            drain.on_end_of(io::stdin())?;
        }
        let (game, contenders) = self.contenders(&drain)?;
        let rules = game.rules();
        self.sgf.iter().try_for_each(|folder| prepare_directory(folder, &rules)).context("--sgf")?;
        let (line, mut printed) = (progress_line(), 0);
        let pause = &mut |progress: &Progress<'_>| {
            let counted = progress.tally.games();
            if !line.is_hidden() {
                line.set_message(progress.to_string());
            } else if self.progress && std::mem::replace(&mut printed, counted) != counted {
                // If standard error is closed, only this line is lost. One write keeps the line whole for a reader.
                drop(io::stderr().write_all(format!("{progress}\n").as_bytes()));
            }
            if drain.started() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let Finished { report, played, failure } = play(&rules, contenders, settings, pause)?;
        line.finish_and_clear();
        if self.json {
            serde_json::to_writer_pretty(&mut *output, &report)?;
            writeln!(output)?;
        } else {
            report.write(output)?;
        }
        output.flush().context("write the report")?;
        self.write_files(&rules, &report, &played)?;
        failure.map_or(Ok(()), Err)
    }

    /// Checks the options and returns the settings.
    fn settings(&self) -> anyhow::Result<Settings> {
        let games = self.games.unwrap_or(if self.sprt.is_some() { GAMES_MAX } else { GAMES_DEFAULT });
        let is_possible = games.is_multiple_of(2) && (2..=GAMES_MAX).contains(&games);
        ensure!(is_possible, "--games: must be an even number from 2 to {GAMES_MAX}, not {games}");
        for (option, simulations) in
            [("--simulations", Some(self.simulations)), ("--opponent-simulations", self.opponent_simulations)]
        {
            check_simulations(option, simulations)?;
        }
        for (option, file) in [("--csv", &self.csv), ("--picture", &self.picture)] {
            let folder = file.as_ref().and_then(|file| file.parent()).filter(|folder| *folder != Path::new(""));
            if let Some(folder) = folder {
                ensure!(folder.is_dir(), "{option}: no such directory: {}", folder.display());
            }
        }
        self.engines.check(&self.players)?;
        self.check_models()?;
        let evaluated = self.players.iter().filter(|entry| !self.engines.has(&entry.player));
        let runs: BTreeSet<&str> = evaluated.filter_map(|entry| entry.player.run()).map(String::as_str).collect();
        ensure!(
            self.options.inference.is_none() || runs.len() < 2,
            "--inference: one server cannot evaluate for several runs ({})",
            runs.into_iter().collect::<Vec<_>>().join(" and ")
        );
        let sprt = self.sprt.map(|Hypotheses { elo0, elo1 }| {
            ensure!(self.players.len() == 2, "--sprt: needs two players, not {}", self.players.len());
            Sprt::new(sprt::Settings { elo0, elo1, alpha: self.alpha, beta: self.beta }).context("--sprt")
        });
        Ok(Settings {
            matches: matches::Settings { openings: games / 2, opening_plies_max: self.opening_plies_max },
            seed: self.seed,
            pace: if self.equal_time { Pace::EqualTime } else { Pace::AsGiven },
            sprt: sprt.transpose()?,
            batch_openings: if self.progress || self.sprt.is_some() { BATCH_OPENINGS } else { games / 2 },
        })
    }

    /// Checks that each model is one player of the match, without a version.
    fn check_models(&self) -> anyhow::Result<()> {
        for (index, contender::Model { name, .. }) in self.models.iter().enumerate() {
            let is_repeated = self.models[..index].iter().any(|other| other.name == *name);
            ensure!(!is_repeated, "--weights: {name} is given twice");
            ensure!(!self.engines.has(&EntryPlayer::newest(name)), "--weights: {name} is an engine");
            let uses: Vec<&Entry> = self.players.iter().filter(|entry| entry.player.run() == Some(name)).collect();
            ensure!(!uses.is_empty(), "--weights: {name} is not a player of the match");
            let versioned = |entry: &&&Entry| matches!(entry.player, EntryPlayer::Run { version: Some(_), .. });
            if let Some(entry) = uses.iter().find(versioned) {
                bail!("{}: the model {name} has no weights versions", entry.name);
            }
        }
        Ok(())
    }

    /// Loads all players, starts the engines, and returns the players with the common game.
    fn contenders(&self, drain: &Drain) -> anyhow::Result<(GameKind, Vec<Contender>)> {
        let mut found = self.options.game.clone().map(|game| (game, "--game".to_owned()));
        let mut contenders: Vec<Option<Contender>> = Vec::new();
        for (index, Entry { name, player }) in self.players.iter().enumerate() {
            let player = match player {
                _ if self.engines.has(player) => None,
                EntryPlayer::Fixed(fixed) => Some(Player::Fixed(*fixed)),
                EntryPlayer::Run { run, version, simulations } => {
                    check_simulations(name, *simulations)?;
                    let usual = if index == 0 { None } else { self.opponent_simulations };
                    let simulations = simulations.or(usual).unwrap_or(self.simulations);
                    let model = self.models.iter().find(|model| model.name == *run);
                    let kind = if model.is_some() { "model" } else { "run" };
                    let trained = match model {
                        Some(model) => Trained::of_model(&model.path, &self.options, 1)?,
                        None => {
                            let run = RunDirectory::existing(&self.options.runs, run)?;
                            Trained::of_run(&run, *version, &self.options, 1)?
                        }
                    };
                    let (game, player) = eval::Player::of(trained, simulations);
                    if let Some((other, of)) = &found
                        && *other != game
                    {
                        bail!(
                            "{of} is for {other}, but {kind} {run} is for {game}; all players must play the same game"
                        );
                    }
                    found = Some((game, format!("{kind} {run}")));
                    Some(Player::Network(player))
                }
            };
            contenders.push(player.map(|player| Contender::new(name, player)));
        }
        let (game, _) = found.context("the game is unknown; pass --game, or a run or a model as a player")?;
        let rules = game.rules();
        let start = |(Entry { name, .. }, contender): (&Entry, Option<Contender>)| match contender {
            Some(contender) => Ok(contender),
            None => Ok(Contender::new(name, self.engines.start(name, &rules, drain)?)),
        };
        let contenders: anyhow::Result<Vec<Contender>> = self.players.iter().zip(contenders).map(start).collect();
        Ok((game, contenders?))
    }

    fn write_files(&self, game: &AnyGame, report: &Report, played: &[Played]) -> anyhow::Result<()> {
        if let Some(path) = &self.csv {
            let name = |player: usize| report.players[player].name.as_str();
            let games = report.pairings.iter().zip(played);
            let games = games.map(|(pairing, played)| Games { names: [name(pairing.a), name(pairing.b)], played });
            record::write(path, game, &games.collect::<Vec<_>>())?;
        }
        if let Some(path) = &self.picture {
            picture::draw(path, report)?;
        }
        if let Some(folder) = &self.sgf {
            game_files::write(folder, game, self.sgf_date.as_ref(), report, played)?;
        }
        Ok(())
    }
}

fn check_simulations(option: &str, simulations: Option<u32>) -> anyhow::Result<()> {
    let simulations = simulations.unwrap_or(0);
    ensure!(simulations <= SIMULATIONS_MAX, "{option}: must be at most {SIMULATIONS_MAX}, not {simulations}");
    Ok(())
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names: [first, second], over, games, tally, sprt } = self;
        write!(f, "{first} against {second}: {over} of {games} games")?;
        if tally.games() > 0 {
            let rating = Rating::over_opponent(*tally);
            write!(f, ", {} of {} points, Elo {}", tally.points(), tally.games(), report::elo_with_interval(&rating))?;
        }
        if let Some(sprt) = sprt {
            let (ratio, sprt::Bounds { low, high }) = (sprt.log_likelihood_ratio(*tally), sprt.bounds());
            write!(f, ", log-likelihood ratio {ratio:.2} ({low:.2} to {high:.2})")?;
        }
        Ok(())
    }
}

/// A finished or stopped match.
struct Finished {
    report: Report,
    /// The games of each pairing.
    played: Vec<Played>,
    /// The failure of a player that stopped the match.
    failure: Option<anyhow::Error>,
}

/// Plays all pairings of the players. `pause` is called after every round of moves, and may stop all games.
fn play(
    game: &AnyGame,
    mut contenders: Vec<Contender>,
    settings: Settings,
    pause: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> anyhow::Result<Finished> {
    let spec = game.spec();
    ensure!(
        spec.scoring == Scoring::Outcome,
        "{} is scored by its rewards and has no matches; compare mean returns with zerofleet eval",
        spec.name
    );
    let openings = matches::openings(game, settings.matches, 0, &mut ChaCha8Rng::seed_from_u64(settings.seed));
    if settings.pace == Pace::EqualTime {
        adapt(game, &mut contenders, &openings[..openings.len().min(TIMED_POSITIONS_MAX)])?;
    }
    let (mut pairings, mut games) = (Vec::new(), Vec::new());
    let mut flow = Ok(ControlFlow::Continue(()));
    let count = contenders.len();
    let all = (0..count).flat_map(|a| (a + 1..count).map(move |b| [a, b]));
    for (number, players) in all.enumerate() {
        let mut played = Played::default();
        flow = play_pairing(game, &mut contenders, (number as u64, players), &openings, settings, &mut played, pause);
        let [a, b] = players;
        let pairing = Pairing { a, b, tally: played.tally() };
        let ends = Ends::of(players, &played);
        let is_complete = matches!(flow, Ok(ControlFlow::Continue(())));
        let sprt = settings.sprt.map(|sprt| SprtReport::new(&sprt, pairing.tally, is_complete));
        pairings.push(PairingReport::new(pairing, played.repeated_games(), ends, sprt));
        games.push(played);
        if !is_complete {
            break;
        }
    }
    let is_interrupted = !matches!(flow, Ok(ControlFlow::Continue(())));
    let void = |pairing: &PairingReport| pairing.ends.void_openings.first().filter(|_| pairing.games == 0).cloned();
    let failure = match flow {
        Err(error) => Some(error),
        Ok(ControlFlow::Break(())) => None,
        Ok(ControlFlow::Continue(())) => {
            pairings.iter().find_map(void).map(|opening| anyhow!("no game counts: {}", opening.reason))
        }
    };
    let report = Report {
        game: spec.name.clone(),
        openings: openings.len(),
        opening_plies_max: settings.matches.opening_plies_max,
        seed: settings.seed,
        is_interrupted,
        failure: failure.as_ref().map(service::chain),
        players: players(&contenders, &pairings),
        pairings,
    };
    Ok(Finished { report, played: games, failure })
}

/// Plays the games of two players until all games are over or the sequential test decides. Returns `Break` if `pause`
/// stops the games.
fn play_pairing(
    game: &AnyGame,
    contenders: &mut [Contender],
    (number, players): (u64, [usize; 2]),
    openings: &[Opening<AnyPosition>],
    settings: Settings,
    played: &mut Played,
    pause: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> anyhow::Result<ControlFlow<()>> {
    let names = players.map(|player| contenders[player].name.clone());
    let names = names.each_ref().map(String::as_str);
    let [one, other] = contenders.get_disjoint_mut(players).context("two players meet")?;
    let rng = |side: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
        // Stream 0 generates the openings.
        rng.set_stream(1 + 2 * number + side);
        rng
    };
    let (mut one, mut other) = (one.participant(rng(0)), other.participant(rng(1)));
    let mut before = 0;
    for batch in openings.chunks(settings.batch_openings) {
        let tally = played.tally();
        let pause = &mut |left: usize| {
            let (over, games) = (before + 2 * batch.len() - left, 2 * openings.len());
            pause(&Progress { names, over, games, tally, sprt: settings.sprt })
        };
        let flow = matches::play(game, [&mut one, &mut other], batch, played, pause)
            .with_context(|| format!("play {} against {}", names[0], names[1]))?;
        let is_decided = settings.sprt.is_some_and(|sprt| sprt.state(played.tally()) != State::Continue);
        if flow.is_break() || is_decided {
            return Ok(flow);
        }
        before += 2 * batch.len();
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the players with scores and ratings over all pairings.
fn players(contenders: &[Contender], pairings: &[PairingReport]) -> Vec<MatchPlayer> {
    let results: Vec<Pairing> =
        pairings.iter().map(|&PairingReport { a, b, pairs, .. }| Pairing { a, b, tally: pairs }).collect();
    let ratings = Rating::over_first(contenders.len(), &results);
    let player = |(index, (contender, rating)): (usize, (&Contender, Rating))| {
        let mut tally = Tally::default();
        for &Pairing { a, b, tally: of_pairing } in &results {
            if a == index {
                tally += of_pairing;
            } else if b == index {
                tally += of_pairing.reversed();
            }
        }
        let (attributes, simulations) = match &contender.player {
            Player::Network(player) => (Some(player.network.attributes()), Some(player.simulations)),
            Player::Fixed(_) | Player::Engine { .. } => (None, None),
        };
        let engine = match &contender.player {
            Player::Engine { engine, command } => Some(EngineReport::new(engine.identity(), command)),
            Player::Network(_) | Player::Fixed(_) => None,
        };
        MatchPlayer {
            name: contender.name.clone(),
            weights_version: attributes.as_ref().map(|attributes| attributes.weights_version),
            evaluator: attributes.map(|attributes| attributes.name.to_string()),
            simulations,
            engine,
            move_ms: contender.clock.move_ms(),
            games: tally.games(),
            points: tally.points(),
            rating: (tally.games() > 0).then_some(rating),
        }
    };
    contenders.iter().zip(ratings).enumerate().map(player).collect()
}

/// Adapts the simulations of all players except the first to the time per move of the first player.
fn adapt(game: &AnyGame, contenders: &mut [Contender], openings: &[Opening<AnyPosition>]) -> anyhow::Result<()> {
    let positions: Vec<AnyPosition> = openings.iter().map(|opening| opening.position.clone()).collect();
    let mut first: Option<(Duration, u32)> = None;
    for Contender { name, player, .. } in contenders {
        let Player::Network(player) = player else { bail!("--equal-time: {name} has no simulations to adapt") };
        let Some((target, simulations)) = first else {
            ensure!(player.simulations > 0, "--equal-time: {name} plays the raw policy, without simulations");
            first = Some((time_of_moves(game, player, &positions)?, player.simulations));
            continue;
        };
        let time_of = |simulations| {
            player.simulations = simulations;
            time_of_moves(game, player, &positions)
        };
        player.simulations = simulations_in(target, time_of, simulations)?;
    }
    Ok(())
}

/// Returns the number of simulations for which `time_of` is about `target`; `simulations` is the first guess.
fn simulations_in(
    target: Duration,
    mut time_of: impl FnMut(u32) -> anyhow::Result<Duration>,
    mut simulations: u32,
) -> anyhow::Result<u32> {
    for _ in 0..ADAPTATIONS {
        let ratio = target.as_secs_f64() / time_of(simulations)?.as_secs_f64().max(f64::MIN_POSITIVE);
        // The cast to u32 saturates.
        simulations = ((f64::from(simulations) * ratio).round() as u32).clamp(1, SIMULATIONS_MAX);
    }
    Ok(simulations)
}

/// Measures the time in which a player chooses a move in each of `positions`, after a first pass that fills caches.
fn time_of_moves(game: &AnyGame, player: &mut eval::Player, positions: &[AnyPosition]) -> anyhow::Result<Duration> {
    let mut contestant = player.contestant(player.simulations);
    contestant.choose(game, positions).context("choose moves")?;
    let start = Instant::now();
    contestant.choose(game, positions).context("choose moves")?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests;
