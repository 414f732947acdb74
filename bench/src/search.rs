//! `zerofleet bench search`: simulations/s of the tree alone, as self-play searches, and the memory it takes.
//!
//! The evaluator is constant: every action is as good as any other, and every position is worth zero. Games advance
//! from their start to their end, move by move, each searched from a fresh root with noise; nothing else of self-play
//! runs. On several threads each has games and trees of its own. Everything is measured in turns, because a machine
//! slows down and speeds up while it is measured. Beside it stands one tree that many threads search with a network, as
//! `play` does. Start with [`run`].

mod algorithm;
mod player;
mod together;

use std::io::Write;
use std::time::Duration;

use anyhow::ensure;
use games::{GameKind, with_game};

pub use algorithm::Algorithm;
pub use together::TogetherArgs;

use super::output::Destination;
use super::report::{Report, Unit};
use super::{Turns, machine, threads};
use player::Player;
use together::Team;

/// Options of `zerofleet bench search`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The games.
    #[arg(long, value_delimiter = ',', default_value = "connect_four,hex-9,tic_tac_toe")]
    pub games: Vec<GameKind>,
    /// Simulations per move.
    #[arg(long, value_delimiter = ',', default_value = "64,800")]
    pub simulations: Vec<u32>,
    /// The algorithms: `puct`, `gumbel`.
    #[arg(long, value_delimiter = ',', default_value = "puct,gumbel")]
    pub rules: Vec<Algorithm>,
    /// Threads, each with games of its own; 0 is one per core.
    #[arg(long, value_delimiter = ',', default_value = "1,0")]
    pub threads: Vec<usize>,
    /// One tree that many threads search, in the first of the games.
    #[command(flatten)]
    pub together: TogetherArgs,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Every random draw descends from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("search", out, |_| measure(args))
}

/// Measures.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(!args.games.is_empty(), "--games needs a game");
    ensure!(!args.rules.is_empty(), "--rules needs puct or gumbel");
    ensure!(!args.threads.is_empty(), "--threads needs a number");
    let simulations = !args.simulations.is_empty() && !args.simulations.contains(&0);
    ensure!(simulations, "--simulations needs numbers of at least 1");
    args.together.check()?;
    let time = args.turns.time()?;
    let (mut all, mut together) = (cases(args), teams(args)?);
    for _ in 0..args.turns.repeats {
        for case in &mut all {
            let speed = case.search.rate(time)?;
            case.speeds.push(speed);
        }
        for case in &mut together {
            let speed = case.team.rate(time)?;
            case.speeds.push(speed);
        }
    }
    let mut report = Report::new("search", "Simulations/s of the tree alone");
    report.note(
        "uniform priors, every position worth zero; games from start to end, every move from a fresh root with noise",
    );
    report.note_turns(args.turns, args.seed);
    for case in &all {
        let Case { game, rule, simulations, threads, search, speeds } = case;
        report
            .at(ALONE, &[("game", game), ("algorithm", rule), (SIMULATIONS, simulations), ("threads", threads)])
            .value(SPEED, Unit::PerSecond, args.turns.turn.speed(speeds))
            .value("bytes per node", Unit::Bytes, search.bytes_per_node());
    }
    let TogetherArgs { blocks, channels, together_simulations, .. } = args.together;
    let network = format!("{blocks}x{channels}");
    for case in &together {
        let TogetherCase { threads, leaves, team, speeds } = case;
        let dimensions: [(&str, &dyn ToString); 6] = [
            ("game", &args.games[0]),
            ("network", &network),
            ("evaluator", &team.evaluator()),
            (SIMULATIONS, &together_simulations),
            ("threads", threads),
            ("leaves per request", leaves),
        ];
        report.at(TOGETHER, &dimensions).value(SPEED, Unit::PerSecond, args.turns.turn.speed(speeds));
    }
    report.plot(ALONE, SPEED, Some(SIMULATIONS), Some("game"));
    Ok(report)
}

/// Trees alone, each thread with games and trees of its own.
const ALONE: &str = "trees alone";
/// One tree: one thread has it, the others evaluate a network for it.
const TOGETHER: &str = "one tree, many threads";
const SIMULATIONS: &str = "simulations per move";
const SPEED: &str = "simulations/s";

/// One thing that is measured.
struct Case {
    game: GameKind,
    rule: Algorithm,
    simulations: u32,
    threads: usize,
    search: Box<dyn Search>,
    speeds: Vec<f64>,
}

/// Games of one kind, one for each thread.
trait Search {
    /// Simulations/s over all threads.
    fn rate(&mut self, time: Duration) -> anyhow::Result<f64>;

    /// Bytes of a tree at the end of a search, over its nodes.
    fn bytes_per_node(&self) -> f64;
}

impl<G: game::Game> Search for Vec<Player<G>> {
    fn rate(&mut self, time: Duration) -> anyhow::Result<f64> {
        threads::rate(self, time, |player| Ok(player.play_move()))
    }

