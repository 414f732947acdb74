//! `zerofleet bench search`: simulations/s of the tree alone, as self-play searches, and the memory it takes.
//!
//! The evaluator says nothing: every action is as good as any other, and every position is worth zero. Games advance from
//! their start to their end, move by move, each searched from a fresh root with noise; nothing else of self-play runs. On
//! several threads each has games and trees of its own. Everything is measured in turns, because a machine slows down and
//! speeds up while it is measured. Beside it stands one tree that many threads search with a network, as `play` does. Start
//! with [`run`].

mod compare;
mod markdown;
mod player;
mod plot;
mod report;
mod together;

use std::io::Write;
use std::time::Duration;

use anyhow::ensure;
use games::{GameKind, with_game};

pub use markdown::markdown;
pub use plot::draw;
pub use report::{Compared, Report, Rule, Searched, SearchedTogether};
pub use together::TogetherArgs;

use super::output::Destination;
use super::{Turn, Turns, machine, threads};
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
    pub rules: Vec<Rule>,
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
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    // Before minutes are spent on measuring.
    let earlier = args.destination.earlier("search")?;
    let mut report = measure(args)?;
    if let Some((path, earlier)) = &earlier {
        compare::compare(&mut report, path, earlier);
    }
    args.destination.write("search", || markdown(&report), &report, |path| draw(path, &report))?;
    args.destination.print(&report, || markdown(&report), out)
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
    Ok(Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores: machine::cores(),
        seconds: args.turns.seconds,
        repeats: args.turns.repeats,
        turn: args.turns.turn,
        seed: args.seed,
        compared: None,
        searched: all.iter().map(|case| case.report(args.turns.turn)).collect(),
        together: together.iter().map(|case| case.report(args)).collect(),
    })
}

/// One thing that is measured.
struct Case {
    game: GameKind,
    rule: Rule,
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

impl TogetherCase {
    fn report(&self, args: &Args) -> SearchedTogether {
        let TogetherArgs { blocks, channels, together_simulations, .. } = args.together;
        SearchedTogether {
            game: args.games[0].to_string(),
            network: format!("{blocks}x{channels}"),
            evaluator: self.team.evaluator(),
            simulations: together_simulations,
            threads: self.threads,
            leaves: self.leaves,
            simulations_per_second: args.turns.turn.speed(&self.speeds).unwrap_or(f64::NAN),
            ratio: None,
        }
    }
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

fn search<G: game::Game>(game: &G, rule: Rule, simulations: u32, threads: usize, seed: u64) -> Box<dyn Search> {
    let player = |thread| Player::new(game.clone(), rule.algorithm(), simulations, seed.wrapping_add(thread));
    Box::new((0..threads as u64).map(player).collect::<Vec<_>>())
}

impl Case {
    fn report(&self, turn: Turn) -> Searched {
        Searched {
            game: self.game.to_string(),
            rule: self.rule,
            simulations: self.simulations,
            threads: self.threads,
            simulations_per_second: turn.speed(&self.speeds).unwrap_or(f64::NAN),
            bytes_per_node: self.search.bytes_per_node(),
            ratio: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--games tic_tac_toe,hex-3 --simulations 4,16 --threads 1,2 --blocks 1 --channels 16 \
    --together-simulations 20 --seconds 0.001 --repeats 2";

    /// A report of made-up numbers.
    pub(super) fn report() -> Report {
        let searched = |rule, threads, millions: f64| Searched {
            game: "connect_four".to_owned(),
            rule,
            simulations: 64,
            threads,
            simulations_per_second: millions * 1e6,
            bytes_per_node: 270.4,
            ratio: None,
        };
        let together = |threads, simulations_per_second| SearchedTogether {
            game: "connect_four".to_owned(),
            network: "6x64".to_owned(),
            evaluator: "tower f32".to_owned(),
            simulations: 800,
            threads,
            leaves: 8,
            simulations_per_second,
            ratio: None,
        };
        Report {
            cpu: "Some CPU".to_owned(),
            target: "x86_64 linux".to_owned(),
            cores: 2,
            seconds: 1.0,
            repeats: 3,
            turn: Turn::Median,
            seed: 7,
            compared: None,
            searched: vec![
                searched(Rule::Puct, 1, 6.1),
                searched(Rule::Puct, 2, 12.0),
                searched(Rule::Gumbel, 1, 2.0),
                searched(Rule::Gumbel, 2, 4.0),
            ],
            together: vec![together(1, 11_000.0), together(2, 21_000.0)],
        }
    }

    #[test]
    fn a_tiny_run_measures_everything() {
        let report = measure(&args(TINY)).unwrap();
        assert_eq!(report.searched.len(), 2 * 2 * 2 * 2);
        for searched in &report.searched {
            assert!(searched.simulations_per_second > 0.0, "{searched:?}");
            // A node without its edges is 64 bytes; nine actions and a swap have two octets of 192.
            assert!((64.0..64.0 + 2.0 * 192.0 + 200.0).contains(&searched.bytes_per_node), "{searched:?}");
        }
        let teams: Vec<_> = report.together.iter().map(|searched| (searched.threads, searched.leaves)).collect();
        assert_eq!(teams, [(1, 1), (1, 8), (2, 1), (2, 8)]);
        assert!(report.together.iter().all(|searched| searched.simulations_per_second > 0.0), "{report:?}");
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
        assert!(svg.contains("hex-3") && svg.contains("gumbel, 2 threads"), "{svg}");

        let earlier = out.join("search.json");
        run(&args(&format!("{TINY} --json --compare {}", earlier.display())), &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert!(json["searched"][0]["ratio"].is_number(), "{json}");
        assert_eq!(json["compared"]["file"], earlier.display().to_string());
    }

    #[test]
    fn equal_numbers_of_threads_are_measured_once() {
        let cores = machine::cores();
        let report = measure(&args(&format!(
            "--games tic_tac_toe --simulations 2 --rules puct --threads 0,{cores} --blocks 0 --seconds 0 --repeats 1"
        )));
        assert_eq!(report.unwrap().searched.iter().map(|searched| searched.threads).collect::<Vec<_>>(), [cores]);
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
