//! `zerofleet eval`: measures accuracy on solved positions, with and without search. In games as small as tic-tac-toe
//! it checks every line of play; in games with rewards it measures the mean return.
//!
//! [`Args`] is the command line. [`measure`] takes the network, the rules and the positions as arguments;
//! [`strength::solved`], [`strength::exhaustive`] and [`strength::returns`] define the measures. Solved positions come
//! from a file, from the game, or from the game's oracle.

mod lines;

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use bridge::{Bridge, EnvironmentSection};
use evaluators::Network;
use figures::table::{MISSING, Table, percent};
use game::{Game, Scoring};
use games::{AnyGame, Exhaustive, GameKind};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use selfplay::SearchSettings;
use serde::Serialize;
use service::config::RunSection;
use strength::contestant::{Contestant as _, SEQUENTIAL, Searcher, analysis};
use strength::outside;
use strength::returns::{self, Returns};
use strength::solved::{self, Accuracy, SolvedPosition};

use crate::trained::{self, Trained};

/// Seed for random choices in the search.
const SEED: u64 = 0;

/// Value of `--positions` for random positions that the game's oracle solves.
const ORACLE: &str = "oracle";

/// Default of `--episodes`: the number of evaluation episodes.
const EPISODES_DEFAULT: usize = 100;
/// Default of `--count`, the number of positions to draw and solve.
const COUNT_DEFAULT: usize = 300;
/// Maximum of `--count`; solving more positions takes hours.
const COUNT_MAX: usize = 100_000;
/// Maximum of `--episodes`; all episodes run at the same time.
const EPISODES_MAX: usize = 65_536;

/// Evaluates a model or the latest weights of a run.
///
/// Reports accuracy on solved positions, with and without search. In games as small as tic-tac-toe, checks every line
/// of play; in games with rewards, reports the mean return of evaluation episodes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: trained::Args,

    /// Solved positions: a file, or `oracle` [default: from the game].
    ///
    /// A file is CSV with the columns moves, band and one score per action. `oracle` generates random positions from
    /// --seed and solves them, in games where that is possible. The default is every line of play in games as small as
    /// tic-tac-toe; in other games, the bundled positions, or `oracle` if the game has none.
    #[arg(long, value_name = "FILE")]
    positions: Option<PathBuf>,

    /// Number of positions for `--positions oracle`.
    #[arg(long, value_name = "N", default_value_t = COUNT_DEFAULT)]
    count: usize,

    /// Number of evaluation episodes, in games with rewards [default: 100].
    ///
    /// In each step, the player chooses the best action found by the search.
    #[arg(long, value_name = "N", conflicts_with = "positions")]
    episodes: Option<usize>,

    /// Seed for evaluation episodes and for `--positions oracle`.
    ///
    /// Evaluation uses seeds that self-play and the arena never use.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Simulations per position; 0 measures only the raw policy.
    #[arg(long, value_name = "N", default_value_t = 64)]
    simulations: u32,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Measures a run's latest weights on solved positions from a file or from the game.
///
/// # Errors
/// The run has no weights, the game has no solved positions, or the file cannot be read.
pub(crate) fn accuracy(
    trained: trained::Args,
    positions: Option<PathBuf>,
    simulations: u32,
) -> anyhow::Result<Report<Accuracy>> {
    let args = Args { trained, positions, count: COUNT_DEFAULT, episodes: None, seed: 0, simulations, json: false };
    let (game, player) = Player::of(Trained::open(&args.trained, 1)?, simulations);
    let (source, positions) = args.positions(&game)?;
    measure(&game.rules(), &source, &positions, player)
}