    fn bytes_per_node(&self) -> f64 {
        let sum = |of: fn(&Player<G>) -> u64| self.iter().map(of).sum::<u64>() as f64;
        sum(Player::bytes) / sum(Player::nodes)
    }
}

/// Numbers of threads, ascending, each once.
fn threads(args: &Args) -> Vec<usize> {
    let mut threads: Vec<usize> = args.threads.iter().map(|&threads| machine::threads(threads)).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

/// One tree that a number of threads search together.
struct TogetherCase {
    threads: usize,
    leaves: usize,
    team: Box<dyn together::Search>,
    speeds: Vec<f64>,
}

/// Every number of threads and leaves, in the first of the games.
fn teams(args: &Args) -> anyhow::Result<Vec<TogetherCase>> {
    let mut cases = Vec::new();
    if args.together.blocks == 0 {
        return Ok(cases);
    }
    for threads in threads(args) {
        for &leaves in &args.together.leaves {
            let team = with_game!(args.games[0], |game| {
                let team = Team::new(&game, &args.together, threads, leaves, args.seed)?;
                Box::new(team) as Box<dyn together::Search>
            });
            cases.push(TogetherCase { threads, leaves, team, speeds: Vec::new() });
        }
    }
    Ok(cases)
}

/// Everything that is to be measured of trees alone.
fn cases(args: &Args) -> Vec<Case> {
    let threads = threads(args);
    let mut cases = Vec::new();
    for &game in &args.games {
        for &rule in &args.rules {
            for &simulations in &args.simulations {
                for &threads in &threads {
                    let search = with_game!(game, |game| search(&game, rule, simulations, threads, args.seed));
                    cases.push(Case { game, rule, simulations, threads, search, speeds: Vec::new() });
                }
            }
        }
    }
    cases
}

fn search<G: game::Game>(game: &G, rule: Algorithm, simulations: u32, threads: usize, seed: u64) -> Box<dyn Search> {
    let player = |thread| Player::new(game.clone(), rule.algorithm(), simulations, seed.wrapping_add(thread));
    Box::new((0..threads as u64).map(player).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--games tic_tac_toe,hex-3 --simulations 4,16 --threads 1,2 --blocks 1 --channels 16 \
    --together-simulations 20 --seconds 0.001 --repeats 2";

    #[test]
    fn a_tiny_run_measures_everything() {
        let report = measure(&args(TINY)).unwrap();
        let of = |section, metric| -> Vec<f64> {
            let rows = report.rows.iter().filter(|row| row.section == section && row.metric == metric);
            rows.map(|row| row.value.unwrap()).collect()
        };
        assert_eq!(of(ALONE, SPEED).len(), 2 * 2 * 2 * 2);
        assert_eq!(of(TOGETHER, SPEED).len(), 2 * 2);
        assert!(of(ALONE, SPEED).iter().chain(&of(TOGETHER, SPEED)).all(|speed| *speed > 0.0), "{report:?}");
        for bytes in of(ALONE, "bytes per node") {
            // A node without its edges is 64 bytes; nine actions and a swap have two octets of 192.
            assert!((64.0..64.0 + 2.0 * 192.0 + 200.0).contains(&bytes), "{report:?}");
        }
    }

    #[test]
    fn the_report_is_printed_written_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let (mut table, mut json) = (Vec::new(), Vec::new());
        run(&args(&format!("{TINY} --out {}", out.display())), &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("\n| hex-3 | gumbel | 16 | 2 |"), "{table}");
        assert_eq!(std::fs::read_to_string(out.join("search.md")).unwrap(), table);
        let svg = std::fs::read_to_string(out.join("search.svg")).unwrap();
        assert!(svg.contains("hex-3: simulations/s") && svg.contains("gumbel, 2<"), "{svg}");

        let earlier = out.join("search.json");
        run(&args(&format!("{TINY} --json --compare {}", earlier.display())), &mut json).unwrap();
        let report: Report = serde_json::from_slice(&json).unwrap();
        assert!(report.rows.iter().all(|row| row.change.is_some()), "{report:?}");
        assert_eq!(report.compared.unwrap().file, earlier.display().to_string());
    }

    #[test]
    fn equal_numbers_of_threads_are_measured_once() {
        let cores = machine::cores();
        let line = format!(
            "--games tic_tac_toe --simulations 2 --rules puct --threads 0,{cores} --blocks 0 --seconds 0 --repeats 1"
        );
        let report = measure(&args(&line)).unwrap();
        let threads: Vec<_> = report.rows.iter().filter(|row| row.metric == SPEED).collect();
        assert_eq!(threads.len(), 1, "{report:?}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
        assert!(error("--simulations 64,0").contains("--simulations"));
        assert!(error("--leaves 0").contains("--leaves"));
        assert!(error("--repeats 0").contains("--repeats"));
        assert!(error("--seconds=-1").contains("--seconds"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        for line in [["--games", "chess"], ["--rules", "uct"], ["--threads", "-1"]] {
            assert!(parsed::<Args>(line).is_err());
        }
    }
}
