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

#[cfg(test)]
mod tests;

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
    let player = |thread| Player::new(game.clone(), rule.root_policy(), simulations, seed.wrapping_add(thread));
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
