//! The command lines of `play`, `eval`, `bench` and `picture`: from what was typed to what [`crate::play`],
//! [`crate::eval`], [`crate::bench`] and [`mod@crate::report`] want.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use game::Player;
use games::{GameKind, with_game};
use selfplay::SearchSettings;

use crate::report::Report;
use crate::run_directory::RunDirectory;
use crate::trained::{self, Trained};
use crate::{bench, eval, play};

/// Plays against you in the terminal with the newest weights of a run.
#[derive(Debug, Clone, clap::Args)]
pub struct Play {
    #[command(flatten)]
    trained: trained::Args,

    /// Simulations for each move of the program and each hint; 0 plays the raw policy.
    #[arg(long, value_name = "N", default_value_t = 200)]
    simulations: u32,

    /// Threads that evaluate for one search; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,

    /// You are the second player: the program makes the first move.
    #[arg(long)]
    second: bool,
}

impl Play {
    /// Plays until the person has enough.
    pub fn run(self) -> anyhow::Result<()> {
        let threads = bench::machine::threads(self.threads);
        let Trained { game, search, mut evaluators } = Trained::open(&self.trained, threads)?;
        let settings = self.settings(search);
        let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
        with_game!(game, |game| play::play(&game, &settings, &mut evaluators, &mut input, &mut output))?;
        Ok(())
    }

    fn settings(&self, search: SearchSettings) -> play::Settings {
        let person = if self.second { Player::Second } else { Player::First };
        play::Settings { search, person, ..play::Settings::new(self.simulations) }
    }
}

/// Scores solved positions with the newest weights of a run: outcome kept and best move, with search and without.
#[derive(Debug, Clone, clap::Args)]
pub struct Eval {
    #[command(flatten)]
    trained: trained::Args,

    /// Solved positions (CSV: moves, band, one score per action) [default: the bundled ones of Connect Four].
    #[arg(long, value_name = "FILE")]
    positions: Option<PathBuf>,

    /// Simulations for each position; 0 scores the raw policy alone.
    #[arg(long, value_name = "N", default_value_t = 64)]
    simulations: u32,

    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Eval {
    /// Scores and prints.
    pub fn run(self) -> anyhow::Result<()> {
        let Trained { game, search, mut evaluators } = Trained::open(&self.trained, 1)?;
        let evaluator = evaluators[0].as_mut();
        let (file, text) = self.text(game)?;
        let settings = eval::Settings { search, ..eval::Settings::new(self.simulations) };
        let format = if self.json { eval::Format::Json } else { eval::Format::Table };
        let mut output = io::stdout().lock();
        with_game!(game, |game| eval::run(&game, &file, &text, &settings, evaluator, format, &mut output))?;
        Ok(())
    }

    /// The positions and where they come from.
    fn text(&self, game: GameKind) -> anyhow::Result<(String, String)> {
        match (&self.positions, game) {
            (Some(path), _) => {
                let file = path.display().to_string();
                let text = fs::read_to_string(path).with_context(|| format!("read the positions {file}"))?;
                Ok((file, text))
            }
            (None, GameKind::ConnectFour) => {
                Ok(("the bundled file".to_owned(), games::connect_four::SOLVED_CSV.to_owned()))
            }
            (None, game) => Err(anyhow!("no solved positions of {game} are bundled; name a file with --positions")),
        }
    }
}

/// Measures how fast the parts are.
#[derive(Debug, Clone, clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Part {
    /// The replay server: durable inserts, samples, and how long a restart takes.
    Replay(bench::replay::Args),
    /// The inference server over loopback, as a share of what the same evaluator does in a process.
    Inference(bench::inference::Args),
    /// Self-play, as a share of what the evaluator alone does.
    Selfplay(bench::selfplay::Args),
    /// The CPU kernel beside libtorch, OpenVINO and onnxruntime, as a share of what the instructions can do.
    Kernel(bench::kernel::Args),
    /// The search tree alone, with an evaluator that says nothing.
    Search(bench::search::Args),
    /// Matrix products, vector operations and whole networks on every device in every precision, and what to use.
    Hardware(bench::hardware::Args),
    /// A real training run: where its time goes, what holds it up, and what a longer one takes.
    Phases(bench::phases::Args),
    /// Fleets of actors with a simulated evaluator, and the connections of a thousand: inserts, memory, weights.
    Fleet(bench::fleet::Args),
    /// What `bench fleet` starts in a process of its own: serves weights that it is told to publish.
    #[command(hide = true)]
    Publisher(bench::fleet::publisher::Args),
    /// A real training run: which device everything lies on, and what an accelerator gains.
    Placement(bench::placement::Args),
}

impl Bench {
    /// Measures and prints.
    pub fn run(self) -> anyhow::Result<()> {
        match self.part {
            Part::Replay(args) => bench::replay::run(&args, &mut io::stdout().lock()),
            Part::Inference(args) => bench::inference::run(&args, &mut io::stdout().lock()),
            Part::Selfplay(args) => bench::selfplay::run(&args, &mut io::stdout().lock()),
            Part::Kernel(args) => bench::kernel::run(&args, &mut io::stdout().lock()),
            Part::Search(args) => bench::search::run(&args, &mut io::stdout().lock()),
            Part::Hardware(args) => bench::hardware::run(&args, &mut io::stdout().lock()),
            Part::Phases(args) => bench::phases::run(&args, &mut io::stdout().lock()),
            Part::Fleet(args) => bench::fleet::run(&args, &mut io::stdout().lock()),
            Part::Publisher(args) => bench::fleet::publisher::run(&args, &mut io::stdout().lock()),
            Part::Placement(args) => bench::placement::run(&args, &mut io::stdout().lock()),
        }
    }
}

/// Draws picture and summary of a run anew, from the numbers it has written.
#[derive(Debug, Clone, clap::Args)]
pub struct Picture {
    /// The run's name.
    #[arg(long, value_name = "NAME")]
    run: String,

    /// Where runs lie.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
}

impl Picture {
    /// Draws, and prints the summary.
    pub fn run(self) -> anyhow::Result<()> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        Report::again(&run)?.print(&mut io::stdout().lock())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{Cli, Command};

    fn play(line: &str) -> play::Settings {
        let words = ["zerofleet", "play", "--run", "first"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Play(command) => command.settings(SearchSettings::default()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_person_begins_unless_told_otherwise() {
        assert_eq!(play("").person, Player::First);
        assert_eq!(play("--second").person, Player::Second);
    }

    #[test]
    fn a_picture_of_an_unknown_run_is_answered_with_the_runs_there_are() {
        let runs = tempfile::tempdir().unwrap();
        let picture = Picture { run: "second".to_owned(), runs: runs.path().to_owned() };
        let error = picture.run().unwrap_err().to_string();
        assert!(error.starts_with("no run second in") && error.ends_with("zerofleet train makes one"), "{error}");
    }
}
