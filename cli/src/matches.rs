//! `zerofleet match`: plays the newest weights of two runs against each other, at equal simulations or at equal time.
//!
//! [`Args`] is its command line; [`play`] takes rules and players as arguments. [`arena::matches`] defines openings and
//! games, [`arena::rating`] the Elo of their results.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use arena::contestant::Contestant;
use arena::ledger::Tally;
use arena::matches;
use arena::rating::Rating;
use game::{Action, Game, Scoring};
use games::GameKind;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::eval::Player;
use crate::trained::{self, Trained};

/// All games of a match advance together.
const GAMES_MAX: usize = 16_384;
/// The largest number of simulations per move.
const SIMULATIONS_MAX: u32 = 100_000;
/// The number of openings on which the time of a move is measured.
const TIMED_POSITIONS_MAX: usize = 128;
/// The number of times that the simulations of the second player are adapted to the time of the first.
const ADAPTATIONS: usize = 3;

/// Plays the newest weights of two runs of one game against each other: each opening twice, with sides exchanged. The
/// runs may have networks of different models, such as AlphaZero and MuZero.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Name of the run whose score is reported.
    #[arg(value_name = "RUN")]
    run: String,

    /// Name of the run that it plays against.
    #[arg(value_name = "OPPONENT")]
    opponent: String,

    #[command(flatten)]
    options: trained::Options,

    /// Games, an even number.
    #[arg(long, value_name = "N", default_value_t = 200)]
    games: usize,

    /// The maximum number of random plies of an opening.
    #[arg(long, value_name = "N", default_value_t = 8)]
    opening_plies_max: u16,

    /// Simulations per move; 0 plays the raw policies.
    #[arg(long, value_name = "N", default_value_t = 64)]
    simulations: u32,

    /// Simulations per move of the opponent [default: those of --simulations].
    #[arg(long, value_name = "N", conflicts_with = "equal_time")]
    opponent_simulations: Option<u32>,

    /// Give the opponent as many simulations as take the same time as those of the first run.
    #[arg(long)]
    equal_time: bool,

    /// The seed of the openings.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Plays the match and prints the report.
    pub(crate) fn run(self, output: &mut impl Write) -> anyhow::Result<()> {
        let (games, plies) = (self.games, self.opening_plies_max);
        let is_possible = games.is_multiple_of(2) && (2..=GAMES_MAX).contains(&games);
        ensure!(is_possible, "--games: must be an even number from 2 to {GAMES_MAX}, not {games}");
        let opponent_simulations = self.opponent_simulations.unwrap_or(self.simulations);
        for (option, simulations) in
            [("--simulations", self.simulations), ("--opponent-simulations", opponent_simulations)]
        {
            ensure!(simulations <= SIMULATIONS_MAX, "{option}: must be at most {SIMULATIONS_MAX}, not {simulations}");
        }
        ensure!(!self.equal_time || self.simulations > 0, "--equal-time: raw policies have no simulations to adapt");
        let (game, player) = self.player(&self.run, self.simulations)?;
        let (other, opponent) = self.player(&self.opponent, opponent_simulations)?;
        ensure!(
            game == other,
            "run {} is about {game}, and run {} about {other}: a match is of one game",
            self.run,
            self.opponent
        );
        let settings = matches::Settings { openings: games / 2, opening_plies_max: plies };
        let pace = if self.equal_time { Pace::EqualTime } else { Pace::AsGiven };
        let report = play(&game.rules(), [player, opponent], [&self.run, &self.opponent], settings, self.seed, pace)?;
        if self.json {
            serde_json::to_writer_pretty(&mut *output, &report)?;
            writeln!(output)?;
        } else {
            write(&report, output)?;
        }
        output.flush().context("write the report")
    }

    /// Loads the player of a run.
    fn player(&self, run: &str, simulations: u32) -> anyhow::Result<(GameKind, Player)> {
        let args = trained::Args { run: run.to_owned(), options: self.options.clone() };
        let Trained { game, search, discount, networks, .. } = Trained::open(&args, 1)?;
        Ok((game, Player { network: networks.into_first(), simulations, search, discount }))
    }
}

/// The rule for the simulations of the second player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// They are given.
    AsGiven,
    /// They take the same time as those of the first player.
    EqualTime,
}

