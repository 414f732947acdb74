//! `zerofleet`: train, play, eval, bench, picture, replay, inference, top.
//!
//! The command line of the fleet. [`train`] is the supervisor of a run's processes; it knows them by their command lines,
//! their admin ports and their exit statuses, and nothing of games or networks. Start reading there. [`play`], [`eval`] and
//! most of [`mod@bench`] need no fleet: they ask the newest weights of a run themselves. [`mod@report`] says what a run came
//! to.

pub mod bench;
pub mod child;
pub mod commands;
pub mod companion;
pub mod config;
pub mod eval;
pub mod evaluators;
pub mod event_file;
pub mod exposition;
pub mod fleet;
pub mod inference;
pub mod picture;
pub mod play;
pub mod preset;
pub mod readings;
pub mod record;
pub mod replay;
pub mod report;
pub mod run_directory;
pub mod screen;
pub mod summary;
pub mod top;
pub mod train;
pub mod trained;
mod trust;
pub mod unwritten;
pub mod whole_records;

use std::io;
use std::process::ExitCode;

/// Trains game-playing networks from nothing, and shows what they have learnt.
#[derive(Debug, clap::Parser)]
#[command(name = "zerofleet", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Train(train::Args),
    Play(commands::Play),
    Eval(commands::Eval),
    Bench(commands::Bench),
    Picture(commands::Picture),
    Replay(replay::Args),
    Inference(inference::Args),
    Top(top::Args),
}

impl Cli {
    /// Does what was asked. Commands that ask a network are done by the [`companion`].
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Train(args) => train::run(args).map(|()| ExitCode::SUCCESS),
            Command::Picture(command) => command.run().map(|()| ExitCode::SUCCESS),
            Command::Top(args) => args.run(&mut io::stdout().lock()).map(|()| ExitCode::SUCCESS),
            Command::Inference(args) => args.run(&mut io::stdout().lock()).map(|()| ExitCode::SUCCESS),
            Command::Replay(args) => args.run(&mut io::stdout().lock()).map(|()| ExitCode::SUCCESS),
            Command::Play(_) | Command::Eval(_) | Command::Bench(_) => companion::run(),
        }
    }

    /// Does what was asked of the companion, in this process.
    ///
    /// Only the companion may reach this: it is what ties a program to libtorch.
    pub fn run_with_libtorch(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Train(_) | Command::Picture(_) | Command::Replay(_) | Command::Inference(_) | Command::Top(_) => {
                anyhow::bail!("zerofleet trains, draws and asks servers; this program plays, evaluates and measures")
            }
            Command::Play(command) => command.run()?,
            Command::Eval(command) => command.run()?,
            Command::Bench(command) => command.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What `main` returns; an error becomes one line on standard error.
#[expect(clippy::print_stderr, reason = "the one place where the program reports its own failure")]
pub fn report(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", service::chain(&error));
            train::exit_code(&error)
        }
    }
}
