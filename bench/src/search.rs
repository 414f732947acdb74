//! `zerofleet bench search`: simulations/s of the tree alone, searched as in self-play, and memory of the tree.
//!
//! The evaluator is constant: all actions have equal priors, and every position is worth zero. Games advance from start
//! to finish, move by move, each move searched from a fresh root with noise; nothing else of self-play runs. Each
//! thread has separate games and trees. The cases are measured in turns, because the speed of a machine varies during
//! the measurement. A further case is one tree that many threads search with a network, as `play` does. Start with
//! [`measure`].

use std::collections::BTreeSet;
use std::ops::ControlFlow::Continue;
use std::time::Duration;

use ::search::SearchAlgorithm;
use anyhow::ensure;
use game::Game;
use games::{GameKind, with_game};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use selfplay::{AnalysisSettings, SearchSettings, analyse_together};

use crate::network::{automatic_evaluators, random_weights};
use crate::report::{Report, Unit};
use crate::tree_player::Player;
use crate::{Turns, machine, threads};

/// The measured algorithms, with the published constants.
const ALGORITHMS: [(&str, SearchAlgorithm); 2] = [("puct", SearchAlgorithm::Puct), ("gumbel", SearchAlgorithm::GUMBEL)];

/// Numbers of leaves per evaluation request of a thread.
const LEAVES: [usize; 2] = [1, 8];

/// Options of `zerofleet bench search`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Games to search.
    #[arg(long, value_delimiter = ',', default_value = "connect_four,hex-9,tic_tac_toe")]
    pub games: Vec<GameKind>,
    /// Numbers of simulations per move to measure.
    #[arg(long, value_delimiter = ',', default_value = "64,800")]
    pub simulations: Vec<u32>,
    /// Also measure searches with the common rules type of all games.
    ///
    /// Arena and learner use this type.
    #[arg(long)]
    pub any_game: bool,
    /// Numbers of threads, each with separate games; 0 for one per core.
    #[arg(long, value_delimiter = ',', default_value = "1,0")]
    pub threads: Vec<usize>,
    /// Residual blocks of the network for one tree; 0 skips this part.
    ///
    /// In this part, many threads search one tree in the first game of `--games`, with the largest of `--simulations`.
    #[arg(long, default_value_t = 6)]
    pub blocks: usize,
    /// Channels of the network for one tree.
    #[arg(long, default_value_t = 64)]
    pub channels: usize,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(!args.games.is_empty(), "--games needs a game");
    ensure!(!args.threads.is_empty(), "--threads needs a number");
    let simulations = !args.simulations.is_empty() && !args.simulations.contains(&0);
    ensure!(simulations, "every number in --simulations must be at least 1");
    let time = args.turns.time()?;
    let cases = trees(args).into_iter().chain(teams(args)?);
    let measured = args.turns.each(cases, |case, _| (case.search)(time), |(speed, _)| *speed)?;
    let mut report = Report::new("search", "Simulations/s of the tree alone");
    report.note(
        "uniform priors, every position worth zero; games from start to end, every move from a fresh root with noise",
    );
    report.note_turns(args.turns);
    for (Case { section, dimensions, .. }, (speed, bytes_per_node)) in &measured {
        let dimensions: Vec<(&str, &dyn ToString)> =
            dimensions.iter().map(|(name, value)| (*name, value as &dyn ToString)).collect();
        let cell = report.at(section, &dimensions).value(SPEED, Unit::PerSecond, *speed);
        if let Some(bytes) = bytes_per_node {
            cell.value("bytes per node", Unit::Count, *bytes);
        }
    }
    report.plot(ALONE, SPEED, Some(SIMULATIONS), Some("game"));
    Ok(report)
}

/// Trees alone, with separate games and trees per thread.
const ALONE: &str = "trees alone";
/// One tree: one thread owns it, all other threads evaluate a network for it.
const TOGETHER: &str = "one tree, many threads";
const SIMULATIONS: &str = "simulations per move";
const SPEED: &str = "simulations/s";