impl Args {
    /// Runs the measurement and prints the report.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let trained = Trained::open(&self.trained, 1)?;
        let (run, environment) = (trained.run.clone(), trained.environment.clone());
        let (game, player) = Player::of(trained, self.simulations);
        let mut output = io::stdout().lock();
        if game.rules().spec().scoring == Scoring::Rewards {
            ensure!(self.positions.is_none(), "--positions: {game} is scored by its rewards; use --episodes");
            let report = self.returns(game, &run, &environment, player)?;
            self.write(&report, write_returns, &mut output)?;
        } else {
            ensure!(self.episodes.is_none(), "--episodes: {game} is scored by its outcome; use --positions");
            if self.positions.is_none() && game.entry().exhaustive == Exhaustive::Check {
                self.write(&lines::measure(&game.rules(), player)?, lines::write, &mut output)?;
            } else {
                let (source, positions) = self.positions(&game)?;
                self.write(&measure(&game.rules(), &source, &positions, player)?, write_table, &mut output)?;
            }
        }
        output.flush().context("write the report")
    }

    /// Writes a report as JSON, or as text with `as_text`.
    fn write<R: Serialize, W: Write>(
        &self,
        report: &R,
        as_text: impl FnOnce(&R, &mut W) -> io::Result<()>,
        output: &mut W,
    ) -> anyhow::Result<()> {
        if self.json {
            serde_json::to_writer_pretty(&mut *output, report)?;
            writeln!(output)?;
        } else {
            as_text(report, output)?;
        }
        Ok(())
    }

    /// Plays the evaluation episodes.
    fn returns(
        &self,
        game: GameKind,
        run: &RunSection,
        environment: &EnvironmentSection,
        player: Player,
    ) -> anyhow::Result<ReturnReport> {
        let episodes = self.episodes.unwrap_or(EPISODES_DEFAULT);
        ensure!((2..=EPISODES_MAX).contains(&episodes), "--episodes: must be from 2 to {EPISODES_MAX}, not {episodes}");
        let environments = match &game {
            GameKind::Recorded(described) => {
                Some(bridge::config::start(environment.settings(run, episodes)?, described, None)?)
            }
            _ => None,
        };
        measure_returns(&game.rules(), environments, episodes, self.seed, player)
    }

    /// Returns the solved positions and a description of the source.
    fn positions(&self, game: &GameKind) -> anyhow::Result<(String, Vec<SolvedPosition>)> {
        let rules = game.rules();
        match (&self.positions, game.entry().solved) {
            (Some(path), _) if path.as_os_str() == ORACLE => self.drawn(game),
            (Some(path), _) => {
                let file = path.display().to_string();
                let text = fs::read_to_string(path).with_context(|| format!("read the positions {file}"))?;
                let positions = solved::parse(&rules, &file, &text)?;
                Ok((file, positions))
            }
            (None, Some(bundled)) => Ok((bundled.file.to_owned(), solved::parse(&rules, bundled.file, bundled.csv)?)),
            (None, None) => self.drawn(game),
        }
    }

    /// Returns random positions that the game's oracle has solved, and a description of the source.
    fn drawn(&self, game: &GameKind) -> anyhow::Result<(String, Vec<SolvedPosition>)> {
        ensure!((1..=COUNT_MAX).contains(&self.count), "--count: must be from 1 to {COUNT_MAX}, not {}", self.count);
        let positions = solved::drawn(game, self.seed, self.count)
            .with_context(|| format!("{game} has no solved positions and no oracle; use --positions FILE"))?;
        Ok((format!("the {ORACLE}, seed {}", self.seed), positions.collect()))
    }
}

/// A network with search settings.
pub(crate) struct Player {
    /// Network under test.
    pub network: Network,
    /// Simulations per position.
    pub simulations: u32,
    /// The search settings.
    pub search: SearchSettings,
    /// Discount factor γ per step, for rewards and values in a search.
    pub discount: f32,
}

impl Player {
    /// Returns the game of a run, and the player with the weights of the run.
    pub(crate) fn of(trained: Trained, simulations: u32) -> (GameKind, Self) {
        let Trained { game, search, discount, networks, .. } = trained;
        (game, Self { network: networks.into_first(), simulations, search, discount })
    }