/// The result of a match.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Report {
    /// The game.
    game: String,
    /// The number of openings, each played twice.
    openings: usize,
    /// The maximum number of random plies of an opening.
    opening_plies_max: u16,
    /// The seed of the openings.
    seed: u64,
    /// The players.
    players: [MatchPlayer; 2],
    /// The points of the first player: one for a win, half for a draw.
    points: f64,
    /// The number of openings by the half points of the first player in their two games, from 0 to 4.
    pairs: Tally,
    /// The strength of the first player relative to the second.
    #[serde(flatten)]
    rating: Rating,
}

/// A player of a match.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct MatchPlayer {
    /// The name of its run.
    run: String,
    /// The weights version.
    weights_version: u64,
    /// The name of the evaluator.
    evaluator: String,
    /// Simulations per move.
    simulations: u32,
    /// The mean time of a move. Moves of all games are computed together.
    move_ms: f64,
}

/// Plays a match between two players, whose runs have the names `runs`.
fn play<G: Game>(
    game: &G,
    mut players: [Player; 2],
    runs: [&str; 2],
    settings: matches::Settings,
    seed: u64,
    pace: Pace,
) -> anyhow::Result<Report> {
    let spec = game.spec();
    ensure!(
        spec.scoring == Scoring::Outcome,
        "{} is scored by its rewards and has no matches; compare the returns of zerofleet eval",
        spec.name
    );
    let openings = matches::openings(game, settings, 0, &mut ChaCha8Rng::seed_from_u64(seed));
    let [a, b] = &mut players;
    if pace == Pace::EqualTime {
        let timed = &openings[..openings.len().min(TIMED_POSITIONS_MAX)];
        b.simulations = simulations_in(
            time_of_moves(game, a, timed)?,
            |simulations| {
                b.simulations = simulations;
                time_of_moves(game, b, timed)
            },
            a.simulations,
        )?;
    }
    let attributes = [a.network.attributes(), b.network.attributes()];
    let simulations = [a.simulations, b.simulations];
    let mut timed = [Timed::new(a.contestant(a.simulations)), Timed::new(b.contestant(b.simulations))];
    let tally = {
        let [a, b] = &mut timed;
        matches::play(game, [a, b], &openings, &mut || ControlFlow::Continue(()))
            .with_context(|| format!("play {} against {}", runs[0], runs[1]))?
            .expect("a match that is never stopped has a result")
    };
    let player = |index: usize| MatchPlayer {
        run: runs[index].to_owned(),
        weights_version: attributes[index].weights_version,
        evaluator: attributes[index].name.to_string(),
        simulations: simulations[index],
        move_ms: timed[index].move_ms(),
    };
    Ok(Report {
        game: spec.name.clone(),
        openings: openings.len(),
        opening_plies_max: settings.opening_plies_max,
        seed,
        players: [player(0), player(1)],
        points: tally.points(),
        pairs: tally,
        rating: Rating::over_opponent(tally),
    })
}

/// Returns the simulations for which `time_of` returns about `target`, beginning with `simulations`.
fn simulations_in(
    target: Duration,
    mut time_of: impl FnMut(u32) -> anyhow::Result<Duration>,
    mut simulations: u32,
) -> anyhow::Result<u32> {
    for _ in 0..ADAPTATIONS {
        let ratio = target.as_secs_f64() / time_of(simulations)?.as_secs_f64().max(f64::MIN_POSITIVE);
        // The conversion saturates.
        simulations = ((f64::from(simulations) * ratio).round() as u32).clamp(1, SIMULATIONS_MAX);
    }
    Ok(simulations)
}

/// Returns the time in which a player chooses moves in all of `positions`, after a first time that fills caches.
fn time_of_moves<G: Game>(game: &G, player: &mut Player, positions: &[G::Position]) -> anyhow::Result<Duration> {
    let mut contestant = player.contestant(player.simulations);
    contestant.choose(game, positions).context("choose moves")?;
    let mut timed = Timed::new(contestant);
    timed.choose(game, positions).context("choose moves")?;
    Ok(timed.spent)
}

/// A contestant whose time is measured.
struct Timed<'a, G: Game> {
    contestant: Box<dyn Contestant<G> + 'a>,
    spent: Duration,
    moves: usize,
}

impl<'a, G: Game> Timed<'a, G> {
    fn new(contestant: Box<dyn Contestant<G> + 'a>) -> Self {
        Self { contestant, spent: Duration::ZERO, moves: 0 }
    }

    fn move_ms(&self) -> f64 {
        1e3 * self.spent.as_secs_f64() / self.moves.max(1) as f64
    }
}