/// One measured configuration.
struct Case {
    section: &'static str,
    dimensions: Vec<(&'static str, String)>,
    search: Search,
}

/// Runs one turn. Returns the simulations/s over all threads, and the bytes per node of a tree at the end of a search,
/// if counted.
type Search = Box<dyn FnMut(Duration) -> anyhow::Result<(f64, Option<f64>)>>;

/// Returns the numbers of threads, ascending and without duplicates.
fn threads(args: &Args) -> BTreeSet<usize> {
    args.threads.iter().map(|&threads| machine::threads(threads)).collect()
}

/// Returns the cases of trees alone: every combination of game, algorithm, simulations and threads.
fn trees(args: &Args) -> Vec<Case> {
    let mut cases = Vec::new();
    for game in &args.games {
        for (name, algorithm) in ALGORITHMS {
            for &simulations in &args.simulations {
                for threads in threads(args) {
                    let seeds = (0..threads as u64).map(|thread| args.turns.seed.wrapping_add(thread));
                    let mut add = |game_name: String, search| {
                        let dimensions = vec![
                            ("game", game_name),
                            ("algorithm", name.to_owned()),
                            (SIMULATIONS, simulations.to_string()),
                            ("threads", threads.to_string()),
                        ];
                        cases.push(Case { section: ALONE, dimensions, search });
                    };
                    let search = with_game!(*game, |game| alone(game, algorithm, simulations, seeds.clone()));
                    add(game.to_string(), search);
                    if args.any_game {
                        add(format!("{game}, as any game"), alone(game.rules(), algorithm, simulations, seeds));
                    }
                }
            }
        }
    }
    cases
}

/// Returns the search of one player per thread and seed.
fn alone<G: Game>(game: G, algorithm: SearchAlgorithm, simulations: u32, seeds: impl Iterator<Item = u64>) -> Search {
    let mut players: Vec<_> = seeds.map(|seed| Player::new(game.clone(), algorithm, simulations, seed)).collect();
    Box::new(move |time| {
        let speed = threads::rate(&mut players, time, |player| Ok(player.play_move()))?;
        let sum = |of: fn(&Player<G>) -> u64| players.iter().map(of).sum::<u64>() as f64;
        Ok((speed, Some(sum(|player| player.bytes) / sum(|player| player.nodes))))
    })
}

/// Returns the cases of one tree in the first game: every combination of threads and leaves.
fn teams(args: &Args) -> anyhow::Result<Vec<Case>> {
    let of_leaves = |threads, leaves| with_game!(args.games[0], |game| team(args, &game, threads, leaves));
    let of_threads = |threads| LEAVES.map(|leaves| of_leaves(threads, leaves));
    threads(args).into_iter().filter(|_| args.blocks > 0).flat_map(of_threads).collect()
}

/// Returns the case of one position and one evaluator of random weights per thread, which search one tree as `play`
/// does.
fn team<G: Game>(args: &Args, game: &G, threads: usize, leaves: usize) -> anyhow::Result<Case> {
    let weights = random_weights(game.spec(), args.blocks, args.channels, args.turns.seed)?;
    let mut evaluators = automatic_evaluators(&weights, threads, leaves)?;
    let simulations = args.simulations.iter().copied().max().unwrap_or(1);
    let dimensions = vec![
        ("game", args.games[0].to_string()),
        ("network", format!("{}x{}", args.blocks, args.channels)),
        ("evaluator", evaluators[0].attributes().name.to_string()),
        (SIMULATIONS, simulations.to_string()),
        ("threads", threads.to_string()),
        ("leaves per request", leaves.to_string()),
    ];
    let search = SearchSettings::default();
    let settings = AnalysisSettings { simulations, search, leaves_per_tree: leaves, batch: leaves, discount: 1.0 };
    let (game, mut rng) = (game.clone(), ChaCha8Rng::seed_from_u64(args.turns.seed));
    let search = move |time| {
        let start = game.start();
        let mut search = || -> anyhow::Result<usize> {
            let analysis =
                analyse_together(&game, &start, &settings, &mut evaluators, &mut rng, &mut |_, _| Continue(()))?;
            Ok(analysis.visit_counts.iter().map(|&visits| visits as usize).sum())
        };
        // The first evaluations choose kernels and grow buffers.
        search()?;
        Ok((threads::rounds(time, search)?, None))
    };
    Ok(Case { section: TOGETHER, dimensions, search: Box::new(search) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--games tic_tac_toe,hex-3 --simulations 4,16 --threads 1,2 --blocks 1 --channels 16 \
    --seconds 0.001 --repeats 2";

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
            // A node without edges is 64 bytes; nine actions and a swap have two octets of 192.
            assert!((64.0..64.0 + 2.0 * 192.0 + 200.0).contains(&bytes), "{report:?}");
        }
    }

    #[test]
    fn the_report_is_printed_written_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep").join("folder");
        let (mut table, mut json) = (Vec::new(), Vec::new());
        crate::tests::run("search", &format!("{TINY} --out {}", out.display()), &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("\n| hex-3 | gumbel | 16 | 2 |"), "{table}");
        assert_eq!(std::fs::read_to_string(out.join("search.md")).unwrap(), table);
        let svg = std::fs::read_to_string(out.join("search.svg")).unwrap();
        assert!(svg.contains("hex-3: simulations/s") && svg.contains("gumbel, 2\n"), "{svg}");

        let earlier = out.join("search.json");
        crate::tests::run("search", &format!("{TINY} --json --compare {}", earlier.display()), &mut json).unwrap();
        let report: Report = serde_json::from_slice(&json).unwrap();
        // The other section uses the evaluator that was fastest just now, which may differ from the earlier report.
        let mut alone = report.rows.iter().filter(|row| row.section == ALONE);
        assert!(alone.all(|row| row.change.is_some()), "{report:?}");
        assert_eq!(report.compared.unwrap().file, earlier.display().to_string());
    }

    #[test]
    fn equal_numbers_of_threads_are_measured_once() {
        let cores = machine::cores();
        let line =
            format!("--games tic_tac_toe --simulations 2 --threads 0,{cores} --blocks 0 --seconds 0 --repeats 1");
        let report = measure(&args(&line)).unwrap();
        let threads: Vec<_> = report.rows.iter().filter(|row| row.metric == SPEED).collect();
        assert_eq!(threads.len(), ALGORITHMS.len(), "{report:?}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", crate::tests::run("search", line, &mut Vec::new()).unwrap_err());
        assert!(error("--simulations 64,0").contains("--simulations"));
        assert!(error("--repeats 0").contains("--repeats"));
        assert!(error("--seconds=-1").contains("--seconds"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        for line in [["--games", "checkers"], ["--threads", "-1"]] {
            assert!(parsed::<Args>(line).is_err());
        }
    }
}
