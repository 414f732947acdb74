//! The command lines of `play`, `eval`, `bench` and `picture`, and their translation to the settings of
//! [`crate::play`], [`crate::eval`] and [`mod@crate::report`].

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use game::Player;
use games::{GameKind, with_game};
use selfplay::SearchSettings;

use crate::report::Report;
use crate::trained::{self, Trained};
use crate::{eval, play, sibling};
use fleet::run_directory::RunDirectory;

/// Plays a game against the newest weights of a run, in the terminal.
#[derive(Debug, Clone, clap::Args)]
pub struct Play {
    #[command(flatten)]
    trained: trained::Args,

    /// Simulations per move of the program and per hint; 0 plays the raw policy.
    #[arg(long, value_name = "N", default_value_t = 200)]
    simulations: u32,

    /// Evaluation threads per search; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,

    /// Play as the second player; the program moves first.
    #[arg(long)]
    second: bool,
}

impl Play {
    /// Plays until the player quits.
    pub fn run(self) -> anyhow::Result<()> {
        let threads = if self.threads == 0 { service::machine::cores() } else { self.threads };
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

/// Measures the accuracy of a run's newest weights on solved positions, with search and without.
#[derive(Debug, Clone, clap::Args)]
pub struct Eval {
    #[command(flatten)]
    trained: trained::Args,

    /// Solved positions (CSV: moves, band, one score per action) [default: those bundled with the game].
    #[arg(long, value_name = "FILE")]
    positions: Option<PathBuf>,

    /// Simulations per position; 0 measures only the raw policy.
    #[arg(long, value_name = "N", default_value_t = 64)]
    simulations: u32,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Eval {
    /// Measures the accuracy and prints the report.
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

    /// Returns the text of the positions and its source.
    fn text(&self, game: GameKind) -> anyhow::Result<(String, String)> {
        match &self.positions {
            Some(path) => {
                let file = path.display().to_string();
                let text = fs::read_to_string(path).with_context(|| format!("read the positions {file}"))?;
                Ok((file, text))
            }
            None => match game.entry().solved {
                Some(solved) => Ok((solved.file.to_owned(), solved.csv.to_owned())),
                None => Err(anyhow!("no solved positions of {game} are bundled; use --positions")),
            },
        }
    }
}

/// Runs the benchmarks of `zerofleet-bench`, a separate program, with these arguments.
#[derive(Debug, Clone, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Bench {
    /// The benchmark and its options; see `--help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Bench {
    /// Runs `zerofleet-bench`; returns its exit status.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        sibling::run("zerofleet-bench", "bench", self.arguments)
    }
}

/// Draws the picture and writes the summary of a run again, from its recorded metrics.
#[derive(Debug, Clone, clap::Args)]
pub struct Picture {
    /// Name of the run.
    #[arg(long, value_name = "NAME")]
    run: String,

    /// Folder of all runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
}

impl Picture {
    /// Draws the picture and prints the summary.
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
    fn the_person_moves_first_unless_second_is_given() {
        assert_eq!(play("").person, Player::First);
        assert_eq!(play("--second").person, Player::Second);
    }

    #[test]
    fn a_picture_of_an_unknown_run_is_an_error_that_lists_the_runs() {
        let runs = tempfile::tempdir().unwrap();
        let picture = Picture { run: "second".to_owned(), runs: runs.path().to_owned() };
        let error = picture.run().unwrap_err().to_string();
        assert!(error.starts_with("no run second in") && error.ends_with("zerofleet train starts one"), "{error}");
    }
}