impl<G: Game> Contestant<G> for Timed<'_, G> {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        let start = Instant::now();
        let chosen = self.contestant.choose(game, positions);
        self.spent += start.elapsed();
        self.moves += positions.len();
        chosen
    }
}

fn write(report: &Report, output: &mut impl Write) -> io::Result<()> {
    let Report { game, openings, opening_plies_max, seed, players, points, pairs, rating } = report;
    let games = 2 * openings;
    writeln!(
        output,
        "{game}: {games} games, {openings} openings of up to {opening_plies_max} random plies (seed {seed}) from both sides"
    )?;
    writeln!(output)?;
    for MatchPlayer { run, weights_version, evaluator, simulations, move_ms } in players {
        writeln!(
            output,
            "  {run}: weights version {weights_version} ({evaluator}), {simulations} simulations, {move_ms:.2} ms a move"
        )?;
    }
    writeln!(output)?;
    let [first, second] = players.each_ref().map(|player| &player.run);
    let share = 100.0 * points / games as f64;
    writeln!(output, "{first} scores {points} of {games} against {second} ({share:.1} %)")?;
    let Rating { elo, low, high } = rating;
    writeln!(output, "Elo difference {elo:+.0} (95 % interval {low:+.0} to {high:+.0})")?;
    let [none, half, one, one_and_a_half, two] = pairs.pairs;
    writeln!(
        output,
        "openings by points in their two games: 2: {two}, 1.5: {one_and_a_half}, 1: {one}, 0.5: {half}, 0: {none}"
    )
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::{Fault, Faulty, Uniform};
    use evaluators::Network;
    use games::{Catch, ConnectFour, TicTacToe};
    use selfplay::SearchSettings;

    use super::*;

    fn player<G: Game>(game: &G, simulations: u32) -> Player {
        let network = Network::Evaluator(Box::new(Uniform::new(game.spec().observation)));
        Player { network, simulations, search: SearchSettings::default(), discount: 1.0 }
    }

    fn settings(openings: usize) -> matches::Settings {
        matches::Settings { openings, opening_plies_max: 4 }
    }

    fn run(simulations: [u32; 2]) -> Report {
        let game = ConnectFour::new();
        let players = simulations.map(|simulations| player(&game, simulations));
        play(&game, players, ["deep", "shallow"], settings(20), 3, Pace::AsGiven).unwrap()
    }

    #[test]
    fn the_deeper_search_scores_more_and_its_elo_is_above_that_of_its_opponent() {
        let report = run([48, 8]);
        assert!(report.points > 25.0 && report.rating.low > 0.0, "{report:?}");
        assert_eq!((report.pairs.games(), report.players[0].simulations, report.players[1].simulations), (40, 48, 8));
        let mirrored = run([8, 48]);
        assert!(mirrored.points < 15.0 && mirrored.rating.high < 0.0, "{mirrored:?}");
    }

    #[test]
    fn the_text_names_both_runs_and_sums_up_the_match() {
        let mut text = Vec::new();
        write(&run([8, 8]), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in [
            "connect_four: 40 games, 20 openings",
            "  deep: weights version",
            "8 simulations",
            " of 40 against shallow",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn simulations_follow_the_time_that_they_take() {
        // Each simulation of the second player takes twice as long, after an overhead of three.
        let time = |simulations: u32| Ok(Duration::from_micros(u64::from(3 + 2 * simulations)));
        assert_eq!(simulations_in(Duration::from_micros(103), time, 100).unwrap(), 50);
        assert_eq!(simulations_in(Duration::ZERO, time, 100).unwrap(), 1);
    }

    #[test]
    fn a_game_that_is_scored_by_rewards_is_refused() {
        let game = Catch::new();
        let players = [player(&game, 1), player(&game, 1)];
        let error = play(&game, players, ["a", "b"], settings(1), 0, Pace::AsGiven).unwrap_err().to_string();
        assert!(error.contains("catch is scored by its rewards") && error.contains("zerofleet eval"), "{error}");
    }

    #[test]
    fn a_network_that_fails_ends_the_match_with_both_names() {
        let game = TicTacToe::new();
        let failing = Faulty::new(game.spec().observation, Fault::NotFinite, 0);
        let failing = Player { network: Network::Evaluator(Box::new(failing)), ..player(&game, 4) };
        let error = play(&game, [player(&game, 4), failing], ["a", "b"], settings(2), 0, Pace::AsGiven).unwrap_err();
        assert!(error.to_string().contains("play a against b"), "{error}");
    }
}