    /// Returns a contestant that searches with `simulations` per position.
    pub(crate) fn contestant(&mut self, simulations: u32) -> Searcher<'_> {
        let settings = analysis(simulations, &self.search, self.discount, SEQUENTIAL);
        Searcher::new(&mut self.network, settings, ChaCha8Rng::seed_from_u64(SEED))
    }
}

/// The mean return of evaluation episodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReturnReport {
    /// Name of the game.
    pub game: String,
    /// Name of the evaluator, such as `libtorch cpu bf16`.
    pub evaluator: String,
    /// Version of the weights under test.
    pub weights_version: u64,
    /// Simulations per step.
    pub simulations: u32,
    /// Seed of the episodes.
    pub seed: u64,
    /// Mean return with the confidence interval, and mean length.
    #[serde(flatten)]
    pub returns: Returns,
}

/// Plays evaluation episodes with the best action of each search, by the rules or in `environments` outside this
/// process.
///
/// # Errors
/// The network or the environments failed, or the game gave a non-finite reward.
pub(crate) fn measure_returns(
    game: &AnyGame,
    environments: Option<Bridge>,
    episodes: usize,
    seed: u64,
    mut player: Player,
) -> anyhow::Result<ReturnReport> {
    let attributes = player.network.attributes();
    let mut contestant = player.contestant(player.simulations);
    let seeds = returns::seeds(seed, episodes);
    let mut pause = || -> ControlFlow<()> { ControlFlow::Continue(()) };
    let played = match environments {
        Some(mut bridge) => outside::play(game, &mut bridge, &mut contestant, seeds, &mut pause)?,
        None => returns::play(game, &mut contestant, seeds, &mut pause)?,
    };
    Ok(ReturnReport {
        game: game.spec().name.clone(),
        evaluator: attributes.name.to_string(),
        weights_version: attributes.weights_version,
        simulations: player.simulations,
        seed,
        returns: Returns::of(&played.expect("episodes that are never stopped have a result")),
    })
}

fn write_returns(report: &ReturnReport, output: &mut impl Write) -> io::Result<()> {
    let ReturnReport { game, evaluator, weights_version, simulations, seed, returns } = report;
    let Returns { episodes, mean, low, high, length } = returns;
    writeln!(output, "{game}, weights version {weights_version} ({evaluator}), {simulations} simulations a step")?;
    writeln!(output, "mean return {mean:.2} (95 % interval {low:.2} to {high:.2})")?;
    writeln!(output, "{episodes} episodes with seed {seed}, {length:.1} steps on average")
}

/// The results of a network with search and without: the accuracy on solved positions, or the counts over all lines of
/// play.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report<T> {
    /// Name of the game.
    pub game: String,
    /// Source of the solved positions; absent for all lines of play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<String>,
    /// Name of the evaluator, such as `libtorch cpu bf16`.
    pub evaluator: String,
    /// Version of the weights under test.
    pub weights_version: u64,
    /// Simulations per position.
    pub simulations: u32,
    /// Result with moves chosen by search; `None` for 0 simulations.
    pub with_search: Option<T>,
    /// Result with moves chosen by the raw policy.
    pub without_search: T,
}

impl<T> Report<T> {
    /// Measures a player without search and with search; `measure` takes the number of simulations.
    ///
    /// # Errors
    /// `measure` failed, or the inference server switched to other weights.
    fn of<G: Game>(
        game: &G,
        positions: Option<&str>,
        mut player: Player,
        mut measure: impl FnMut(&mut Player, u32) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let version = player.network.attributes().weights_version;
        let simulations = player.simulations;
        let without_search = measure(&mut player, 0)?;
        let with_search = if simulations > 0 { Some(measure(&mut player, simulations)?) } else { None };
        let attributes = player.network.attributes();
        let now = attributes.weights_version;
        ensure!(now == version, "the server switched from weights version {version} to {now}; evaluate again");
        Ok(Self {
            game: game.spec().name.clone(),
            positions: positions.map(str::to_owned),
            evaluator: attributes.name.to_string(),
            weights_version: version,
            simulations,
            with_search,
            without_search,
        })
    }
}

