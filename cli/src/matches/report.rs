//! The report of a match or round robin as text and JSON: results, ratings and the state of a sequential test.

use std::io::{self, Write};

use figures::table::Table;
use serde::Serialize;
use strength::gtp_engine::Identity;
use strength::ledger::Tally;
use strength::rating::{Pairing, Rating};
use strength::sprt::{Bounds, Sprt, State};

use super::ends::Ends;
use crate::screen::MISSING;

/// The results of a match or round robin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    /// Name of the game.
    pub(super) game: String,
    /// Number of openings per pairing. Each opening is played twice.
    pub(super) openings: usize,
    /// Maximum number of random plies in an opening.
    pub(super) opening_plies_max: u16,
    /// Seed of the openings.
    pub(super) seed: u64,
    /// True if the match was stopped before the last game.
    pub(super) is_interrupted: bool,
    /// Failure of a player that stopped the match; `None` without a failure.
    pub(super) failure: Option<String>,
    /// Players in the order of the command line.
    pub(super) players: Vec<MatchPlayer>,
    /// Results of every two players that have played against each other.
    pub(super) pairings: Vec<PairingReport>,
}

/// A player with score and rating over all pairings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MatchPlayer {
    /// Name of the player on the command line.
    pub(super) name: String,
    /// Weights version; `None` for a player without a network.
    pub(super) weights_version: Option<u64>,
    /// Name of the evaluator; `None` for a player without a network.
    pub(super) evaluator: Option<String>,
    /// Simulations per move; `None` for a player without a network.
    pub(super) simulations: Option<u32>,
    /// Program that plays as the engine; `None` for other players.
    pub(super) engine: Option<EngineReport>,
    /// Mean time per move in milliseconds. Moves of concurrent games are computed in one batch.
    pub(super) move_ms: f64,
    /// Number of counted games, without repeated games.
    pub(super) games: u64,
    /// Points in the counted games: 1 for a win, 0.5 for a draw.
    pub(super) points: f64,
    /// Elo relative to the first player, with an interval; `None` without games.
    #[serde(flatten)]
    pub(super) rating: Option<Rating>,
}

/// A program that plays over the Go Text Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct EngineReport {
    /// Name that the program reports.
    pub(super) name: String,
    /// Version that the program reports.
    pub(super) version: String,
    /// Command line that starts the program.
    pub(super) command: String,
}

/// The results of the games between two players.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PairingReport {
    /// Index of player `a`, from whose perspective the results are.
    pub(super) a: usize,
    /// Index of player `b`, the opponent.
    pub(super) b: usize,
    /// Number of counted games, without repeated games.
    pub(super) games: u64,
    /// Number of games that do not count because they repeat an earlier game. If one of an opening's two games repeats
    /// every move of an earlier game, neither counts.
    pub(super) repeated_games: usize,
    /// Points of player `a` in the counted games: 1 for a win, 0.5 for a draw.
    pub(super) points: f64,
    /// Number of openings for each total of half points (0 to 4) that player `a` scored in both games.
    pub(super) pairs: Tally,
    /// Elo of player `a` relative to player `b`, with an interval, from this pairing alone; `None` without games.
    #[serde(flatten)]
    pub(super) rating: Option<Rating>,
    /// Resignations, forfeits and void openings.
    #[serde(flatten)]
    pub(super) ends: Ends,
    /// State of the sequential test; `None` without a test.
    pub(super) sprt: Option<SprtReport>,
}

/// The state of a sequential probability ratio test (SPRT).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct SprtReport {
    /// Hypotheses and error rates.
    #[serde(flatten)]
    pub(super) settings: strength::sprt::Settings,
    /// Log-likelihood ratio of the results so far.
    pub(super) log_likelihood_ratio: f64,
    /// Log-likelihood ratios at which the test stops.
    pub(super) bounds: Bounds,
    /// Decision of the test, or that more games are needed.
    pub(super) state: State,
}

impl EngineReport {
    /// Creates the report on an engine that was started with the command line `command`.
    pub(super) fn new(Identity { name, version }: &Identity, command: &str) -> Self {
        Self { name: name.clone(), version: version.clone(), command: command.to_owned() }
    }

    /// Returns the name and version of the program.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.name, self.version).trim().to_owned()
    }
}

impl SprtReport {
    /// Returns the state of a test after the results in `tally`. The test stays undecided if the last batch is
    /// incomplete, since short games finish first and would bias the result.
    pub(super) fn new(sprt: &Sprt, tally: Tally, is_complete: bool) -> Self {
        Self {
            settings: sprt.settings(),
            log_likelihood_ratio: sprt.log_likelihood_ratio(tally),
            bounds: sprt.bounds(),
            state: if is_complete { sprt.state(tally) } else { State::Continue },
        }
    }
}

impl PairingReport {
    /// Creates the report on the games of player `a` against player `b`, with the state of a test, if any.
    pub(super) fn new(pairing: Pairing, repeated_games: usize, ends: Ends, sprt: Option<SprtReport>) -> Self {
        let Pairing { a, b, tally } = pairing;
        Self {
            a,
            b,
            games: tally.games(),
            repeated_games,
            points: tally.points(),
            pairs: tally,
            rating: (tally.games() > 0).then(|| Rating::over_opponent(tally)),
            ends,
            sprt,
        }
    }
}

impl Report {
    /// Writes the whole report as text.
    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        let Self { game, opening_plies_max, seed, players, pairings, is_interrupted, failure, .. } = self;
        let games: u64 = pairings.iter().map(|pairing| pairing.games + pairing.repeated_games as u64).sum();
        writeln!(
            output,
            "{game}: {games} games, openings of up to {opening_plies_max} random plies (seed {seed}) from both sides"
        )?;
        if *is_interrupted {
            writeln!(output, "interrupted: openings with only one finished game do not count")?;
        }
        if let Some(failure) = failure {
            writeln!(output, "stopped by a failure: {failure}")?;
        }
        writeln!(output)?;
        players.iter().try_for_each(|player| write_player(player, output))?;
        writeln!(output)?;
        match pairings.as_slice() {
            [pairing] if players.len() == 2 => self.write_match(pairing, output),
            _ => self.write_crosstable(output),
        }?;
        let names = |pairing: &PairingReport| [pairing.a, pairing.b].map(|player| players[player].name.as_str());
        pairings.iter().try_for_each(|pairing| pairing.ends.write(names(pairing), output))
    }

    /// Writes the results of a match between two players as text.
    fn write_match(&self, pairing: &PairingReport, output: &mut impl Write) -> io::Result<()> {
        let PairingReport { a, b, games, repeated_games, points, pairs, rating, sprt, .. } = pairing;
        let [first, second] = [a, b].map(|&player| &self.players[player].name);
        writeln!(output, "{first} scores {points} of {games} against {second} ({})", percent(*points, *games))?;
        writeln!(output, "Elo difference {}", rating.as_ref().map_or_else(|| "unknown".to_owned(), elo_with_interval))?;
        let [none, half, one, one_and_a_half, two] = pairs.pairs;
        writeln!(
            output,
            "openings by points in their two games: 2: {two}, 1.5: {one_and_a_half}, 1: {one}, 0.5: {half}, 0: {none}"
        )?;
        write_repeated(*repeated_games, output)?;
        sprt.iter().try_for_each(|sprt| write_sprt(sprt, first, second, output))
    }

    /// Writes a crosstable: the points of all players against each other, from the highest to the lowest rating.
    /// Ratings are relative to the first player on the command line.
    fn write_crosstable(&self, output: &mut impl Write) -> io::Result<()> {
        let order = self.by_rating();
        let opponents = (1..=order.len()).map(|place| place.to_string());
        let numbers = ["points", "games", "%", "Elo", "95 % interval"];
        let mut table = Table::default().numbers([""]).words([""]).numbers(opponents).numbers(numbers);
        for (place, &index) in (1..).zip(&order) {
            let MatchPlayer { name, games, points, rating, .. } = &self.players[index];
            let mut row = vec![format!("{place}"), name.clone()];
            row.extend(order.iter().map(|&opponent| self.points_against(index, opponent)));
            let cell = |text: fn(&Rating) -> String| rating.as_ref().map_or_else(|| MISSING.to_owned(), text);
            row.extend([
                points.to_string(),
                games.to_string(),
                percent(*points, *games),
                cell(|rating| format!("{:+.0}", rating.elo)),
                cell(|rating| format!("{:+.0} to {:+.0}", rating.low, rating.high)),
            ]);
            table.row(row);
        }
        writeln!(output, "{table}")?;
        writeln!(output, "points of the row player against the column player; Elo relative to {}", self.reference())?;
        write_repeated(self.pairings.iter().map(|pairing| pairing.repeated_games).sum(), output)
    }

    /// Returns the indices of all players, sorted by descending rating; players without games are last.
    pub(super) fn by_rating(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.players.len()).collect();
        let elo = |player: usize| self.players[player].rating.map_or(f64::NEG_INFINITY, |rating| rating.elo);
        order.sort_by(|&a, &b| elo(b).total_cmp(&elo(a)));
        order
    }

    /// Returns the name of the player to whom all ratings are relative.
    pub(super) fn reference(&self) -> &str {
        &self.players[0].name
    }

    /// Formats the points of a player against an opponent, or returns a dash if the two have not played each other.
    fn points_against(&self, player: usize, opponent: usize) -> String {
        let met = |pairing: &&PairingReport| [pairing.a, pairing.b].iter().all(|at| [player, opponent].contains(at));
        let points = |pairing: &PairingReport| {
            let tally = if pairing.a == player { pairing.pairs } else { pairing.pairs.reversed() };
            tally.points().to_string()
        };
        self.pairings.iter().find(met).map_or_else(|| MISSING.to_owned(), points)
    }
}