/// Measures the accuracy of the player's moves in solved positions, with and without search. `source` describes the
/// positions in the report.
///
/// # Errors
/// The network failed.
pub(crate) fn measure<G: Game>(
    game: &G,
    source: &str,
    positions: &[SolvedPosition],
    player: Player,
) -> anyhow::Result<Report<Accuracy>> {
    let boards: Vec<G::Position> = positions.iter().map(|position| position.position(game)).collect();
    Report::of(game, Some(source), player, |player, simulations| {
        let chosen = player.contestant(simulations).assess(game, &boards).context("evaluate the positions")?;
        Ok(Accuracy::of(positions, chosen))
    })
}

fn write_table(report: &Report<Accuracy>, output: &mut impl Write) -> io::Result<()> {
    let Report { game, positions, evaluator, weights_version, simulations, with_search, without_search } = report;
    let source = positions.as_deref().unwrap_or_default();
    writeln!(output, "{game}, weights version {weights_version} ({evaluator}), positions of {source}\n")?;
    let columns = ["positions", "keeps outcome", "optimal", "value error"];
    let mut table = Table::default().words(["moves", "band"]).numbers(columns);
    let searched = with_search.iter().map(|accuracy| (format!("{simulations} simulations"), accuracy));
    for (moves, accuracy) in [("raw policy".to_owned(), without_search)].into_iter().chain(searched) {
        let bands = accuracy.bands.iter().map(|band| (band.band.as_str(), &band.tally));
        for (band, tally) in bands.chain([("all", &accuracy.overall)]) {
            table.row([
                moves.clone(),
                band.to_owned(),
                tally.positions.to_string(),
                percent(Some(tally.outcome_preserving_share())),
                percent(Some(tally.optimal_share())),
                tally.value_error().map_or(MISSING.to_owned(), |error| format!("{error:.3}")),
            ]);
        }
    }
    write!(output, "{table}")
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::{Fault, Faulty, Scripted, Uniform};
    use game::Action;
    use games::ConnectFour;
    use inference::{Evaluator, Wdl};

    use super::*;

    /// Two positions: only column 4 keeps the win in the first, and every column but the first loses in the second.
    const POSITIONS: &str = "\
moves,band,c1,c2,c3,c4,c5,c6,c7
12,early,-1,-1,-1,5,-1,-1,-1
1122,late,0,-2,-2,-2,-2,-2,-2
";

    /// Returns an evaluator that prefers the fourth column.
    fn prefers_the_fourth_column() -> impl Evaluator + 'static {
        Scripted::new(ConnectFour::new().spec().observation, 7, |_: &[f32], legal: &[Action], priors: &mut [f32]| {
            for (action, prior) in legal.iter().zip(priors) {
                *prior = if action.0 == 3 { 0.4 } else { 0.1 };
            }
            Wdl::EVEN
        })
    }

    fn eval(text: &str, simulations: u32, evaluator: impl Evaluator + 'static) -> anyhow::Result<Report<Accuracy>> {
        let (network, search) = (Network::Evaluator(Box::new(evaluator)), SearchSettings::default());
        let positions = solved::parse(&ConnectFour::new(), "some.csv", text)?;
        measure(&ConnectFour::new(), "some.csv", &positions, Player { network, simulations, search, discount: 1.0 })
    }

    fn table(report: &Report<Accuracy>) -> String {
        let mut output = Vec::new();
        write_table(report, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn without_simulations_the_likeliest_move_is_judged() {
        let report = eval(POSITIONS, 0, prefers_the_fourth_column()).unwrap();
        assert_eq!(
            table(&report).lines().collect::<Vec<_>>(),
            [
                "connect_four, weights version 7 (scripted), positions of some.csv",
                "",
                "moves       band   positions  keeps outcome  optimal  value error",
                "raw policy  early          1        100.0 %  100.0 %        1.000",
                "raw policy  late           1          0.0 %    0.0 %        0.000",
                "raw policy  all            2         50.0 %   50.0 %        0.500",
            ]
        );
    }

    #[test]
    fn with_simulations_the_search_and_the_raw_policy_are_reported() {
        let report = eval(POSITIONS, 16, prefers_the_fourth_column()).unwrap();
        let table = table(&report);
        assert_eq!(report.with_search.unwrap().overall.positions, 2);
        assert_eq!(report.without_search.overall.outcome_preserving, 1);
        assert!(table.contains("16 simulations") && table.contains("raw policy"), "{table}");
    }

    #[test]
    fn json_holds_the_results_by_band_and_overall() {
        let report = eval(POSITIONS, 0, prefers_the_fourth_column()).unwrap();
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(json["game"], "connect_four");
        assert_eq!(json["weights_version"], 7);
        assert_eq!(json["with_search"], serde_json::Value::Null);
        assert_eq!(json["without_search"]["overall"]["outcome_preserving_share"], 0.5);
        assert_eq!(json["without_search"]["bands"][1]["band"], "late");
    }

    /// A search with a uniform evaluator finds an immediate win.
    #[test]
    fn a_search_finds_a_winning_move_that_the_raw_policy_misses() {
        let text = "moves,band,c1,c2,c3,c4,c5,c6,c7\n727272,mate,-1,-1,-1,-1,-1,-1,18\n";
        let report = eval(text, 64, Uniform::new(ConnectFour::new().spec().observation)).unwrap();
        assert_eq!(report.with_search.unwrap().overall.optimal, 1);
        assert_eq!(report.without_search.overall.optimal, 0);
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn positions_of_the_oracle_are_drawn_from_the_seed_and_refused_in_games_without_one() {
        let positions = |game: &str, seed: &str| {
            let line = ["eval", "--run", "first", "--positions", "oracle", "--count", "8", "--seed", seed];
            let Line { args } = clap::Parser::try_parse_from(line).unwrap();
            args.positions(&game.parse().unwrap())
        };
        let (source, drawn) = positions("hex-3", "5").unwrap();
        assert_eq!((source.as_str(), drawn.len()), ("the oracle, seed 5", 8));
        assert_eq!(positions("hex-3", "5").unwrap().1, drawn);
        assert_ne!(positions("hex-3", "6").unwrap().1, drawn);
        let error = positions("hex-11", "5").unwrap_err().to_string();
        assert_eq!(error, "hex-11 has no solved positions and no oracle; use --positions FILE");
    }

    #[test]
    fn a_model_is_measured_without_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let model = trained::tests::model(folder.path(), "hex-3", 4);
        let line = ["eval", "--weights", model.to_str().unwrap(), "--positions", "oracle", "--count", "4"];
        let Line { args } = clap::Parser::try_parse_from(line).unwrap();
        let (game, player) = Player::of(Trained::open(&args.trained, 1).unwrap(), 2);
        let (source, positions) = args.positions(&game).unwrap();
        let report = measure(&game.rules(), &source, &positions, player).unwrap();
        assert_eq!((report.game.as_str(), report.weights_version, report.simulations), ("hex-3", 4, 2));
        assert_eq!(report.with_search.unwrap().overall.positions, 4);
    }

    #[test]
    fn errors_name_their_cause() {
        let game = ConnectFour::new();
        let error = eval("moves\n", 0, Uniform::new(game.spec().observation)).unwrap_err();
        assert!(error.to_string().starts_with("some.csv, line 1: the header is `moves`"), "{error}");
        let faulty = Faulty::new(game.spec().observation, Fault::Backend, 0);
        let error = eval(POSITIONS, 0, faulty).unwrap_err();
        assert_eq!(error.to_string(), "evaluate the positions");
        assert!(matches!(error.downcast_ref(), Some(inference::Error::Backend(_))), "{error:#}");
    }
}