fn write_player(player: &MatchPlayer, output: &mut impl Write) -> io::Result<()> {
    let MatchPlayer { name, weights_version, evaluator, simulations, engine, move_ms, .. } = player;
    if let Some(engine) = engine {
        return writeln!(output, "  {name}: {} (`{}`), {move_ms:.2} ms a move", engine.title(), engine.command);
    }
    match (weights_version, evaluator, simulations) {
        (Some(version), Some(evaluator), Some(simulations)) => writeln!(
            output,
            "  {name}: weights version {version} ({evaluator}), {simulations} simulations, {move_ms:.2} ms a move"
        ),
        _ => writeln!(output, "  {name}: no network, {move_ms:.2} ms a move"),
    }
}

fn write_repeated(games: usize, output: &mut impl Write) -> io::Result<()> {
    if games == 0 {
        return Ok(());
    }
    writeln!(output, "{games} games do not count: a game with the same opening repeats an earlier game")
}

fn write_sprt(sprt: &SprtReport, first: &str, second: &str, output: &mut impl Write) -> io::Result<()> {
    let SprtReport { settings, log_likelihood_ratio, bounds, state } = sprt;
    let strength::sprt::Settings { elo0, elo1, alpha, beta } = settings;
    let Bounds { low, high } = bounds;
    writeln!(
        output,
        "SPRT of {elo0} against {elo1} Elo (alpha {alpha}, beta {beta}): log-likelihood ratio {log_likelihood_ratio:.2}, \
         bounds {low:.2} and {high:.2}"
    )?;
    match state {
        State::Continue => writeln!(output, "undecided: more games needed"),
        State::AcceptH0 => {
            writeln!(output, "H0 accepted: the difference of {first} to {second} is less than {elo1:+} Elo")
        }
        State::AcceptH1 => {
            writeln!(output, "H1 accepted: the difference of {first} to {second} is more than {elo0:+} Elo")
        }
    }
}

/// Formats points as a percentage of the games.
fn percent(points: f64, games: u64) -> String {
    if games == 0 { MISSING.to_owned() } else { format!("{:.1} %", 100.0 * points / games as f64) }
}

/// Formats an Elo rating with the 95 % interval.
pub(super) fn elo_with_interval(rating: &Rating) -> String {
    let Rating { elo, low, high } = rating;
    format!("{elo:+.0} (95 % interval {low:+.0} to {high:+.0})")
}
